"""Look-ups that announce each byte range before they read it.

A read of a page that has left the memory is a page fault, which blocks the whole process. A look-up that follows
pointers from place to place cannot announce all its ranges at once. So it is a generator: it yields a range of a
segment before it reads it, and returns its result. `at_once` runs it where all pages are in memory, or where blocking
is acceptable. `follow` fetches missing pages outside of the event loop's thread.

A look-up may be suspended between two steps for as long as a disk takes, and files may be deleted meanwhile. So it
slices the view of a segment *before* it yields, because the slice keeps the segment mapped. After each step it looks up
again every object that it has not sliced yet.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from typing import Final, TypeVar

from tianzhou.store.files.segments import Segment

T = TypeVar("T")

TURN: Final = 128
"""Number of steps after which a look-up yields to other tasks, whether or not it had to wait."""

Range = tuple[Segment, int, int]
"""Byte range of a segment: start, end."""
Steps = Generator[Range, None, T]
"""A look-up with a result of type T."""


def at_once(steps: Steps[T]) -> T:
    """Return the result of a look-up; page faults block."""
    while True:
        try:
            next(steps)
        except StopIteration as found:
            result: T = found.value
            return result


async def give_way() -> None:
    """Yield to other tasks."""
    await asyncio.sleep(0)


async def follow(
    steps: Steps[T], fetch: Callable[[Range], Awaitable[None]], rest: Callable[[], Awaitable[None]] = give_way
) -> T:
    """Return the result of a look-up without blocking the event loop.

    Args:
        steps: the look-up.
        fetch: fetches a range into memory.
        rest: called now and then to yield to other tasks.
    """
    taken = 0
    while True:
        try:
            one = next(steps)
        except StopIteration as found:
            result: T = found.value
            return result
        segment, start, end = one
        taken += 1
        if not segment.resident(start, end):
            await fetch(one)
        elif not taken % TURN:
            await rest()
