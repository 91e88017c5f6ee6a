"""Conversion between values and bodies: results, refusals and error texts."""

from __future__ import annotations

import datetime as dt
import decimal
import enum
import functools
import sys
import typing
import uuid
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple, NewType, TypedDict

import msgspec
import pydantic
import pytest
from dispatch_bench import message
from hypothesis import given
from hypothesis import strategies as st

from tianzhou.client import decode_body, encode_message
from tianzhou.client.bodies import JSON, TEXT, decoder_of, encode_body, is_json
from tianzhou.errors import ClientError, ConfigError, UndecodableBody
from tianzhou.model import names


class Colour(enum.Enum):
    RED = "red"


@dataclass
class Item:
    name: str
    count: int = 1


@dataclass
class Order:
    id: int
    items: list[Item]
    note: str | None = None


class Row(TypedDict):
    id: int


class Point(NamedTuple):
    x: int
    y: int


class Frozen(msgspec.Struct):
    id: int


class Model(pydantic.BaseModel):
    id: int = pydantic.Field(gt=0, alias="orderId")
    placed: dt.date


@pydantic.dataclasses.dataclass
class Checked:
    id: Annotated[int, pydantic.Field(gt=0)]


@dataclass
class AroundAModel:
    model: Model


Identity = NewType("Identity", int)
MODEL = Model(orderId=7, placed=dt.date(2026, 1, 2))


def delivered(body, content_type=None):
    found = message(17, 3)
    found.body = body
    if content_type:
        found.properties[names.CONTENT_TYPE] = content_type
    return found


@pytest.mark.parametrize(
    ("kind", "value", "body"),
    [
        (dict, {"a": 1}, b'{"a":1}'),
        (list[int], [1, 2], b"[1,2]"),
        (Any, [None, True], b"[null,true]"),
        (Identity, 5, b"5"),
        (Colour, Colour.RED, b'"red"'),
        (decimal.Decimal, decimal.Decimal("1.50"), b'"1.50"'),
        (uuid.UUID, uuid.UUID(int=0), b'"00000000-0000-0000-0000-000000000000"'),
        (Order, Order(1, [Item("pen", 2)]), b'{"id":1,"items":[{"name":"pen","count":2}],"note":null}'),
        (Row, {"id": 1}, b'{"id":1}'),
        (Point, Point(1, 2), b"[1,2]"),
        (Frozen, Frozen(1), b'{"id":1}'),
        (Model, MODEL, b'{"orderId":7,"placed":"2026-01-02"}'),
        (list[Model], [MODEL], b'[{"orderId":7,"placed":"2026-01-02"}]'),
        (Checked, Checked(3), b'{"id":3}'),
        (AroundAModel, AroundAModel(MODEL), b'{"model":{"orderId":7,"placed":"2026-01-02"}}'),
    ],
)
def test_what_becomes_json_and_comes_back(kind, value, body):
    assert encode_body(value) == (body, JSON)
    assert decode_body(delivered(body, JSON), kind) == value
    assert decode_body(delivered(body), kind) == value


def test_bytes_stay_and_text_is_text():
    assert [encode_body(kind(b"\xff")) for kind in (bytes, bytearray, memoryview)] == [(b"\xff", None)] * 3
    assert encode_body("天") == ("天".encode(), TEXT)
    assert decode_body(delivered("天".encode(), TEXT), str) == "天"
    assert decode_body(delivered(b"\xff"), bytes) == b"\xff"


NAMES = st.text(st.characters(exclude_categories=["Cs"]))
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | NAMES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner),
    max_leaves=12,
)  # fmt: skip


@given(JSON_VALUES)
def test_all_of_json_comes_back(value):
    body, _ = encode_body(value)
    assert decode_body(delivered(body), str if isinstance(value, str) else Any) == value


@given(st.binary())
def test_no_bytes_of_strangers_raise_anything_else(body):
    reasons = []
    for kind in (Any, str, Order, Model, list[Model]):
        try:
            decode_body(delivered(body), kind)
        except UndecodableBody as error:
            reasons.append(error.reason)
    assert all(reason and "\n" not in reason for reason in reasons)


def test_a_message_says_what_its_body_is():
    made = encode_message("T", {"a": 1}, tags="x", keys=["k"], properties={"p": "q"}, delay_level=2, sharding_key="s")
    assert (made.body, made.tags, made.key_text(), made.delay_level, made.sharding_key) == (
        b'{"a":1}',
        "x",
        "k",
        2,
        "s",
    )
    assert made.properties == {"content_type": "application/json", "p": "q"}
    assert encode_message("T", b"\x00").properties == {}
    assert encode_message("T", [1], properties={"content_type": "a/b+json"}).properties == {"content_type": "a/b+json"}
    assert names.CONTENT_TYPE not in names.RESERVED


