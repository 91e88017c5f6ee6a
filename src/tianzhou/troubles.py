"""Failures of long-lived work: which, why, how often, since when. Pure.

A task that ended with an error is restarted after a pause, which doubles with every failure in a row. A trouble is over
when the work has run well again.
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
"""Minimum seconds of running, and twice the last pause, until work counts as recovered."""
QUIET_S: Final = 30.0
"""Seconds between two log lines about the same error of the same work."""


@dataclass(slots=True)
class Trouble:
    """A row of failures of one piece of work.

    Attributes:
        name: which work.
        why: the last error, in words that fit a line.
        count: failures in the row.
        since_ms: wall-clock time of the first.
        logged_s: monotonic time of the last log line.
    """

    name: str
    why: str
    count: int
    since_ms: int
    logged_s: float


def reason(error: BaseException) -> str:
    """Class and text of an error in one line."""
    inner = error
    while isinstance(inner, BaseExceptionGroup) and inner.exceptions:
        inner = inner.exceptions[0]
    text = shown(str(inner))
    return f"{type(inner).__name__}: {text}" if text else type(inner).__name__


class Troubles:
    """Present troubles, and counts of failures.

    Attributes:
        totals: failures by name of the work, since the start.
    """

    def __init__(self) -> None:
        self._present: dict[str, Trouble] = {}
        self.totals: Counter[str] = Counter()

    def __contains__(self, name: object) -> bool:
        return name in self._present

    def __len__(self) -> int:
        return len(self._present)

    def failed(self, name: str, error: BaseException, now_ms: int, now_s: float) -> bool:
        """Note a failure.

        Args:
            name: which work.
            error: how it ended.
            now_ms: wall-clock time.
            now_s: monotonic time.

        Returns:
            Whether to log it: the first of a row, another error than before, or the last line is `QUIET_S` old.
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
        """End the trouble of work that recovered; returns it, None when there was none."""
        return self._present.pop(name, None)

    def pause_s(self, name: str) -> float:
        """Seconds to wait after one more failure before the work is restarted."""
        trouble = self._present.get(name)
        before = min(trouble.count, 30) if trouble is not None else 0
        return min(FIRST_PAUSE_S * 2.0**before, LONGEST_PAUSE_S)

    def present(self) -> list[Trouble]:
        """Present troubles, the oldest first."""
        return sorted(self._present.values(), key=lambda trouble: trouble.since_ms)


def steady_s(pause_s: float) -> float:
    """Seconds that work has to run after a pause to count as recovered."""
    return max(LEAST_STEADY_S, 2 * pause_s)


def summary(troubles: Iterable[Trouble]) -> str:
    """Summary of troubles in one line."""
    return "; ".join(
        f"{one.name} failed {one.count} time{'s' if one.count > 1 else ''} in a row, last with {one.why}"
        for one in troubles
    )
