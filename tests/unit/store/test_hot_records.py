"""`put_record` compared with the reference encoder, and `gather` at its limits."""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tianzhou._hot.records import UNIT, GatherLimits, Proof, put_record
from tianzhou.records.codec import Record, encode_record, fill_property_crc, reserve_property_crc
from tianzhou.records.layout import MAGIC_V1, MAGIC_V2
from tianzhou.store import NewRecord

I32 = st.integers(-(1 << 31), (1 << 31) - 1)
I64 = st.integers(-(1 << 63), (1 << 63) - 1)
HOST = st.one_of(st.binary(min_size=4, max_size=4), st.binary(min_size=16, max_size=16))
PORT = st.integers(0, 65_535)
UNLIMITED = GatherLimits(1 << 60, 1000, 1 << 30, 1000, 1 << 30)


@given(
    topic=st.text("abcXYZ%-_", min_size=1, max_size=255),
    body=st.binary(max_size=300),
    properties=st.binary(max_size=300),
    numbers=st.tuples(I32, I32, I32, I32),
    longs=st.tuples(I64, I64, I64, I64, I64),
    hosts=st.tuples(HOST, PORT, HOST, PORT),
)
def test_bytes_equal_those_of_the_reference_encoder(
    topic: str,
    body: bytes,
    properties: bytes,
    numbers: tuple[int, int, int, int],
    longs: tuple[int, int, int, int, int],
    hosts: tuple[bytes, int, bytes, int],
) -> None:
    queue_id, flag, sys_flag, reconsumed = numbers
    queue_offset, physical, born, stored, prepared = longs
    born_host, born_port, store_host, store_port = hosts
    expected = encode_record(
        Record(
            topic, queue_id, queue_offset, physical, flag, sys_flag, born, born_host, born_port, stored,
            store_host, store_port, reconsumed, prepared, body, properties,
        )
    )  # fmt: skip
    bits = (0x10 if len(born_host) == 16 else 0) | (0x20 if len(store_host) == 16 else 0)
    encoded = topic.encode()
    long = len(topic) > 127
    record = NewRecord(
        topic, queue_id, body, properties, flag, sys_flag, born, born_host, born_port, reconsumed, prepared
    )
    for body_form in (body, memoryview(body)):
        record.body = body_form  # type: ignore[assignment]
        target = mmap.mmap(-1, 4096)
        put_record(
            target,
            17,
            len(expected),
            physical,
            MAGIC_V2 if long else MAGIC_V1,
            len(encoded).to_bytes(2 if long else 1, "big") + encoded,
            queue_offset,
            sys_flag & ~0x30 | bits,
            stored,
            store_host + store_port.to_bytes(4, "big"),
            record,
        )
        assert target[17 : 17 + len(expected)] == expected
        assert not any(target[:17])
        assert not any(target[17 + len(expected) :])


@dataclass
class Part:
    start: int
    view: memoryview


def units(*places: tuple[int, int, int]) -> memoryview:
    return memoryview(b"".join(UNIT.pack(*place) for place in places))


def record_of(place: int, mark: int) -> bytes:
    return struct.pack(">ii20xqi", 40, MAGIC_V1, place, mark)


