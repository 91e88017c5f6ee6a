"""What a slave does with what its master sends: compare the end it has, then append (broker.md §17.1).

RocketMQ's slaves go on where their log ends, whatever the master has there. A master that lost the end of its log with
the power, and stored something else since, would then be continued in the middle of other records. So a slave first
asks for the last bytes that it has, and goes on only behind bytes that are equal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tianzhou.errors import ProtocolError, StoreError
from tianzhou.store.settings import StoreSettings

OVERLAP: Final = 64 << 10
"""Bytes that are compared before anything is appended."""


@dataclass(frozen=True, slots=True)
class Part:
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
        settings: of the store.
        now_s: monotonic time, seconds.

    Attributes:
        end: where the slave's log ends.
        first: what it reports first.
        heard_s: when bytes of the master came last, monotonic seconds.
        reported_s: when the log's end was reported last, likewise.
    """

    def __init__(self, begin: int, end: int, settings: StoreSettings, now_s: float) -> None:
        self.end = end
        self._settings = settings
        self._empty = begin < 0 or end <= begin
        # A report of 0 asks for the beginning; who has the first byte compares from the second on.
        self.first = 0 if self._empty else max(begin, end - OVERLAP, 1)
        self._next = self.first
        self.heard_s = self.reported_s = now_s

    def received(self, offset: int, size: int, now_s: float) -> Part:
        """What to do with bytes of the master's log.

        Args:
            offset: where they begin.
            size: how many; 0 for a heartbeat.
            now_s: monotonic time, seconds.

        Raises:
            ProtocolError: they are not the next ones.
            StoreError: the master does not have what this log ends with.
        """
        self.heard_s = now_s
        if self._empty and size:
            self._next = self.end = offset
            self._empty = False
        if not self._empty and offset != self._next:
            raise ProtocolError(f"the master sends its log from {offset} on, the next byte is that at {self._next}")
        if not size:
            if self._next < self.end:
                raise StoreError(
                    f"the master's log ends at {self._next} or before, this slave's at {self.end}: the master lost "
                    "what this slave has; empty the slave's store folder, or make it the master"
                )
            return Part(offset, 0)
        compare = max(min(self.end - offset, size), 0)
        self._next = offset + size
        self.end = max(self.end, self._next)
        return Part(offset, compare)

    def compared(self, part: Part, equal: int) -> None:
        """Take the result of a comparison.

        Args:
            part: what was compared.
            equal: how many bytes, from the first one on, are the same.

        Raises:
            StoreError: the logs differ.
        """
        if equal < part.compare:
            raise StoreError(
                f"this slave's log differs from its master's from {part.offset + equal} on: one of them lost what it "
                "had, or they never were of one group; empty the slave's store folder"
            )

    def report(self, now_s: float, *, appended: bool) -> int | None:
        """Where the log ends, when it is time to say so; None when it is not.

        Args:
            now_s: monotonic time, seconds.
            appended: whether something was appended since the last report.
        """
        if self._next < self.end or (not appended and now_s < self.next_report_s):
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
