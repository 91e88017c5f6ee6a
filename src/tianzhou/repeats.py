"""Suppression of repeated log lines, so that no peer can fill the log. Pure."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Final

MAX_KEYS: Final = 1024
"""Maximum number of remembered keys. The oldest is dropped first."""


class Once:
    """A filter that passes the first event of each key."""

    def __init__(self) -> None:
        self._seen: OrderedDict[Hashable, None] = OrderedDict()

    def first(self, key: Hashable) -> bool:
        """Whether this is the first event of the key that is remembered."""
        if key in self._seen:
            self._seen.move_to_end(key)
            return False
        self._seen[key] = None
        if len(self._seen) > MAX_KEYS:
            self._seen.popitem(last=False)
        return True


class Repeats:
    """A filter that passes the first few events of a key in a time window, and counts the others.

    Args:
        lines: number of events passed per window.
        span_s: length of a window in seconds.
    """

    def __init__(self, lines: int = 1, span_s: float = 60.0) -> None:
        self._lines = lines
        self._span_s = span_s
        self._windows: OrderedDict[Hashable, tuple[float, int]] = OrderedDict()

    def due(self, key: Hashable, now: float) -> int | None:
        """Return the number of suppressed events of the key before this one; None when this one is suppressed, too.

        Args:
            key: key of the event; events with equal keys are repeats.
            now: monotonic time in seconds.
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
