"""Accounts of RocketMQ 4.x (54, wire.md §11.3), users and access lists of 5.3 (3001 to 3010, §11.4)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from tianzhou.errors import ProtocolError
from tianzhou.records.checksum import Octets
from tianzhou.wire.bodies.beans import TEXT, Bean, MemberKind, list_of, read_array, wrong
from tianzhou.wire.json_dialect import dumps, loads

T = TypeVar("T")


def _read_secret(value: Any, where: str) -> str:
    if isinstance(value, str):
        return value
    raise wrong(where, type(value).__name__, "text")


SECRET: Final = MemberKind(lambda value: value, _read_secret)
"""Text that error messages do not show."""


@dataclass(slots=True)
class PlainAccountInfo:
    """An account of 4.x as servers return it.

    Attributes:
        access_key: its name.
        secret_key: its secret key; Tianzhou's servers return a mask instead.
        white_remote_address: addresses that need no signature.
        admin: whether it is an administrator.
        default_topic_perm: permission for topics that are not listed.
        default_group_perm: permission for groups that are not listed.
        topic_perms: `topic=PUB|SUB`.
        group_perms: `group=SUB`.
    """

    access_key: str | None = None
    secret_key: str | None = field(default=None, repr=False)
    white_remote_address: str | None = None
    admin: bool = False
    default_topic_perm: str | None = None
    default_group_perm: str | None = None
    topic_perms: list[str] | None = None
    group_perms: list[str] | None = None


@dataclass(slots=True)
class PlainAccounts:
    """Accounts and white lists of all access-control files of 4.x together."""

    global_white_addrs: list[str] = field(default_factory=list)
    plain_access_configs: list[PlainAccountInfo] = field(default_factory=list)


@dataclass(slots=True)
class UserInfo:
    """A user; an update does not change members that are None, and a new user gets defaults for them.

    Attributes:
        username: its name, the `AccessKey` of requests.
        password: its secret key; None in replies of servers.
        user_type: `Super` or `Normal`.
        user_status: `enable` or `disable`.
    """

    username: str | None = None
    password: str | None = field(default=None, repr=False)
    user_type: str | None = None
    user_status: str | None = None


@dataclass(slots=True)
class PolicyEntryInfo:
    """An entry of a policy: allows or denies a user some actions on a resource.

    Attributes:
        resource: `Topic:orders`, `Topic:orders*` (a prefix), `Topic:*`, or `*`.
        actions: `Pub`, `Sub`, `Create`, `Update`, `Delete`, `Get`, `List`, or `All`.
        source_ips: addresses and CIDR ranges that the entry applies to; None or empty for all.
        decision: `Allow` or `Deny`.
    """

    resource: str | None = None
    actions: list[str] | None = None
    source_ips: list[str] | None = None
    decision: str | None = None


@dataclass(slots=True)
class PolicyInfo:
    """Entries of one type. Entries of type `Default` apply where no entry of type `Custom` does."""

    policy_type: str | None = None
    entries: list[PolicyEntryInfo] | None = None


@dataclass(slots=True)
class AclInfo:
    """Policies of a subject; the subject is `User:` and a name."""

    subject: str | None = None
    policies: list[PolicyInfo] | None = None


PLAIN_ACCOUNTS: Final = Bean(
    PlainAccounts, plain_access_configs=list_of(Bean(PlainAccountInfo, secret_key=SECRET).kind)
)
USER_INFO: Final = Bean(UserInfo, password=SECRET)
POLICY_ENTRY_INFO: Final = Bean(PolicyEntryInfo, actions=list_of(TEXT), source_ips=list_of(TEXT))
POLICY_INFO: Final = Bean(PolicyInfo, entries=list_of(POLICY_ENTRY_INFO.kind))
ACL_INFO: Final = Bean(AclInfo, policies=list_of(POLICY_INFO.kind))


def dump_list(bean: Bean[T], values: Iterable[T]) -> bytes:
    """Encode values as a body with an array; an empty body without values, as servers reply."""
    members = [bean.encode(value) for value in values]
    return dumps(members, sort_keys=False) if members else b""


def load_list(bean: Bean[T], data: Octets) -> list[T]:
    """Decode the values of a body with an array; return an empty list for an absent body.

    Raises:
        ProtocolError: the body is no such array.
    """
    return [bean.decode(value, f"{bean.noun}[{n}]") for n, value in enumerate(_array(data, bean.noun))]


def _array(data: Octets, noun: str) -> list[Any]:
    try:
        return read_array(loads(data), f"list of {noun}") if data else []
    except ProtocolError as error:
        raise ProtocolError(f"list of {noun}: no JSON array") from error
