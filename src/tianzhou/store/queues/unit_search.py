"""Search for the first unwritten unit of a queue. Pure."""

from __future__ import annotations

from collections.abc import Callable


def first_wrong(count: int, right: Callable[[int], bool]) -> int:
    """Return the index of the first unit that is not right, or `count` when all units are right.

    All units before the index must be right, and no unit after it. The search starts at the beginning with growing
    steps, because most queue files are mostly unwritten.
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