@pytest.mark.parametrize("value", [object(), {"a": object()}, "\ud800", {1: {2, object()}}])
def test_what_cannot_be_sent_is_refused_by_its_type(value):
    with pytest.raises(ClientError, match=f"a body of type {type(value).__name__} cannot be sent: .*; give bytes"):
        encode_body(value)


@pytest.mark.parametrize(
    ("kind", "body", "reason"),
    [
        (Order, b"", "Input data was truncated"),
        (Order, b"{", "Input data was truncated"),
        (Order, b'{"id": "secret"}', "Expected `int`, got `str` - at `$.id`"),
        (Order, b'{"id": 1}', "Object missing required field `items`"),
        (Model, b'{"orderId": -5}', "orderId: Input should be greater than 0; placed: Field required"),
        (Model, b"x", "Invalid JSON: expected value at line 1 column 1"),
        (list[Model], b'[{"orderId": "secret", "placed": "x"}]', "0.orderId: Input should be a valid integer"),
        (str, b"\xff", "it is no UTF-8: invalid start byte at byte 0"),
    ],
)
def test_a_reason_says_what_is_wrong_and_nothing_of_the_body(kind, body, reason):
    with pytest.raises(UndecodableBody) as caught:
        decode_body(delivered(body), kind)
    assert reason in caught.value.reason
    assert "secret" not in str(caught.value)
    assert str(caught.value).startswith(
        f"message id17 of topic T at offset 17 of queue 3: its body is no {kind.__name__}"
    )


def test_many_complaints_are_cut():
    class Wide(pydantic.BaseModel):
        a: int
        b: int
        c: int
        d: int
        e: int

    with pytest.raises(UndecodableBody, match="c: Field required; and 2 more"):
        decode_body(delivered(b"{}"), Wide)


@pytest.mark.parametrize(
    ("content_type", "expected"),
    [
        (None, True),
        ("", True),
        ("application/json", True),
        ("Application/JSON; charset=utf-8", True),
        ("application/cloudevents+json", True),
        ("text/plain", True),
        ("application/x-protobuf", False),
        ("image/png", False),
    ],
)
def test_what_may_be_json(content_type, expected):
    assert is_json(content_type) is expected


def test_a_body_that_says_it_is_no_json_is_not_parsed_as_json():
    with pytest.raises(UndecodableBody, match="its content_type is image/png, and JSON is expected"):
        decode_body(delivered(b"1", "image/png"), int)
    assert decode_body(delivered(b"1", "image/png"), bytes) == b"1"


def test_a_function_of_bytes_decodes_whatever_it_knows():
    assert decode_body(delivered(b"7", "application/x-mine"), lambda body: int(body) + 1) == 8
    assert decode_body(delivered(b"ff"), functools.partial(int, base=16)) == 255
    with pytest.raises(UndecodableBody, match="ValueError: invalid literal"):
        decode_body(delivered(b"x"), lambda body: int(body))


class Plain:
    pass


@dataclass
class HasPlain:
    inner: list[Plain]


@pytest.mark.parametrize("kind", [Plain, HasPlain, dict[str, Plain], typing.Optional[Plain]])  # noqa: UP045
def test_a_class_that_nothing_becomes_is_found_before_the_first_message(kind):
    with pytest.raises(ConfigError, match="JSON says nothing of how to make a Plain; make it a dataclass"):
        decoder_of(kind)


@dataclass
class Unknown:
    inner: Nowhere  # noqa: F821


def test_a_type_that_cannot_be_looked_up_is_refused():
    with pytest.raises(ConfigError, match=r"body=Unknown: nothing can be decoded to it: name 'Nowhere' is not defined"):
        decoder_of(Unknown)


def test_models_of_pydantic_1_and_a_lack_of_pydantic_are_named(monkeypatch):
    class Old:
        parse_raw = None

    with pytest.raises(ConfigError, match=r"body=Old is a model of pydantic 1; .*pip install 'pydantic>=2'"):
        decoder_of(Old)

    class Marked:
        __pydantic_validator__ = None

    monkeypatch.setitem(sys.modules, "pydantic", None)
    with pytest.raises(ConfigError, match=r"needs pydantic 2, which is not here: pip install 'pydantic>=2'"):
        decoder_of(Marked)


def test_pydantic_is_not_imported_for_others():
    import subprocess

    program = (
        "import sys; from dataclasses import dataclass; from tianzhou.client.bodies import decoder_of, encode_body\n"
        "@dataclass\nclass A: a: int\n"
        "assert decoder_of(A).decode(encode_body(A(1))[0]) == A(1)\n"
        "print('pydantic' in sys.modules)"
    )
    assert subprocess.check_output([sys.executable, "-c", program], text=True) == "False\n"
