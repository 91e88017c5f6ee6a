"""Throttling of equal log lines, so that no peer can fill the log. Pure."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Final

MAX_KEYS: Final = 1024
"""Maximum keys remembered; the oldest is dropped first."""


class Once:
    """Distinguishes the first event of a key from those that follow."""

    def __init__(self) -> None:
        self._seen: OrderedDict[Hashable, None] = OrderedDict()

    def first(self, key: Hashable) -> bool:
        """Whether this is the first remembered event of the key."""
        if key in self._seen:
            self._seen.move_to_end(key)
            return False
        self._seen[key] = None
        if len(self._seen) > MAX_KEYS:
            self._seen.popitem(last=False)
        return True


class Repeats:
    """Passes the first few events of a key in a span of time, and counts the others.

    Args:
        lines: events passed in a span.
        span_s: seconds of a span.
    """

    def __init__(self, lines: int = 1, span_s: float = 60.0) -> None:
        self._lines = lines
        self._span_s = span_s
        self._windows: OrderedDict[Hashable, tuple[float, int]] = OrderedDict()

    def due(self, key: Hashable, now: float) -> int | None:
        """Number of suppressed events of the key before this one; None when this one is suppressed, too.

        Args:
            key: what makes events equal.
            now: monotonic seconds.
        """
        began, seen = self._windows.get(key, (now, 0))
        held = 0
        if now - began >= self._span_s:
            held = max(seen - self._lines, 0)
            began, seen = now, 0
        self._windows[key] = began, seen + 1
        self._windows.move_to_end(key)
        if len(self._windows) > MAX_KEYS:
            self._windows.popitem(last=False)
        return held if seen < self._lines else None
