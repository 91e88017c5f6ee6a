"""Failures of long-lived work: name, cause, number and begin. Pure.

A task that ended with an error is restarted after a pause, which doubles with every failure in a row. The trouble ends
when the work has run without failure for a while.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from tianzhou.escaping import shown

FIRST_PAUSE_S: Final = 0.1
LONGEST_PAUSE_S: Final = 30.0
LEAST_STEADY_S: Final = 1.0
"""Minimum seconds of running until work counts as recovered. After a longer pause, twice the pause counts."""
QUIET_S: Final = 30.0
"""Minimum seconds between two log lines about the same error of the same work."""


@dataclass(slots=True)
class Trouble:
    """Successive failures of one piece of work.

    Attributes:
        name: name of the work.
        why: class and text of the last error, in one line.
        count: number of failures in a row.
        since_ms: wall-clock time of the first of them, in ms.
        logged_s: monotonic time of the last log line, in seconds.
    """

    name: str
    why: str
    count: int
    since_ms: int
    logged_s: float


def reason(error: BaseException) -> str:
    """Return class and text of an error in one line."""
    inner = error
    while isinstance(inner, BaseExceptionGroup) and inner.exceptions:
        inner = inner.exceptions[0]
    text = shown(str(inner))
    return f"{type(inner).__name__}: {text}" if text else type(inner).__name__


class Troubles:
    """Present troubles, and counts of failures.

    Attributes:
        totals: number of failures since the start, by name of the work.
    """

    def __init__(self) -> None:
        self._present: dict[str, Trouble] = {}
        self.totals: Counter[str] = Counter()

    def __contains__(self, name: object) -> bool:
        return name in self._present

    def __len__(self) -> int:
        return len(self._present)

    def failed(self, name: str, error: BaseException, now_ms: int, now_s: float) -> bool:
        """Record a failure, and return whether to log it.

        Args:
            name: name of the work.
            error: the exception.
            now_ms: wall-clock time in ms.
            now_s: monotonic time in seconds.

        Returns:
            Whether to log it: it is the first in a row, differs from the last error, or the last log line is `QUIET_S`
            old.
        """
        self.totals[name] += 1
        why = reason(error)
        trouble = self._present.get(name)
        if trouble is None:
            self._present[name] = Trouble(name, why, 1, now_ms, now_s)
            return True
        loud = why != trouble.why or now_s - trouble.logged_s >= QUIET_S
        trouble.count += 1
        trouble.why = why
        if loud:
            trouble.logged_s = now_s
        return loud

    def over(self, name: str) -> Trouble | None:
        """End the trouble of recovered work, and return it; None when there was none."""
        return self._present.pop(name, None)

    def pause_s(self, name: str) -> float:
        """Return the seconds to wait after one more failure before the work is restarted."""
        trouble = self._present.get(name)
        before = min(trouble.count, 30) if trouble is not None else 0
        return min(FIRST_PAUSE_S * 2.0**before, LONGEST_PAUSE_S)

    def present(self) -> list[Trouble]:
        """Return the present troubles, the oldest first."""
        return sorted(self._present.values(), key=lambda trouble: trouble.since_ms)


def steady_s(pause_s: float) -> float:
    """Return the seconds that work has to run after a pause to count as recovered."""
    return max(LEAST_STEADY_S, 2 * pause_s)


def summary(troubles: Iterable[Trouble]) -> str:
    """Return a summary of troubles in one line."""
    return "; ".join(
        f"{one.name} failed {one.count} time{'s' if one.count > 1 else ''} in a row, last with {one.why}"
        for one in troubles
    )
