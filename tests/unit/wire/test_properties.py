"""The property string of a message."""

from __future__ import annotations

import pytest

from tianzhou.errors import ClientError
from tianzhou.wire.properties import decode_properties, encode_properties, get_property


def raw(text: str) -> bytes:
    """Return the bytes of a text; ␁ and ␂ are the separators."""
    return text.replace("␁", "\x01").replace("␂", "\x02").encode()


def test_every_pair_is_terminated() -> None:
    assert encode_properties({"k": "v"}).hex() == "6b017602"
    assert encode_properties({"TAGS": "标签", "KEYS": "a b"}) == raw("TAGS␁标签␂KEYS␁a b␂")
    assert encode_properties({}) == b""


def test_none_is_left_out_and_empty_values_are_not() -> None:
    assert encode_properties({"a": None, "b": "", "c": "1"}) == raw("b␁␂c␁1␂")


def test_a_value_may_hold_the_first_separator() -> None:
    assert encode_properties({"e": "f\x01g"}) == raw("e␁f␁g␂")


@pytest.mark.parametrize(
    ("name", "value"), [("a\x01b", "c"), ("a\x02b", "c"), ("a", "b\x02"), ("a", "b\x02c\x01d"), ("\x01", "")]
)
def test_other_separators_are_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(ClientError, match="property") as caught:
        encode_properties({"good": "x", name: value})
    assert repr(name) in str(caught.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a␁␂b␁c␂␁z␂d␁e=f␁g", {"b": "c", "d": "e=f\x01g"}), ("k␁v", {"k": "v"}), ("k␁v␂", {"k": "v"}), ("", {}),
        ("␂␂␂", {}), ("abc␂k␁v", {"k": "v"}), ("␁␂␁v␂k␁", {}), ("k␁1␂x␁y␂k␁2␂", {"k": "2", "x": "y"}),
        ("k␁1␂k␁␂", {"k": "1"}), ("k␁␁␂", {"k": "\x01"}),
    ],
)  # fmt: skip
def test_reading(text: str, expected: dict[str, str]) -> None:
    assert decode_properties(raw(text)) == expected
    assert decode_properties(memoryview(raw(text))) == expected
    for name in ("k", "x", "a", "b", "d", "e", "abc", "z"):
        assert get_property(raw(text), name) == expected.get(name)


def test_bytes_that_are_no_text_are_replaced() -> None:
    assert decode_properties(b"k\x01\xff\xfe\x02") == {"k": "\ufffd\ufffd"}
    assert get_property(b"k\x01\xff\x02", "k") == "\ufffd"


def test_one_property_is_found_by_its_whole_name() -> None:
    data = bytearray(raw("MY_TAGS␁no␂TAGS2␁no␂v␁TAGS␁no␂TAGS␁yes␂"))
    assert get_property(data, "TAGS") == "yes"
    assert get_property(data, "MY_TAGS") == "no"
    assert get_property(data, "AGS") is None
    assert get_property(memoryview(data), "v") == "TAGS\x01no"
