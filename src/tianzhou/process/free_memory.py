"""Returning freed memory to the system."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache


@cache
def _trim() -> Callable[[int], int] | None:
    import ctypes  # a client's command has no use for it

    try:
        found: Callable[[int], int] = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError, TypeError):
        return None  # not glibc: other allocators do so by themselves
    return found


def give_back() -> None:
    """Return unused pages of the allocator to the system; otherwise it keeps them while the process lives.

    Takes some milliseconds: call it seldom, after much was freed at once.
    """
    if (trim := _trim()) is not None:
        trim(0)
