"""Identifiers of a connection's requests, and of a client process's messages (wire.md §1.5, §4.7)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

_INT32_MAX: Final = 0x7FFFFFFF
_INT32_MIN: Final = -0x80000000
UNBOUNDED: Final = 2**62


class OpaqueCounter:
    """Counter of one process's opaques, from 0, wrapping as int32 (wire.md §1.5), and of its in-flight requests.

    Args:
        first: the first opaque.

    Attributes:
        in_flight: number of requests that await replies.
        most: maximum of `in_flight`.
    """

    __slots__ = ("_next", "in_flight", "most")

    def __init__(self, first: int = 0) -> None:
        self._next = first
        self.in_flight = 0
        self.most = UNBOUNDED

    def next(self) -> int:
        """Return a value unused for the last 2^32 calls."""
        value = self._next
        self._next = value + 1 if value < _INT32_MAX else _INT32_MIN
        return value


def local_month(now_ms: int) -> tuple[int, int]:
    """Return start and end, in ms, of the local calendar month that contains `now_ms`."""
    here = datetime.fromtimestamp(now_ms / 1000, tz=UTC).astimezone()
    # Wall-clock arithmetic without offset, then back: the offset may change within the month.
    first = here.replace(day=1, hour=0, minute=0, second=0, microsecond=0, tzinfo=None)
    following = (first + timedelta(days=32)).replace(day=1)
    return int(first.timestamp()) * 1000, int(following.timestamp()) * 1000


class UniqueIdGenerator:
    """Generator of unique keys for a client process's messages (wire.md §4.7).

    A key is upper-case hex of address, process id, a per-process number, milliseconds since the start of the local
    month, and a counter that wraps at 65,536. One generator belongs to one event loop.

    An id is upper-case hex of address, process id, a per-process number, milliseconds since the local month
    began, and a counter that wraps at 65,536. One generator belongs to one event loop.

    Args:
        ip: 4 or 16 bytes of the client's address.
        pid: process id; its low 16 bits are used.
        process_hash: any number that sets this process apart from others with its pid; low 32 bits.
    """

    __slots__ = ("_counter", "_head", "_head_ms", "_month_end", "_month_start", "_prefix")

    def __init__(self, ip: bytes, pid: int, process_hash: int) -> None:
        self._prefix = f"{ip.hex().upper()}{pid & 0xFFFF:04X}{process_hash & 0xFFFFFFFF:08X}"
        self._month_start = self._month_end = 0
        self._head = ""
        self._head_ms = -1
        self._counter = -1

    def next(self, now_ms: int) -> str:
        """Return the next key; `now_ms` is milliseconds since the epoch."""
        if now_ms != self._head_ms:
            # Busy producers make hundreds of keys in a millisecond; all of them but the first share this head.
            self._head_ms = now_ms
            if now_ms >= self._month_end:
                self._month_start, self._month_end = local_month(now_ms)
            # A clock set back across the month's start gives 0, as in Java.
            since = now_ms - self._month_start if now_ms >= self._month_start else 0
            self._head = f"{self._prefix}{since:08X}"
        self._counter = counter = (self._counter + 1) & 0xFFFF
        return f"{self._head}{counter:04X}"