PARTS = [
    Part(start, memoryview(b"".join(record_of(start + 40 * n, start // 400 * 10 + n) for n in range(10))))
    for start in (1000, 1400)
]


def marks(records: bytes) -> list[int]:
    """Return the last byte of each record."""
    return list(records[39::40])


def test_gather_takes_records_across_segments(hot: SimpleNamespace) -> None:
    found, count, passed, last, gone = hot.gather(
        units((1000, 40, 0), (1360, 40, 0), (1400, 40, 0)), PARTS, 400, 1440, None, None, UNLIMITED
    )
    assert marks(found) == [20, 29, 30]
    assert (count, passed, last, gone) == (3, 3, 1400, False)


def test_gather_filters_by_tag_but_not_what_only_an_extension_file_knows(hot: SimpleNamespace) -> None:
    address = -(1 << 63) + 40
    found, _, passed, _, _ = hot.gather(
        units((1000, 40, 7), (1040, 40, 8), (1080, 40, address)), PARTS, 400, 1800, frozenset({8}), None, UNLIMITED
    )
    assert marks(found) == [21, 22]
    assert passed == 3


def test_gather_reports_that_records_have_gone_only_before_the_first_found(hot: SimpleNamespace) -> None:
    _, _, passed, _, gone = hot.gather(units((10, 40, 0), (0, 0x7FFFFFFF, 0)), PARTS, 400, 1800, None, None, UNLIMITED)
    assert (passed, gone) == (2, True)
    _, count, passed, _, gone = hot.gather(units((1000, 40, 0), (10, 40, 0)), PARTS, 400, 1800, None, None, UNLIMITED)
    # The next read begins with the record, and reports it.
    assert (count, passed, gone) == (1, 1, False)


def test_gather_passes_over_units_and_records_that_contradict_each_other(hot: SimpleNamespace) -> None:
    changed = bytearray(PARTS[0].view)
    changed[44:48] = b"magi"
    changed[87] ^= 1
    changed[155] ^= 4
    wrong = [(1000, 39, 0), (1001, 40, 0), (1399, 1, 0), (1000, -40, 0), (1040, 40, 0), (1080, 40, 0), (1120, 40, 0)]
    found, _, passed, _, gone = hot.gather(
        units(*wrong, (1160, 40, 0)), [Part(1000, memoryview(changed))], 400, 1400, None, None, UNLIMITED
    )
    assert marks(found) == [24]
    assert (passed, gone) == (8, True)


def proved_record(properties: bytes, *, record_crc: bool) -> bytes:
    """Return a record of topic T, queue 0, offset 7, at position 1000 of the log."""
    host = b"\x7f\x00\x00\x01"
    properties = reserve_property_crc(properties) if record_crc else properties
    record = bytearray(encode_record(Record("T", 0, 7, 1000, 0, 0, 1, host, 1, 2, host, 2, 0, 0, b"body", properties)))
    if record_crc:
        fill_property_crc(record)
    return bytes(record)


def is_given(hot: SimpleNamespace, record: bytes) -> bool:
    """Whether a reader gets a record that was read from the disk."""
    proof = Proof(b"\x01T", 0, 7, 1 << 60, lambda _: bytearray(1 << 11))
    wanted, part = units((1000, len(record), 0)), Part(1000, memoryview(record + bytes(16)))
    found, count, _, _, gone = hot.gather(
        wanted, [part], len(part.view), 1000 + len(record), None, None, UNLIMITED, proof
    )
    assert gone is not bool(count)
    return bool(found == record)


def test_gather_gives_no_record_of_which_a_bit_flipped_when_it_has_its_own_crc(hot: SimpleNamespace) -> None:
    record = proved_record(b"TAGS\x01A\x02", record_crc=True)
    assert is_given(hot, record)
    for bit in range(8 * len(record)):
        changed = bytearray(record)
        changed[bit >> 3] ^= 1 << (bit & 7)
        assert not is_given(hot, bytes(changed)), f"bit {bit & 7} of byte {bit >> 3} of {len(record)}"


@pytest.mark.parametrize("properties", [b"", b"__CRC32c\x011234567890\x02", b"born\x011700000000000\x02"])
def test_gather_gives_records_that_never_had_their_own_crc(hot: SimpleNamespace, properties: bytes) -> None:
    assert is_given(hot, proved_record(properties, record_crc=False))


def test_gather_asks_about_the_record_itself(hot: SimpleNamespace) -> None:
    found, _, passed, _, _ = hot.gather(
        units((1000, 40, 0), (1040, 40, 0)), PARTS, 400, 1800, None, lambda record: record[-1] == 21, UNLIMITED
    )
    assert marks(found) == [21]
    assert passed == 2


@pytest.mark.parametrize(
    ("limits", "count"),
    [
        (GatherLimits(1 << 60, 3, 1 << 30, 1, 1), 3),
        (GatherLimits(1 << 60, 100, 180, 1, 1), 4),
        (GatherLimits(1 << 60, 100, 1, 1, 1), 1),
        (GatherLimits(0, 100, 1 << 30, 2, 1 << 30), 2),
        (GatherLimits(0, 100, 1 << 30, 100, 140), 3),
    ],
)
def test_gather_stops_at_limits_but_gives_at_least_one(hot: SimpleNamespace, limits: GatherLimits, count: int) -> None:
    wanted = units(*[(1000 + 40 * n, 40, 0) for n in range(20)])
    found, number, passed, _, _ = hot.gather(wanted, PARTS, 400, 1800, None, None, limits)
    assert (len(found) // 40, number, passed) == (count, count, count)
