"""Clock that moves only by `advance`, and an event loop whose waiting takes no time."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

START_MS = 1_700_000_000_000


class VirtualClock:
    """A `tianzhou.clock.Clock` for tests: both readings stand still until `advance`.

    Args:
        now_ms: the wall-clock time it starts at.
    """

    def __init__(self, now_ms: int = START_MS) -> None:
        self._start_ms = now_ms
        self._seconds = 0.0

    def now_ms(self) -> int:
        """Wall-clock time, milliseconds since the epoch."""
        return self._start_ms + round(self._seconds * 1000)

    def monotonic(self) -> float:
        """Seconds since the clock was made."""
        return self._seconds

    def advance(self, seconds: float) -> None:
        """Let time pass; timers of a running loop fire in its next turn only under `run`."""
        if seconds < 0:
            raise ValueError(f"time cannot go back by {-seconds} s; use step_wall_clock for the wall clock")
        self._seconds += seconds

    def step_wall_clock(self, milliseconds: int) -> None:
        """Set the wall clock forwards or backwards, as an administrator would; monotonic time is untouched."""
        self._start_ms += milliseconds


class _JumpingSelector(selectors.DefaultSelector):
    """Instead of waiting for a timer, moves the clock to it; descriptors that are ready go first."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__()
        self._clock = clock

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            # No timer at all: only a descriptor or another thread can wake the loop.
            return super().select(None)
        ready = super().select(0)
        if not ready and timeout > 0:
            self._clock.advance(timeout)
        return ready


class _VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(_JumpingSelector(clock))
        self._virtual_clock = clock

    def time(self) -> float:
        return self._virtual_clock.monotonic()


def run(main: Coroutine[Any, Any, T], clock: VirtualClock | None = None) -> T:
    """Run a coroutine with timers that fire as soon as nothing else is left to do.

    A sleep of an hour ends at once and `clock` is an hour further. Meant for tests without sockets: a reply that
    is still on its way through the kernel loses the race against any timer.
    """
    virtual = clock or VirtualClock()
    with asyncio.Runner(loop_factory=lambda: _VirtualLoop(virtual)) as runner:
        return runner.run(main)
