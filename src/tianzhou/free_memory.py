"""Returning freed memory to the system."""

from __future__ import annotations

import ctypes
from collections.abc import Callable


def _find() -> Callable[[int], int] | None:
    try:
        trim: Callable[[int], int] = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError, TypeError):
        return None  # not glibc: other allocators do so by themselves
    return trim


_trim = _find()


def give_back() -> None:
    """Return unused pages of the allocator to the system; otherwise it keeps them while the process lives.

    Takes some milliseconds: call it seldom, after much was freed at once.
    """
    if _trim is not None:
        _trim(0)
