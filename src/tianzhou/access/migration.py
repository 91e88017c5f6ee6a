"""Users and policies made of accounts of RocketMQ 4.x, as `migrateAuthFromV1Enabled` wants them (broker.md §22.2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from tianzhou.access.policies import Decision, Entry, Pattern, Policies, PolicyType, ResourcePattern
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


@dataclass(frozen=True, slots=True)
class FormerAccount:
    """An account as `plain_acl.yml` has it.

    Attributes:
        access_key: its name.
        secret_key: its secret.
        admin: whether it is an administrator, who becomes a super user.
        default_topic_perm: permission for topics that are not listed; empty for none said.
        default_group_perm: permission for groups that are not listed.
        topic_perms: permissions by topic, as `PUB|SUB`.
        group_perms: permissions by group.
        white_remote_address: addresses that need no signature; users have nothing like it.
    """

    access_key: str
    secret_key: str = field(repr=False)
    admin: bool = False
    default_topic_perm: str = ""
    default_group_perm: str = ""
    topic_perms: Mapping[str, str] = field(default_factory=dict)
    group_perms: Mapping[str, str] = field(default_factory=dict)
    white_remote_address: str = ""


def migrated(account: FormerAccount) -> tuple[UserInfo, Policies]:
    """User and policies that stand for an account.

    Permissions of named topics and groups become entries of its custom policy, defaults of its default policy. A
    permission other than PUB and SUB denies everything, where RocketMQ allows everything for a misspelt one.
    """
    custom = [_entry(ResourceType.TOPIC, topic, perm) for topic, perm in account.topic_perms.items()]
    custom += [
        _entry(ResourceType.GROUP, group.removeprefix(names.RETRY_PREFIX), perm)
        for group, perm in account.group_perms.items()
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


def white_addresses(accounts: Sequence[FormerAccount]) -> list[str]:
    """Names of accounts whose white list of addresses is lost when they become users."""
    return [account.access_key for account in accounts if account.white_remote_address.strip()]


def _entry(kind: ResourceType, name: str | None, perm: str) -> Entry:
    actions = _ACTIONS.get(perm.replace(" ", ""))
    pattern = (
        ResourcePattern(kind, Pattern.ANY) if name is None else ResourcePattern(kind, Pattern.LITERAL, name.strip())
    )
    if actions is None:
        return Entry(pattern, (Action.ALL,), (), Decision.DENY)
    return Entry(pattern, actions, (), Decision.ALLOW)
