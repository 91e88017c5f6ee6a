"""Offset message ids and unique keys."""

from __future__ import annotations

from datetime import datetime

import pytest

from tianzhou.errors import ProtocolError
from tianzhou.wire.ids import (
    UniqueIdGenerator,
    address_bytes,
    address_text,
    host_text,
    local_month,
    offset_msg_id,
    parse_offset_msg_id,
)

V4 = bytes([127, 0, 0, 1])
V6 = bytes.fromhex("20010db8000000000000000000000001")


@pytest.mark.parametrize(
    ("host", "text", "expected"),
    [
        (V4, "127.0.0.1", "7F00000100002A9F0000000000001000"),
        (V6, "2001:db8::1", "20010DB800000000000000000000000100002A9F0000000000001000"),
    ],
)
def test_offset_message_ids(host: bytes, text: str, expected: str) -> None:
    assert offset_msg_id(host, 10911, 4096) == expected
    assert parse_offset_msg_id(expected) == (text, 10911, 4096)
    assert parse_offset_msg_id(expected.lower()) == (text, 10911, 4096)


@pytest.mark.parametrize(
    "text", ["", "0", "7F000001", "Z" * 32, "7F00000100002A9F00000000000010 0", "0" * 40, "é" * 32]
)
def test_other_texts_are_no_offset_message_ids(text: str) -> None:
    with pytest.raises(ProtocolError, match="offset message id"):
        parse_offset_msg_id(text)


def test_addresses() -> None:
    assert address_text(V4) == "127.0.0.1"
    assert host_text(V4, 9876) == "127.0.0.1:9876"
    assert host_text(V6, 9876) == "[2001:db8::1]:9876"
    assert address_bytes("10.0.0.255") == bytes([10, 0, 0, 255])
    assert address_bytes("[2001:db8::1]") == V6
    assert address_bytes("fe80::1%eth0")[:2] == b"\xfe\x80"
    with pytest.raises(ProtocolError, match="'broker-a'"):
        address_bytes("broker-a")


def wall_ms(*when: int) -> int:
    """Return the milliseconds since the epoch of a local wall-clock time."""
    return int(datetime(*when).timestamp() * 1000)  # type: ignore[arg-type]  # noqa: DTZ001


def test_the_month_is_the_local_one() -> None:
    start, end = local_month(wall_ms(2024, 2, 29, 23, 59))
    assert (start, end) == (wall_ms(2024, 2, 1), wall_ms(2024, 3, 1))
    assert local_month(wall_ms(2023, 12, 31, 12)) == (wall_ms(2023, 12, 1), wall_ms(2024, 1, 1))
    assert local_month(start)[0] == start


def test_unique_keys_have_their_layout() -> None:
    now = wall_ms(2024, 5, 1) + 0x1234
    ids = UniqueIdGenerator(bytes([10, 1, 2, 3]), 0xA1B2C3, 0x18B4AAC2)
    assert ids.next(now) == "0A010203B2C318B4AAC2000012340000"
    assert ids.next(now) == "0A010203B2C318B4AAC2000012340001"
    assert ids.next(now + 1) == "0A010203B2C318B4AAC2000012350002"
    assert len(UniqueIdGenerator(V6, 1, 1).next(now)) == 56


def test_the_counter_wraps() -> None:
    ids = UniqueIdGenerator(V4, 1, 1)
    now = wall_ms(2024, 5, 3)
    made = [ids.next(now) for _ in range(65_537)]
    assert made[65_535].endswith("FFFF")
    assert made[65_536] == made[0]
    assert len(set(made)) == 65_536


def test_the_time_part_starts_again_with_the_month() -> None:
    ids = UniqueIdGenerator(V4, 1, 1)
    end = wall_ms(2024, 6, 1)
    assert int(ids.next(end - 1)[20:28], 16) == end - 1 - wall_ms(2024, 5, 1)
    assert ids.next(end)[20:28] == "00000000"
    # A clock set back over the boundary does not give a negative value.
    assert ids.next(end - 5)[20:28] == "00000000"
