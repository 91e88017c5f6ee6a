"""Where a slave's log and its master's differ in single records: whose bytes are the broken ones. Pure.

Logs that part have other records from one place on. A record that was changed on a disk stands between others that are
equal, or is none any more. So a difference is looked at record by record before anything is cut: broken bytes of a
master never take the place of whole ones, and its whole ones are put where this slave's are broken (docs/adr/0016).
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum, auto
from typing import Final, NamedTuple, Protocol

from tianzhou.records.codec import crc_property_fits, verify_property_crc
from tianzhou.records.layout import (
    AT,
    BLANK_SIZE,
    MAGIC_BLANK,
    MAGIC_START,
    MAGICS,
    NUMBER,
    OVERHEAD,
    SIZE_MAGIC,
    body_size_at,
)
from tianzhou.records.walk import is_whole, read_item

MOST_BESIDE_BODY: Final = 128 << 10
"""Bytes that a record may have beside its body."""

_FEW_BYTES: Final = 8


class Whose(Enum):
    """Whose bytes of a stretch are broken."""

    MASTERS = auto()
    OWN = auto()
    BOTH = auto()
    UNKNOWN = auto()
    """Both are whole records as far as their CRCs say."""


class LogDifference(NamedTuple):
    """A stretch that the two logs do not have alike.

    Attributes:
        whose: whose bytes are broken.
        start: where it begins in the log.
        stop: where it ends.
        data: the master's bytes where the slave's are broken; empty otherwise.
    """

    whose: Whose
    start: int
    stop: int
    data: bytes = b""


class OwnLog(Protocol):
    """The slave's log."""

    @property
    def end(self) -> int:
        """Where it ends."""

    def room(self, offset: int) -> int:
        """Bytes from an offset to the end of its segment."""

    def whole_size(self, offset: int) -> int:
        """Bytes of the whole record, or of the blank that ends a segment, at an offset; 0 when there is none."""

    def next_whole(self, offset: int) -> int:
        """Where the next whole record behind an offset begins; the end of the log when there is none."""

    def bytes_at(self, offset: int, size: int) -> bytes:
        """Bytes of the log."""


