"""Users of RocketMQ 5.3: their names, secrets, types and states, and who has signed a request (broker.md §22.2)."""

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
    """Type of a user: super users may do everything."""

    SUPER = "Super"
    NORMAL = "Normal"


class UserStatus(enum.StrEnum):
    """State of a user: requests of one that is disabled are refused."""

    ENABLE = "enable"
    DISABLE = "disable"


@dataclass(frozen=True, slots=True)
class User:
    """A user.

    Attributes:
        username: its name, the `AccessKey` of requests.
        password: the secret that its requests are signed with.
        type: super or normal.
        status: enabled or disabled.
    """

    username: str
    password: str = field(repr=False)
    type: UserType = UserType.NORMAL
    status: UserStatus = UserStatus.ENABLE

    @property
    def is_super(self) -> bool:
        """Whether it may do everything, as long as it is enabled."""
        return self.type is UserType.SUPER and self.status is UserStatus.ENABLE


Users = Mapping[str, User]
"""Users by name. A change makes another mapping."""


def refused(text: str) -> BrokerError:
    """Error for a change that RocketMQ answers with code 16 and its text."""
    return BrokerError(ResponseCode.NO_PERMISSION, text)


def invalid(text: str) -> BrokerError:
    """Error for a value that cannot be used, code 29."""
    return BrokerError(ResponseCode.INVALID_PARAMETER, text)


def named(names: type[Name], text: str | None, what: str) -> Name | None:
    """Member of an enum by its name in any case; None for a text that is missing or empty.

    RocketMQ takes a misspelt name for a missing one, and so would make an enabled user of `disabled`.

    Args:
        names: the enum.
        text: a peer's text.
        what: what it names, for the error.

    Raises:
        BrokerError: there is no such name, code 29.
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
    """Users with another one; RocketMQ's checks, in its order.

    Raises:
        BrokerError: name or password are blank or cannot be used, or there is a user of that name.
        LimitExceeded: there are too many (`maxUsers`).
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
    """Users with one changed; what `info` does not say stays.

    Raises:
        BrokerError: there is no user of that name, or a value cannot be used.
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
    """Users without one; the same when there is none of that name."""
    return {name: user for name, user in users.items() if name != username}


def shown_user(user: User) -> UserInfo:
    """A user as servers answer it: without its password, which RocketMQ sends."""
    return UserInfo(user.username, None, user.type.value, user.status.value)


def authenticated(users: Users, request: AccessRequest) -> User:
    """The user who has signed a request, or, where nobody has, whose certificate the peer has shown.

    Raises:
        AccessDenied: there is none, it is disabled, or the signature is another's; code 16 with RocketMQ's text.
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
