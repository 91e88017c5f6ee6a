"""The folder of a DLedger member as Apache's brokers leave it: entries, units, marks (broker.md §19.5)."""

from __future__ import annotations

import tarfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from tianzhou.records.entry import END, END_SIZE, HEADER_SIZE, UNIT_SIZE, decode_header
from tianzhou.records.framed import EntryTrail
from tianzhou.records.walk import Finding, single_items, walk
from tianzhou.store.entries.member_files import EntryCheckpoint, EntryMarks, TermFile

GOLDEN = Path(__file__).parents[1] / "golden" / "dledger"
SEGMENT = 1 << 16


@dataclass(frozen=True)
class Part:
    """A segment in memory."""

    start: int
    data: bytes

    @property
    def view(self) -> memoryview:
        return memoryview(self.data)

    def find(self, needle: bytes, position: int) -> int:
        return self.data.find(needle, position)


@pytest.fixture(params=sorted(path.name for path in GOLDEN.glob("*.tar.xz")))
def member(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    with tarfile.open(GOLDEN / request.param) as archive:
        archive.extractall(tmp_path)
    return tmp_path


def test_entries_units_and_marks(member: Path) -> None:
    marks = EntryCheckpoint(member).read()
    assert marks == EntryMarks(marks.end_index, marks.end_index)
    assert marks.end_index > 100
    assert TermFile(member).read() == (0, "n0")
    parts = [Part(int(path.name), path.read_bytes()) for path in sorted((member / "data").iterdir())]
    assert [part.start for part in parts] == [0, SEGMENT]
    trail = EntryTrail()
    items = list(single_items(walk(parts, 0, framed_from=0, trail=trail)))
    headers = trail.passed()
    assert {item.finding for item in items} == {Finding.RECORD}
    assert [header.index for header in headers] == list(range(marks.end_index + 1))
    units = b"".join(header.unit() for header in headers)
    index = (member / "index" / f"{0:020d}").read_bytes()
    assert index[: len(units)] == units
    assert not any(index[len(units) : len(units) + UNIT_SIZE])
    for header in headers:
        part = parts[header.pos // SEGMENT]
        at = header.pos - part.start
        assert part.data[at : at + HEADER_SIZE] == decode_header(part.data, at).encode()


def test_a_segment_ends_with_a_mark_and_zeros(member: Path) -> None:
    data = (member / "data" / f"{0:020d}").read_bytes()
    trail = EntryTrail()
    list(walk([Part(0, data)], 0, framed_from=0, trail=trail))
    assert END.unpack_from(data, trail.end) == (-1, SEGMENT - trail.end)
    assert not any(data[trail.end + END_SIZE :])
