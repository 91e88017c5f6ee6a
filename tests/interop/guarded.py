"""Servers with either kind of access control, and their accounts."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from apache import ApacheBroker, ApacheNamesrv
from frames import GET_ROUTE, UPDATE_AND_CREATE_TOPIC, Account, Reply, call
from own import OwnBroker, name_server

from waiting import until

ACCOUNTS, USERS = "accounts", "users"
KINDS = (ACCOUNTS, USERS)
"""Kinds of access control: `plain_acl.yml` of RocketMQ 4.x, and the users and policies of 5.3."""
VERSIONS = {ACCOUNTS: "4.9.7", USERS: "5.3.3"}
"""Version of Apache's server with each kind."""
REFUSED = {ACCOUNTS: 1, USERS: 16}
"""Response code of a refusal, by kind."""
ADMIN = Account("administrator", "admin-secret")
APPLICATION = Account("application", "app-secret")
"""Account that may only send to and consume the topics of the tests, with their groups."""
READER = Account("only-reads", "reader-secret")
"""Account that may only consume these topics."""
OUTSIDER = Account("outsider", "outsider-secret")
"""Account without permissions."""
BY_ADDRESS = Account("by-address", "another-secret")
"""Account of 4.x that is accepted by its address alone: the file has another secret."""
TRACES = "RMQ_SYS_TRACE_TOPIC"
CREATE_USER, CREATE_ACL = 3001, 3006
RUNTIME_INFO, MAX_OFFSET, QUERY_OFFSET = 28, 30, 14
_AUTH = "org.apache.rocketmq.auth"
_INNER = json.dumps({"accessKey": ADMIN.access_key, "secretKey": ADMIN.secret_key}, separators=(",", ":"))
_USERS_CONF: dict[str, object] = {
    "authenticationEnabled": "true",
    "authenticationProvider": f"{_AUTH}.authentication.provider.DefaultAuthenticationProvider",
    "authenticationMetadataProvider": f"{_AUTH}.authentication.provider.LocalAuthenticationMetadataProvider",
    "authorizationEnabled": "true",
    "authorizationProvider": f"{_AUTH}.authorization.provider.DefaultAuthorizationProvider",
    "authorizationMetadataProvider": f"{_AUTH}.authorization.provider.LocalAuthorizationMetadataProvider",
    "initAuthenticationUser": json.dumps(
        {"username": ADMIN.access_key, "password": ADMIN.secret_key}, separators=(",", ":")
    ),
    "innerClientAuthenticationCredentials": _INNER,
}


@dataclasses.dataclass(frozen=True)
class Guarded:
    """A broker with access control.

    Attributes:
        kind: Which of `KINDS`.
        namesrv: A name server that checks look-ups, too (`requireSignedLookups`). (Apache's of 4.9.7 cannot, and its of
            5.3.3 does not here.)
        open_namesrv: One that answers routes and lists to every peer: ours by default, and all of Apache's.
        broker: The broker's address.
        logs: Output files of our servers; empty with Apache's.
    """

    kind: str
    namesrv: str
    open_namesrv: str
    broker: str
    logs: tuple[Path, ...]

    def ask(self, code: int, fields: Mapping[str, object] | None = None, body: bytes = b"") -> Reply:
        """Return the broker's reply to the administrator."""
        return call(self.broker, code, fields, body, account=ADMIN)

    def refusals(self) -> list[str]:
        """Return the log lines of the servers about refused requests."""
        lines = [line for log in self.logs for line in log.read_text(errors="replace").splitlines()]
        return [line for line in lines if " refused " in line]

    def make_topic(self, topic: str, queues: int = 1) -> None:
        """Create a topic, and wait until name servers have its route."""
        fields: dict[str, object] = {
            "topic": topic, "defaultTopic": "TBW102", "readQueueNums": queues, "writeQueueNums": queues, "perm": 6,
            "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false",
        }  # fmt: skip
        reply = self.ask(UPDATE_AND_CREATE_TOPIC, fields)
        assert reply.code == 0, (topic, reply)
        for namesrv in {self.namesrv, self.open_namesrv}:
            until(partial(_is_routed, namesrv, topic), f"{topic} is routed")

    def stored(self, topic: str, queues: int = 1) -> int:
        """Return the number of messages that a topic has had; 0 without the topic."""
        replies = [self.ask(MAX_OFFSET, {"topic": topic, "queueId": queue}) for queue in range(queues)]
        return sum(int(reply.fields["offset"]) for reply in replies if reply.code == 0)

    def committed(self, group: str, topic: str) -> int | None:
        """Return a group's committed offset of a topic's first queue; None without one."""
        reply = self.ask(QUERY_OFFSET, {"consumerGroup": group, "topic": topic, "queueId": 0})
        return int(reply.fields["offset"]) if reply.code == 0 else None


def _is_routed(namesrv: str, topic: str) -> bool:
    return call(namesrv, GET_ROUTE, {"topic": topic}, account=ADMIN).code == 0


