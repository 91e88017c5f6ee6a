"""Apache's mqadmin of both versions at our servers with access control: as the administrator, and as other accounts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import NamedTuple

import pytest
from frames import Account, call
from guarded import ACCOUNTS, ADMIN, APPLICATION, KINDS, REFUSED, USERS, VERSIONS, Guarded, guarded
from mqadmin import Mqadmin
from toolchain import SERVERS, ToolchainMissingError

# All in one worker, so that there is one JVM of each version.
pytestmark = pytest.mark.xdist_group("mqadmin-access")
NEWCOMER = Account("newcomer", "newcomer-secret")
TOPIC, GROUP = "acl_adm", "acl_adm_g"
GET_TOPIC_CONFIG, SEND = 351, 10


class Asked(NamedTuple):
    """An everyday command.

    Attributes:
        line: Its words; `{ns}` and `{broker}` are replaced.
        printed: Its output for an account with the permission.
        open_to: Kinds of access control in which every account has the permission.
    """

    line: str
    printed: str
    open_to: tuple[str, ...] = ()


ORDINARY = (
    Asked("updateTopic -n {ns} -c DefaultCluster -t acl_adm -r 2 -w 2", "create topic to {broker} success"),
    Asked("topicRoute -n {ns} -t acl_adm", '"brokerName":"broker-a"', KINDS),
    Asked("topicStatus -n {ns} -t acl_adm", "broker-a", (ACCOUNTS,)),
    Asked("topicList -n {ns}", "acl_adm", (ACCOUNTS,)),
    Asked("clusterList -n {ns}", "DefaultCluster", (ACCOUNTS,)),
    Asked("updateSubGroup -n {ns} -b {broker} -g acl_adm_g", "create subscription group to {broker} success"),
    Asked("brokerStatus -n {ns} -b {broker}", "brokerVersionDesc", (ACCOUNTS,)),
    Asked("getBrokerConfig -n {ns} -b {broker}", "brokerClusterName", (ACCOUNTS,)),
    Asked("updateBrokerConfig -n {ns} -b {broker} -k regionId -v here", "update broker config success"),
    Asked("consumerProgress -n {ns}", "#Group", (ACCOUNTS,)),
    Asked("wipeWritePerm -n {ns} -b broker-a", "OK"),
    Asked("addWritePerm -n {ns} -b broker-a", "OK"),
    Asked("deleteSubGroup -n {ns} -b {broker} -g acl_adm_g", "delete subscription group [acl_adm_g] from broker"),
    Asked("deleteTopic -n {ns} -c DefaultCluster -t acl_adm", "delete topic [acl_adm] from cluster"),
)
OF_ACCOUNTS = (
    "updateAclConfig -n {ns} -b {broker} -a other-one -s other-secret -m true",
    "deleteAccessConfig -n {ns} -b {broker} -a application",
    "updateGlobalWhiteAddr -n {ns} -b {broker} -g 127.0.0.1",
)
OF_USERS = (
    "createUser -n {ns} -b {broker} -u other -p other-secret -t Super",
    "updateUser -n {ns} -b {broker} -u application -t Super",
    "deleteUser -n {ns} -b {broker} -u administrator",
    "getUser -n {ns} -b {broker} -u administrator",
    "listUser -n {ns} -b {broker}",
    "copyUser -n {ns} -f {broker} -t {broker} -u administrator",
    "createAcl -n {ns} -b {broker} -s User:application -r Cluster:* -a All -d Allow",
    "updateAcl -n {ns} -b {broker} -s User:application -r Topic:acl_* -a All -d Allow",
    "deleteAcl -n {ns} -b {broker} -s User:only-reads",
    "getAcl -n {ns} -b {broker} -s User:application",
    "listAcl -n {ns} -b {broker}",
    "copyAcl -n {ns} -f {broker} -t {broker} -s User:application",
)


@pytest.fixture(scope="module")
def tools() -> Iterator[dict[str, Mqadmin]]:
    """Yield a JVM of each version."""
    try:
        with ExitStack() as stack:
            yield {version: stack.enter_context(Mqadmin(version)) for version in SERVERS}
    except ToolchainMissingError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def guarded_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Guarded]]:
    """Yield our servers with each kind of access control."""
    with ExitStack() as stack:
        yield {
            kind: stack.enter_context(
                guarded("tianzhou", kind, tmp_path_factory.mktemp(kind), [TOPIC, "acl_a", "acl_b"], [GROUP])
            )
            for kind in KINDS
        }


class Desk:
    """Runs commands as an account at some servers."""

    def __init__(self, servers: Guarded, tools: Mqadmin) -> None:
        self.servers, self._tools = servers, tools

    def run(self, account: Account | None, line: str) -> str:
        """Return the output of a command."""
        self._tools.sign(account)
        return self._tools.run(*self.filled(line).split())

    def filled(self, text: str) -> str:
        return text.replace("{ns}", self.servers.namesrv).replace("{broker}", self.servers.broker)


@pytest.mark.parametrize("version", SERVERS)
@pytest.mark.parametrize("kind", KINDS)
def test_everyday_commands(
    guarded_servers: dict[str, Guarded], tools: dict[str, Mqadmin], kind: str, version: str
) -> None:
    """The administrator may run all of them, another account only the reading ones under 4.x, and an unsigned request
    none.
    """
    desk = Desk(guarded_servers[kind], tools[version])
    for asked in ORDINARY:
        if "delete" in asked.line:
            continue
        printed = desk.run(ADMIN, asked.line)
        assert desk.filled(asked.printed) in printed, (asked.line, printed)
        assert "Exception" not in printed, (asked.line, printed)
    for asked in ORDINARY:
        printed = desk.run(APPLICATION, asked.line)
        if kind in asked.open_to:
            assert desk.filled(asked.printed) in printed, (asked.line, printed)
            assert "Exception" not in printed, (asked.line, printed)
        else:
            assert f"CODE: {REFUSED[kind]}" in printed, (asked.line, printed)
            assert "success" not in printed
    assert desk.servers.stored(TOPIC) == 0, "nobody has deleted it"
    assert topic_code(desk.servers) == 0, "nobody has deleted it"
    nobody = {ACCOUNTS: "No accessKey is configured", USERS: "username cannot be null."}[kind]
    for asked in (ORDINARY[0], ORDINARY[3]):
        assert nobody in desk.run(None, asked.line)
    for asked in ORDINARY:
        if "delete" in asked.line:
            assert desk.filled(asked.printed) in desk.run(ADMIN, asked.line)
    assert topic_code(desk.servers) != 0, "it is deleted"


def topic_code(servers: Guarded) -> int:
    """Return the code of the broker's reply to a request for the topic's configuration: 0 if the topic exists."""
    return servers.ask(GET_TOPIC_CONFIG, {"topic": TOPIC}).code


@pytest.mark.parametrize(
    ("kind", "line"),
    [*((ACCOUNTS, line) for line in OF_ACCOUNTS), *((USERS, line) for line in OF_USERS)],
    ids=lambda value: value.partition(" ")[0],
)
def test_access_is_changed_by_administrators_alone(
    guarded_servers: dict[str, Guarded], tools: dict[str, Mqadmin], kind: str, line: str
) -> None:
    desk = Desk(guarded_servers[kind], tools[VERSIONS[kind]])
    printed = desk.run(APPLICATION, line)
    assert f"CODE: {REFUSED[kind]}" in printed, printed
    assert "success" not in printed, printed


def send_as(servers: Guarded, account: Account, topic: str) -> tuple[int, str]:
    """Return the broker's reply to a send."""
    fields: dict[str, object] = {
        "producerGroup": "acl_p", "topic": topic, "defaultTopic": "TBW102", "defaultTopicQueueNums": 4, "queueId": 0,
        "sysFlag": 0, "bornTimestamp": 1, "flag": 0, "properties": "", "reconsumeTimes": 0, "unitMode": "false",
    }  # fmt: skip
    reply = call(servers.broker, SEND, fields, b"x", account=account)
    return reply.code, reply.remark


