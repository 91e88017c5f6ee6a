"""Users are created, changed and authenticated like in RocketMQ 5.3.3, and their passwords are not revealed."""

from __future__ import annotations

import pytest
from msgspec import structs

from tianzhou.access.requests import AccessDenied, AccessRequest
from tianzhou.access.signatures import signature
from tianzhou.access.users import User, UserStatus, UserType, authenticated, created, deleted, shown_user, updated
from tianzhou.errors import BrokerError, LimitExceeded
from tianzhou.limits import Bounds
from tianzhou.wire.bodies.access import USER_INFO, UserInfo

SECRET = "s3cret-of-alice"
USERS = created({}, UserInfo("alice", SECRET), Bounds())


def signed(secret: str = SECRET, name: str = "alice", **more: str) -> AccessRequest:
    fields = {"topic": "T", "AccessKey": name}
    return AccessRequest(10, fields | {"Signature": signature(fields, b"body", secret)}, b"body", **more)


def test_a_new_user_is_normal_and_enabled() -> None:
    assert USERS["alice"] == User("alice", SECRET, UserType.NORMAL, UserStatus.ENABLE)


@pytest.mark.parametrize(
    ("info", "code", "text"),
    [
        (UserInfo(" ", "p"), 16, "username can not be blank"),
        (UserInfo("bob", " "), 16, "password can not be blank"),
        (UserInfo("bob"), 16, "password can not be blank"),
        (UserInfo("alice", "p"), 16, "The user is existed"),
        (UserInfo("bob", "p", "Supreme"), 29, "userType Supreme: expected Super or Normal"),
        (UserInfo("bob", "p", None, "disabled"), 29, "userStatus disabled: expected enable or disable"),
        (UserInfo("b\nob", "p"), 29, "username b\\nob: has control characters or half characters; leave them out"),
    ],
)
def test_a_user_that_cannot_be_is_refused_with_the_reason(info: UserInfo, code: int, text: str) -> None:
    with pytest.raises(BrokerError) as refusal:
        created(USERS, info, Bounds())
    assert (refusal.value.code, refusal.value.remark) == (code, text)


def test_a_change_touches_what_it_names_only() -> None:
    disabled = updated(USERS, UserInfo("alice", user_status="DISABLE"))
    assert disabled["alice"] == User("alice", SECRET, UserType.NORMAL, UserStatus.DISABLE)
    assert updated(disabled, UserInfo("alice", "", "super", "enable"))["alice"].is_super
    assert updated(USERS, UserInfo("alice", "new"))["alice"].password == "new"
    with pytest.raises(BrokerError, match="The user is not exist"):
        updated(USERS, UserInfo("bob", "p"))
    assert deleted(USERS, "alice") == {}


@pytest.mark.over_limit("maxUsers")
def test_users_are_bounded() -> None:
    class Settings:
        max_users = 1

    with pytest.raises(LimitExceeded, match="user bob: 2 users, at most 1 are allowed; raise maxUsers"):
        created(USERS, UserInfo("bob", "p"), Bounds(Settings()))


@pytest.mark.over_limit("maxCredentialLength")
@pytest.mark.parametrize("info", [UserInfo("b" * 1025, "p"), UserInfo("bob", "p" * 1025)])
def test_names_and_passwords_are_bounded(info: UserInfo) -> None:
    with pytest.raises(LimitExceeded, match="1025 characters, at most 1024") as refusal:
        created(USERS, info, Bounds())
    assert "pp" not in str(refusal.value)


def test_no_password_is_shown() -> None:
    assert SECRET not in repr(USERS) + repr(UserInfo("alice", SECRET))
    assert USER_INFO.dumps(shown_user(USERS["alice"])) == (
        b'{"userStatus":"enable","userType":"Normal","username":"alice"}'
    )


def test_who_has_signed_is_known() -> None:
    assert authenticated(USERS, signed()).username == "alice"
    # Brokers show the certificate of their machine and sign as themselves.
    assert authenticated(USERS, structs.replace(signed(), account="mallory")).username == "alice"
    assert authenticated(USERS, AccessRequest(10, {}, account="alice")).username == "alice"


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        (AccessRequest(10, {}), "username cannot be null."),
        (AccessRequest(10, {"AccessKey": ""}), "username cannot be null."),
        (signed(name="bob"), "User:bob is not found."),
        (signed("other"), "check signature failed."),
        (AccessRequest(10, {"AccessKey": "alice"}), "check signature failed."),
        (AccessRequest(10, {}, account="mallory"), "User:mallory is not found."),
        (AccessRequest(10, {"AccessKey": "alice"}, account="alice"), "check signature failed."),
    ],
)
def test_who_has_not_is_refused_with_the_reason(request_: AccessRequest, text: str) -> None:
    with pytest.raises(AccessDenied) as refusal:
        authenticated(USERS, request_)
    assert (refusal.value.code, refusal.value.remark) == (16, text)


def test_a_disabled_user_is_refused_with_signature_and_with_certificate() -> None:
    users = updated(USERS, UserInfo("alice", user_status="disable"))
    for request in (signed(), AccessRequest(10, {}, account="alice")):
        with pytest.raises(AccessDenied, match=r"User:alice is disabled\."):
            authenticated(users, request)
