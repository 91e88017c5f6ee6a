"""The operators' pages: display of the data, and limits of their actions."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nicegui", reason="the console's packages are not installed")

import tianzhou.console
from tianzhou.admin.accounts import AccountFiles
from tianzhou.admin.cluster import BrokerStatus
from tianzhou.admin.replicas import Lag
from tianzhou.admin.send_limits import LimitStatus
from tianzhou.bench.proof.comparison import ProofVerdict, Reading
from tianzhou.bench.proof.run import ProofOutcome
from tianzhou.console.display.zones import Zone
from tianzhou.console.forms import key_change
from tianzhou.console.layout import cell_address
from tianzhou.console.pages import (
    access,
    broker,
    cluster,
    dashboard,
    doctor,
    group,
    ops,
    producers,
    proof,
)
from tianzhou.console.proofs import MOST_MESSAGES, TOPIC_PREFIX, Proofs
from tianzhou.console.snapshot import ClusterSnapshot
from tianzhou.console.texts import TEXTS
from tianzhou.doctor import Finding, Severity
from tianzhou.errors import ClientError, ConfigError
from tianzhou.model.send_limit import LimitScope, limit_of
from tianzhou.wire.bodies.access import AclInfo, PlainAccountInfo, PlainAccounts, PolicyEntryInfo, PolicyInfo, UserInfo
from tianzhou.wire.bodies.clients import Connection, ConsumerConnection, ProducerInfo

MASTER = BrokerStatus("c", "broker-a", 0, "127.0.0.1:1", {"bootTimestamp": "1000", "commitLogDiskRatio": "0.5"})
SLAVE = BrokerStatus("c", "broker-a", 1, "127.0.0.1:2", lag=Lag(2_048, 12, None))
FAILING = BrokerStatus(
    "c", "broker-b", 0, "127.0.0.1:3",
    {"taskTroubles": '[{"task": "flush", "why": "disk full", "count": 3, "sinceMs": 1000}]'},
)  # fmt: skip
NOW = ClusterSnapshot(1, [MASTER, SLAVE, FAILING])
UTC = Zone()


def test_every_text_that_pages_name_is_there() -> None:
    folder = Path(tianzhou.console.__path__[0])
    named = {
        (path.name, key)
        for path in folder.rglob("*.py")
        for key in re.findall(r'\.text\(\s*"([^"]+)"', path.read_text(encoding="utf-8"))
    }
    assert len(named) > 100
    assert {(name, key) for name, key in named if key not in TEXTS} == set()


def test_texts_that_are_put_together() -> None:
    keys = [f"doctor.{one}" for one in (*doctor.SUBJECTS, *Severity)]
    keys += [f"access.{one}" for one in ("user", "type", "status", "resource", "actions", "decision", "from", "policy")]
    keys += [
        f"access.{one}" for one in ("broker", "file", "changes", "changed", "account", "admin", "topics", "groups")
    ]
    keys += [f"upkeep.{one}{ask}" for one in ("queues", "topics", "logs") for ask in ("", ".ask")]
    assert [key for key in (*keys, *cluster.OF_PROCESSES, *cluster.OF_TROUBLES) if key not in TEXTS] == []


def test_processes_of_a_cluster() -> None:
    rows = cluster.process_rows(NOW, UTC.text)
    assert [(row["broker"], row["id"], row["role"], row["lag"], row["troubles"]) for row in rows] == [
        ("broker-a", 0, "master", "", ""),
        ("broker-a", 1, "slave", "2,048 B (~12)", ""),
        ("broker-b", 0, "master", "", 1),
    ]
    assert rows[0]["disk"] == "50%"
    assert rows[0]["since"]
    assert [(row["broker"], row["task"], row["why"], row["count"]) for row in cluster.trouble_rows(NOW, UTC.text)] == [
        ("broker-b", "flush", "disk full", 3)
    ]


def test_versions_have_one_form() -> None:
    runtime = {"brokerVersionDesc": "V5_3_3", "tianzhouVersion": "0.1.0"}
    ours, apache = (BrokerStatus("c", "b", 0, "a:1", found) for found in (runtime, {"brokerVersionDesc": "V4_9_7"}))
    rows = dashboard.broker_rows(ClusterSnapshot(1, [ours, apache, SLAVE]))
    assert [row["version"] for row in rows] == ["V5_3_3 (Tianzhou 0.1.0)", "V4_9_7", ""]
    (row,) = producers.connection_rows([Connection("a", version=479)])
    assert row["version"] == "V5_3_3"
    members = ConsumerConnection([Connection("c", version=407)])
    assert [row["version"] for row in group.member_rows(members)] == ["V4_9_7"]
    assert group.member_rows(None) == []


def test_the_process_that_an_address_means() -> None:
    assert broker.member_of(NOW, "broker-a", "") is MASTER
    assert broker.member_of(NOW, "broker-a", "1") is SLAVE
    with pytest.raises(ClientError, match=r"no broker broker-c; name servers know broker-a 0, broker-a 1, broker-b 0"):
        broker.member_of(NOW, "broker-c", "")
    with pytest.raises(ClientError, match=r"no broker broker-a 7"):
        broker.member_of(NOW, "broker-a", "7")


def test_limits_of_senders_are_rows_with_the_last_sender_that_was_refused() -> None:
    orders, group = limit_of(LimitScope.TOPIC, "orders", 500, 1_000), limit_of(LimitScope.GROUP, "*", 0.5, 1, 1_000_000)
    rows = broker.limit_rows(
        [LimitStatus("broker-a", orders), LimitStatus("broker-a", group, 7, "shop", 1_000)], UTC.text
    )
    assert rows[0] == {"limit": "topic orders", "rate": "500 messages/s (burst 1000)", "refused": 0, "last": ""}
    assert (rows[1]["limit"], rows[1]["refused"]) == ("group *", 7)
    assert rows[1]["rate"] == "0.5 messages/s (burst 1) and 1000000 bytes/s (burst 1000000)"
    assert rows[1]["last"] == "shop 1970-01-01 00:00:01"


def test_settings_of_name_servers_are_told_apart_only_where_they_differ() -> None:
    rows = ops.config_rows({"a:1": {"x": "1", "y": "2"}, "b:1": {"x": "1", "y": "3"}})
    assert [(row["key"], row["value"], row["server"]) for row in rows] == [
        ("x", "1", ""), ("y", "2", "a:1"), ("y", "3", "b:1"),
    ]  # fmt: skip
    assert len({row["id"] for row in rows}) == 3


def test_no_secret_of_a_configuration_is_shown() -> None:
    values = {"initAuthenticationUser": "{...}", "innerClientAuthenticationCredentials": "", "brokerName": "a"}
    assert key_change.masked({**values, "keyStorePassword": "x"}) == {
        "initAuthenticationUser": "******", "innerClientAuthenticationCredentials": "", "brokerName": "a",
        "keyStorePassword": "******",
    }  # fmt: skip


def test_producers_of_several_brokers_are_counted_once() -> None:
    early, late = (ProducerInfo("client-1", language="GO", last_update_timestamp=at) for at in (1_000, 2_000))
    other = ProducerInfo("client-2", last_update_timestamp=1_500)
    found = producers.together([{"shop": [late]}, {"shop": [early, other], "empty": []}])
    assert found == {"shop": {"client-1": late, "client-2": other}, "empty": {}}
    rows = producers.group_rows(found, UTC.text)
    assert [(row["group"], row["members"], row["languages"]) for row in rows] == [
        ("empty", 0, ""), ("shop", 2, "GO, JAVA"),
    ]  # fmt: skip
    connections = [Connection("b", "1.2.3.4:5"), Connection("a"), Connection("b", "1.2.3.4:5")]
    assert [row["client"] for row in producers.connection_rows(connections)] == ["a", "b"]


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ({}, access.OFF), ({"aclEnable": "false", "authenticationEnabled": "false"}, access.OFF),
        ({"aclEnable": "true"}, access.ACCOUNTS), ({"authenticationEnabled": "true"}, access.USERS),
        ({"aclEnable": "true", "authenticationEnabled": "true"}, access.USERS),
    ],
)  # fmt: skip
def test_which_access_control_is_on(values: dict[str, str], kind: str) -> None:
    assert access.kind_of(values) == kind


def test_users_policies_and_account_files() -> None:
    users = [UserInfo("zoe", "a-secret", "Normal", "enable"), UserInfo("amy", "a-secret", "Super", "disable")]
    assert access.user_rows(users) == [
        {"user": "amy", "type": "Super", "status": "disable"},
        {"user": "zoe", "type": "Normal", "status": "enable"},
    ]
    entry = PolicyEntryInfo("Topic:orders", ["Pub", "Sub"], ["10.0.0.0/8"], "Allow")
    acls = [AclInfo("User:zoe", [PolicyInfo("Custom", [entry])]), AclInfo("User:amy", [PolicyInfo("Default", [entry])])]
    (row,) = access.policy_rows(acls, "User:zoe")
    assert (row["user"], row["actions"], row["from"], row["policy"]) == ("zoe", "Pub, Sub", "10.0.0.0/8", "Custom")
    assert len(access.policy_rows(acls)) == 2
    account = PlainAccountInfo("amy", "a-secret", "", True, "DENY", "SUB", ["orders=PUB"], ["billing=SUB"])
    (row,) = access.account_rows(PlainAccounts([], [account]), "broker-a")
    assert (row["account"], row["topics"], row["exceptions"]) == ("amy", "DENY", "orders=PUB, billing=SUB")
    assert "a-secret" not in repr(row)
    (row,) = access.file_rows([AccountFiles("c", "broker-a", "a:1", {"/conf/plain_acl.yml": (4, 1_000)})], UTC.text)
    assert (row["broker"], row["file"], row["changes"]) == ("broker-a", "/conf/plain_acl.yml", 4)


@pytest.mark.parametrize(
    ("query", "subject"),
    [
        ({}, ("cluster", "")), ({"group": "billing"}, ("group", "billing")), ({"topic": "a"}, ("topic", "a")),
        ({"broker": "b"}, ("broker", "b")), ({"subject": "access"}, ("access", "")),
        ({"subject": "send", "name": "orders"}, ("send", "orders")), ({"subject": "host"}, ("cluster", "")),
        ({"subject": "spark", "name": "/etc"}, ("cluster", "")),
    ],
)  # fmt: skip
def test_what_an_address_has_examined_is_never_this_machine(query: dict[str, str], subject: tuple[str, str]) -> None:
    assert doctor.subject_of(query) == subject


@pytest.mark.parametrize(
    ("subject", "link"),
    [
        ("group billing", "/groups/billing"), ("topic %RETRY%x", "/topics/%25RETRY%25x"),
        ("broker broker-a (127.0.0.1:1)", "/brokers/broker-a"), ("cluster", ""), ("address 127.0.0.1:1", ""),
        ("group", ""), ("group ../../x", "/groups/..%2F..%2Fx"),
    ],
)  # fmt: skip
def test_links_of_what_findings_name(subject: str, link: str) -> None:
    assert doctor.link_of(subject) == link


def test_evidence_has_a_bound() -> None:
    finding = Finding("x", Severity.note, "cluster", "", {"text": "y" * 10_000, "list": [1, 2]}, "")
    (_, text), (_, numbers) = doctor.evidence_rows(finding)
    assert len(text) == doctor.MOST_EVIDENCE + 1
    assert numbers == "[1, 2]"


@pytest.mark.parametrize(
    ("path", "of_menu"),
    [
        ("/", "/"), ("/topics", "/topics"), ("/topics/{topic}", "/topics"), ("/message", "/messages"),
        ("/groups/{group}/members/{member}", "/groups"), ("/brokers/{broker}", "/cluster"), ("/audit", "/audit"),
    ],
)  # fmt: skip
def test_the_menu_says_where_a_page_is(path: str, of_menu: str) -> None:
    import tianzhou.console.pages  # noqa: F401 - registers the pages
    from tianzhou.console.layout import PAGES, is_below

    assert [one.path for one in PAGES if one.icon and is_below(path, one.path)] == [of_menu]


def test_addresses_of_cells_hold_no_name_of_a_stranger() -> None:
    expression = cell_address("/brokers/{value}?id={id}")
    assert expression == (
        "'/brokers/' + encodeURIComponent(props.value) + '?id=' + encodeURIComponent(props.row.id) + ''"
    )
    assert cell_address("/groups/'+alert(1)+'\\/{value}") == (
        "'/groups/%27+alert%281%29+%27%5C/' + encodeURIComponent(props.value) + ''"
    )


# --- proofs ------------------------------------------------------------------------------------------------------


class Topics:
    """The topics of an admin: existing ones and deleted ones."""

    def __init__(self, *there: str) -> None:
        self.there = set(there)
        self.deleted: list[str] = []

    async def exists(self, topic: str) -> bool:
        return topic in self.there

    async def delete(self, topic: str) -> None:
        self.deleted.append(topic)


class Admin:
    def __init__(self, *there: str) -> None:
        self.topics = Topics(*there)


def proofs(run: Any, *there: str, admin: Admin | None = None) -> Proofs:
    return Proofs(admin or Admin(*there), "n:1", None, run)  # type: ignore[arg-type]


OUTCOME = ProofOutcome(
    ProofVerdict(acknowledged=3, on_majority=3, consumed=3), [Reading("broker-a", "a:1", whole=True)]
)


async def test_a_proof_of_its_own_topic_leaves_nothing_behind() -> None:
    async def run(proof: Any, namesrv: str, tls: Any, *, announce: Any, progress: Any) -> ProofOutcome:
        announce("sending")
        progress(3)
        return OUTCOME

    admin = Admin()
    found = proofs(run, admin=admin)
    assert await found.start("", 3, 10) is OUTCOME
    assert found.last is not None
    assert (found.last.acknowledged, found.last.said, found.last.over) == (3, "sending", True)
    assert found.last.topic.startswith(TOPIC_PREFIX)
    assert admin.topics.deleted == [found.last.topic]
    assert [value for _, value in proof.figures(OUTCOME)] == [3, 3, 3]
    assert [row["state"] for row in proof.replica_rows(OUTCOME)] == [""]


async def test_a_proof_is_cancelled_and_another_one_waits_for_its_end() -> None:
    begun = asyncio.Event()

    async def run(*_: Any, **__: Any) -> ProofOutcome:
        begun.set()
        await asyncio.Event().wait()
        return OUTCOME

    admin = Admin("orders")
    found = proofs(run, admin=admin)
    first = asyncio.ensure_future(found.start("orders", 3, 10))
    await begun.wait()
    with pytest.raises(ConfigError, match="another proof runs"):
        await found.start("orders", 3, 10)
    found.cancel()
    with pytest.raises(ClientError, match="cancelled"):
        await first
    assert admin.topics.deleted == []  # the topic does not belong to the proof
    assert found.last is not None
    assert found.last.error == "cancelled"


@pytest.mark.parametrize(
    ("topic", "count", "size", "says"),
    [
        ("orders", 0, 10, "0 messages: expected 1 to"), ("orders", MOST_MESSAGES + 1, 10, "messages: expected 1 to"),
        ("orders", 1, 0, "bodies of 0 bytes"), ("nothing", 1, 1, "topic nothing does not exist"),
    ],
)  # fmt: skip
async def test_proofs_that_are_not_begun(topic: str, count: int, size: int, says: str) -> None:
    async def run(*_: Any, **__: Any) -> ProofOutcome:
        raise AssertionError

    with pytest.raises((ConfigError, ClientError), match=says):
        await proofs(run, "orders").start(topic, count, size)


def test_what_a_proof_complains_of() -> None:
    verdict = ProofVerdict(acknowledged=2, on_majority=1, consumed=1, not_consumed=("k1",))
    outcome = ProofOutcome(verdict, [Reading("broker-a", "a:1", why="refused")])
    outcome.failures["timeout"] = 2
    assert proof.complaints(outcome) == [("proof.not.consumed", 1, ["k1"]), ("proof.failures", 1, ["timeout (2)"])]
    assert [row["state"] for row in proof.replica_rows(outcome)] == ["refused"]
    assert all(key in TEXTS for key, _, _ in proof.complaints(outcome))
