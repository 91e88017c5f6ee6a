"""Which entry of a user's policies decides, by one order for all of them."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from tianzhou.access.acl_changes import put, read_policies, removed, shown_acl
from tianzhou.access.policies import (
    Decision,
    Pattern,
    PolicyEntry,
    PolicyType,
    ResourcePattern,
    UserPolicies,
    parse_resource,
)
from tianzhou.access.resources import Action, Need, Resource, ResourceType
from tianzhou.access.users import created
from tianzhou.errors import BrokerError, LimitExceeded
from tianzhou.limits import Bounds
from tianzhou.wire.bodies.access import ACL_INFO, PolicyEntryInfo, PolicyInfo, UserInfo

CUSTOM, DEFAULT = PolicyType.CUSTOM, PolicyType.DEFAULT
DENIED, NONE = "the decision is deny.", "no matched policies."


def entry(resource: str, actions: str = "All", decision: str = "Allow", *ips: str) -> PolicyEntry:
    info = PolicyEntryInfo(resource, actions.split(","), list(ips), decision)
    return read_policies([PolicyInfo("Custom", [info])])[CUSTOM][0]


def ask(resource: str, actions: str, ip: str, *entries: PolicyEntry, default: tuple[PolicyEntry, ...] = ()) -> str:
    kind, _, name = resource.partition(":")
    need = Need(Resource(ResourceType(kind), name), tuple(map(Action, actions.split(","))))
    return UserPolicies({CUSTOM: entries, DEFAULT: default}).refusal(need, ip)


@pytest.mark.parametrize(
    ("entries", "refusal"),
    [
        ([], NONE),
        ([entry("Topic:orders", "Pub")], ""),
        ([entry("Topic:orders", "Sub")], NONE),
        ([entry("Topic:other"), entry("Group:orders")], NONE),
        ([entry("Topic:ord*")], ""),
        ([entry("Topic:*", "Pub,Sub")], ""),
        ([entry("*")], ""),
        # RocketMQ's order contradicts itself here.
        ([entry("Topic:orders"), entry("Topic:ord*", "All", "Deny")], DENIED),
        ([entry("Topic:orders", "All", "Deny"), entry("Topic:ord*")], DENIED),
        ([entry("Topic:ord*", "All", "Deny"), entry("Topic:orde*")], DENIED),
        ([entry("Topic:orde*", "All", "Deny"), entry("Topic:ord*")], DENIED),
        ([entry("Topic:orders"), entry("Topic:*", "All", "Deny")], ""),
        ([entry("Topic:ord*"), entry("Topic:*", "All", "Deny")], ""),
        ([entry("*", "All", "Deny"), entry("Topic:*")], ""),
        ([entry("Topic:orders"), entry("Topic:orders", "Pub", "Deny")], DENIED),
        ([entry("Topic:orders", "Pub", "Deny"), entry("Topic:orders")], DENIED),
        # A policy for another resource decides nothing.
        ([entry("Topic:orders", "Sub", "Deny"), entry("Topic:ord*", "Pub")], ""),
        ([entry("Topic:orders", "All", "Allow", "10.0.0.0/8")], ""),
        ([entry("Topic:orders", "All", "Allow", "10.1.2.3")], ""),
        ([entry("Topic:orders", "All", "Allow", "192.168.0.0/16", "::1")], NONE),
        ([entry("Topic:orders", "All", "Deny", "192.168.0.0/16"), entry("Topic:ord*")], ""),
    ],
)
def test_the_first_rank_with_an_entry_decides_and_deny_goes_before_allow_in_it(
    entries: list[PolicyEntry], refusal: str
) -> None:
    assert ask("Topic:orders", "Pub", "10.1.2.3", *entries) == refusal
    assert ask("Topic:orders", "Pub", "10.1.2.3", *reversed(entries)) == refusal


def test_the_default_policy_counts_where_no_custom_entry_matches() -> None:
    allow, deny = entry("Topic:*"), entry("Topic:orders", "All", "Deny")
    assert ask("Topic:orders", "Pub", "", allow, default=(deny,)) == ""
    assert ask("Topic:orders", "Pub", "", entry("Group:g"), default=(deny,)) == DENIED
    assert ask("Topic:other", "Pub", "", default=(allow,)) == ""


def test_one_of_the_wanted_actions_suffices_and_any_matches_every_entry() -> None:
    assert ask("Topic:T", "Pub,Sub,Get", "", entry("Topic:T", "Sub")) == ""
    assert ask("Topic:T", "Any", "", entry("Topic:T", "Delete")) == ""
    assert ask("Topic:T", "Pub,Sub", "", entry("Topic:T", "Pub"), entry("Topic:T", "Sub", "Deny")) == DENIED


@pytest.mark.parametrize("ip", ["", "somewhere"])
def test_an_unknown_address_is_allowed_nowhere_and_denied_everywhere(ip: str) -> None:
    assert ask("Topic:T", "Pub", ip, entry("Topic:T", "All", "Allow", "0.0.0.0/0")) == NONE
    assert ask("Topic:T", "Pub", ip, entry("Topic:T", "All", "Deny", "10.0.0.1"), entry("Topic:*")) == DENIED


def test_an_address_of_the_older_kind_through_a_socket_of_the_newer_is_the_same_address() -> None:
    assert ask("Topic:T", "Pub", "::ffff:10.0.0.1", entry("Topic:T", "All", "Allow", "10.0.0.0/24")) == ""


NAMES = st.text("ab", max_size=4)
KINDS = st.sampled_from([ResourceType.TOPIC, ResourceType.GROUP])
PATTERNS = st.one_of(
    st.builds(ResourcePattern, KINDS, st.just(Pattern.LITERAL), NAMES.filter(bool)),
    st.builds(ResourcePattern, KINDS, st.just(Pattern.PREFIX), NAMES.filter(bool)),
    st.builds(ResourcePattern, KINDS, st.just(Pattern.ANY), st.just("")),
    st.just(ResourcePattern(ResourceType.ANY, Pattern.ANY)),
)
ACTIONS = st.lists(st.sampled_from([Action.PUB, Action.SUB, Action.ALL]), min_size=1, unique=True).map(tuple)
ENTRIES = st.lists(st.builds(PolicyEntry, PATTERNS, ACTIONS, st.just(()), st.sampled_from(Decision)), max_size=8)


def rank(one: PolicyEntry) -> tuple[bool, bool, bool]:
    return (
        one.resource.type is ResourceType.ANY,
        one.resource.pattern is Pattern.ANY,
        one.decision is Decision.ALLOW,
    )


def covers(one: PolicyEntry, need: Need) -> bool:
    kind, pattern, name = one.resource
    if kind is not ResourceType.ANY and kind is not need.resource.type:
        return False
    named = {
        Pattern.LITERAL: need.resource.name == name,
        Pattern.PREFIX: need.resource.name.startswith(name),
        Pattern.ANY: True,
    }[pattern]
    return named and (Action.ALL in one.actions or not {*one.actions}.isdisjoint(need.actions))


@given(ENTRIES, ENTRIES, KINDS, NAMES, st.sampled_from([(Action.PUB,), (Action.PUB, Action.SUB), (Action.GET,)]))
def test_looking_up_is_the_same_as_sorting(
    custom: list[PolicyEntry], default: list[PolicyEntry], kind: ResourceType, name: str, actions: tuple[Action, ...]
) -> None:
    need = Need(Resource(kind, name), actions)
    found = [one for one in custom if covers(one, need)] or [one for one in default if covers(one, need)]
    wanted = NONE if not found else DENIED if min(found, key=rank).decision is Decision.DENY else ""
    assert UserPolicies({CUSTOM: tuple(custom), DEFAULT: tuple(default)}).refusal(need, "10.0.0.1") == wanted


@given(PATTERNS)
def test_a_pattern_is_read_as_it_is_written(pattern: ResourcePattern) -> None:
    assert parse_resource(str(pattern)) == pattern


@pytest.mark.parametrize(
    "text", ["", "T", "Topic", "Topic:", "Topics:a", "Topic:a*b*", "Topic:a*b", "Any:x", "Unknown:x"]
)
def test_what_is_no_pattern_is_not_widened_into_one(text: str) -> None:
    assert parse_resource(text) is None


@pytest.mark.parametrize(
    ("resource", "actions", "ips", "decision", "code", "remark"),
    [
        ("Topic", ["Pub"], [], "Allow", 16, "The resource is null."),
        ("Topic:T", None, [], "Allow", 16, "The actions is empty."),
        ("Topic:T", ["Any"], [], "Allow", 16, "The actions can not be Any."),
        ("Topic:T", ["Pubb"], [], "Allow", 29, "action Pubb: expected " + " or ".join(Action)),
        ("Topic:T", ["Pub"], [" "], "Allow", 16, "The source ip is empty."),
        ("Topic:T", ["Pub"], ["10.0.0.*"], "Allow", 16, "The source ip is invalid."),
        ("Topic:T", ["Pub"], ["::ffff:10.0.0.0/104"], "Deny", 16, "The source ip is invalid."),
        ("Topic:T", ["Pub"], ["fe80::1%eth0"], "Deny", 16, "The source ip is invalid."),
        ("Topic:T", ["Pub"], [], "Maybe", 16, "The decision is null or illegal."),
        ("Topic:T", ["Pub"], [], None, 16, "The decision is null or illegal."),
    ],
)  # fmt: skip
def test_an_entry_that_cannot_be_is_refused_with_the_words_of_rocketmq(
    resource: str, actions: list[str] | None, ips: list[str], decision: str | None, code: int, remark: str
) -> None:
    with pytest.raises(BrokerError) as refusal:
        read_policies([PolicyInfo(None, [PolicyEntryInfo(resource, actions, ips, decision)])])
    assert (refusal.value.code, refusal.value.remark) == (code, remark)


def test_a_policy_needs_entries_and_a_type_that_there_is() -> None:
    with pytest.raises(BrokerError, match=r"The policies is empty\."):
        read_policies([PolicyInfo("Custom", [])])
    with pytest.raises(BrokerError, match="policyType Defualt: expected Custom or Default"):
        read_policies([PolicyInfo("Defualt", [PolicyEntryInfo("*", ["All"], None, "Deny")])])


USERS = created({}, UserInfo("alice", "p"), Bounds())


def test_new_entries_take_the_place_of_those_for_the_same_resource() -> None:
    acls = put({}, USERS, "alice", {CUSTOM: (entry("Topic:A", "Pub"), entry("Topic:B"))}, Bounds())
    acls = put(
        acls, USERS, "alice", {CUSTOM: (entry("Topic:A", "Sub"),), DEFAULT: (entry("*", "All", "Deny"),)}, Bounds()
    )
    assert ACL_INFO.dumps(shown_acl("alice", acls["alice"])) == (
        b'{"policies":[{"entries":[{"actions":["All"],"decision":"Allow","resource":"Topic:B"},'
        b'{"actions":["Sub"],"decision":"Allow","resource":"Topic:A"}],"policyType":"Custom"},'
        b'{"entries":[{"actions":["All"],"decision":"Deny","resource":"*"}],"policyType":"Default"}],"subject":"User:alice"}'
    )
    with pytest.raises(BrokerError, match=r"The subject of User:bob is not exist\."):
        put(acls, USERS, "bob", {CUSTOM: (entry("*"),)}, Bounds())


def test_removing_the_last_entry_removes_the_policies() -> None:
    acls = put({}, USERS, "alice", {CUSTOM: (entry("Topic:A"), entry("Topic:B"))}, Bounds())
    fewer = removed(acls, USERS, "alice", CUSTOM, parse_resource("Topic:A"))
    assert fewer["alice"] == {CUSTOM: (entry("Topic:B"),)}
    assert removed(fewer, USERS, "alice", DEFAULT, parse_resource("Topic:B")) == fewer
    assert removed(fewer, USERS, "alice", CUSTOM, parse_resource("Topic:B")) == {}
    assert removed(acls, USERS, "alice") == {}
    with pytest.raises(BrokerError, match=r"The acl is not exist\."):
        removed({}, USERS, "alice")
    with pytest.raises(BrokerError, match=r"The subject is not exist\."):
        removed(acls, {}, "alice")


@pytest.mark.over_limit("maxPolicyEntries")
def test_entries_are_bounded() -> None:
    class Settings:
        max_policy_entries = 1

    bounds = Bounds(Settings())
    acls = put({}, USERS, "alice", {CUSTOM: (entry("Topic:A"),)}, bounds)
    with pytest.raises(LimitExceeded, match="policies of user alice: 2 entries, at most 1"):
        put(acls, USERS, "alice", {CUSTOM: (entry("Topic:B"),)}, bounds)
    assert put(acls, USERS, "alice", {CUSTOM: (entry("Topic:A", "Sub"),)}, bounds) != acls


@pytest.mark.over_limit("maxSourceIps")
def test_addresses_of_an_entry_are_bounded() -> None:
    with pytest.raises(LimitExceeded, match="257 addresses, at most 256"):
        entry("Topic:T", "All", "Allow", *(f"10.0.{n // 256}.{n % 256}" for n in range(257)))
