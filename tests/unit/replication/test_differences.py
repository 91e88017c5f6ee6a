"""Comparison of two logs: which one has the broken bytes, and where they diverge permanently (docs/adr/0016)."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tianzhou.records.codec import Record, encode_blank, encode_record
from tianzhou.records.layout import BLANK_SIZE, MAGIC_BLANK, SIZE_MAGIC
from tianzhou.records.walk import is_whole
from tianzhou.replication.differences import Differences, LogDifference, Whose

HOST = b"\x7f\x00\x00\x01"
SEGMENT = 4096
MOST = 64 << 10
COVERED = [*range(12), *range(28, 36), *range(84, 90)]
"""Bytes of a record without its own CRC that cannot change without notice."""


@dataclass
class Log:
    """A log in memory, of segments of 4 KiB."""

    data: bytes

    @property
    def end(self) -> int:
        return len(self.data)

    def room(self, offset: int) -> int:
        return SEGMENT - offset % SEGMENT

    def whole_size(self, offset: int) -> int:
        room = self.room(offset)
        if room < BLANK_SIZE or offset + BLANK_SIZE > self.end:
            return 0
        size, magic = SIZE_MAGIC.unpack_from(self.data, offset)
        if magic == MAGIC_BLANK:
            return room if size == room and offset + room <= self.end else 0
        if not 0 < size <= min(room - BLANK_SIZE, self.end - offset):
            return 0
        return size if is_whole(memoryview(self.data[offset : offset + size] + bytes(8)), 0, offset) else 0

    def next_whole(self, offset: int) -> int:
        return next((at for at in range(offset + 1, self.end) if self.whole_size(at)), self.end)

    def bytes_at(self, offset: int, size: int) -> bytes:
        return self.data[offset : offset + size]


def record(place: int, number: int, *, body: bytes, stored: int) -> bytes:
    return encode_record(Record("T", 0, number, place, 0, 0, 1, HOST, 1, stored, HOST, 2, 0, 0, body, b"A\x01b\x02"))


def log_of(count: int, first: int = 0, before: bytes = b"", *, stored: int = 5, text: bytes = b"%d ") -> bytes:
    log = bytearray(before)
    for number in range(first, first + count):
        room = SEGMENT - len(log) % SEGMENT
        one = record(len(log), number, body=text % number * (number % 40 + 1), stored=stored)
        if len(one) + BLANK_SIZE > room:
            log += encode_blank(room).ljust(room, b"\0")
            one = record(len(log), number, body=text % number * (number % 40 + 1), stored=stored)
        log += one
    return bytes(log)


def places(log: bytes) -> list[int]:
    """Return the positions of the items."""
    found, at, whole = [], 0, Log(log)
    while at < len(log):
        found.append(at)
        at += whole.whole_size(at)
    return [*found, len(log)]


def looked_at(own: bytes, masters: bytes, begin: int, chunk: int = 1000) -> tuple[Differences, bytes | None]:
    one = Differences(Log(own), begin, MOST)
    rest: bytes | None = None
    for at in range(begin, len(masters), chunk):
        rest = one.feed(masters[at : at + chunk])
        if rest is not None:
            return one, rest + masters[at + chunk :]
        if one.parting is not None:
            return one, None
    return one, one.ended()


def rot(log: bytes, start: int, stop: int) -> bytes:
    return log[:start] + bytes(octet ^ 0x55 for octet in log[start:stop]) + log[stop:]


def test_a_broken_record_of_the_master_is_passed_over() -> None:
    log = log_of(20)
    at = places(log)
    one, rest = looked_at(log, rot(log, at[5] + 90, at[5] + 92), at[5])
    assert one.settled == [LogDifference(Whose.MASTERS, at[5], at[6])]
    assert (one.parting, one.place, rest) == (None, at[6], log[at[6] :])


def test_a_broken_record_of_the_slave_gets_the_masters_bytes() -> None:
    log = log_of(20)
    at = places(log)
    one, rest = looked_at(rot(log, at[5], at[5] + 8), log, at[5])
    assert one.settled == [LogDifference(Whose.OWN, at[5], at[6], log[at[5] : at[6]])]
    assert (one.parting, rest) == (None, log[at[6] :])


def test_a_masters_end_that_is_no_records_cuts_nothing_off() -> None:
    log = log_of(60)
    at = places(log)
    more = log_of(3, 60, log)
    one, rest = looked_at(log, rot(log, at[30], len(log)) + more[len(log) :], at[30])
    assert one.parting is None
    assert [found.whose for found in one.settled] == [Whose.MASTERS] * (len(at) - 1 - 30)
    assert (one.place, rest) == (len(log), more[len(log) :])


def test_other_records_from_a_place_on_are_where_the_logs_part() -> None:
    log = log_of(20)
    at = places(log)
    others = log_of(10, 100, log[: at[8]], stored=9)
    assert looked_at(log, others, at[8])[0].parting == at[8]


@pytest.mark.parametrize("later", [6, 9])
def test_records_of_the_same_lengths_with_other_contents_part_the_logs(later: int) -> None:
    log, other = log_of(20), log_of(20, stored=6, text=b"%d;")
    at = places(log)
    one, _ = looked_at(log, log[: at[later]] + other[at[later] :], at[later])
    assert one.parting == at[later]


def test_a_master_that_lost_its_end_and_has_a_broken_record_there_parts_behind_what_is_equal() -> None:
    log = log_of(20)
    at = places(log)
    others = bytearray(log_of(30, 39, log[: at[8]], stored=9))
    others[at[8] + 95] ^= 4
    assert len(others) > at[9] + 2 * (at[9] - at[8])
    assert looked_at(log, bytes(others), at[8])[0].parting == at[8]


def test_a_change_that_no_crc_covers_stays_where_it_is_when_equal_records_follow() -> None:
    log = log_of(20)
    at = places(log)
    one, rest = looked_at(log, rot(log, at[6] - 2, at[6] - 1), at[5])
    assert one.settled == [LogDifference(Whose.UNKNOWN, at[5], at[6])]
    assert rest == log[at[6] :]


def test_changes_that_no_crc_covers_in_one_record_behind_the_other_part_nothing() -> None:
    log = log_of(20)
    at = places(log)
    one, rest = looked_at(log, rot(rot(log, at[6] - 2, at[6] - 1), at[7] - 2, at[7] - 1), at[5])
    assert [found.whose for found in one.settled] == [Whose.UNKNOWN] * 2
    assert rest == log[at[7] :]


def test_the_end_of_the_masters_log_is_where_it_parts_behind_its_broken_records() -> None:
    log = log_of(20)
    at = places(log)
    one = Differences(Log(log), at[5], MOST)
    assert one.feed(rot(log, at[5], at[5] + 8)[at[5] : at[7] + 30]) is not None
    assert one.settled == [LogDifference(Whose.MASTERS, at[5], at[6])]
    one = Differences(Log(log), at[5], MOST)
    assert one.feed(rot(log, at[5], at[7])[at[5] : at[7]]) is None
    assert one.part_at(at[7]) == at[7]
    assert one.part_at(at[6] + 5) == at[6] + 5


def test_a_large_size_in_a_broken_head_is_not_waited_for() -> None:
    log = log_of(20)
    at = places(log)
    broken = bytearray(log)
    broken[at[5] + 2] ^= 2
    one, rest = looked_at(log, bytes(broken), at[5], chunk=37)
    assert one.settled == [LogDifference(Whose.MASTERS, at[5], at[6])]
    assert rest is not None


@given(st.data())
def test_whatever_is_broken_where_no_whole_record_is_lost(data: st.DataObject) -> None:
    log = log_of(data.draw(st.integers(5, 80)))
    at = places(log)
    own, masters = bytearray(log), bytearray(log)
    whose: dict[int, bytearray] = {}
    records = [n for n in range(1, len(at) - 2) if log[at[n] + 4 : at[n] + 8] != encode_blank(9)[4:]]
    for number in data.draw(st.sets(st.sampled_from(records), min_size=1, max_size=6)):
        whose[number] = side = data.draw(st.sampled_from([own, masters]))
        for octet in data.draw(st.sets(st.sampled_from(COVERED), min_size=1, max_size=4)):
            side[at[number] + octet] ^= 1 << data.draw(st.integers(0, 7))
    position, settled = 0, []
    while own[position:] != masters[position:]:
        first = next(n for n in range(position, len(log)) if own[n] != masters[n])
        begin = max(place for place in at if place <= first)
        one, rest = looked_at(bytes(own), bytes(masters), begin, data.draw(st.sampled_from([50, 777, 1 << 20])))
        assert one.parting is None
        assert rest is not None
        settled += one.settled
        position = one.place
    for found in settled:
        if found.whose is Whose.OWN:
            assert found.data == log[found.start : found.stop]
        if found.whose is Whose.MASTERS:
            assert own[found.start : found.stop] == log[found.start : found.stop]
