"""The order in which the console measures topics and groups: a bounded number in each turn. Pure."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Mapping


def next_turn(
    asked_ms: Mapping[str, int], watched: Collection[str], moving: Collection[str], at_most: int, at_most_quiet: int
) -> list[str]:
    """Return the names to measure now.

    Names on open pages come first, in half of the turn at most; then names that were never measured, names that moved
    when they were measured last, and of the quiet ones a few. Within each kind the name that has waited longest comes
    first.

    Args:
        asked_ms: all names, with the time when each was measured last; 0 for never.
        watched: names that a page shows now.
        moving: names that moved when they were measured last.
        at_most: names of a turn.
        at_most_quiet: quiet names of a turn: each costs its broker a read of messages that may have left the memory.
    """
    first = heapq.nsmallest(at_most // 2, (name for name in watched if name in asked_ms), key=asked_ms.__getitem__)
    chosen = dict.fromkeys(first)
    new = (name for name, at_ms in asked_ms.items() if not at_ms and name not in chosen)
    for name, _ in zip(new, range(at_most - len(chosen)), strict=False):
        chosen[name] = None
    for names, count in ((moving, at_most), (asked_ms, at_most_quiet)):
        waiting = (name for name in names if name in asked_ms and name not in chosen)
        count = min(count, at_most - len(chosen))
        chosen |= dict.fromkeys(heapq.nsmallest(count, waiting, key=asked_ms.__getitem__))
    return list(chosen)
