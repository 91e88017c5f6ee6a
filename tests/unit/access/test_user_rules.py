"""Requests pass the rules of users and policies, or are refused with RocketMQ's words."""

from __future__ import annotations

import pytest

from tianzhou.access.acl_changes import read_policies
from tianzhou.access.requests import NOBODY, AccessDenied, AccessRequest, Identity, RequestProof
from tianzhou.access.resources import Action, Need, Resource, ResourceType
from tianzhou.access.signatures import signature
from tianzhou.access.user_rules import MOST_DECISIONS, AccessSwitches, UserRules, read_codes
from tianzhou.access.users import created
from tianzhou.limits import Bounds
from tianzhou.wire.bodies.access import PolicyEntryInfo, PolicyInfo, UserInfo

SEND, ROUTE = 10, 105


def needs(request: AccessRequest) -> tuple[Need, ...]:
    return tuple(Need(Resource(ResourceType.TOPIC, name), (Action.PUB,)) for name in request.fields["topic"].split(","))


def made(switches: AccessSwitches) -> UserRules:
    users = created({}, UserInfo("alice", "alice-secret"), Bounds())
    users = created(users, UserInfo("root", "root-secret", "Super"), Bounds())
    rules = UserRules(switches, needs)
    entries = [PolicyEntryInfo("Topic:orders*", ["Pub"], ["10.0.0.0/8"], "Allow"),
               PolicyEntryInfo("Topic:orders-of-bob", ["All"], None, "Deny")]  # fmt: skip
    rules.replace(users, {"alice": read_policies([PolicyInfo("Custom", entries)])})
    return rules


def request(
    name: str = "", topic: str = "orders", code: int = SEND, ip: str = "10.1.1.1", sign: bool = True
) -> AccessRequest:
    fields = {"topic": topic} | ({"AccessKey": name} if name else {})
    if sign and name:
        fields["Signature"] = signature(fields, b"", f"{name}-secret")
    return AccessRequest(code, fields, b"", ip=ip)


BOTH = AccessSwitches(authentication=True, authorization=True)


def remark(rules: UserRules, asked: AccessRequest) -> str:
    with pytest.raises(AccessDenied) as refusal:
        rules.check(asked)
    assert refusal.value.code == 16
    return refusal.value.remark


def test_users_do_what_their_policies_allow() -> None:
    rules = made(BOTH)
    assert rules.check(request("alice")) == "alice"
    assert rules.check(request("alice", "orders,orders2")) == "alice"
    refused = "User:alice has no permission to access Topic:{} from {}, {}"
    assert remark(rules, request("alice", "audit")) == refused.format("audit", "10.1.1.1", "no matched policies.")
    assert remark(rules, request("alice", "orders,audit")) == refused.format(
        "audit", "10.1.1.1", "no matched policies."
    )
    assert remark(rules, request("alice", ip="1.2.3.4")) == refused.format("orders", "1.2.3.4", "no matched policies.")
    assert remark(rules, request("alice", "orders-of-bob")) == refused.format(
        "orders-of-bob", "10.1.1.1", "the decision is deny."
    )
    assert rules.check(request("root", "audit")) == "root"
    assert (rules.is_admin("root"), rules.is_admin("alice"), rules.is_admin("")) == (True, False, False)


def test_a_request_in_parts_is_signed_once_and_every_part_is_looked_at() -> None:
    rules, parts = made(BOTH), [request(topic=topic, sign=False) for topic in ("orders", "orders2", "audit")]
    assert list(rules.check_parts(request("alice"), parts[:2])) == [None, None]
    with pytest.raises(AccessDenied, match="Topic:audit"):
        list(rules.check_parts(request("alice"), parts))
    with pytest.raises(AccessDenied, match="check signature failed"):
        list(rules.check_parts(request("alice", sign=False), parts[:1]))
    with pytest.raises(AccessDenied, match="username cannot be null"):
        list(rules.check_parts(request(), parts[:1]))
    assert list(rules.check_parts(request("root"), parts)) == []
    assert list(made(AccessSwitches()).check_parts(request(), parts)) == []


def test_a_certificate_stands_for_a_signature() -> None:
    rules = made(BOTH)
    assert rules.check(AccessRequest(SEND, {"topic": "orders"}, ip="10.0.0.1", account="alice")) == "alice"
    assert "no matched policies" in remark(
        rules, AccessRequest(SEND, {"topic": "audit"}, ip="10.0.0.1", account="alice")
    )


def test_without_switches_nobody_is_looked_at() -> None:
    assert made(AccessSwitches()).check(request("mallory", sign=False)) == ""