def plain_accounts(topics: Sequence[str], groups: Sequence[str]) -> str:
    """Return a `plain_acl.yml` with the five accounts."""
    lines = ["accounts:", f"- accessKey: {ADMIN.access_key}", f"  secretKey: {ADMIN.secret_key}", "  admin: true"]
    lines += [f"- accessKey: {BY_ADDRESS.access_key}", "  secretKey: address-secret", "  whiteRemoteAddress: 127.0.0.*"]
    for account, permission in ((APPLICATION, "PUB|SUB"), (READER, "SUB"), (OUTSIDER, "")):
        lines += [f"- accessKey: {account.access_key}", f"  secretKey: {account.secret_key}", "  admin: false"]
        lines += ["  defaultTopicPerm: DENY", "  defaultGroupPerm: DENY"]
        if permission:
            lines += ["  topicPerms:", *(f"  - {topic}={permission}" for topic in topics)]
            lines += ["  groupPerms:", *(f"  - {group}=SUB" for group in groups)]
    return "\n".join(lines) + "\n"


@contextmanager
def guarded(
    server_kind: str,
    kind: str,
    folder: Path,
    topics: Sequence[str],
    groups: Sequence[str],
    conf: Mapping[str, object] | None = None,
) -> Iterator[Guarded]:
    """Run servers with the accounts.

    Args:
        server_kind: `tianzhou` or `apache`.
        kind: Which of `KINDS`.
        folder: Folder for all files.
        topics: Topics of `APPLICATION` and `READER`; with users, all topics with the first one's prefix up to `_`.
        groups: Their groups, in the same way.
        conf: Further settings of the broker.
    """
    entries = dict(_USERS_CONF)
    if kind == ACCOUNTS:
        entries = {"aclEnable": "true", "innerClientAuthenticationCredentials": _INNER}
    with ExitStack() as stack:
        if server_kind == "apache":
            servers = _apache(stack, kind, folder, plain_accounts(topics, groups), {**entries, **(conf or {})})
        else:
            servers = _ours(stack, kind, folder, plain_accounts(topics, groups), entries, conf or {})
        if kind == USERS:
            for address in {servers.broker, *({servers.namesrv} if server_kind == "tianzhou" else ())}:
                _make_users(address, topics[0].partition("_")[0], groups[0].partition("_")[0])
        yield servers


def _ours(
    stack: ExitStack, kind: str, folder: Path, accounts: str, entries: dict[str, object], conf: Mapping[str, object]
) -> Guarded:
    folder.mkdir(parents=True, exist_ok=True)
    if kind == ACCOUNTS:
        file = folder / "plain_acl.yml"
        file.write_text(accounts)
        file.chmod(0o600)
        entries = {**entries, "aclConfigPath": file}
    checking = stack.enter_context(name_server(folder / "checking", {**entries, "requireSignedLookups": "true"}, ADMIN))
    unchecking = stack.enter_context(name_server(folder / "open", entries, ADMIN))
    broker = OwnBroker(unchecking, folder / "store", folder / "broker", {**entries, **conf})
    broker.conf["namesrvAddr"] = f"{checking};{unchecking}"
    stack.callback(broker.kill)  # its store is not needed any more
    broker.start()
    logs = (*(folder / name / "namesrv.log" for name in ("checking", "open")), broker.home / "console.log")
    return Guarded(kind, checking, unchecking, broker.address, logs)


def _apache(stack: ExitStack, kind: str, folder: Path, accounts: str, conf: Mapping[str, object]) -> Guarded:
    version = VERSIONS[kind]
    namesrv = stack.enter_context(ApacheNamesrv(home=folder / "namesrv", version=version))
    broker = ApacheBroker(
        namesrv.address, store_dir=folder / "store", home=folder / "broker", conf=conf, version=version
    )
    rules = broker.home / "conf" / "plain_acl.yml"
    rules.parent.mkdir(parents=True)
    rules.write_text(accounts)
    stack.callback(broker.kill)
    broker.administrator = ADMIN
    broker.start()
    return Guarded(kind, namesrv.address, namesrv.address, broker.address, ())


def _make_users(address: str, topics: str, groups: str) -> None:
    of = {APPLICATION: ["Pub", "Sub"], READER: ["Sub"], OUTSIDER: []}
    for account, actions in of.items():
        user = {
            "username": account.access_key, "password": account.secret_key, "userType": "Normal", "userStatus": "enable"
        }  # fmt: skip
        reply = call(address, CREATE_USER, {"username": account.access_key}, json.dumps(user).encode(), account=ADMIN)
        assert reply.code == 0, reply
        if not actions:
            continue
        entries = [
            {"resource": f"Topic:{topics}_*", "actions": actions, "decision": "Allow"},
            {"resource": f"Group:{groups}_*", "actions": ["Sub"], "decision": "Allow"},
            {"resource": f"Topic:{TRACES}", "actions": ["Pub"], "decision": "Allow"},
        ]
        subject = f"User:{account.access_key}"
        acl = {"subject": subject, "policies": [{"policyType": "Custom", "entries": entries}]}
        reply = call(address, CREATE_ACL, {"subject": subject}, json.dumps(acl).encode(), account=ADMIN)
        assert reply.code == 0, reply
