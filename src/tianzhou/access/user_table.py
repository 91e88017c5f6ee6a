"""Users with their policies as one immutable value, which is stored as one text in a file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final

from tianzhou.access import acl_changes, users
from tianzhou.access.acl_changes import read_policies, shown_acl, subject_name
from tianzhou.access.policies import Acls, Policies, PolicyType, ResourcePattern
from tianzhou.access.users import User, Users
from tianzhou.errors import ProtocolError, TianzhouError
from tianzhou.limits import ACCESS_BYTES, Bounds
from tianzhou.wire.bodies.access import ACL_INFO, USER_INFO, UserInfo
from tianzhou.wire.bodies.beans import read_array, read_object
from tianzhou.wire.json_dialect import dumps_pretty, loads

VERSION: Final = 1
"""Version of the file's format."""


@dataclass(frozen=True, slots=True)
class UserTable:
    """Users and their policies. Every change returns another table.

    Attributes:
        users: users by name.
        acls: policies by user.
    """

    users: Users = field(default_factory=lambda: MappingProxyType({}))
    acls: Acls = field(default_factory=lambda: MappingProxyType({}))

    def create_user(self, info: UserInfo, bounds: Bounds) -> UserTable:
        """Return the table with another user; see `users.created`."""
        return replace(self, users=users.created(self.users, info, bounds))

    def has_user(self, info: UserInfo) -> bool:
        """Whether the table contains the user that `create_user` would create.

        Raises:
            BrokerError: `info` describes no valid user.
        """
        (user,) = users.created({}, info, Bounds(_Unbounded())).values()
        return self.users.get(user.username) == user

    def update_user(self, info: UserInfo) -> UserTable:
        """Return the table with a changed user; see `users.updated`."""
        return replace(self, users=users.updated(self.users, info))

    def delete_user(self, username: str) -> UserTable:
        """Return the table without a user and its policies; unchanged when the user does not exist."""
        if username not in self.users and username not in self.acls:
            return self
        return UserTable(users.deleted(self.users, username), acl_changes.without(self.acls, username))

    def put_acl(self, username: str, policies: Policies, bounds: Bounds) -> UserTable:
        """Return the table with a user's entries added or replaced; see `acl_changes.put`."""
        return replace(self, acls=acl_changes.put(self.acls, self.users, username, policies, bounds))

    def with_entries(self, values: Mapping[str, Any], deleted: Iterable[str]) -> UserTable:
        """Return the table with the given users and their policies replaced, and with some users removed.

        Args:
            values: results of `user_entry`, by user name.
            deleted: names of users to remove.

        Raises:
            ProtocolError: a value is invalid; the text shows no password.
        """
        found, acls, unbounded = dict(self.users), dict(self.acls), Bounds(_Unbounded())
        for name in (*values, *deleted):
            found.pop(name, None)
            acls.pop(name, None)
        for name, value in values.items():
            try:
                _take_user(self, found, value["user"], unbounded)
                if value.get("acl") is not None:
                    _take_acl(replace(self, users=found), acls, value["acl"], unbounded)
            except (TianzhouError, TypeError, KeyError, AttributeError) as error:
                raise ProtocolError(f"user {name} cannot be taken: {error}") from None
        after = UserTable(MappingProxyType(found), MappingProxyType(acls))
        return self if after == self else after

    def delete_acl(self, username: str, kind: PolicyType, resource: ResourcePattern | None) -> UserTable:
        """Return the table without some of a user's entries; see `acl_changes.removed`."""
        return replace(self, acls=acl_changes.removed(self.acls, self.users, username, kind, resource))


def to_file(table: UserTable) -> bytes:
    """Return the text of the file, which includes the passwords.

    Raises:
        LimitExceeded: the text is too long (`maxAccessBytes`).
    """
    text = dumps_pretty(
        {
            "version": VERSION,
            "users": [USER_INFO.encode(_whole(user)) for _, user in sorted(table.users.items())],
            "acls": [ACL_INFO.encode(shown_acl(name, acl)) for name, acl in sorted(table.acls.items())],
        }
    )
    if len(text) > ACCESS_BYTES.default:
        raise ACCESS_BYTES.error(len(text), ACCESS_BYTES.default)
    return text


def user_entry(table: UserTable, name: str) -> dict[str, Any]:
    """Return a user with its password and policies as JSON values, for other members of a DLedger group."""
    acl = table.acls.get(name)
    return {
        "user": USER_INFO.encode(_whole(table.users[name])),
        "acl": None if acl is None else ACL_INFO.encode(shown_acl(name, acl)),
    }


def from_file(text: bytes) -> UserTable:
    """Return the users and policies of a file.

    Raises:
        ProtocolError: the content is invalid; the text shows no password.
    """
    try:
        found = read_object(loads(text), "the file")
    except (ProtocolError, RecursionError):
        raise ProtocolError("it is no JSON object") from None
    if found.get("version") != VERSION:
        raise ProtocolError(f"its version is not {VERSION}; another version of tianzhou has written it")
    table = UserTable()
    unbounded = Bounds(_Unbounded())
    for what, values, take in (
        ("users", found.get("users"), _take_user),
        ("acls", found.get("acls", []), _take_acl),
    ):
        changes: dict[str, Any] = {}
        for number, value in enumerate(read_array(values, what)):
            try:
                take(table, changes, value, unbounded)
            except (TianzhouError, TypeError) as error:
                raise ProtocolError(f"{what}[{number}] cannot be taken: {error}") from None
        table = replace(table, **{what: changes})
    return table


class _Unbounded:
    """Limits for the content of a file. Users that were accepted once are served, even if the settings have changed."""

    max_users = max_policy_entries = 1 << 31


def _take_user(table: UserTable, found: dict[str, Any], value: Any, bounds: Bounds) -> None:
    info = USER_INFO.decode(value)
    if info.username in found:
        raise ProtocolError(f"user {info.username} is there twice")
    # Create users one by one, because copying the whole mapping for each user would be slow.
    found.update(users.created({}, info, bounds))


def _take_acl(table: UserTable, found: dict[str, Any], value: Any, bounds: Bounds) -> None:
    info = ACL_INFO.decode(value)
    name = subject_name(info.subject)
    if name is None or name not in table.users or name in found:
        raise ProtocolError(f"subject {info.subject} is no user, or is there twice")
    found[name] = dict(read_policies(info.policies or ()))


def _whole(user: User) -> UserInfo:
    return UserInfo(user.username, user.password, user.type.value, user.status.value)


def differing(before: UserTable, after: UserTable) -> Mapping[str, str]:
    """Return the names of created, changed and removed users, each with the kind of change, for the log."""
    return {
        name: "removed" if name not in after.users else "created" if name not in before.users else "changed"
        for name in sorted({*before.users, *after.users})
        if before.users.get(name) != after.users.get(name) or before.acls.get(name) != after.acls.get(name)
    }
