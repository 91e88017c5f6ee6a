"""A gate that caches allowed requests decides like the rules, for any requests in any order."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from property_examples import costly
from tianzhou._hot import is_hmac, split
from tianzhou.access.grants import Grants
from tianzhou.access.needs import needs, plain_needs
from tianzhou.access.plain_config import Account, PlainConfig
from tianzhou.access.plain_rules import PlainRules
from tianzhou.access.policies import Action, Decision, PolicyEntry, PolicyType, parse_resource
from tianzhou.access.requests import AccessDenied
from tianzhou.access.signatures import signature
from tianzhou.access.user_rules import AccessSwitches, UserRules
from tianzhou.access.users import User, UserStatus, UserType
from tianzhou.remoting.gates.access_gate import access_request
from tianzhou.wire.command import Command, decode, encode
from tianzhou.wire.fields import write_header

SECRETS = {"first": "secret-1", "second": "secret-2"}
TOPICS, GROUPS = ("orders", "audit", "stock"), ("billing", "stock")


class Peer:
    """The attributes of a connection that a gate reads."""

    account = ""

    def __init__(self, ip: str) -> None:
        self.verified_ip = ip


def request(code: int, topic: str, group: str, further: str, batch: bool, name: str, secret: str) -> Command:
    """Return the command that a server decodes from a signed request's bytes."""
    if code == 11:
        fields = write_header(
            11, consumer_group=group, topic=topic, queue_id=0, queue_offset=0, max_msg_nums=1, sys_flag=0,
            commit_offset=0, suspend_timeout_millis=0, sub_version=0,
        )  # fmt: skip
    else:
        properties = f"INNER_MULTI_DISPATCH\x01{further}" if further else "A\x01b"
        fields = write_header(
            code, producer_group=group, topic=topic, default_topic="T", default_topic_queue_nums=1, queue_id=0,
            sys_flag=0, born_timestamp=1, flag=0, properties=properties, batch=batch,
        )  # fmt: skip
    body = b"body"
    if name:
        fields["AccessKey"] = name
        fields["Signature"] = signature(fields, body, secret)
    frame = bytearray(encode(Command(code, 7, fields=fields, body=body)))
    commands, _ = split(frame, 0, len(frame), 1 << 20, decode)
    return commands[0]


# Few names and mostly right secrets, so that many requests of a round differ in only one value.
REQUESTS = st.builds(
    lambda code, topic, group, further, batch, name, wrong: request(
        code, topic, group, further, batch, name, "wrong" if wrong else SECRETS.get(name, "")
    ),
    st.sampled_from((310, 310, 320, 11)),
    st.sampled_from(TOPICS[:2]),
    st.sampled_from(GROUPS),
    st.sampled_from(("", "", "audit")),
    st.booleans(),
    st.sampled_from(("first", "first", "second", "")),
    st.sampled_from((False, False, False, True)),
)
PEERS = st.builds(Peer, st.sampled_from(("10.0.0.6", "10.0.0.6", "10.0.0.7")))


def plain(draw: Any) -> PlainRules:
    permission = st.sampled_from(("DENY", "PUB|SUB", "PUB", "PUB|SUB"))
    accounts = [
        Account(
            name,
            secret,
            draw(st.sampled_from(("", "10.0.0.7"))),
            admin=draw(st.booleans()),
            default_topic_perm=draw(permission),
            default_group_perm=draw(permission),
            topic_perms=tuple(f"{topic}={draw(permission)}" for topic in TOPICS[:2] if draw(st.booleans())),
        )
        for name, secret in SECRETS.items()
        if draw(st.integers(0, 3))
    ]
    white = ("10.0.0.7",) if draw(st.booleans()) else ()
    return PlainRules([PlainConfig(global_white_remote_addresses=white, accounts=tuple(accounts))], plain_needs)


class Plain:
    """Rules of files, replaced as a whole."""

    def __init__(self, draw: Any) -> None:
        self.rules = plain(draw)

    def change(self, draw: Any) -> None:
        self.rules = plain(draw)

    epoch = property(lambda self: self.rules)
    secret_of = property(lambda self: self.rules.secret_of)
    check = property(lambda self: self.rules.check)
    identify = property(lambda self: self.rules.identify)


