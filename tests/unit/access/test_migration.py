"""Accounts of RocketMQ 4.x become the same users and policies as in 5.3.3."""

from __future__ import annotations

from tianzhou.access.acl_changes import shown_acl
from tianzhou.access.migration import migrated, white_addresses
from tianzhou.access.plain_config import Account
from tianzhou.wire.bodies.access import USER_INFO


def test_an_account_becomes_a_user_with_policies() -> None:
    account = Account(
        "appUser1", "appSecret1", "", False, "DENY", "SUB",
        ("orders=PUB|SUB", "audit=SUB", "secret=DENY", "odd=PBU", "nothing", "=PUB", "star*=PUB"),
        ("%RETRY%readers=SUB", "writers=PUB", "%RETRY%=PUB"),
    )  # fmt: skip
    info, policies = migrated(account)
    assert (info.username, info.password, info.user_type) == ("appUser1", "appSecret1", "Normal")
    shown = shown_acl("appUser1", policies)
    assert [
        (policy.policy_type, one.resource, ",".join(one.actions or []), one.decision)
        for policy in shown.policies or []
        for one in policy.entries or []
    ] == [
        ("Custom", "Topic:orders", "Pub,Sub", "Allow"),
        ("Custom", "Topic:audit", "Sub", "Allow"),
        ("Custom", "Topic:secret", "All", "Deny"),
        ("Custom", "Topic:odd", "All", "Deny"),
        ("Custom", "Group:readers", "Sub", "Allow"),
        ("Custom", "Group:writers", "Pub", "Allow"),
        ("Default", "Topic:*", "All", "Deny"),
        ("Default", "Group:*", "Sub", "Allow"),
    ]


def test_an_administrator_becomes_a_super_user() -> None:
    info, policies = migrated(Account("adminUser", "adminSecret", "10.0.0.1", admin=True))
    assert (USER_INFO.encode(info)["userType"], policies) == ("Super", {})
    assert white_addresses([Account("adminUser", "adminSecret", "10.0.0.1")]) == ["adminUser"]
