"""When a micro-batch waits for more messages: `minOffsetsPerTrigger` and `maxTriggerDelay`. Pure."""

from __future__ import annotations


class Pacing:
    """Holds micro-batches back until they are worth their cost, but no message for longer than it may wait.

    Args:
        least: how many messages a batch should have, None holds nothing back.
        delay_ms: how long messages wait for others at most.
    """

    def __init__(self, least: int | None, delay_ms: int) -> None:
        self._least = least or 0
        self._delay_s = delay_ms / 1000
        self._since: float | None = None

    def holds(self, messages: int, now_s: float) -> bool:
        """Whether to wait.

        Args:
            messages: how many there are to read.
            now_s: the time, of a clock that only goes forward.
        """
        if 0 < messages < self._least:
            if self._since is None:
                self._since = now_s
            if now_s - self._since < self._delay_s:
                return True
        self._since = None
        return False
