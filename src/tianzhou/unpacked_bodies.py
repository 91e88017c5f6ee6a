"""The bound on unpacked message bodies that a client's messages keep."""

from __future__ import annotations

import threading
from collections import deque

from tianzhou.limits import UNPACKED_BODIES


class UnpackedBodies:
    """The sum of the unpacked bodies that messages keep, with a bound.

    Threads may share it: handlers look at bodies in threads.

    Args:
        limit_bytes: maximum sum in bytes. A body that does not fit is unpacked at each look.
    """

    __slots__ = ("_kept_bytes", "_limit_bytes", "_lock", "_released")

    def __init__(self, limit_bytes: int = UNPACKED_BODIES.default) -> None:
        self._limit_bytes = limit_bytes
        self._kept_bytes = 0
        self._lock = threading.Lock()
        # Sizes that messages gave back. The garbage collector may delete a message while this thread has the lock, so
        # `release` takes no lock.
        self._released: deque[int] = deque()

    def keep(self, size_bytes: int) -> bool:
        """Reserve room for an unpacked body; whether there was enough room."""
        with self._lock:
            while self._released:
                self._kept_bytes -= self._released.popleft()
            if self._kept_bytes + size_bytes > self._limit_bytes:
                return False
            self._kept_bytes += size_bytes
            return True

    def release(self, size_bytes: int) -> None:
        """Give back the room of a body that a message no longer keeps."""
        self._released.append(size_bytes)
