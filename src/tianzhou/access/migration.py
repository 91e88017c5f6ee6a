"""Users and policies from accounts of RocketMQ 4.x, for `migrateAuthFromV1Enabled` (broker.md §22.2)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from tianzhou.access.plain_config import Account
from tianzhou.access.policies import Decision, Pattern, Policies, PolicyEntry, PolicyType, ResourcePattern
from tianzhou.access.resources import Action, ResourceType
from tianzhou.access.users import UserType
from tianzhou.model import names
from tianzhou.wire.bodies.access import UserInfo

_ACTIONS: Final[Mapping[str, tuple[Action, ...]]] = {
    "PUB": (Action.PUB,),
    "SUB": (Action.SUB,),
    "PUB|SUB": (Action.PUB, Action.SUB),
    "SUB|PUB": (Action.PUB, Action.SUB),
}


def migrated(account: Account) -> tuple[UserInfo, Policies]:
    """Return the user and policies that are equivalent to an account.

    Permissions of named topics and groups become entries of the custom policy. Defaults become entries of the default
    policy. A permission other than PUB and SUB denies everything, whereas RocketMQ allows everything for a misspelt
    one.
    """
    custom = [_entry(ResourceType.TOPIC, topic, perm) for topic, perm in _pairs(account.topic_perms)]
    custom += [
        _entry(ResourceType.GROUP, group.removeprefix(names.RETRY_PREFIX), perm)
        for group, perm in _pairs(account.group_perms)
    ]
    default = [
        _entry(kind, None, perm)
        for kind, perm in (
            (ResourceType.TOPIC, account.default_topic_perm),
            (ResourceType.GROUP, account.default_group_perm),
        )
        if perm.strip()
    ]
    policies = {PolicyType.CUSTOM: tuple(custom), PolicyType.DEFAULT: tuple(default)}
    kind = UserType.SUPER if account.admin else UserType.NORMAL
    return UserInfo(account.access_key, account.secret_key, kind.value), {k: v for k, v in policies.items() if v}


def white_addresses(accounts: Sequence[Account]) -> list[str]:
    """Return the names of accounts that lose their white list of addresses when they become users."""
    return [account.access_key for account in accounts if account.white_remote_address.strip()]


def _pairs(perms: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield names and their permissions. Skip a literal 4.x name that 5.3 would read as a pattern."""
    for text in perms:
        name, sign, perm = text.partition("=")
        named = name.strip().removeprefix(names.RETRY_PREFIX)
        if sign and named and "*" not in named and "=" not in perm:
            yield name.strip(), perm


def _entry(kind: ResourceType, name: str | None, perm: str) -> PolicyEntry:
    actions = _ACTIONS.get(perm.replace(" ", ""))
    pattern = ResourcePattern(kind, Pattern.ANY) if name is None else ResourcePattern(kind, Pattern.LITERAL, name)
    if actions is None:
        return PolicyEntry(pattern, (Action.ALL,), (), Decision.DENY)
    return PolicyEntry(pattern, actions, (), Decision.ALLOW)
