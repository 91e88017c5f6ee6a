"""A slave's side of one HA connection: compare the end of its log with the master's, then append (broker.md §17.1).

RocketMQ's slaves append at the end of their log and do not compare. A master may have lost the end of its log in a
power failure and stored other records since. Such a slave would then continue in the middle of other records. So this
slave first requests the last bytes that it has, and appends only after equal bytes. `tianzhou.replication.agreement`
handles bytes that differ.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tianzhou.errors import ProtocolError
from tianzhou.replication.agreement import Parting
from tianzhou.replication.rate import SecondRate
from tianzhou.store.settings import StoreSettings

_SURE: Final = 2
"""Heartbeats at one offset that prove the end of the master's log; RocketMQ's master may send one before more bytes."""


@dataclass(frozen=True, slots=True)
class ReceivedPart:
    """The use of received bytes: compare the first ones with the log, append the others.

    Attributes:
        offset: log offset of the first byte.
        compare: number of bytes that the log already has.
    """

    offset: int
    compare: int


class Following:
    """The state of one connection to the master.

    Args:
        begin: log offset where the slave's log begins; -1 when it is empty.
        end: log offset where it ends.
        first: log offset from which it is compared; see `Agreement.first`.
        settings: of the store.
        now_s: monotonic time, seconds.

    Attributes:
        end: log offset where the slave's log ends.
        first: offset of the first report.
        undecided: whether received bytes wait for a decision and are not in the log yet.
        heard_s: when the last bytes of the master arrived, monotonic seconds.
        reported_s: when the log's end was last reported, monotonic seconds.
    """

    def __init__(self, begin: int, end: int, first: int, settings: StoreSettings, now_s: float) -> None:
        self.end = end
        self._settings = settings
        self._empty = begin < 0 or end <= begin
        self.first = 0 if self._empty else first
        self._next = self.first
        self._compared_to = end
        self._idle = 0
        self.undecided = False
        self._rate = SecondRate(now_s)
        self.heard_s = self.reported_s = now_s

    def received(self, offset: int, size: int, now_s: float) -> ReceivedPart | Parting:
        """Return how to use bytes of the master's log, or where the logs differ when the master's log ends early.

        Args:
            offset: log offset of the first byte.
            size: number of bytes; 0 for a heartbeat.
            now_s: monotonic time, seconds.

        Raises:
            ProtocolError: the bytes are not the next ones.
        """
        self.heard_s = now_s
        if self._empty and size:
            self._next = self.end = offset
            self._empty = False
        if not size:
            return self._heartbeat(offset)
        if not self._empty and offset != self._next:
            raise ProtocolError(f"the master sends its log from {offset} on, the next byte is that at {self._next}")
        self._idle = 0
        self._rate.add(size, now_s)
        compare = max(min(self.end - offset, size), 0)
        self._next = offset + size
        self.end = max(self.end, self._next)
        return ReceivedPart(offset, compare)

    def _heartbeat(self, offset: int) -> ReceivedPart | Parting:
        if self._empty or (offset == self._next and self._next >= self.end):
            return ReceivedPart(offset, 0)
        if offset == self._next:
            self._idle += 1
            # Our master sends the offset where its log ends; RocketMQ's repeats the reported offset, wherever its log
            # ends.
            return ReceivedPart(offset, 0) if self._idle < _SURE else Parting(self.first, offset)
        if self._next == self.first:
            return Parting(self.first, offset, master_begins=offset > self.first)
        raise ProtocolError(f"the master is at {offset} of its log, the next byte is that at {self._next}")

    def compared(self, part: ReceivedPart, equal: int) -> Parting | None:
        """Return where the logs differ by the result of a comparison; None when the bytes are equal.

        Args:
            part: the bytes compared.
            equal: number of equal bytes, from the first one on.
        """
        return Parting(self.first, part.offset + equal) if equal < part.compare else None

    def rate(self, now_s: float) -> int:
        """Return the bytes that arrived in the last whole second.

        Args:
            now_s: monotonic time, seconds.
        """
        return self._rate.last(now_s)

    @property
    def agrees(self) -> bool:
        """Whether all bytes that the slave had when it connected are compared and equal.

        Single records may be broken at one of the two.
        """
        return self._next >= self._compared_to and not self.undecided

    def report(self, now_s: float, *, appended: bool) -> int | None:
        """Return the offset where the log ends when a report is due; None when it is not.

        Args:
            now_s: monotonic time, seconds.
            appended: whether bytes were appended since the last report.
        """
        if self.undecided or self._next < self.end or (not appended and now_s < self.next_report_s):
            return None
        self.reported_s = now_s
        return self.end

    @property
    def next_report_s(self) -> float:
        """When a report is due even if no bytes arrive, monotonic seconds."""
        return self.reported_s + self._settings.ha_send_heartbeat_interval / 1000

    def is_silent(self, now_s: float) -> bool:
        """Whether the master has been silent for so long that the connection counts as dead."""
        return now_s - self.heard_s > self._settings.ha_housekeeping_interval / 1000
