"""Waiting for conditions: in tests with threads or processes, and in tests on an event loop."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable
from typing import Any

WITHIN_S = 60.0
"""Default limit in seconds. A condition usually takes less than a second, but not on a machine with ten processes for
each core.
"""


def until(condition: Callable[[], Any], what: str = "", *, within_s: float = WITHIN_S, every_s: float = 0.02) -> Any:
    """Poll a condition until its result is true; return the result.

    Args:
        condition: function to call; its OSError or ValueError counts as false, because a server may be starting.
        what: description of the condition, for the error.
        within_s: limit in seconds.
        every_s: pause between two calls in seconds.

    Raises:
        AssertionError: it did not become true in time.
    """
    deadline_s = time.monotonic() + within_s
    last: Exception | None = None
    while time.monotonic() < deadline_s:
        try:
            if found := condition():
                return found
            last = None
        except (OSError, ValueError) as error:
            last = error
        time.sleep(every_s)
    raise _too_late(condition, what, within_s, last)


async def until_async(
    condition: Callable[[], Any], what: str = "", *, within_s: float = WITHIN_S, every_s: float = 0.01
) -> Any:
    """Poll like `until`, on an event loop and in its time; the condition may be a coroutine function."""
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + within_s
    while loop.time() < deadline_s:
        found = condition()
        if inspect.isawaitable(found):
            found = await found
        if found:
            return found
        await asyncio.sleep(every_s)
    raise _too_late(condition, what, within_s, None)


def _too_late(condition: Callable[[], Any], what: str, within_s: float, error: Exception | None) -> AssertionError:
    name = what or getattr(condition, "__qualname__", repr(condition))
    return AssertionError(f"{name}: not within {within_s:g} s" + (f" ({error!r})" if error else ""))