class Users(UserRules):
    """Users and policies, replaced in place."""

    def __init__(self, draw: Any) -> None:
        super().__init__(AccessSwitches(True, draw(st.booleans())), lambda request: needs(request, "cluster"))
        self.change(draw)

    def change(self, draw: Any) -> None:
        users = {
            name: User(
                name,
                secret,
                draw(st.sampled_from(list(UserType))),
                draw(st.sampled_from((UserStatus.ENABLE, UserStatus.ENABLE, UserStatus.DISABLE))),
            )
            for name, secret in SECRETS.items()
            if draw(st.integers(0, 3))
        }
        self.replace(users, {name: {PolicyType.CUSTOM: tuple(entries(draw))} for name in users})


def entries(draw: Any) -> list[PolicyEntry]:
    resources = st.sampled_from(("Topic:orders", "Topic:*", "Topic:au*", "Group:billing", "Group:*", "*"))
    return [
        PolicyEntry(
            parse_resource(draw(resources)) or pytest.fail("no resource"),
            (draw(st.sampled_from((Action.PUB, Action.SUB, Action.ALL))),),
            draw(st.sampled_from(((), ("10.0.0.6",)))),
            draw(st.sampled_from(list(Decision))),
        )
        for _ in range(draw(st.integers(0, 3)))
    ]


def in_a_run(grants: Grants, peer: Any, command: Command) -> bool:
    """Whether the grants allow a send or pull of a run: the account it names has signed it, and a send names no further
    topics.
    """
    header = command.header
    if command.code == 11 and header is not None and header.access_key:
        start = grants.pulls_from(peer.verified_ip)(header.access_key, header.topic, header.consumer_group)
        return start is not None and is_hmac(start, command.signed, command.body, header.signature or "")
    if command.code != 310 or header is None or not header.access_key:
        return False
    start = grants.sends_from(peer.verified_ip)(310, header.access_key, header.topic)
    if start is None or "INNER_MULTI_DISPATCH" in (header.properties or ""):
        return False
    return is_hmac(start, command.signed, command.body, header.signature or "")


@pytest.mark.parametrize("kind", [Plain, Users])
@costly(0.5)  # twelve requests an example
@given(data=st.data())
def test_what_a_grant_covers_the_rules_allow(kind: Any, data: st.DataObject) -> None:
    rules = kind(data.draw)
    grants = Grants(rules)
    alike = data.draw(st.lists(st.tuples(PEERS, REQUESTS), min_size=2, max_size=4))
    for _ in range(12):
        if not data.draw(st.integers(0, 5)):
            rules.change(data.draw)
        peer, command = data.draw(st.sampled_from(alike))
        try:
            account = rules.check(access_request(peer, command))
        except AccessDenied:
            assert not grants.of(command.code)(peer.verified_ip, command)
            assert not in_a_run(grants, peer, command)
        else:
            grants.remember(peer.verified_ip, command, account)


def test_the_second_request_like_one_that_was_allowed_is_covered() -> None:
    rules = PlainRules([PlainConfig(accounts=(Account("first", "secret-1", default_topic_perm="PUB"),))], plain_needs)
    grants = Grants(rules)
    command = request(310, "orders", "g", "", False, "first", "secret-1")
    assert not grants.of(command.code)("10.0.0.6", command)
    grants.remember("10.0.0.6", command, rules.check(access_request(Peer("10.0.0.6"), command)))  # type: ignore[arg-type]
    again = request(310, "orders", "other group", "", False, "first", "secret-1")
    assert grants.of(310)("10.0.0.6", again)
    assert in_a_run(grants, Peer("10.0.0.6"), again)
    for other in (
        request(310, "audit", "g", "", False, "first", "secret-1"),
        request(310, "orders", "g", "", False, "first", "secret-2"),
        request(310, "orders", "g", "audit", False, "first", "secret-1"),
        request(320, "orders", "g", "", False, "first", "secret-1"),
        request(310, "orders", "g", "", False, "", ""),
    ):
        assert not grants.of(other.code)("10.0.0.6", other)
        assert not in_a_run(grants, Peer("10.0.0.6"), other)
    assert not grants.of(command.code)("10.0.0.7", command)
