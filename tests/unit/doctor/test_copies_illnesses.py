"""Copies that follow no further, differ, or have two masters: the findings of the doctor and the answer of `status`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from ill_clusters import finding, ill, names, report
from test_illnesses_by_value import NOW_MS

from tianzhou.admin.cluster import BrokerStatus
from tianzhou.admin.copy_faults import CopyFaultKind, copy_faults
from tianzhou.cli.cluster.status import show
from tianzhou.cli.output import Output
from tianzhou.doctor.chinese import TEXTS, finding_in_chinese
from tianzhou.doctor.illnesses import copies
from tianzhou.doctor.observations import BrokerSeen, ClusterSeen, NameServerSeen
from tianzhou.model import BrokerData, ClusterInfo, MessageQueue
from tianzhou.testing import AsyncCluster

MEMBER = {"dLegerTerm": "3", "dLegerLeaderId": "n0"}
REASON = "entry 7 is not what the group committed"


def says(monkeypatch: pytest.MonkeyPatch, cluster: AsyncCluster, figures: Mapping[str, str]) -> None:
    """Have a broker report these figures about its copies."""
    replication = cluster.brokers["broker-a"].running.replication
    monkeypatch.setattr(replication, "runtime_info", lambda: dict(figures))


@pytest.mark.parametrize(
    ("name", "figures"),
    [
        ("member-follows-no-further", {"dLegerHalted": REASON}),
        ("slave-refuses-log", {"haHalted": REASON}),
        ("two-masters", {"otherMaster": "10.0.0.9:10911"}),
        ("slave-missing", {"haCopiesWanted": "2", "haCopiesInSync": "1"}),
    ],
)
def test_what_a_broker_reports_of_its_copies(
    name: str, figures: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def make(cluster: AsyncCluster) -> None:
        assert name not in await names(cluster, "broker")
        says(monkeypatch, cluster, figures)
        found = await finding(cluster, name, "broker")
        assert not (await report(cluster, "broker")).healthy
        in_chinese = finding_in_chinese(found)
        assert in_chinese.message != found.message
        for value in figures.values():
            if len(value) > 1:
                assert value in found.message
                assert value in in_chinese.message

    ill(make)


def status(member: str = "", broker_id: int = 0, **runtime: str) -> BrokerStatus:
    figures = MEMBER | {"dLegerSelfId": member, "dLegerRole": "FOLLOWER" if broker_id else "LEADER"} if member else {}
    return BrokerStatus("c", "broker-a", broker_id, f"10.0.0.{broker_id}:10911", {**figures, **runtime})


FAULTS: list[tuple[CopyFaultKind, str, list[BrokerStatus]]] = [
    (CopyFaultKind.WITHOUT_LEADER, "no leader", [status("n1", 2), status("n2", 3)]),
    (CopyFaultKind.WITHOUT_MASTER, "no master", [status("", 1)]),
    (CopyFaultKind.TWO_MASTERS, "10.0.0.0:10911 and 10.0.0.9:10911", [status(otherMaster="10.0.0.9:10911")]),
    (
        CopyFaultKind.TWO_BROKERS,
        "10.0.0.1:10911 and 10.0.0.9:10911 both have brokerId=1",
        [status(), status("", 1, otherMaster="10.0.0.9:10911")],
    ),
    (CopyFaultKind.SLAVE_MISSING, "waits for 2 copies", [status(haCopiesWanted="2", haCopiesInSync="1")]),
    (CopyFaultKind.MEMBER_HALTED, REASON, [status("n0"), status("n1", 2, dLegerHalted=REASON)]),
    (CopyFaultKind.SLAVE_HALTED, REASON, [status(), status("", 1, haHalted=REASON)]),
    (CopyFaultKind.SLAVE_HALTED, REASON, [status(haHaltedSlaves=f"10.0.0.1:10911: {REASON}")]),
    (CopyFaultKind.SLAVE_HALTED, REASON, [status(haHaltedSlaves="10.0.0.1:10911: x"), status("", 1, haHalted=REASON)]),
    (
        CopyFaultKind.IDENTITIES_DIFFER,
        "n0 of group aa; n1, n2 of group bb",
        [
            status("n0", dLegerGroupId="aa"),
            status("n1", 2, dLegerGroupId="bb"),
            status("n2", 3, dLegerGroupId="bb"),
        ],
    ),
]


@pytest.mark.parametrize(("kind", "words", "brokers"), FAULTS, ids=[kind for kind, _, _ in FAULTS])
def test_status_is_not_content_and_its_first_line_says_why(
    kind: CopyFaultKind, words: str, brokers: list[BrokerStatus], capsys: pytest.CaptureFixture[str]
) -> None:
    assert not show(["127.0.0.1:9876"], brokers, Output.text)
    first = capsys.readouterr().out.splitlines()[0]
    assert first.startswith("broker-a")
    assert words in first
    assert not show(["127.0.0.1:9876"], brokers, Output.json)
    (fault,) = json.loads(capsys.readouterr().out)["faults"]
    assert fault["kind"] == kind
    assert words in fault["reason"]


@pytest.mark.parametrize(
    "brokers",
    [
        [status()],
        [status(), status("", 1)],
        [status(haCopiesWanted="2", haCopiesInSync="3", otherMaster="")],
        [status("n0", dLegerHalted=""), status("n1", 2, dLegerGroupId=""), status("n2", 3, dLegerGroupId="aa")],
        [status("n0", dLegerGroupId="aa"), status("n1", 2, dLegerGroupId="aa")],
    ],
    ids=["one", "pair", "sync-pair", "no-identity-yet", "group"],
)
def test_status_is_content_with_brokers_that_are_well(
    brokers: list[BrokerStatus], capsys: pytest.CaptureFixture[str]
) -> None:
    assert show(["127.0.0.1:9876"], brokers, Output.text)
    assert capsys.readouterr().out.startswith("name server ")


def server(address: str, master: str) -> NameServerSeen:
    data = BrokerData("broker-a", "c", {0: master})
    return NameServerSeen(address, ClusterInfo({"broker-a": data}, {"c": ["broker-a"]}))


def seen(brokers: list[BrokerStatus], servers: list[NameServerSeen]) -> ClusterSeen:
    return ClusterSeen(NOW_MS, servers, [BrokerSeen(one) for one in brokers])


def found(brokers: list[BrokerStatus], servers: list[NameServerSeen]) -> list[tuple[str, Any, Any]]:
    """Return name, first and second master of each finding."""
    return [
        (one.name, one.words.get("first"), one.words.get("second")) for one in copies.findings(seen(brokers, servers))
    ]


def test_two_masters_that_name_each_other_are_one_finding() -> None:
    brokers = [status(otherMaster="10.0.0.9:10911")]
    other = BrokerStatus("c", "broker-a", 0, "10.0.0.9:10911", {"otherMaster": "10.0.0.0:10911"})
    pair = ("two-masters", "10.0.0.0:10911", "10.0.0.9:10911")
    assert found([*brokers, other], [server("ns", "10.0.0.0:10911")]) == [pair]


def test_two_masters_at_two_name_servers_are_found_without_a_word_of_theirs() -> None:
    servers = [server("ns1", "10.0.0.0:10911"), server("ns2", "10.0.0.9:10911")]
    assert found([status()], servers) == [("two-masters", "10.0.0.0:10911", "10.0.0.9:10911")]


def test_two_slaves_of_one_id_are_one_finding() -> None:
    other = BrokerStatus("c", "broker-a", 1, "10.0.0.9:10911", {"otherMaster": "10.0.0.1:10911"})
    brokers = [status(), status("", 1, otherMaster="10.0.0.9:10911"), other]
    (one,) = copies.findings(seen(brokers, [server("ns", "10.0.0.0:10911")]))
    assert one.name == "two-brokers-of-one-id"
    assert "broker-a with brokerId=1 are alive: 10.0.0.1:10911 and 10.0.0.9:10911" in one.message
    in_chinese = finding_in_chinese(one).message
    assert "brokerId=1" in in_chinese
    assert "10.0.0.9:10911" in in_chinese


def test_members_of_different_groups_are_found() -> None:
    brokers = next(brokers for kind, _, brokers in FAULTS if kind is CopyFaultKind.IDENTITIES_DIFFER)
    (one,) = copies.findings(seen(brokers, []))
    assert one.name == "group-identities-differ"
    assert "n0: aa; n1, n2: bb" in one.message
    assert "n0: aa; n1, n2: bb" in finding_in_chinese(one).message


def test_files_with_different_durability_are_found() -> None:
    ours = {"tianzhouVersion": "1"}
    zero_loss = status(durability="zero-loss", **ours)
    of_apache = status("", 2)
    assert found([zero_loss, status("", 1, durability="zero-loss", **ours), of_apache], []) == []
    (one,) = copies.findings(seen([zero_loss, status("", 1, **ours)], []))
    assert one.name == "durability-differs"
    for words in (one.message, finding_in_chinese(one).message):
        assert "10.0.0.0:10911 zero-loss, 10.0.0.1:10911 none" in words


def test_every_fault_has_words_in_both_languages() -> None:
    assert {str(kind) for kind in CopyFaultKind} <= set(TEXTS)


def test_figures_of_strangers_do_not_break_the_look() -> None:
    assert copy_faults([status(haCopiesWanted="x", haCopiesInSync="-1")]) == []
    (one,) = copies.findings(seen([status(dLegerHalted="a\x1b[31mb")], []))
    assert "\x1b" not in one.message


def test_messages_that_a_broker_cannot_deliver() -> None:
    async def make(cluster: AsyncCluster) -> None:
        await cluster.create_topic("orders", 1)
        await cluster.send("orders", "x" * 3_000, delay_level=1)
        await cluster.send("orders", "small", delay_level=1)
        async with cluster.admin() as admin:
            (address,) = (await admin.cluster.masters()).values()
            assert "messages-undeliverable" not in await names(cluster, "broker")
            await admin.cluster.update_broker_config(address, {"maxMessageSize": "1000"})
            await cluster.advance(minutes=1)
            found = await finding(cluster, "messages-undeliverable", "broker")
            assert "orders 1" in found.message
            assert "maxMessageSize is 1000" in found.message
            assert "maxMessageSize is 1000" in finding_in_chinese(found).message
            assert not show([], await admin.cluster.status(), Output.json), "status ends with 1"
            (aside,) = await admin.undeliverable.list()
            assert (aside.topic, aside.ledger, aside.body_bytes) == ("orders", "delay", 3_000)
            failed = await admin.undeliverable.resend([aside])
            assert (failed.delivered, [one for one, _ in failed.failed]) == ([], [aside.id])
            await cluster.brokers["broker-a"].stop()
            await cluster.brokers["broker-a"].start()
            await admin.cluster.update_broker_config(address, {"maxMessageSize": "100000"})
            assert await admin.undeliverable.list() == [aside]
            assert (await admin.undeliverable.resend([aside])).delivered == [aside.id]
            assert await admin.undeliverable.list() == []
            assert "messages-undeliverable" not in await names(cluster, "broker")
            (low, high) = await admin.messages.bounds(MessageQueue("orders", "broker-a", 0))
            assert high - low == 2

    ill(make)
