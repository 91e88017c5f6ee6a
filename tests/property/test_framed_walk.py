"""The walk over a log of entries equals a simple model of the log, for any contents."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from tianzhou.records.codec import Record, encode_record
from tianzhou.records.entry import END, END_SIZE, HEADER_SIZE, EntryHeader, decode_header
from tianzhou.records.framed import EntryTrail
from tianzhou.records.layout import PREPARED
from tianzhou.records.walk import Finding, LogItem, walk

SEGMENT = 700


@dataclass
class Part:
    """A segment in memory."""

    start: int
    data: bytearray = field(default_factory=lambda: bytearray(SEGMENT))

    @property
    def view(self) -> memoryview:
        return memoryview(self.data)

    def find(self, needle: bytes, position: int) -> int:
        return self.data.find(needle, position)


def record(place: int, number: int, size: int, kind: int) -> bytes:
    """Return a record; `kind` 0 is ordinary, 1 a half, 2 of another version, 3 with IPv6."""
    topic, host = ("T", "T", "t" * 128, "T")[kind], bytes(16) if kind == 3 else bytes(4)
    flags = PREPARED if kind == 1 else 0
    return encode_record(
        Record(topic, 0, number, place, 0, flags, 1, host, 0, 1, bytes(4), 0, 0, 0, b"b" * size, b"KEYS\x01k\x02")
    )


@st.composite
def logs(draw: st.DrawFn) -> tuple[list[Part], list[EntryHeader], list[bool]]:
    """Draw segments, their entries, and whether each entry has a record."""
    first, start = draw(st.integers(0, 5)), draw(st.sampled_from([0, SEGMENT * 3]))
    parts, headers, records = [Part(start)], [], []
    position, term = start, draw(st.integers(0, 3))
    for number in range(draw(st.integers(0, 9))):
        term += draw(st.integers(0, 1))
        size, kind = draw(st.integers(0, 80)), draw(st.integers(0, 4))

        def body(at: int, number: int = number, size: int = size, kind: int = kind) -> bytes:
            return bytes(size + 1) if kind == 4 else record(at, number, size, kind)

        length = HEADER_SIZE + len(body(0))
        at = position - parts[-1].start
        if at + length + END_SIZE > SEGMENT:
            END.pack_into(parts[-1].data, at, -1, SEGMENT - at)
            parts.append(Part(parts[-1].start + SEGMENT))
            position, at = parts[-1].start, 0
        header = EntryHeader(first + number, term, position, length - HEADER_SIZE, length)
        parts[-1].data[at : at + length] = header.encode() + body(position + HEADER_SIZE)
        headers.append(header)
        records.append(kind != 4)
        position = header.end
    return parts, headers, records


def bodies(parts: list[Part], trusted_end: int | None = None) -> tuple[list[tuple[int, int, bool]], EntryTrail, str]:
    """Return offset, size and whether it is a record, of each body in the walk; and the end of the walk."""
    trail, found, ended = EntryTrail(), [], ""
    for step in walk(parts, 0, framed_from=0, trail=trail, most=3, trusted_end=trusted_end):
        if not isinstance(step, LogItem):
            found += [(row[0], row[1], True) for row in step]
        elif step.finding in {Finding.RECORD, Finding.OTHER}:
            found.append((step.offset, step.size, step.finding is Finding.RECORD))
        else:
            ended = step.finding.name
    return found, trail, ended


@given(logs())
def test_every_entry_is_passed(log: tuple[list[Part], list[EntryHeader], list[bool]]) -> None:
    parts, headers, records = log
    end = headers[-1].end if headers else parts[0].start
    found, trail, _ = bodies(parts, end)
    assert found == [(h.pos + HEADER_SIZE, h.body_size, r) for h, r in zip(headers, records, strict=True)]
    assert trail.passed() == headers
    assert trail.end == (end if headers else -1)
    for header in headers:
        part = next(part for part in parts if part.start <= header.pos < part.start + SEGMENT)
        assert decode_header(part.view, header.pos - part.start) == header


@given(logs(), st.data())
def test_a_walk_ends_where_an_entry_is_not_whole(
    log: tuple[list[Part], list[EntryHeader], list[bool]], data: st.DataObject
) -> None:
    """One flipped bit: the walk yields all entries before it and none after it, and reports when records follow."""
    parts, headers, records = log
    if not headers:
        return
    number = data.draw(st.integers(0, len(headers) - 1))
    header = headers[number]
    part = next(part for part in parts if part.start <= header.pos < part.start + SEGMENT)
    # No check covers the bits of the channel, the CRCs and some fields of a record.
    at = data.draw(st.sampled_from([*range(8), *range(8, 16), *range(24, 32), *range(44, 48)]))
    part.data[header.pos - part.start + at] ^= 1 << data.draw(st.integers(0, 7))
    found, trail, ended = bodies(parts)
    passed = trail.passed()
    if number == 0 and 8 <= at < 16 and len(headers) == 1:
        return
    if number == 0 and 8 <= at < 16:
        # The first index of a log may be any number; then the second does not follow it.
        assert len(passed) <= 1
        return
    # A body that is no record counts only when an intact entry follows it.
    assert passed == headers[:number] or (passed == headers[: number - 1] and not records[number - 1])
    assert found == [(h.pos + HEADER_SIZE, h.body_size, r) for h, r in zip(passed, records, strict=False)]
    follows = any(records[number + 1 :])
    assert (ended == "DAMAGED") == follows


@given(logs(), st.data())
def test_a_torn_end_is_no_damage(log: tuple[list[Part], list[EntryHeader], list[bool]], data: st.DataObject) -> None:
    parts, headers, records = log
    if not headers:
        return
    last, part = headers[-1], parts[-1]
    begin = last.pos - part.start
    cut = data.draw(st.integers(begin, begin + last.size - 1))
    part.data[cut:] = bytes(SEGMENT - cut)
    _, trail, ended = bodies(parts)
    passed = trail.passed()
    assert passed == headers[:-1] or (passed == headers[:-2] and not records[-2])
    assert ended in ("NOTHING", "")
