"""What of a queue may be committed, and when pulling it has to pause (client.md §11, §12.1). Pure."""

from __future__ import annotations

import heapq
from dataclasses import dataclass


@dataclass(slots=True, frozen=True)
class PullLimits:
    """How much of one queue may wait to be consumed; reaching a limit is allowed, exceeding it pauses pulling.

    Args:
        messages: number of messages.
        size_bytes: their bodies together.
        span: distance between the lowest and the highest unfinished offset.
    """

    messages: int = 1000
    size_bytes: int = 100 * 1024 * 1024
    span: int = 2000


def shared_limits(limits: PullLimits, messages: int, size_bytes: int, queues: int) -> PullLimits:
    """The limits of one queue when all share limits of their own (client.md §10.3).

    Args:
        limits: of each queue.
        messages: number of messages of all queues together, -1 for no such limit.
        size_bytes: their bodies together, -1 for no such limit.
        queues: how many queues there are, of all topics.
    """
    count = max(queues, 1)
    return PullLimits(
        limits.messages if messages < 0 else max(1, messages // count),
        limits.size_bytes if size_bytes < 0 else max(1, size_bytes // count),
        limits.span,
    )


class OffsetTracker:
    """The unfinished messages of one queue, and the offset up to which all is done.

    The committed offset is the lowest unfinished one, so a crash repeats messages and never skips any.

    Args:
        start: the offset from which the queue is consumed.
    """

    __slots__ = ("_end", "_heap", "_highest", "_sizes", "size_bytes")

    def __init__(self, start: int) -> None:
        self._end = start
        self._highest = start - 1
        self._sizes: dict[int, int] = {}
        self._heap: list[int] = []
        self.size_bytes = 0
        """Bytes of the unfinished bodies."""

    def __len__(self) -> int:
        return len(self._sizes)

    def __contains__(self, offset: object) -> bool:
        return offset in self._sizes

    @property
    def committable(self) -> int:
        """The next offset to consume if all were lost now: the lowest unfinished, or where the queue stands."""
        return self._heap[0] if self._heap else self._end

    @property
    def highest(self) -> int | None:
        """The highest offset seen, None while nothing is unfinished."""
        return self._highest if self._sizes else None

    @property
    def span(self) -> int:
        """Distance between the lowest unfinished offset and the highest one seen; 0 when all is done."""
        return self._highest - self._heap[0] if self._heap else 0

    def add(self, offset: int, size_bytes: int = 0) -> bool:
        """Note a pulled message as unfinished.

        Returns:
            False when it is already known, so that a repeated pull is consumed once.
        """
        if offset in self._sizes:
            return False
        self._sizes[offset] = size_bytes
        self.size_bytes += size_bytes
        heapq.heappush(self._heap, offset)
        if offset > self._highest:
            self._highest = offset
            if offset >= self._end:
                self._end = offset + 1
        return True

    def finish(self, offset: int) -> int:
        """Note a message as done, or as handed back; unknown offsets change nothing.

        Returns:
            The committable offset.
        """
        size = self._sizes.pop(offset, None)
        if size is not None:
            self.size_bytes -= size
            heap = self._heap
            while heap and heap[0] not in self._sizes:
                heapq.heappop(heap)
        return self.committable

    def skip_to(self, offset: int) -> int:
        """Note that below `offset` the queue holds nothing for us but what was added (client.md §12.3).

        Returns:
            The committable offset; it moves at once only when nothing is unfinished.
        """
        if offset > self._end:
            self._end = offset
        return self.committable

    def pause_reason(self, limits: PullLimits) -> str | None:
        """Why no more may be pulled now, None when more may."""
        if len(self._sizes) > limits.messages:
            return f"{len(self._sizes)} messages wait, the limit is {limits.messages}"
        if self.size_bytes > limits.size_bytes:
            return f"{self.size_bytes} bytes wait, the limit is {limits.size_bytes}"
        if self.span > limits.span:
            return f"unfinished offsets span {self.span}, the limit is {limits.span}"
        return None
