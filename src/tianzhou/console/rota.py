"""The order in which the console measures topics and groups, with a limited number in each turn. Pure."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Mapping
from itertools import islice


def next_turn(
    asked_ms: Mapping[str, int],
    watched: Collection[str],
    moving: Collection[str],
    *,
    at_most: int,
    at_most_quiet: int,
    quiet_before_ms: int,
) -> list[str]:
    """Return the names to measure now.

    Names on open pages come first, in at most half of the turn. Names without a measurement follow, then names whose
    figures changed at their last measurement, then a few quiet names. Within each group of names, the name with the
    oldest measurement comes first.

    Args:
        asked_ms: time of the last measurement of each name, in milliseconds since 1970; 0 before the first one.
        watched: names that an open page shows.
        moving: names whose figures changed at their last measurement.
        at_most: maximum number of names per turn.
        at_most_quiet: maximum number of quiet names per turn.
        quiet_before_ms: time in ms; quiet names that were measured later are left out.
    """
    watched_first = _longest_waiting(asked_ms, (name for name in watched if name in asked_ms), at_most // 2)
    chosen = dict.fromkeys(watched_first)
    new = (name for name, at_ms in asked_ms.items() if not at_ms and name not in chosen)
    chosen |= dict.fromkeys(islice(new, at_most - len(chosen)))
    known_moving = [name for name in moving if name in asked_ms and name not in chosen]
    chosen |= dict.fromkeys(_longest_waiting(asked_ms, known_moving, at_most - len(chosen)))
    quiet = (name for name, at_ms in asked_ms.items() if at_ms <= quiet_before_ms and name not in chosen)
    chosen |= dict.fromkeys(_longest_waiting(asked_ms, quiet, min(at_most_quiet, at_most - len(chosen))))
    return list(chosen)


def _longest_waiting(asked_ms: Mapping[str, int], names: Iterable[str], count: int) -> list[str]:
    return heapq.nsmallest(count, names, key=asked_ms.__getitem__)
