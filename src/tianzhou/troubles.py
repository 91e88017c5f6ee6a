"""What goes wrong in work that lasts as long as its server: which, why, how often, since when. Pure.

A task that ended with an error is begun again after a pause, which doubles with every failure in a row. A trouble is
over when the work has run well again; who asks meanwhile is told of it.
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
"""Work that has run for so long at least, and for twice its last pause, is well again."""
QUIET_S: Final = 30.0
"""The same error of the same work is said once in so long."""


@dataclass(slots=True)
class Trouble:
    """A row of failures of one piece of work.

    Attributes:
        name: which work.
        why: the last error, in words that fit a line.
        count: failures in the row.
        since_ms: wall-clock time of the first.
        said_s: monotonic time when it was last said.
    """

    name: str
    why: str
    count: int
    since_ms: int
    said_s: float


def reason(error: BaseException) -> str:
    """An error in one line: what kind, and what it says."""
    inner = error
    while isinstance(inner, BaseExceptionGroup) and inner.exceptions:
        inner = inner.exceptions[0]
    said = shown(str(inner))
    return f"{type(inner).__name__}: {said}" if said else type(inner).__name__


class Troubles:
    """What is in trouble now, and how often what has failed.

    Attributes:
        totals: failures by name of the work, since the beginning.
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
            Whether it is to be said: the first of a row, another error than before, or long since it was said.
        """
        self.totals[name] += 1
        why = reason(error)
        trouble = self._present.get(name)
        if trouble is None:
            self._present[name] = Trouble(name, why, 1, now_ms, now_s)
            return True
        loud = why != trouble.why or now_s - trouble.said_s >= QUIET_S
        trouble.count += 1
        trouble.why = why
        if loud:
            trouble.said_s = now_s
        return loud

    def over(self, name: str) -> Trouble | None:
        """The work is well: the trouble that has ended by that, if there was one."""
        return self._present.pop(name, None)

    def pause_s(self, name: str) -> float:
        """How long to wait after one more failure before the work is begun again."""
        trouble = self._present.get(name)
        before = min(trouble.count, 30) if trouble is not None else 0
        return min(FIRST_PAUSE_S * 2.0**before, LONGEST_PAUSE_S)

    def present(self) -> list[Trouble]:
        """All troubles of now, the oldest first."""
        return sorted(self._present.values(), key=lambda trouble: trouble.since_ms)


def steady_s(pause_s: float) -> float:
    """How long work has to run after a pause to count as well again."""
    return max(LEAST_STEADY_S, 2 * pause_s)


def summary(troubles: Iterable[Trouble]) -> str:
    """Troubles in one line, for who is told why something ended badly."""
    return "; ".join(
        f"{one.name} failed {one.count} time{'s' if one.count > 1 else ''} in a row, last with {one.why}"
        for one in troubles
    )
