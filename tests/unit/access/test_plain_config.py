"""YAML files of RocketMQ 4.x's access control."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tianzhou.access.plain_config import Account, PlainConfig, both, format_config, parse_config
from tianzhou.access.plain_rules import PlainRules
from tianzhou.access.requests import AccessRequest, Identity, RequestProof
from tianzhou.access.resources import Permission, PlainNeed
from tianzhou.errors import ConfigError
from tianzhou.model import DataVersion

FILE = """
globalWhiteRemoteAddresses: [ "10.1.2.*", "192.168.0.1-100" ]
accounts:
  - accessKey: appUser1
    secretKey: appSecret1
    whiteRemoteAddress: ""
    admin: false
    defaultTopicPerm: DENY
    defaultGroupPerm: SUB
    topicPerms: [ "orders=PUB|SUB", "audit=SUB" ]
    groupPerms: [ "cg=SUB" ]
  - accessKey: 12345678
    secretKey: 87654321
    admin: "true"
dataVersion: [ { counter: 1, timestamp: 1700000000000 } ]
"""


def test_file_of_the_documentation_is_read() -> None:
    config = parse_config(FILE, "plain_acl.yml")
    first, second = config.accounts
    assert config.global_white_remote_addresses == ("10.1.2.*", "192.168.0.1-100")
    assert (first.access_key, first.secret_key, first.default_group_perm) == ("appUser1", "appSecret1", "SUB")
    assert first.topic_perms == ("orders=PUB|SUB", "audit=SUB")
    assert (second.access_key, second.secret_key, second.admin) == ("12345678", "87654321", True)
    assert config.data_version == DataVersion(1, 1700000000000)
    assert config.warnings == ()


def test_empty_file_says_nothing() -> None:
    assert parse_config("# nothing yet\n", "f") == PlainConfig()


def test_unknown_keys_and_repeated_accounts_are_named() -> None:
    one = "{accessKey: appUser1, secretKey: appSecret1, topicPerm: [a=PUB]}"
    config = parse_config(f"account: []\naccounts: [{one}, {one}]", "f.yml")
    assert len(config.accounts) == 1
    text = "\n".join(config.warnings)
    assert "'account' has no effect; did you mean accounts?" in text
    assert "'topicPerm' has no effect; did you mean topicPerms?" in text
    assert "listed twice, it may only what both lists allow" in text


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[]", "expected keys"),
        ("accounts: 5", "expected a list"),
        ("accounts: [5]", "expected keys and values"),
        ("accounts: [{accessKey: short, secretKey: hushhush}]", "longer than 6"),
        ("accounts: [{accessKey: appUser1, secretKey: hush}]", "longer than 6"),
        ("accounts: [{accessKey: appUser1, secretKey: hushhush, topicPerms: [orders]}]", "name=permission"),
        ("accounts: [{accessKey: appUser1, secretKey: hushhush, whiteRemoteAddress: x}]", "address pattern"),
        ("globalWhiteRemoteAddresses: [10.0.0]", "quotes|address pattern"),
        ("accounts: [{secretKey: hushhush", "no YAML"),
        ("a: !!python/object:os.system [hushhush]", "no YAML"),
        ("[" * 5000, "nested"),
        ("a: &x [1]\nb: [" + "*x, " * 51 + "]", "aliases"),
        ("a: &x [*x]", "contains itself"),
        ("a: {<<: 5}", "needs a mapping"),
        ("accounts: [{accessKey: appUser1, secretKey: hushhush, admin: maybe}]", "true or false"),
        ("accounts: [{accessKey: appUser1, secretKey: hushhush, topicPerms: [a=b=c]}]", "name=permission"),
        ("accounts: [null]", "expected keys and values"),
        ("dataVersion: [{counter: hushhush}]", "whole numbers"),
        ("x: 2020-99-99", "quotes"),
        ("\x00", "no YAML"),
    ],
)
def test_broken_file_is_named_without_secrets(text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        parse_config(text, "conf/f.yml")
    assert str(caught.value).startswith("conf/f.yml")
    assert "hushhush" not in str(caught.value)


def test_secrets_are_not_shown() -> None:
    assert "appSecret1" not in repr(parse_config(FILE, "f"))


PERMISSION = st.sampled_from(["", "DENY", "PUB", "SUB", "PUB|SUB", "SUB|PUB"])
KEY = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=7, max_size=20)


@given(
    st.lists(
        st.builds(Account, KEY, KEY, st.just("10.0.0.*"), st.booleans(), PERMISSION, PERMISSION,
                  st.just(("a=PUB",)), st.just(("g=SUB",))),
        unique_by=lambda account: account.access_key, max_size=4,
    )
)  # fmt: skip
def test_what_is_written_is_read_again(accounts: list[Account]) -> None:
    config = PlainConfig(("*",), tuple(accounts), DataVersion(3, 5))
    assert parse_config(format_config(config), "f") == config


LISTED = st.builds(
    Account, st.just("appUser1"), st.just("appSecret1"), st.sampled_from(["", "10.0.0.*"]), st.booleans(), PERMISSION,
    PERMISSION, st.lists(st.sampled_from(["a=PUB", "a=SUB", "b=PUB|SUB", "b=DENY"]), max_size=2).map(tuple),
    st.lists(st.sampled_from(["g=SUB", "g=DENY"]), max_size=1).map(tuple),
)  # fmt: skip
RESOURCES = ("a", "b", "other", "%RETRY%g", "%RETRY%other")


def allowed(account: Account) -> set[tuple[object, ...]]:
    """Return what an account may do: permissions on resources, administration, and access by address alone."""
    found: set[tuple[object, ...]] = set()
    for resource, permission in product(RESOURCES, (Permission.PUB, Permission.SUB)):
        rules = PlainRules([PlainConfig(accounts=(account,))], lambda _, need={resource: permission}: PlainNeed(need))
        if rules.may(Identity("appUser1", RequestProof.SIGNATURE), AccessRequest(10, {}, ip="192.168.0.1")):
            found.add((resource, permission))
    if account.admin:
        found.add(("admin",))
    if account.white_remote_address:
        found.add(("address", account.white_remote_address))
    return found


@given(LISTED, LISTED)
def test_an_account_that_is_listed_twice_may_only_what_both_lists_allow(first: Account, second: Account) -> None:
    assert allowed(both(first, second)) <= allowed(first) & allowed(second)


def test_an_account_with_two_secrets_lets_nobody_in() -> None:
    one = "{accessKey: appUser1, secretKey: appSecret%d, admin: true}"
    config = parse_config(f"accounts: [{one % 1}, {one % 2}, {one % 1}]", "f.yml")
    assert config.accounts == ()
    assert [warning.partition(": account")[0] for warning in config.warnings] == ["f.yml: line 1"] * 2
