"""Rules of RocketMQ 4.x: accepted peers, and the replies to refused ones."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tianzhou.access.plain_config import Account, PlainConfig
from tianzhou.access.plain_rules import PlainRules
from tianzhou.access.requests import NOBODY, AccessDenied, AccessRequest, Identity, RequestProof
from tianzhou.access.resources import Permission, PlainNeed
from tianzhou.access.signatures import signature

PUB, SUB = Permission.PUB, Permission.SUB
SEND = 310
USER = Account(
    "appUser1", "appSecret1", "10.9.*.*", False, "DENY", "SUB", ("orders=PUB|SUB", "audit=SUB"),
    ("cg=PUB",),
)  # fmt: skip
ADMIN = Account("theAdmin", "adminSecret", admin=True)
BOUND = Account("boundAdmin", "adminSecret", admin=True, topic_perms=("orders=SUB",))


def rules(need: PlainNeed, *more: Account) -> PlainRules:
    config = PlainConfig(("10.1.2.*",), (USER, ADMIN, BOUND))
    return PlainRules([config, PlainConfig(accounts=more)], lambda request: need)


def signed(account: Account, code: int = SEND, **values: Any) -> AccessRequest:
    fields = {"topic": "orders", "AccessKey": account.access_key}
    fields["Signature"] = signature(fields, b"body", account.secret_key)
    return msgspec.structs.replace(AccessRequest(code, fields, b"body", ip="192.168.0.1"), **values)


def refusal(need: PlainNeed, request: AccessRequest) -> str:
    with pytest.raises(AccessDenied) as caught:
        rules(need).check(request)
    assert caught.value.code == 1
    exception, _, text = caught.value.remark.partition(": ")
    assert exception == "org.apache.rocketmq.acl.common.AclException"
    return text


FOREIGN = PlainNeed({"others": PUB})


def test_peers_of_the_white_lists_are_not_checked() -> None:
    assert rules(FOREIGN).check(AccessRequest(SEND, {}, ip="10.1.2.3")) == ""
    unsigned = AccessRequest(SEND, {"AccessKey": "appUser1"}, ip="10.9.1.1")
    assert rules(FOREIGN).check(unsigned) == "appUser1"


def test_who_is_not_known_is_refused_with_the_texts_of_rocketmq() -> None:
    assert refusal(FOREIGN, AccessRequest(SEND, {}, ip="1.1.1.1")) == "No accessKey is configured"
    assert refusal(FOREIGN, AccessRequest(SEND, {"AccessKey": "nobody1"})) == "No acl config for nobody1"
    assert refusal(FOREIGN, signed(USER, body=b"other")) == "Check signature failed for accessKey=appUser1"
    with pytest.raises(AccessDenied):
        rules(FOREIGN).identify(signed(USER, body=b"other"))
    assert rules(FOREIGN).identify(signed(USER)) == Identity("appUser1", RequestProof.SIGNATURE)


@pytest.mark.parametrize(
    ("resource", "needed", "text"),
    [
        ("orders", PUB, ""),
        ("orders", SUB, ""),
        ("orders", Permission.ANY, ""),
        ("audit", SUB, ""),
        ("audit", PUB, "No default permission for topic:audit"),
        ("others", SUB, "No default permission for topic:others"),
        ("others", Permission.ANY, "No default permission for topic:others"),
        ("%RETRY%any", SUB, ""),
        ("%RETRY%cg", SUB, "No default permission for group:cg"),
        ("RMQ_SYS_TRACE_TOPIC", PUB, ""),
        ("RMQ_SYS_TRACE_TOPIC", SUB, "No default permission for topic:RMQ_SYS_TRACE_TOPIC"),
    ],
)
def test_permissions(resource: str, needed: Permission, text: str) -> None:
    need = PlainNeed({resource: needed})
    if text:
        assert refusal(need, signed(USER)) == text
    else:
        assert rules(need).check(signed(USER)) == "appUser1"


def test_every_resource_counts() -> None:
    assert refusal(PlainNeed({"orders": SUB, "others": SUB}), signed(USER)).endswith("topic:others")


@pytest.mark.parametrize("code", [17, 25, 200, 207, 215])
def test_admin_codes_need_an_administrator(code: int) -> None:
    nothing = PlainNeed({})
    text = f"Need admin permission for request code={code}, but accessKey=appUser1 is not"
    assert refusal(nothing, signed(USER, code)) == text
    assert rules(nothing).check(signed(ADMIN, code)) == "theAdmin"


def test_needs_may_ask_for_an_administrator() -> None:
    assert refusal(PlainNeed({}, admin=True), signed(USER)).startswith("Need admin permission")


def test_administrators_with_lists_are_bound_by_them() -> None:
    assert rules(FOREIGN).check(signed(ADMIN)) == "theAdmin"
    assert rules(PlainNeed({"orders": SUB})).check(signed(BOUND)) == "boundAdmin"
    assert refusal(FOREIGN, signed(BOUND)) == "No default permission for topic:others"


def test_administrators_may_without_what_others_need_where_the_need_says_so() -> None:
    need = PlainNeed({"others": PUB}, unless_admin=True)
    assert rules(need).check(signed(BOUND)) == "boundAdmin"
    assert refusal(need, signed(USER)) == "No default permission for topic:others"


def test_accounts_of_certificates_need_no_signature_and_have_no_white_list() -> None:
    shown = AccessRequest(SEND, {}, ip="10.1.2.3", account="appUser1")
    assert rules(PlainNeed({"orders": PUB})).check(shown) == "appUser1"
    assert refusal(FOREIGN, shown) == "No default permission for topic:others"
    stranger = msgspec.structs.replace(shown, account="stranger")
    assert refusal(FOREIGN, stranger) == "No acl config for stranger"


def test_first_file_has_the_account() -> None:
    again = Account("appUser1", "another1", admin=True)
    assert not rules(FOREIGN, again).is_admin("appUser1")
    assert rules(FOREIGN).is_admin("theAdmin")
    assert not rules(FOREIGN).is_admin("")


@pytest.mark.parametrize(
    ("request_ip", "account", "proof", "may"),
    [
        ("10.9.1.1", "appUser1", RequestProof.ADDRESS, True),
        ("10.9.1.1", "appUser1", RequestProof.SIGNATURE, True),
        ("10.1.2.3", "", RequestProof.NONE, True),
        ("192.168.0.1", "theAdmin", RequestProof.SIGNATURE, True),
        ("192.168.0.1", "appUser1", RequestProof.SIGNATURE, False),
        ("10.9.1.1", "appUser1", RequestProof.CERTIFICATE, False),
        ("192.168.0.1", "theAdmin", RequestProof.ADDRESS, False),
        ("192.168.0.1", "", RequestProof.NONE, False),
        ("192.168.0.1", "gone1234", RequestProof.SIGNATURE, False),
    ],
)
def test_who_was_let_in_may_for_a_message_what_its_own_requests_may(
    request_ip: str, account: str, proof: RequestProof, may: bool
) -> None:
    """A changed white list no longer admits a peer: `theAdmin` has none."""
    asked = AccessRequest(SEND, {"topic": "others"}, ip=request_ip, account=account)
    assert rules(FOREIGN).may(Identity(account, proof), asked, part_of=37) is may


def test_the_address_of_a_white_list_is_the_proof_of_its_account() -> None:
    found = rules(FOREIGN)
    assert found.identify(AccessRequest(SEND, {"AccessKey": "appUser1"}, ip="10.9.1.1")).proof is RequestProof.ADDRESS
    assert found.identify(AccessRequest(SEND, {}, ip="10.1.2.3")) == NOBODY


def test_lists_are_read_in_the_order_of_rocketmq() -> None:
    """Topics precede groups, and a group's name is used literally."""
    odd = Account(
        "oddUser1", "appSecret1", "", False, "DENY", "DENY", ("%RETRY%one=DENY",), ("one=SUB", "%RETRY%two=SUB")
    )
    for group in ("one", "two"):
        with pytest.raises(AccessDenied):
            rules(PlainNeed({f"%RETRY%{group}": SUB}), odd).check(signed(odd))
    rules(PlainNeed({"%RETRY%%RETRY%two": SUB}), odd).check(signed(odd))
