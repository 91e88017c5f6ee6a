"""Users of RocketMQ 5.3: names, passwords, types, states, and the authentication of requests (broker.md §22.2)."""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

from tianzhou.access.requests import AccessDenied, AccessRequest
from tianzhou.access.signatures import ACCESS_KEY, is_signed
from tianzhou.errors import BrokerError
from tianzhou.escaping import UNSAFE, shown
from tianzhou.limits import CREDENTIAL_LENGTH, USERS, Bounds
from tianzhou.wire.bodies.access import UserInfo
from tianzhou.wire.codes import ResponseCode

_UNSAFE: Final = re.compile(UNSAFE)
Name = TypeVar("Name", bound=enum.StrEnum)


class UserType(enum.StrEnum):
    """Type of a user. Super users have all permissions."""

    SUPER = "Super"
    NORMAL = "Normal"


class UserStatus(enum.StrEnum):
    """State of a user. Requests of a disabled user are refused."""

    ENABLE = "enable"
    DISABLE = "disable"


@dataclass(frozen=True, slots=True)
class User:
    """A user.

    Attributes:
        username: the user's name, which is the `AccessKey` of requests.
        password: the secret that signs the user's requests.
        type: super or normal.
        status: enabled or disabled.
    """

    username: str
    password: str = field(repr=False)
    type: UserType = UserType.NORMAL
    status: UserStatus = UserStatus.ENABLE

    @property
    def is_super(self) -> bool:
        """Whether the user has all permissions, which requires that it is enabled."""
        return self.type is UserType.SUPER and self.status is UserStatus.ENABLE


Users = Mapping[str, User]
"""Users by name. A change creates another mapping."""


def refused(text: str) -> BrokerError:
    """Return the error for a change that RocketMQ refuses with code 16 and this text."""
    return BrokerError(ResponseCode.NO_PERMISSION, text)


def invalid(text: str) -> BrokerError:
    """Return the error for an invalid value, code 29."""
    return BrokerError(ResponseCode.INVALID_PARAMETER, text)


def named(names: type[Name], text: str | None, what: str) -> Name | None:
    """Return the member of an enum by its name, ignoring case; None for a missing or empty text.

    RocketMQ treats a misspelt name as a missing one, so it would create an enabled user for `disabled`.

    Args:
        names: the enum.
        text: the text in a request.
        what: description of the value, for the error.

    Raises:
        BrokerError: the enum has no such name, code 29.
    """
    if not text:
        return None
    for name in names:
        if name.value.lower() == text.lower():
            return name
    raise invalid(f"{what} {shown(text)}: expected {' or '.join(names)}")


def _check_text(what: str, text: str, *, secret: bool = False) -> None:
    if len(text) > CREDENTIAL_LENGTH.default:
        raise CREDENTIAL_LENGTH.error(len(text), CREDENTIAL_LENGTH.default, what)
    if _UNSAFE.search(text):
        where = what if secret else f"{what} {shown(text)}"
        raise invalid(f"{where}: has control characters or half characters; leave them out")


def created(users: Users, info: UserInfo, bounds: Bounds) -> Users:
    """Return the users with another one, after RocketMQ's checks in RocketMQ's order.

    Raises:
        BrokerError: name or password are blank or invalid, or the user exists.
        LimitExceeded: there are too many users (`maxUsers`).
    """
    username, password = info.username or "", info.password or ""
    if not username.strip():
        raise refused("username can not be blank")
    if not password.strip():
        raise refused("password can not be blank")
    _check_text("username", username)
    _check_text(f"password of {username}", password, secret=True)
    user = User(
        username,
        password,
        named(UserType, info.user_type, "userType") or UserType.NORMAL,
        named(UserStatus, info.user_status, "userStatus") or UserStatus.ENABLE,
    )
    if username in users:
        raise refused("The user is existed")
    bounds.check(USERS, len(users) + 1, f"user {username}")
    return {**users, username: user}


def updated(users: Users, info: UserInfo) -> Users:
    """Return the users with one changed. Fields that are missing in `info` stay unchanged.

    Raises:
        BrokerError: the user does not exist, or a value is invalid.
    """
    username = info.username or ""
    if not username.strip():
        raise refused("username can not be blank")
    kind = named(UserType, info.user_type, "userType")
    status = named(UserStatus, info.user_status, "userStatus")
    user = users.get(username)
    if user is None:
        raise refused("The user is not exist")
    if info.password and info.password.strip():
        _check_text(f"password of {username}", info.password, secret=True)
        user = replace(user, password=info.password)
    return {**users, username: replace(user, type=kind or user.type, status=status or user.status)}


def deleted(users: Users, username: str) -> Users:
    """Return the users without one; unchanged when the user does not exist."""
    return {name: user for name, user in users.items() if name != username}


def shown_user(user: User) -> UserInfo:
    """Return a user in the form of a server's reply, without its password. RocketMQ includes the password."""
    return UserInfo(user.username, None, user.type.value, user.status.value)


def authenticated(users: Users, request: AccessRequest) -> User:
    """Return the user that signed a request, or without a signature the user of the peer's certificate.

    Raises:
        AccessDenied: no user is named or known, it is disabled, or the signature is wrong; code 16 with RocketMQ's
            text.
    """
    signs = request.fields.get(ACCESS_KEY, "")
    username = signs or request.account
    if not username:
        raise AccessDenied(ResponseCode.NO_PERMISSION, "username cannot be null.")
    user = users.get(username)
    if user is None:
        raise AccessDenied(ResponseCode.NO_PERMISSION, f"User:{shown(username)} is not found.")
    if user.status is not UserStatus.ENABLE:
        raise AccessDenied(ResponseCode.NO_PERMISSION, f"User:{shown(username)} is disabled.")
    if signs and not is_signed(request, user.password):
        raise AccessDenied(ResponseCode.NO_PERMISSION, "check signature failed.")
    return user