def test_with_authentication_alone_every_user_may_everything() -> None:
    rules = made(AccessSwitches(authentication=True))
    assert rules.check(request("alice", "audit")) == "alice"
    assert remark(rules, request("alice", sign=False)) == "check signature failed."
    assert remark(rules, request()) == "username cannot be null."


def test_with_authorization_alone_a_name_is_not_believed_without_its_signature() -> None:
    rules = made(AccessSwitches(authorization=True))
    assert remark(rules, request("root", "audit", sign=False)) == "check signature failed."
    assert remark(rules, request(topic="orders")) == "username cannot be null."
    assert remark(rules, AccessRequest(SEND, {})) == "username cannot be null."
    assert rules.check(request("alice")) == "alice"


def test_codes_of_both_white_lists_pass_and_those_of_one_are_checked_by_the_other() -> None:
    rules = made(AccessSwitches(True, True, frozenset({SEND, ROUTE}), frozenset({ROUTE, 34})))
    assert rules.check(request(code=ROUTE)) == ""
    assert remark(rules, request("root", code=SEND, sign=False)) == "check signature failed."
    assert rules.check(request("alice", "audit", 34)) == "alice"
    assert remark(rules, request("alice", "audit", 34, sign=False)) == "check signature failed."


def test_who_asks_is_known_without_what_for() -> None:
    rules = made(BOTH)
    assert rules.identify(request("alice", "audit")) == Identity("alice", RequestProof.SIGNATURE)
    shown = AccessRequest(SEND, {}, account="alice")
    assert rules.identify(shown) == Identity("alice", RequestProof.CERTIFICATE)
    with pytest.raises(AccessDenied):
        rules.identify(request())


def test_a_change_counts_at_once() -> None:
    rules = made(BOTH)
    rules.check(request("alice"))
    users = dict(rules._users)
    rules.replace(users, {"alice": read_policies([PolicyInfo(None, [PolicyEntryInfo("*", ["All"], None, "Deny")])])})
    assert remark(rules, request("alice")).endswith("the decision is deny.")
    rules.replace(users, {})
    assert remark(rules, request("alice")).endswith("no matched policies.")
    rules.replace({}, {})
    assert remark(rules, request("alice")) == "User:alice is not found."


def test_remembered_decisions_are_bounded() -> None:
    rules = made(BOTH)
    for number in range(MOST_DECISIONS + 10):
        rules.authorize("root", (), "")
        with pytest.raises(AccessDenied):
            rules.authorize("alice", (Need(Resource(ResourceType.TOPIC, str(number)), (Action.PUB,)),), "10.0.0.1")
    assert len(rules._decisions) <= MOST_DECISIONS


def test_white_lists_are_numbers() -> None:
    assert read_codes(" 10, 105 ,") == {10, 105}
    for text in ("SEND", "10;11", "-1", "1" * 12):
        with pytest.raises(ValueError, match="is no request code"):
            read_codes(text)


def test_who_was_let_in_may_for_a_message_what_its_policies_allow() -> None:
    alice, root = Identity("alice", RequestProof.SIGNATURE), Identity("root", RequestProof.SIGNATURE)
    rules = made(BOTH)
    assert rules.may(alice, request(topic="orders"), part_of=37)
    assert not rules.may(alice, request(topic="audit"), part_of=37)
    assert rules.may(root, request(topic="audit"), part_of=37)
    assert not rules.may(Identity("gone", RequestProof.SIGNATURE), request(topic="orders"), part_of=37)
    assert not rules.may(NOBODY, request(topic="orders"))
    authenticated = made(AccessSwitches(authentication=True))
    assert authenticated.may(alice, request(topic="audit"), part_of=37)


def test_a_code_that_needs_no_policy_needs_none_for_its_message() -> None:
    """`authorizationWhitelist=37` lets every user end transactions of every topic."""
    rules = made(AccessSwitches(True, True, unrestricted_codes=frozenset({37})))
    assert rules.may(Identity("alice", RequestProof.SIGNATURE), request(topic="audit"), part_of=37)
    assert not rules.may(Identity("alice", RequestProof.SIGNATURE), request(topic="audit"), part_of=36)
    open_to_all = made(AccessSwitches(True, True, frozenset({37}), frozenset({37})))
    assert open_to_all.may(NOBODY, request(topic="audit"), part_of=37)


def test_one_of_several_needs_is_enough_however_many_stand_behind_each_other() -> None:
    topic = Resource(ResourceType.TOPIC, "orders")
    chain = Need(topic, (Action.SUB,), Need(topic, (Action.GET,), Need(topic, (Action.PUB,))))
    made(BOTH).authorize("alice", (chain,), "10.1.1.1")
    with pytest.raises(AccessDenied):
        made(BOTH).authorize("alice", (Need(topic, (Action.SUB,), Need(topic, (Action.GET,))),), "10.1.1.1")
