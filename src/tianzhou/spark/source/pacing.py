"""Delay of micro-batches until more messages arrive: `minOffsetsPerTrigger` and `maxTriggerDelay`. Pure."""

from __future__ import annotations


class Pacing:
    """A delay of micro-batches until they have enough messages, with a limit to the delay.

    Args:
        least: minimum messages of a batch; None delays no batch.
        delay_ms: maximum time in ms that messages wait.
    """

    def __init__(self, least: int | None, delay_ms: int) -> None:
        self._least = least or 0
        self._delay_s = delay_ms / 1000
        self._since: float | None = None

    def holds(self, messages: int, now_s: float) -> bool:
        """Whether the batch must wait.

        Args:
            messages: number of messages available.
            now_s: the time of a monotonic clock.
        """
        if 0 < messages < self._least:
            if self._since is None:
                self._since = now_s
            if now_s - self._since < self._delay_s:
                return True
        self._since = None
        return False
