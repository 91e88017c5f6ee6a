"""What a slave does with what its master sends: compare the end it has, then append (broker.md §17.1).

RocketMQ's slaves go on where their log ends, whatever the master has there. A master that lost the end of its log with
the power, and stored something else since, would then be continued in the middle of other records. So a slave first
asks for the last bytes that it has, and goes on only behind bytes that are equal. What is done when they are not is in
`tianzhou.replication.agreement`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tianzhou.errors import ProtocolError
from tianzhou.replication.agreement import Parting
from tianzhou.replication.rate import SecondRate
from tianzhou.store.settings import StoreSettings

_SURE: Final = 2
"""Heartbeats in one place after which the master's log ends there: RocketMQ's may send one before it goes on."""


@dataclass(frozen=True, slots=True)
class ReceivedPart:
    """What to do with bytes that came: compare the first ones with the log, append the others.

    Attributes:
        offset: where the bytes begin in the log.
        compare: how many are in the log already.
    """

    offset: int
    compare: int


class Following:
    """One connection to the master.

    Args:
        begin: where the slave's log begins; -1 when it is empty.
        end: where it ends.
        first: from where on it is compared; see `Agreement.first`.
        settings: of the store.
        now_s: monotonic time, seconds.

    Attributes:
        end: where the slave's log ends.
        first: what it reports first.
        undecided: whether it is not clear yet what becomes of bytes that have come: they are not in the log.
        heard_s: when bytes of the master came last, monotonic seconds.
        reported_s: when the log's end was reported last, likewise.
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
        """What to do with bytes of the master's log; or that it does not have what this log ends with.

        Args:
            offset: where they begin.
            size: how many; 0 for a heartbeat.
            now_s: monotonic time, seconds.

        Raises:
            ProtocolError: they are not the next ones.
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
            # Ours says where its log ends; RocketMQ's repeats what it was told, whatever it has.
            return ReceivedPart(offset, 0) if self._idle < _SURE else Parting(self.first, offset)
        if self._next == self.first:
            return Parting(self.first, offset, master_begins=offset > self.first)
        raise ProtocolError(f"the master is at {offset} of its log, the next byte is that at {self._next}")

    def compared(self, part: ReceivedPart, equal: int) -> Parting | None:
        """Take the result of a comparison; where the logs part, if they do.

        Args:
            part: what was compared.
            equal: how many bytes, from the first one on, are the same.
        """
        return Parting(self.first, part.offset + equal) if equal < part.compare else None

    def rate(self, now_s: float) -> int:
        """Bytes that came in the last whole second.

        Args:
            now_s: monotonic time, seconds.
        """
        return self._rate.last(now_s)

    @property
    def agrees(self) -> bool:
        """Whether everything that the slave had in the beginning has been compared, and is the same.

        Single records may be broken at one of the two.
        """
        return self._next >= self._compared_to and not self.undecided

    def report(self, now_s: float, *, appended: bool) -> int | None:
        """Where the log ends, when it is time to say so; None when it is not.

        Args:
            now_s: monotonic time, seconds.
            appended: whether something was appended since the last report.
        """
        if self.undecided or self._next < self.end or (not appended and now_s < self.next_report_s):
            return None
        self.reported_s = now_s
        return self.end

    @property
    def next_report_s(self) -> float:
        """When to report even if nothing comes, monotonic seconds."""
        return self.reported_s + self._settings.ha_send_heartbeat_interval / 1000

    def is_silent(self, now_s: float) -> bool:
        """Whether the master has not been heard of for so long that the connection counts as dead."""
        return now_s - self.heard_s > self._settings.ha_housekeeping_interval / 1000
