"""Signed requests: the signed content, and its completeness."""

import base64
import hashlib
import hmac

import pytest

from tianzhou.access.signatures import signature
from tianzhou.client import ClientInstance
from tianzhou.errors import ConfigError
from tianzhou.remoting.client import Exchange
from tianzhou.remoting.signing import signing
from tianzhou.wire.command import Command

ACCESS, SECRET = "rocketmq2", "12345678"


def expected(content: bytes) -> str:
    return base64.b64encode(hmac.new(SECRET.encode(), content, hashlib.sha1).digest()).decode()


def test_the_values_of_all_fields_by_name_and_the_body_are_signed():
    fields = {
        "topic": "T",
        "AccessKey": ACCESS,
        "b": "2",
        "Z": "9",
        "Signature": "not this one",
        "_UNIQUE_KEY_QUERY": "true",
    }
    # Upper case precedes lower case, as in Java's sorted maps.
    assert signature(fields, b"body", SECRET) == expected(b"rocketmq2" + b"9" + b"2" + b"T" + b"body")
    assert signature({}, b"", SECRET) == expected(b"")
    assert signature({"a": "é"}, b"\xff", SECRET) == expected("é".encode() + b"\xff")


def test_a_hook_adds_key_token_and_signature_and_leaves_the_rest():
    request = Command(10, fields={"topic": "T"}, body=b"x")
    sign = signing(ACCESS, SECRET, "token")
    sign(Exchange("h:1", request))
    assert request.fields == {
        "topic": "T",
        "AccessKey": ACCESS,
        "SecurityToken": "token",
        "Signature": expected(b"rocketmq2" + b"token" + b"T" + b"x"),
    }
    sign(Exchange("h:1", request))  # a repeated request is signed again
    assert request.fields["Signature"] == expected(b"rocketmq2" + b"token" + b"T" + b"x")


def test_a_query_by_unique_key_is_one_of_the_last_version_whose_mark_no_broker_counts():
    mark = {"_UNIQUE_KEY_QUERY": "true", "topic": "T"}
    query, other = Command(12, fields=mark), Command(12, fields={"topic": "T"})
    assert query.version == other.version > 399
    for request in (query, other):
        signing(ACCESS, SECRET)(Exchange("h:1", request))
    # Brokers from 5.0 on do this with requests of version 399 and lower, and brokers before 5.0 always.
    assert (query.version, query.fields["Signature"]) == (399, expected(b"rocketmq2" + b"T"))
    assert query.fields["_UNIQUE_KEY_QUERY"] == "true"
    assert (other.version, other.fields["Signature"]) == (479, expected(b"rocketmq2" + b"T"))


def test_it_signs_what_other_hooks_have_added():
    def add(exchange):
        exchange.request.fields = {**exchange.request.fields, "extra": "field"}

    instance = ClientInstance("127.0.0.1:9876", rpc_hooks=[add], access_key=ACCESS, secret_key=SECRET, namespace_v2="n")
    request = instance.remoting.prepare("h:1", Command(10, fields={"topic": "T"}))
    fields = dict(request.fields)
    assert fields["Signature"] == signature(fields, b"", SECRET)
    assert (fields["extra"], fields["ns"]) == ("field", "n")


@pytest.mark.parametrize("options", [{"access_key": ACCESS}, {"secret_key": SECRET}, {"security_token": "t"}])
def test_half_of_it_is_refused(options):
    with pytest.raises(ConfigError, match="requests cannot be signed without"):
        ClientInstance("127.0.0.1:9876", **options)
    assert signing(None, None) is None


def test_the_environment_says_who_signs_where_no_option_does(monkeypatch: pytest.MonkeyPatch):
    def signer(**options: str) -> str | None:
        request = Command(10, fields={"topic": "T"})
        instance = ClientInstance("127.0.0.1:9876", **options)
        return instance.remoting.prepare("h:1", request).fields.get("AccessKey")

    monkeypatch.setenv("TIANZHOU_ACCESS_KEY", ACCESS)
    with pytest.raises(ConfigError, match="without secret_key"):
        signer()
    monkeypatch.setenv("TIANZHOU_SECRET_KEY", SECRET)
    assert signer() == ACCESS
    assert signer(access_key="another", secret_key="its-secret") == "another"
    monkeypatch.delenv("TIANZHOU_ACCESS_KEY")
    monkeypatch.delenv("TIANZHOU_SECRET_KEY")
    assert signer() is None
