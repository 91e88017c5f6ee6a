"""Java's string hash and CRC-32 as both sides compute them."""

from __future__ import annotations

import zlib

import pytest

from tianzhou.records.checksum import crc32
from tianzhou.wire.hashing import index_hash, java_hash, tags_code


def by_definition(text: str) -> int:
    units = text.encode("utf-16-be", "surrogatepass")
    h = 0
    for i in range(0, len(units), 2):
        h = (31 * h + int.from_bytes(units[i : i + 2], "big")) & 0xFFFFFFFF
    return h - (1 << 32) if h >> 31 else h


@pytest.mark.parametrize(
    ("text", "expected"),
    [("TagA", 2598919), ("TagB", 2598920), ("é中", 27236), ("😀", 1772899), ("", 0), ("polygenelubricants", -(2**31))],
)
def test_known_hashes(text: str, expected: int) -> None:
    assert java_hash(text) == expected


@pytest.mark.parametrize("alphabet", ["a", "\x7f", "~!0", "é", "\uffff", "😀", "a中😀", "\ud800"])
def test_every_length_follows_the_definition(alphabet: str) -> None:
    for length in range(130):
        text = (alphabet * length)[:length]
        assert java_hash(text) == by_definition(text)


def test_tag_codes_are_signed_and_0_without_a_tag() -> None:
    assert tags_code("TagA") == 2598919
    assert tags_code("TAG-Z-with-a-long-name") == by_definition("TAG-Z-with-a-long-name") < 0
    assert tags_code(None) == 0
    assert tags_code("") == 0


@pytest.mark.parametrize(
    "key", ["", "k", "k1", "k12", "order-1", "7F0000010A2B18B4AAC2133E1B2C00FF", "é", "ab😀", "x" * 300]
)
def test_index_hashes_are_absolute(key: str) -> None:
    assert index_hash("TopicTest", key) == abs(by_definition(f"TopicTest#{key}"))
    assert index_hash("主题", key) == abs(by_definition(f"主题#{key}"))


def test_the_one_hash_without_absolute_becomes_0() -> None:
    assert java_hash("T#jllgvmc") == -(2**31)
    assert index_hash("T", "jllgvmc") == 0


def test_crcs_have_no_top_bit() -> None:
    assert crc32(b"") == 0
    assert crc32(b"hi") == zlib.crc32(b"hi") & 0x7FFFFFFF
    assert crc32(bytearray(b"hi")) == crc32(memoryview(b"hi")) == crc32(b"hi")
    assert zlib.crc32(b"hi") >> 31 == 1, "this input shows the difference"
