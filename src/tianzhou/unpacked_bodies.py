"""The limit of decompressed bodies that a client's messages store."""

from __future__ import annotations

import threading
from collections import deque

from tianzhou.limits import UNPACKED_BODIES


class UnpackedBodies:
    """The total size of the decompressed bodies that messages store, with a limit.

    The object is thread-safe, because handlers read bodies in threads.

    Args:
        limit_bytes: maximum total size in bytes. A body that does not fit is decompressed again at each access.
    """

    __slots__ = ("_kept_bytes", "_limit_bytes", "_lock", "_released")

    def __init__(self, limit_bytes: int = UNPACKED_BODIES.default) -> None:
        self._limit_bytes = limit_bytes
        self._kept_bytes = 0
        self._lock = threading.Lock()
        # Sizes that messages have released. The garbage collector may delete a message while this thread holds the
        # lock, so `release` acquires no lock.
        self._released: deque[int] = deque()

    def keep(self, size_bytes: int) -> bool:
        """Reserve space for a decompressed body. Return False when there is not enough space."""
        with self._lock:
            while self._released:
                self._kept_bytes -= self._released.popleft()
            if self._kept_bytes + size_bytes > self._limit_bytes:
                return False
            self._kept_bytes += size_bytes
            return True

    def release(self, size_bytes: int) -> None:
        """Release the space of a body that a message no longer stores."""
        self._released.append(size_bytes)
