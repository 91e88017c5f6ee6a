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
"""Text that no error shows."""


@dataclass(slots=True)
class PlainAccountInfo:
    """An account of 4.x as servers answer it.

    Attributes:
        access_key: its name.
        secret_key: what stands for its secret.
        white_remote_address: addresses that need no signature.
        admin: whether it is an administrator.
        default_topic_perm: for topics that are not listed.
        default_group_perm: for groups that are not listed.
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
    """What all files of access control of 4.x say together."""

    global_white_addrs: list[str] = field(default_factory=list)
    plain_access_configs: list[PlainAccountInfo] = field(default_factory=list)


@dataclass(slots=True)
class UserInfo:
    """A user; members that are None are not changed, and have defaults for a new one.

    Attributes:
        username: its name, the `AccessKey` of requests.
        password: its secret key; None in what servers answer.
        user_type: `Super` or `Normal`.
        user_status: `enable` or `disable`.
    """

    username: str | None = None
    password: str | None = field(default=None, repr=False)
    user_type: str | None = None
    user_status: str | None = None


@dataclass(slots=True)
class PolicyEntryInfo:
    """What a user may do with a resource, or may not.

    Attributes:
        resource: `Topic:orders`, `Topic:orders*` (all that begin so), `Topic:*`, or `*`.
        actions: `Pub`, `Sub`, `Create`, `Update`, `Delete`, `Get`, `List`, or `All`.
        source_ips: addresses and CIDR ranges it holds for; None or empty for all.
        decision: `Allow` or `Deny`.
    """

    resource: str | None = None
    actions: list[str] | None = None
    source_ips: list[str] | None = None
    decision: str | None = None


@dataclass(slots=True)
class PolicyInfo:
    """Entries of one type; those of type `Default` count where none of type `Custom` does."""

    policy_type: str | None = None
    entries: list[PolicyEntryInfo] | None = None


@dataclass(slots=True)
class AclInfo:
    """Policies of a subject, `User:` and its name."""

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
    """An array of values as a body; empty when there are none, as servers answer."""
    members = [bean.encode(value) for value in values]
    return dumps(members, sort_keys=False) if members else b""


def load_list(bean: Bean[T], data: Octets) -> list[T]:
    """The values of a body that is an array; none of an absent one.

    Raises:
        ProtocolError: it is something else.
    """
    return [bean.decode(value, f"{bean.noun}[{n}]") for n, value in enumerate(_array(data, bean.noun))]


def _array(data: Octets, noun: str) -> list[Any]:
    try:
        return read_array(loads(data), f"list of {noun}") if data else []
    except ProtocolError as error:
        raise ProtocolError(f"list of {noun}: no JSON array") from error
