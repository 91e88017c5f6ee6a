"""Both twins of `next_run`, and the walk record by record, agree about any log."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tianzhou._hot import QueueCursor, runs, sources
from tianzhou.records.codec import Record, encode_blank, encode_record
from tianzhou.records.walk import Finding, read_item
from tianzhou.store.queues.tags_code import queue_tags_code
from tianzhou.wire.hashing import tags_code
from tianzhou.wire.properties import get_property

compiled = sources.compiled()
hosts = st.sampled_from([bytes(4), bytes(4), bytes(4), bytes(16)])
topics = st.sampled_from(["T", "T", "Topic", "ü", "t" * 127, "t" * 128, "", "a\0b"])


@st.composite
def logs(draw: st.DrawFn) -> bytes:
    parts: list[bytes] = []
    for _ in range(draw(st.integers(0, 6))):
        place = sum(map(len, parts))
        record = Record(
            draw(topics), draw(st.integers(-(1 << 31), (1 << 31) - 1)), draw(st.integers(-(1 << 63), (1 << 63) - 1)),
            place + draw(st.sampled_from([0, 0, 0, 0, 1])), 0, draw(st.integers(0, 255)), 0, draw(hosts), 0,
            draw(st.integers(-(1 << 63), (1 << 63) - 1)), draw(hosts), 0, 0, 0, draw(st.binary(max_size=20)),
            draw(st.sampled_from([b"", b"TAGS\x01A\x02", b"a\0", b"\xff"])),
        )  # fmt: skip
        parts.append(encode_record(record))
    data = bytearray(b"".join(parts) + draw(st.sampled_from([b"", bytes(8), bytes(7), encode_blank(8), bytes(200)])))
    if data and draw(st.booleans()):
        data[draw(st.integers(0, len(data) - 1))] ^= 1 << draw(st.integers(0, 7))
    return bytes(data)


@given(logs(), st.booleans(), st.integers(0, 1000), st.integers(0, 9))
def test_a_run_is_the_records_one_by_one(log: bytes, check_crc: bool, stop: int, most: int) -> None:
    view = memoryview(log)
    rows, position, newest = runs.next_run(view, 0, 0, stop, most, check_crc)
    at = 0
    for row in rows:
        item: Any = read_item(view, at, 0, check_crc=check_crc)
        assert (item.finding, item.offset, item.size, item.entry) == (Finding.RECORD, at, row[1], row)
        assert at < stop
        at += item.size
    assert (at, newest) == (position, max([0, *(row[6] for row in rows)]))
    assert len(rows) <= most


@pytest.mark.skipif(compiled is None, reason="the compiled twin was not built here")
@given(logs(), st.booleans(), st.integers(-5, 1000), st.integers(0, 9), st.integers(-3, 300))
def test_twins_agree(log: bytes, check_crc: bool, stop: int, most: int, position: int) -> None:
    view = memoryview(log)
    for base in (0, -position):
        if position >= 0:
            expected = runs.next_run(view, position, base, stop, most, check_crc)
            assert compiled.next_run(view, position, base, stop, most, check_crc) == expected


class _Queue(QueueCursor):
    def __init__(self, *, plain: bool, delayed: bool) -> None:
        self.plain, self.delayed, self.next_offset = plain, delayed, 0


rows = st.tuples(
    st.integers(0, 1 << 40), st.integers(0, 1 << 20), st.sampled_from(["T", "T", "U", "V", "W"]), st.integers(0, 1),
    st.integers(0, (1 << 63) - 1), st.sampled_from([0, 0, 0, 1, 4, 8, 0x40]), st.integers(0, 1 << 41),
    st.lists(
        st.sampled_from(
            [b"UNIQ_KEY\x01u1", b"UNIQ_KEY\x01", b"KEYS\x01a b", b"KEYS\x01\xff", b"TAGS\x01A", "TAGS\x01ü".encode(),
             b"WAIT\x01true", b"TRAN_MSG\x01x", b"x", b""]
        ), max_size=4,
    ).map(b"\x02".join),
)  # fmt: skip


def taken(take: Any, found: list[Any]) -> tuple[int, list[Any], list[int]]:
    table = {
        "T": {0: _Queue(plain=True, delayed=False), 1: _Queue(plain=True, delayed=False)},
        "U": {0: _Queue(plain=False, delayed=False)}, "V": {0: _Queue(plain=True, delayed=True)},
    }  # fmt: skip
    pending: deque[Any] = deque()
    at = take(found, 0, table, pending, tags_code)
    queues = [queue for of_topic in table.values() for queue in of_topic.values()]
    return at, [(queues.index(entry[0]), *entry[1:]) for entry in pending], [queue.next_offset for queue in queues]


@example([(0, 0, "T", 0, (1 << 63) - 1, 0, 0, b"")])
@given(st.lists(rows, max_size=5))
def test_plain_records_get_what_the_walk_by_hand_gives_them(found: list[Any]) -> None:
    at, pending, _ = taken(runs.take_rows, found)
    assert at == len(pending)
    for row, entry in zip(found, pending, strict=False):
        properties = row[7]
        assert entry[1:] == (
            row[4], row[0], row[1], queue_tags_code(row[2], properties, row[6], ()), row[6], 0,
            get_property(properties, "UNIQ_KEY") or "", get_property(properties, "KEYS") or "",
        )  # fmt: skip


@pytest.mark.skipif(compiled is None, reason="the compiled twin was not built here")
@example([(0, 0, "T", 0, (1 << 63) - 1, 0, 0, b"")])
@given(st.lists(rows, max_size=5))
def test_twins_take_the_same_records(found: list[Any]) -> None:
    assert taken(compiled.take_rows, found) == taken(runs.take_rows, found)
