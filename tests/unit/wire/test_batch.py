"""Batch bodies."""

from __future__ import annotations

import struct

import pytest

from tianzhou.errors import ProtocolError
from tianzhou.wire.batch import decode_batch, encode_batch

VECTOR = bytes.fromhex(
    "0000001c00000000000000000000000000000002623100046b01760200000019000000000000000000000000000000036232320000"
)


def entries(body: bytes | bytearray | memoryview) -> list[tuple[int, bytes, bytes]]:
    return [(flag, bytes(entry), bytes(properties)) for flag, entry, properties in decode_batch(body)]


def test_the_reference_vector() -> None:
    assert encode_batch([(0, b"b1", b"k\x01v\x02"), (0, b"b22", b"")]) == VECTOR
    assert entries(VECTOR) == [(0, b"b1", b"k\x01v\x02"), (0, b"b22", b"")]
    assert entries(memoryview(bytearray(VECTOR))) == entries(VECTOR)
    assert entries(b"") == []


def test_flags_are_signed() -> None:
    flags = [-7, 2**31 - 1]
    body = encode_batch([(flag, b"x", b"") for flag in flags])
    assert [flag for flag, _, _ in entries(body)] == flags


def test_a_total_size_of_0_is_accepted_and_a_lie_is_not() -> None:
    assert len(decode_batch(bytes(4) + VECTOR[4:])) == 2
    for lie in (1, -5, 5000, 27):
        with pytest.raises(ProtocolError, match=f"entry 0 at byte 0: totalSize {lie} "):
            decode_batch(struct.pack(">i", lie) + VECTOR[4:])


@pytest.mark.parametrize("cut", range(1, len(VECTOR)))
def test_cut_bodies_are_refused(cut: int) -> None:
    if cut == 28:
        return
    with pytest.raises(ProtocolError, match=r"batch entry [01] at byte (0|28): "):
        decode_batch(VECTOR[:cut])


@pytest.mark.parametrize("stray", [b"\0", bytes(21), bytes(22)])
def test_stray_bytes_are_refused_unless_they_are_an_entry(stray: bytes) -> None:
    if len(stray) == 22:
        assert entries(VECTOR + stray)[2] == (0, b"", b"")
        return
    with pytest.raises(ProtocolError, match="entry 2 at byte 53"):
        decode_batch(VECTOR + stray)


@pytest.mark.parametrize(("at", "value"), [(16, -1), (16, 2**31 - 1), (16, 500)])
def test_lengths_beyond_the_end_are_refused(at: int, value: int) -> None:
    body = bytearray(VECTOR)
    struct.pack_into(">i", body, at, value)
    with pytest.raises(ProtocolError, match=f"body length {value}"):
        decode_batch(body)
    body = bytearray(VECTOR)
    struct.pack_into(">h", body, 22, -1)
    with pytest.raises(ProtocolError, match="properties length -1"):
        decode_batch(body)
