"""The search for the first unit that was never written. Pure."""

from __future__ import annotations

from collections.abc import Callable


def first_wrong(count: int, right: Callable[[int], bool]) -> int:
    """The first of `count` units that is not right, before which all are and behind which none is; `count` if all are.

    Looked for from the beginning in growing steps, because little of most queues' files was ever written.
    """
    low, step = 0, 1
    while low + step <= count and right(low + step - 1):
        low += step
        step *= 2
    high = min(low + step - 1, count)
    while low < high:
        middle = (low + high) // 2
        if right(middle):
            low = middle + 1
        else:
            high = middle
    return low
