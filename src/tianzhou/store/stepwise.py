"""Look-ups that say which bytes they are going to look at, before they do.

What has left the memory is read by the page fault of whoever touches it, which stops the whole process. A look-up
that goes from place to place, where each tells the next, cannot say at once what it will need. So it is a generator:
it yields a range of a segment before it reads it, and returns what it found. `at_once` runs it where it is known that
nothing is missing, or that nobody waits; `ColdReads.follow` brings what is missing into memory beside the loop.

A look-up may be left alone between two steps for as long as a disk takes, and files go meanwhile. So it slices the
view of a segment *before* it yields: the slice keeps the segment mapped. And it asks anew, after each step, for
whatever it has not sliced yet.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

from tianzhou.store.segments import Segment

T = TypeVar("T")

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
