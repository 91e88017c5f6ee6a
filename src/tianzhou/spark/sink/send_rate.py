"""When a task may send: `maxMessagesPerSecond`. Pure.

A message is stored at some moment between its sending and its acknowledgement. So that brokers store no more than the
bound in *any* second, also when acknowledgements are late and come together, two rules hold:

- Slices are sent evenly, each no sooner than the one before has had its time.
- What was sent in slices that may have been stored within the last second is at most a second's worth. A slice that
  is sent then makes it one slice more.

So at most `per_second` messages and one slice are stored in a second. A task that ends waits until the next may
begin without knowing anything of it (`rest_s`): tasks of a query share no memory.
"""

from __future__ import annotations

from collections import deque
from typing import Final

SLICES_PER_SECOND: Final = 10


class SinkSendRate:
    """Says how long to wait before a slice of messages, and at the end.

    Args:
        per_second: most messages in a second, 1 or more.
        most: longest slice there may be.

    Attributes:
        slice: how many messages to send at once.
    """

    def __init__(self, per_second: int, most: int) -> None:
        self.slice: Final = min(max(1, per_second // SLICES_PER_SECOND), most)
        self._per_second = per_second
        self._due_s: float | None = None
        # Of slices that may have been stored within the last second: when they were acknowledged, how long that took,
        # and how many messages they have.
        self._recent: deque[tuple[float, float, int]] = deque()
        self._count = 0

    def wait_s(self, now_s: float) -> float:
        """How long to wait before the next slice, seconds.

        Args:
            now_s: the time, of a clock that only goes forward.
        """
        at = now_s if self._due_s is None else max(now_s, self._due_s)
        count = self._count
        for acknowledged_s, _, messages in self._recent:
            # Those that are over by then count no longer; as many more as needed have to be.
            if acknowledged_s + 1 > at:
                if count <= self._per_second:
                    break
                at = acknowledged_s + 1
            count -= messages
        return at - now_s

    def sent(self, messages: int, began_s: float, ended_s: float) -> None:
        """A slice was sent.

        Args:
            messages: how many, at most `slice`.
            began_s: when nothing of it was sent yet.
            ended_s: when all of it was acknowledged, or given up.
        """
        self._due_s = began_s + messages / self._per_second
        while self._recent and self._recent[0][0] + 1 <= began_s:
            self._count -= self._recent.popleft()[2]
        self._recent.append((ended_s, ended_s - began_s, messages))
        self._count += messages

    def rest_s(self, now_s: float) -> float:
        """How long to wait at the end, seconds, so that another task may begin at once.

        It counts from its own first slice on. What this one has sent may have been stored as late as its
        acknowledgements came, which is how much later the other has to begin.

        Args:
            now_s: the time.
        """
        if self._due_s is None:
            return 0.0
        late = max((took for acknowledged_s, took, _ in self._recent if acknowledged_s + 1 > now_s), default=0.0)
        return max(0.0, self._due_s + late - now_s)
