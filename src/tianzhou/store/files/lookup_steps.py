"""Look-ups that say which bytes they are going to look at, before they do.

What has left the memory is read by the page fault of whoever touches it, which stops the whole process. A look-up
that goes from place to place, where each tells the next, cannot say at once what it will need. So it is a generator:
it yields a range of a segment before it reads it, and returns what it found. `at_once` runs it where it is known that
nothing is missing, or that nobody waits; `follow` has what is missing brought into memory beside the loop.

A look-up may be left alone between two steps for as long as a disk takes, and files go meanwhile. So it slices the
view of a segment *before* it yields: the slice keeps the segment mapped. And it asks again, after each step, for
whatever it has not sliced yet.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from typing import Final, TypeVar

from tianzhou.store.files.segments import Segment

T = TypeVar("T")

TURN: Final = 128
"""Steps after which others get a turn, whether a look-up had to wait or not."""

Range = tuple[Segment, int, int]
"""Bytes of a segment: from, to."""
Steps = Generator[Range, None, T]
"""A look-up that finds a T."""


def at_once(steps: Steps[T]) -> T:
    """What a look-up finds, whatever it has to wait for."""
    while True:
        try:
            next(steps)
        except StopIteration as found:
            result: T = found.value
            return result


async def give_way() -> None:
    """Let others have a turn."""
    await asyncio.sleep(0)


async def follow(
    steps: Steps[T], fetch: Callable[[Range], Awaitable[None]], rest: Callable[[], Awaitable[None]] = give_way
) -> T:
    """What a look-up finds, without holding up the loop.

    Args:
        steps: the look-up.
        fetch: brings a range into memory.
        rest: called now and then, to let others have a turn.
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