class Differences:
    """Looks at both logs from a difference on, until they are equal again or turn out to part.

    Args:
        own: the slave's log.
        begin: where the record begins in which they differ; everything before it is equal.
        most_record: bytes of the longest record that a master may have.

    Attributes:
        settled: stretches of which it is known whose bytes are broken.
        parting: where the logs part; None as long as they do not.
        place: where the next record to be looked at begins.
    """

    def __init__(self, own: OwnLog, begin: int, most_record: int) -> None:
        self._own = own
        self._most_record = most_record
        self._buffer = bytearray()
        self._open: list[LogDifference] = []
        self._disputed: list[int] = []
        """Where, of what is open, the master has records that are not this slave's, or this slave has none."""
        self._ended = False
        self.place = begin
        self.settled: list[LogDifference] = []
        self.parting: int | None = None

    def feed(self, data: bytes | memoryview) -> bytes | None:
        """Take the next bytes of the master's log.

        Args:
            data: the bytes; the first ones are those from `begin` on.

        Returns:
            What comes behind, once the logs are equal again or the slave's has ended; None while that is open, and for
            good once `parting` is known.
        """
        self._buffer += data
        while self.parting is None:
            if self.place >= self._own.end:
                self._finish()
                break
            size = self._own.whole_size(self.place)
            mine = self._own.bytes_at(self.place, size)
            if size and len(self._buffer) >= size and self._is_alike(mine):
                if _is_blank(mine):
                    # Any two logs may end a segment at one place: that proves nothing.
                    self._pass(size)
                    continue
                self._confirm()
                break
            if not (self._look_at_whole(mine) if size else self._look_at_broken()):
                return None
        return None if self.parting is not None else bytes(self._buffer)

    def ended(self) -> bytes | None:
        """The master has no more bytes at present; as `feed`."""
        self._ended = True
        rest = self.feed(b"")
        self._ended = False
        return rest

    def part_at(self, end: int) -> int:
        """Where the logs part when the master's ends before the slave's.

        Args:
            end: where it ends.
        """
        return self.parting if self.parting is not None else min([*self._disputed, self.place, end])

    def _is_alike(self, mine: bytes) -> bool:
        """Whether the master has the same item; what is behind the head of a blank is nobody's."""
        alike = SIZE_MAGIC.size if _is_blank(mine) else len(mine)
        return self._buffer[:alike] == mine[:alike]

    def _look_at_whole(self, mine: bytes) -> bool:
        """Look at the master's bytes where this slave has a whole record; whether they are there."""
        theirs = self._their_size()
        if theirs is None or len(self._buffer) < max(len(mine), theirs):
            if not self._ended or len(self._buffer) < len(mine):
                return False
            theirs = 0
        stop = self.place + len(mine)
        if theirs and theirs != len(mine):
            self._part()
        elif theirs:
            found = LogDifference(self._whose(mine), self.place, stop, bytes(self._buffer[:theirs]))
            if not _is_same_message(mine, found.data, self.place):
                # With a second one, other messages were stored there.
                if self._disputed:
                    self._part()
                    return True
                self._disputed.append(self.place)
            self._open.append(found if found.whose is Whose.OWN else found._replace(data=b""))
            self._pass(theirs)
        elif self._holds_others(len(mine)):
            self.parting = min([one.start for one in self._open] + [self.place])
        else:
            self._open.append(LogDifference(Whose.MASTERS, self.place, stop))
            self._pass(len(mine))
        return True

    def _look_at_broken(self) -> bool:
        """As `_look_at_whole`, where this slave has none."""
        theirs = self._their_size()
        if theirs is None:
            return False
        stop = self.place + theirs if theirs else self._own.next_whole(self.place)
        if stop > self._own.end or (not theirs and stop == self._own.end):
            self._part()
            return True
        if len(self._buffer) < stop - self.place:
            return False
        start = self.place
        data = self._pass(stop - start)
        self._disputed.append(start)
        self._open.append(
            LogDifference(Whose.OWN, start, stop, data) if theirs else LogDifference(Whose.BOTH, start, stop)
        )
        return True

    def _their_size(self) -> int | None:
        """Bytes of the master's record at this place; 0 when it has none, None when more has to come."""
        buffer, room = self._buffer, self._own.room(self.place)
        if len(buffer) < SIZE_MAGIC.size:
            return 0 if self._ended else None
        size, magic = SIZE_MAGIC.unpack_from(buffer)
        if magic == MAGIC_BLANK:
            return room if size == room <= self._most_record else 0
        if magic not in MAGICS or not OVERHEAD <= size <= min(room - BLANK_SIZE, self._most_record):
            return 0
        if len(buffer) < size:
            return 0 if self._ended else None
        return size if _holds_record(bytes(buffer[:size]), self.place) else 0

    def _whose(self, mine: bytes) -> Whose:
        """Which of two whole records is the right one: that which carries its own CRC, if one does."""
        mine_proved, theirs_proved = verify_property_crc(mine), verify_property_crc(self._buffer[: len(mine)])
        if mine_proved == theirs_proved:
            return Whose.UNKNOWN
        return Whose.MASTERS if mine_proved else Whose.OWN

    def _holds_others(self, size: int) -> bool:
        """Whether records of the master begin in the midst of where this slave has one."""
        data = bytes(self._buffer)
        for at in _magics(data, size):
            stated, _ = SIZE_MAGIC.unpack_from(data, at)
            if OVERHEAD <= stated <= len(data) - at and _holds_record(data[at : at + stated], self.place + at):
                return True
        return False

    def _part(self) -> None:
        self.parting = min([*self._disputed, self.place])

    def _pass(self, size: int) -> bytes:
        data = bytes(self._buffer[:size])
        del self._buffer[:size]
        self.place += size
        return data

    def _confirm(self) -> None:
        """A record is equal, so the logs are the same."""
        self.settled += self._open
        self._open.clear()
        self._disputed.clear()

    def _finish(self) -> None:
        """The slave's log ends, and nothing was equal since: only bytes of the master that are no records are none."""
        if self._disputed:
            self._part()
        else:
            self._confirm()


def _holds_record(data: bytes, offset: int) -> bool:
    # Behind each record a segment has room for a blank, which is looked for.
    return is_whole(memoryview(data + bytes(BLANK_SIZE)), 0, offset) and crc_property_fits(data)


def _is_same_message(mine: bytes, theirs: bytes, place: int) -> bool:
    """Whether two whole records of one length are of one message, and differ in a few bytes that no CRC covers."""
    entry = read_item(memoryview(mine + bytes(BLANK_SIZE)), 0, place).entry
    if entry is None:
        return False
    differ = [at for at, (one, other) in enumerate(zip(mine, theirs, strict=True)) if one != other]
    (sys_flag,) = NUMBER.unpack_from(mine, AT["sys_flag"])
    properties_at = len(mine) - len(entry.properties)
    free = (
        range(AT["flag"], AT["queue_offset"]), range(AT["sys_flag"], body_size_at(sys_flag)),
        range(properties_at, len(mine)),
    )  # fmt: skip
    return len(differ) <= _FEW_BYTES and all(any(at in part for part in free) for at in differ)


def _is_blank(item: bytes) -> bool:
    return bool(SIZE_MAGIC.unpack_from(item)[1] == MAGIC_BLANK)


def _magics(data: bytes, stop: int) -> Iterator[int]:
    """Where records may begin, before a position and behind the first byte."""
    found = data.find(MAGIC_START, 5, stop + 4)
    while found >= 0:
        yield found - 4
        found = data.find(MAGIC_START, found + 1, stop + 4)
