"""The committable offset of a queue, and the limits that pause its pulls (client.md §11, §12.1). Pure."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from itertools import islice
from operator import lt

PASSED = 512
"""Maximum number of finished offsets at the front of the list before they are deleted."""


@dataclass(slots=True, frozen=True)
class PullLimits:
    """Limits for the unfinished messages of one queue. A value at the limit is allowed; a value above it pauses pulls.

    Args:
        messages: maximum number of messages.
        size_bytes: maximum bytes of their bodies together.
        span: maximum distance between the lowest and the highest unfinished offset.
    """

    messages: int = 1000
    size_bytes: int = 100 * 1024 * 1024
    span: int = 2000


def shared_limits(limits: PullLimits, messages: int, size_bytes: int, queues: int) -> PullLimits:
    """Return the limits of one queue when all queues also share common limits (client.md §10.3).

    Args:
        limits: limits of each queue.
        messages: maximum number of messages of all queues together; -1 for no such limit.
        size_bytes: maximum bytes of their bodies together; -1 for no such limit.
        queues: number of queues of all topics.
    """
    count = max(queues, 1)
    return PullLimits(
        limits.messages if messages < 0 else max(1, messages // count),
        limits.size_bytes if size_bytes < 0 else max(1, size_bytes // count),
        limits.span,
    )


class OffsetTracker:
    """The unfinished messages of one queue, and the offset up to which all messages are finished.

    The committed offset is the lowest unfinished one, so a crash repeats messages and never skips any. Messages arrive
    in the order of their offsets and mostly finish in this order. So a list holds the offsets, and an index marks the
    first unfinished one. A set holds the few offsets that finish before earlier ones.

    Args:
        start: the offset from which the queue is consumed.
    """

    __slots__ = ("_at", "_early", "_end", "_highest", "_offsets", "_sizes", "size_bytes")

    def __init__(self, start: int) -> None:
        self._end = start
        self._highest = start - 1
        self._offsets: list[int] = []
        self._sizes: list[int] = []
        self._at = 0
        self._early: set[int] = set()  # finished offsets behind an unfinished one
        self.size_bytes = 0
        """Bytes of the unfinished bodies."""

    def __len__(self) -> int:
        return len(self._offsets) - self._at - len(self._early)

    def __contains__(self, offset: int) -> bool:
        return self._place(offset) >= 0 and offset not in self._early

    def _place(self, offset: int) -> int:
        """Return the index of an offset in the list; -1 for an unknown offset or one before the first unfinished."""
        place = bisect_left(self._offsets, offset, self._at)
        return place if place < len(self._offsets) and self._offsets[place] == offset else -1

    @property
    def committable(self) -> int:
        """The offset to commit now: the lowest unfinished one; without any, the offset of the next message."""
        return self._offsets[self._at] if self._at < len(self._offsets) else self._end

    @property
    def highest(self) -> int | None:
        """The highest offset added; None without unfinished messages."""
        return self._highest if self._at < len(self._offsets) else None

    @property
    def span(self) -> int:
        """Distance between the lowest unfinished offset and the highest one added; 0 without unfinished messages."""
        return self._highest - self._offsets[self._at] if self._at < len(self._offsets) else 0

    def add(self, offset: int, size_bytes: int = 0) -> bool:
        """Add a pulled message as unfinished.

        Returns:
            False for a known offset, so that a message of a repeated pull is consumed only once.
        """
        if self._at > PASSED:
            self._cut()
        if offset > self._highest:
            self._offsets.append(offset)
            self._sizes.append(size_bytes)
            self._rise(offset)
        else:
            place = bisect_left(self._offsets, offset, self._at)
            if place == len(self._offsets) or self._offsets[place] != offset:
                self._offsets.insert(place, offset)
                self._sizes.insert(place, size_bytes)
            elif offset in self._early:
                self._early.discard(offset)
                self._sizes[place] = size_bytes
            else:
                return False
        self.size_bytes += size_bytes
        return True

    def add_run(self, offsets: list[int], sizes: list[int]) -> bool:
        """Add pulled messages as unfinished, if all of them are behind the known ones.

        Args:
            offsets: their offsets, at least one.
            sizes: bytes of their bodies.

        Returns:
            False when they are not behind the known ones, or not in order. Then no message is added, and the caller
            must call `add` for each.
        """
        if offsets[0] <= self._highest or not all(map(lt, offsets, islice(offsets, 1, None))):
            return False
        if self._at > PASSED:
            self._cut()
        self._offsets += offsets
        self._sizes += sizes
        self.size_bytes += sum(sizes)
        self._rise(offsets[-1])
        return True

    def _cut(self) -> None:
        del self._offsets[: self._at], self._sizes[: self._at]
        self._at = 0

    def _rise(self, highest: int) -> None:
        self._highest = highest
        if highest >= self._end:
            self._end = highest + 1

    def finish(self, offset: int) -> None:
        """Mark a message as finished or returned; an unknown offset has no effect."""
        at, offsets = self._at, self._offsets
        if at < len(offsets) and offsets[at] == offset:
            self.size_bytes -= self._sizes[at]
            self._at = at + 1
            if self._early:
                self._pass_early()
            return
        place = self._place(offset)
        if place >= 0 and offset not in self._early:
            self.size_bytes -= self._sizes[place]
            self._early.add(offset)

    def finish_run(self, offsets: list[int]) -> None:
        """Mark several messages as finished that were delivered together; see `finish`."""
        at = self._at
        end = at + len(offsets)
        if self._offsets[at:end] != offsets or self._early:
            for offset in offsets:
                self.finish(offset)
            return
        self.size_bytes -= sum(self._sizes[at:end])
        self._at = end

    def _pass_early(self) -> None:
        at, offsets, early = self._at, self._offsets, self._early
        while at < len(offsets) and offsets[at] in early:
            early.discard(offsets[at])
            at += 1
        self._at = at

    def skip_to(self, offset: int) -> None:
        """Skip offsets below `offset` that were not added (client.md §12.3).

        The queue has no messages for this consumer there. The committable offset moves at once only when no message is
        unfinished.
        """
        if offset > self._end:
            self._end = offset

    def pause_reason(self, limits: PullLimits) -> str | None:
        """Return the reason why pulls have to pause now; None when they may continue."""
        count, span = len(self), self.span
        if count > limits.messages:
            return f"{count} messages wait, the limit is {limits.messages}"
        if self.size_bytes > limits.size_bytes:
            return f"{self.size_bytes} bytes wait, the limit is {limits.size_bytes}"
        if span > limits.span:
            return f"unfinished offsets span {span}, the limit is {limits.span}"
        return None