def test_accounts_are_made_changed_and_deleted(guarded_servers: dict[str, Guarded], tools: dict[str, Mqadmin]) -> None:
    """The output of 4.9.7, and the account's permissions after each change."""
    servers = guarded_servers[ACCOUNTS]
    desk = Desk(servers, tools["4.9.7"])
    for topic in ("acl_a", "acl_b"):
        servers.make_topic(topic)
    made = desk.run(
        ADMIN,
        f"updateAclConfig -n {{ns}} -b {{broker}} -a {NEWCOMER.access_key} -s {NEWCOMER.secret_key} -i DENY -u DENY"
        " -t acl_a=PUB,acl_b=SUB -g acl_g=SUB -m false",
    )
    assert desk.filled("create or update plain access config to {broker} success.") in made
    assert send_as(servers, NEWCOMER, "acl_a")[0] == 0
    code, remark = send_as(servers, NEWCOMER, "acl_b")
    assert (code, "No default permission for topic:acl_b" in remark) == (1, True)
    version = desk.run(ADMIN, "clusterAclConfigVersion -n {ns} -c DefaultCluster")
    assert "get cluster's plain access config version success." in version
    assert any(line.split()[4:5] == ["1"] for line in version.splitlines() if "plain_acl.yml" in line), version
    white = desk.run(ADMIN, "updateGlobalWhiteAddr -n {ns} -b {broker} -g 10.9.8.7")
    assert desk.filled("update global white remote addresses to {broker} success.") in white
    (file,) = servers.logs[0].parent.parent.glob("plain_acl.yml")
    assert "10.9.8.7" in file.read_text()
    gone = desk.run(ADMIN, f"deleteAccessConfig -n {{ns}} -b {{broker}} -a {NEWCOMER.access_key}")
    assert desk.filled("delete plain access config account from {broker} success.") in gone
    code, remark = send_as(servers, NEWCOMER, "acl_a")
    assert (code, "No acl config for newcomer" in remark) == (1, True)


