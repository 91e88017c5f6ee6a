"""A timer with a precision of microseconds on systems that support it.

Event loops round timers up to milliseconds, which is longer than a broker's reply time. On Linux a timer file
descriptor (timerfd) wakes the loop in time.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import sys
import time
from collections import deque
from contextlib import suppress
from typing import Final

_MONOTONIC = 1
_ABSOLUTE = 1
_libc: Final = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


class _Span(ctypes.Structure):
    _fields_ = (
        ("interval_s", ctypes.c_long),
        ("interval_ns", ctypes.c_long),
        ("at_s", ctypes.c_long),
        ("at_ns", ctypes.c_long),
    )


class Pacer:
    """A timer for coroutines. Each wait must be for a later time than the waits before it.

    It belongs to the event loop of its constructor. Call `close` at the end.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[tuple[float, asyncio.Future[None]]] = deque()
        self._span = _Span()
        self._fd = -1
        self._timer: asyncio.TimerHandle | None = None
        if _libc is not None and hasattr(_libc, "timerfd_create"):
            self._fd = _libc.timerfd_create(_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
        if self._fd >= 0:
            self._loop.add_reader(self._fd, self._expired)

    @property
    def exact(self) -> bool:
        """Whether waits end within microseconds; otherwise within milliseconds."""
        return self._fd >= 0

    async def until(self, at_s: float) -> None:
        """Return at a time of the monotonic clock, or when the pacer is closed."""
        waiter = self._loop.create_future()
        self._waiting.append((at_s, waiter))
        if len(self._waiting) == 1:
            self._set(at_s)
        await waiter

    def close(self) -> None:
        """Wake all waiting coroutines, and close the timer."""
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1
        if self._timer is not None:
            self._timer.cancel()
        while self._waiting:
            self._wake_first()

    def _set(self, at_s: float) -> None:
        if self._fd < 0 or _libc is None:
            self._timer = self._loop.call_later(max(at_s - time.monotonic(), 0), self._wake)
            return
        # A past time fires immediately; zero would disable the timer.
        self._span.at_s, self._span.at_ns = int(at_s), int(at_s % 1 * 1e9)
        _libc.timerfd_settime(self._fd, _ABSOLUTE, ctypes.byref(self._span), None)

    def _expired(self) -> None:
        with suppress(BlockingIOError):
            os.read(self._fd, 8)
        self._wake()

    def _wake(self) -> None:
        now_s = time.monotonic()
        while self._waiting and self._waiting[0][0] <= now_s:
            self._wake_first()
        if self._waiting:
            self._set(self._waiting[0][0])

    def _wake_first(self) -> None:
        _, waiter = self._waiting.popleft()
        if not waiter.done():
            waiter.set_result(None)
