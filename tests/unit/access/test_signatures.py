"""Signatures of requests: verification with a secret, and detection of any later change."""

import hmac

import hypothesis.strategies as st
import pytest
from hypothesis import assume, given

from tianzhou.access.requests import AccessRequest
from tianzhou.access.signatures import is_signed, signature

SECRET = "12345678"
FIELDS = st.dictionaries(st.text(min_size=1), st.text(), max_size=6)


def signed(fields: dict[str, str], body: bytes = b"", version: int = 479, secret: str = SECRET) -> AccessRequest:
    made = {**fields, "AccessKey": "rocketmq2"}
    return AccessRequest(10, made | {"Signature": signature(made, body, secret)}, body, version)


def test_the_vector_of_the_specification():
    request = signed({"topic": "TopicTest"}, b"BODY")
    assert request.fields["Signature"] == "szobVin9eTf9L6mpag/lLR02cSc="
    assert is_signed(request, SECRET)


@given(FIELDS, st.binary())
def test_who_has_the_secret_signs_and_nobody_else(fields, body):
    assume(not {"Signature", "AccessKey", "_UNIQUE_KEY_QUERY"} & set(fields))
    assert is_signed(signed(fields, body), SECRET)
    assert not is_signed(signed(fields, body, secret="87654321"), SECRET)


@given(FIELDS, st.binary(), st.text(min_size=1), st.text(min_size=1))
def test_a_field_that_is_added_or_a_byte_of_the_body_breaks_it(fields, body, name, value):
    assume(name not in ("Signature", "AccessKey", "_UNIQUE_KEY_QUERY") and name not in fields)
    request = signed(fields, body)
    assert not is_signed(AccessRequest(10, {**request.fields, name: value}, body), SECRET)
    assert not is_signed(AccessRequest(10, request.fields, body + b"\0"), SECRET)


@pytest.mark.parametrize("claimed", ["", "x", "szobVin9eTf9L6mpag/lLR02cSc", "é" * 28, "\ud800", None])
def test_what_is_no_signature_is_none(claimed):
    fields = {"topic": "TopicTest", "AccessKey": "rocketmq2"}
    if claimed is not None:
        fields["Signature"] = claimed
    assert not is_signed(AccessRequest(10, fields, b"BODY"), SECRET)


@pytest.mark.parametrize(
    ("version", "in_it", "right"), [(399, False, True), (479, True, True), (479, False, True), (399, True, False)]
)
def test_the_mark_of_a_query_by_unique_key_may_be_signed_by_newer_clients(version, in_it, right):
    """Clients after 4.9.3 sign it for servers of 5.x, and none for servers of 4.9."""
    mark = {"_UNIQUE_KEY_QUERY": "true"}
    fields = {"topic": "T", "AccessKey": "rocketmq2"}
    # Under another name the same value is at the same place of the content.
    claimed = signature({"AccessKey": "rocketmq2", "_": "true", "topic": "T"} if in_it else fields, b"", SECRET)
    request = AccessRequest(12, fields | mark | {"Signature": claimed}, b"", version)
    assert is_signed(request, SECRET) is right


def test_signatures_are_compared_in_constant_time(monkeypatch):
    compared = []
    compare = hmac.compare_digest
    monkeypatch.setattr(hmac, "compare_digest", lambda one, other: compared.append((one, other)) or compare(one, other))
    right = signature({"a": "b"}, b"x", "secret")
    for claimed in (right, "", right[:-1], right + "=", "ß"):
        assert is_signed(AccessRequest(10, {"a": "b", "Signature": claimed}, b"x"), "secret") is (claimed == right)
        assert compared[-1] == (claimed.encode(), right.encode())