def test_users_and_policies_are_made_changed_and_deleted(
    guarded_servers: dict[str, Guarded], tools: dict[str, Mqadmin]
) -> None:
    """The output of 5.3.3, and the user's permissions after each change."""
    servers = guarded_servers[USERS]
    desk = Desk(servers, tools["5.3.3"])
    for topic in ("acl_a", "acl_b"):
        servers.make_topic(topic)
    name, at = NEWCOMER.access_key, "-n {ns} -b {broker}"

    def done(line: str, printed: str) -> str:
        said = desk.run(ADMIN, line)
        assert desk.filled(printed) in said, said
        assert "Exception" not in said, said
        return said

    done(f"createUser {at} -u {name} -p {NEWCOMER.secret_key} -t Normal", "create user to {broker} success.")
    assert NEWCOMER.secret_key not in done(f"getUser {at} -u {name}", name)
    assert {name, ADMIN.access_key, "outsider"} <= set(done("listUser -n {ns} -c DefaultCluster", name).split())
    assert send_as(servers, NEWCOMER, "acl_a") == (
        16, "User:newcomer has no permission to access Topic:acl_a from 127.0.0.1, no matched policies.",
    )  # fmt: skip
    subject = f"-s User:{name}"
    done(f"createAcl {at} {subject} -r Topic:acl_a,Topic:acl_b -a Pub,Sub -d Allow", "create acl to {broker} success.")
    assert [send_as(servers, NEWCOMER, topic)[0] for topic in ("acl_a", "acl_b")] == [0, 0]
    done(f"updateAcl {at} {subject} -r Topic:acl_b -a Pub -d Deny -i 127.0.0.0/8", "update acl to {broker} success.")
    assert [send_as(servers, NEWCOMER, topic)[0] for topic in ("acl_a", "acl_b")] == [0, 16]
    rows = [line.split() for line in done(f"getAcl {at} {subject}", "Topic:acl_b").splitlines()]
    assert [f"User:{name}", "Custom", "Topic:acl_b", "[Pub]", "[127.0.0.0/8]", "Deny"] in rows
    assert f"User:{name}" in done(f"listAcl {at}", "User:application")
    between = "-n {ns} -f {broker} -t {broker}"
    done(f"copyAcl {between} {subject}", f"copy acl of User:{name} from {{broker}} to {{broker}} success.")
    done(f"copyUser {between} -u {name}", f"copy user of {name} from {{broker}} to {{broker}} success.")
    assert send_as(servers, NEWCOMER, "acl_a")[0] == 0, "the password is the same as before"
    done(f"updateUser {at} -u {name} -s disable", "update user to {broker} success.")
    assert send_as(servers, NEWCOMER, "acl_a") == (16, f"User:{name} is disabled.")
    done(f"updateUser {at} -u {name} -s enable", "update user to {broker} success.")
    done(f"deleteAcl {at} {subject} -r Topic:acl_b", "delete acl to {broker} success.")
    assert send_as(servers, NEWCOMER, "acl_b")[1].endswith("no matched policies.")
    done(f"deleteUser {at} -u {name}", "delete user to {broker} success.")
    assert send_as(servers, NEWCOMER, "acl_a") == (16, f"User:{name} is not found.")
