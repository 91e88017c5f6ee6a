"""YAML files of RocketMQ 4.x's access control."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tianzhou.access.plain_config import Account, PlainConfig, format_config, parse_config
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
    assert "listed twice" in text


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[]", "expected keys"),
        ("accounts: 5", "expected a list"),
        ("accounts: [5]", "expected keys and values"),
        ("accounts: [{accessKey: short, secretKey: hushhush}]", "longer than 6"),
        ("accounts: [{accessKey: appUser1, secretKey: hush}]", "longer than 6"),
        ("accounts: [{accessKey: appUser1, secretKey: hushhush, admin: 7}]", "true or false"),
        ("accounts: [{accessKey: appUser1, secretKey: hushhush, defaultTopicPerm: PUBB}]", "PUBB"),
        ("accounts: [{accessKey: appUser1, secretKey: hushhush, topicPerms: [orders]}]", "name=permission"),
        ("accounts: [{accessKey: appUser1, secretKey: hushhush, whiteRemoteAddress: x}]", "address pattern"),
        ("accounts: [{accessKey: appUser1, secretKey: [hushhush]}]", "quotes"),
        ("globalWhiteRemoteAddresses: [10.0.0]", "quotes|address pattern"),
        ("accounts: [{secretKey: hushhush", "no YAML"),
        ("a: &x [1]\nb: [*x]", "aliases"),
        ("a: !!python/object:os.system [hushhush]", "no YAML"),
        ("[" * 5000, "nested"),
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
