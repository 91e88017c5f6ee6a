"""The comparison of single records in which a slave's log and its master's differ. Pure.

Logs that diverge have different records from one offset on. A record that was damaged on a disk is different: the
records before and after it are equal. So both logs are compared record by record before a cut. Broken bytes of a master
never replace whole bytes of the slave, and the master's whole bytes replace the slave's broken ones (docs/adr/0016).
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
"""Maximum bytes of a record without its body."""

_FEW_BYTES: Final = 8


class Whose(Enum):
    """The log whose bytes of a differing stretch are broken."""

    MASTERS = auto()
    OWN = auto()
    BOTH = auto()
    UNKNOWN = auto()
    """Both logs have whole records by their CRCs."""


class LogDifference(NamedTuple):
    """A stretch of bytes in which the two logs differ.

    Attributes:
        whose: the log whose bytes are broken.
        start: log offset where the stretch begins.
        stop: log offset where it ends.
        data: the master's bytes when the slave's are broken; empty otherwise.
    """

    whose: Whose
    start: int
    stop: int
    data: bytes = b""


class OwnLog(Protocol):
    """The slave's log."""

    @property
    def end(self) -> int:
        """Log offset where the log ends."""

    def room(self, offset: int) -> int:
        """Return the number of bytes from an offset to the end of its segment."""

    def whole_size(self, offset: int) -> int:
        """Return the bytes of the whole record, or of the blank that ends a segment, at an offset; 0 without one."""

    def next_whole(self, offset: int) -> int:
        """Return the offset of the next whole record after an offset; the end of the log without one."""

    def bytes_at(self, offset: int, size: int) -> bytes:
        """Return bytes of the log."""


class Differences:
    """Compares both logs from a difference on, until they are equal again or diverge.

    Args:
        own: the slave's log.
        begin: log offset of the first record that differs; all bytes before it are equal.
        most_record: maximum bytes of a master's record.

    Attributes:
        settled: stretches for which the broken log is decided.
        parting: log offset where the logs diverge; None while they do not.
        place: log offset of the next record to compare.
    """

    def __init__(self, own: OwnLog, begin: int, most_record: int) -> None:
        self._own = own
        self._most_record = most_record
        self._buffer = bytearray()
        self._open: list[LogDifference] = []
        self._disputed: list[int] = []
        """Offsets of undecided stretches in which the logs have different records, or this slave has no whole one."""
        self._ended = False
        self.place = begin
        self.settled: list[LogDifference] = []
        self.parting: int | None = None

    def feed(self, data: bytes | memoryview) -> bytes | None:
        """Compare the next bytes of the master's log.

        Args:
            data: the bytes; the first ones are at offset `begin`.

        Returns:
            The bytes after the difference, once the logs are equal again or the slave's log has ended. None while that
            is undecided, and forever once `parting` is set.
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
                    # Any two logs may have a blank at the same offset, so an equal blank proves nothing.
                    self._pass(size)
                    continue
                self._confirm()
                break
            if not (self._look_at_whole(mine) if size else self._look_at_broken()):
                return None
        return None if self.parting is not None else bytes(self._buffer)

    def ended(self) -> bytes | None:
        """Decide with the bytes received so far, because the master has no more at present; returns as `feed`."""
        self._ended = True
        rest = self.feed(b"")
        self._ended = False
        return rest

    def part_at(self, end: int) -> int:
        """Return the offset where the logs diverge when the master's log ends before the slave's.

        Args:
            end: log offset where the master's log ends.
        """
        return self.parting if self.parting is not None else min([*self._disputed, self.place, end])

    def _is_alike(self, mine: bytes) -> bool:
        """Whether the master has the same item; bytes after the head of a blank are undefined."""
        alike = SIZE_MAGIC.size if _is_blank(mine) else len(mine)
        return self._buffer[:alike] == mine[:alike]

    def _look_at_whole(self, mine: bytes) -> bool:
        """Compare the master's bytes with a whole record of this slave; return whether enough of them have arrived."""
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
                # A second different message proves that the master stored other messages there.
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
        """Compare as `_look_at_whole` where this slave has no whole record."""
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
        """Return the bytes of the master's record at this offset; 0 without one, None when more bytes must arrive."""
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
        """Return which log has the broken one of two whole records, by the CRC property of the records."""
        mine_proved, theirs_proved = verify_property_crc(mine), verify_property_crc(self._buffer[: len(mine)])
        if mine_proved == theirs_proved:
            return Whose.UNKNOWN
        return Whose.MASTERS if mine_proved else Whose.OWN

    def _holds_others(self, size: int) -> bool:
        """Whether records of the master begin inside one of this slave's records."""
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
        """Settle all undecided stretches, because an equal record proves that both logs are the same log."""
        self.settled += self._open
        self._open.clear()
        self._disputed.clear()

    def _finish(self) -> None:
        """Settle the stretches at the end of the slave's log, where no equal record can follow.

        When any stretch is disputed, the logs diverge there instead.
        """
        if self._disputed:
            self._part()
        else:
            self._confirm()


def _holds_record(data: bytes, offset: int) -> bool:
    # A segment has room for a blank after each record, and `is_whole` checks for it.
    return is_whole(memoryview(data + bytes(BLANK_SIZE)), 0, offset) and crc_property_fits(data)


def _is_same_message(mine: bytes, theirs: bytes, place: int) -> bool:
    """Whether two whole records of one length hold one message and differ only in a few bytes without a CRC."""
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
    """Yield the positions before `stop`, without the first byte, at which records may begin."""
    found = data.find(MAGIC_START, 5, stop + 4)
    while found >= 0:
        yield found - 4
        found = data.find(MAGIC_START, found + 1, stop + 4)
