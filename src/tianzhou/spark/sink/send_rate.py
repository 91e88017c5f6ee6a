"""The send rate of a task: `maxMessagesPerSecond`. Pure.

A message is stored at some moment between its sending and its acknowledgement. Two rules ensure that brokers store no
more than the limit in *any* second, also if acknowledgements are late and arrive together:

- Slices are sent evenly: each waits until the time of the slice before it is over.
- The slices that may have been stored within the last second contain at most a second's worth of messages. The next
  slice is sent on top of them.

So at most `per_second` messages and one slice are stored in a second. At its end a task waits until the next task may
begin without any knowledge of it (`rest_s`), because the tasks of a query share no memory.
"""

from __future__ import annotations

from collections import deque
from typing import Final

SLICES_PER_SECOND: Final = 10


class SinkSendRate:
    """A calculator of the waits before each slice of messages and at the end of the task.

    Args:
        per_second: maximum messages in a second, 1 or more.
        most: maximum messages in a slice.

    Attributes:
        slice: number of messages to send at once.
    """

    def __init__(self, per_second: int, most: int) -> None:
        self.slice: Final = min(max(1, per_second // SLICES_PER_SECOND), most)
        self._per_second = per_second
        self._due_s: float | None = None
        # For each slice that may have been stored within the last second: the time of its acknowledgement, the seconds
        # from its sending to its acknowledgement, and its number of messages.
        self._recent: deque[tuple[float, float, int]] = deque()
        self._count = 0

    def wait_s(self, now_s: float) -> float:
        """Return the seconds to wait before the next slice.

        Args:
            now_s: the time of a monotonic clock.
        """
        at = now_s if self._due_s is None else max(now_s, self._due_s)
        count = self._count
        for acknowledged_s, _, messages in self._recent:
            # Slices older than a second do not count. Wait until enough of the others are a second old.
            if acknowledged_s + 1 > at:
                if count <= self._per_second:
                    break
                at = acknowledged_s + 1
            count -= messages
        return at - now_s

    def sent(self, messages: int, began_s: float, ended_s: float) -> None:
        """Record that a slice was sent.

        Args:
            messages: number of messages, at most `slice`.
            began_s: time before the first message was sent.
            ended_s: time when all messages were acknowledged or had failed.
        """
        self._due_s = began_s + messages / self._per_second
        while self._recent and self._recent[0][0] + 1 <= began_s:
            self._count -= self._recent.popleft()[2]
        self._recent.append((ended_s, ended_s - began_s, messages))
        self._count += messages

    def rest_s(self, now_s: float) -> float:
        """Return the seconds to wait at the end, so that another task may begin immediately.

        The other task counts from its own first slice. The messages of this task may have been stored as late as their
        acknowledgements arrived, so the other task must begin that much later.

        Args:
            now_s: the time of the same clock.
        """
        if self._due_s is None:
            return 0.0
        late = max((took for acknowledged_s, took, _ in self._recent if acknowledged_s + 1 > now_s), default=0.0)
        return max(0.0, self._due_s + late - now_s)
