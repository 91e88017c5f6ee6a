"""Memory that is free again, given back to the system."""

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
    """Have the allocator return pages nobody uses; it keeps them otherwise, for as long as the process lives.

    Takes some milliseconds: to be called after much was freed at once, and seldom.
    """
    if _trim is not None:
        _trim(0)
