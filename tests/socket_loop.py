"""An event loop in virtual time whose connections are sockets.

`tianzhou.testing.virtual_loop.VirtualLoop` connects clients to servers of the same loop in memory. Contract tests must
cover sockets and TLS too, so this loop keeps the sockets. Its time moves only when no socket of the loop holds or
transfers bytes that another socket of the loop has sent.

Two rules keep a test from hanging, because a loop whose time stands still never reaches a time limit:

1. While the loop has not been quiet for `BUSY_S`, its time passes at `BUSY_RATE` of real time.
2. A connection whose byte counts have not changed for `HOLD_S` does not hold the time.
"""

from __future__ import annotations

import selectors
import socket
import struct
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from tianzhou.testing.virtual_loop import ARRIVAL_S, VirtualLoop

TCP_INFO_BYTES = 216
RECEIVED = struct.Struct("=128xQ")
SENT = struct.Struct("=200xQQ")
"""Positions of `tcpi_bytes_received`, and of `tcpi_bytes_sent` and `tcpi_bytes_retrans`, in Linux's `tcp_info`."""


BUSY_S = 0.25
"""Real seconds without a quiet moment after which virtual time passes slowly."""
BUSY_RATE = 0.1
"""Virtual seconds that pass in a real second while the loop is busy."""
LONGEST_STEP_S = 0.005
"""Limit in virtual seconds for one step of a busy loop, so that one long callback does not expire time limits."""
HOLD_S = 1.0
"""Real seconds that a connection with unchanged byte counts holds the time."""

Direction = tuple[Any, Any]
"""Addresses of the sender and of the receiver."""


class Counts(NamedTuple):
    """Bytes that one end of a connection sent and bytes that the other end received."""

    sent: int
    received: int


class SocketLoop(VirtualLoop):
    """A `VirtualLoop` whose connections are sockets; see the module."""

    def __init__(self) -> None:
        self._quiet_s = self._turn_s = time.monotonic()
        self._holds: dict[Direction, tuple[Counts, float]] = {}
        super().__init__()

    def add_reader(self, fd: Any, callback: Any, *args: Any) -> None:
        """Register a reader as asyncio does, and forget listeners: `VirtualLoop` connects to known ones in memory."""
        super().add_reader(fd, callback, *args)
        self._servers.clear()

    def run_forever(self) -> None:
        """Run as asyncio does. The real time since the previous run does not count as busy."""
        self._quiet_s = self._turn_s = time.monotonic()
        super().run_forever()

    def _run_once(self) -> None:
        now_s = time.monotonic()
        if now_s - self._quiet_s > BUSY_S and self._spenders > 0:
            self.clock.advance(min((now_s - self._turn_s) * BUSY_RATE, LONGEST_STEP_S))
        self._turn_s = now_s
        super()._run_once()  # type: ignore[misc]

    def _idle(self, timeout: float | None) -> float | None:
        wait_s = super()._idle(timeout)
        # A thread works. It may wait for a timer of the loop, so the busy loop's time has to pass.
        return BUSY_S / 10 if wait_s is None and timeout is not None and self._spenders > 0 else wait_s

    def _move(self, timeout: float) -> None:
        if self._is_held():
            time.sleep(ARRIVAL_S)
        elif not selectors.DefaultSelector.select(self._selector, 0):
            self._quiet_s = time.monotonic()
            super()._move(timeout)

    def _is_held(self) -> bool:
        """Whether a connection has bytes in flight and its counts changed within `HOLD_S`."""
        now_s = time.monotonic()
        before, self._holds = self._holds, {}
        for direction, counts in bytes_in_flight(self._selector).items():
            known, since_s = before.get(direction, (None, now_s))
            self._holds[direction] = (counts, since_s if counts == known else now_s)
        return any(now_s - since_s <= HOLD_S for _, since_s in self._holds.values())


def bytes_in_flight(selector: selectors.BaseSelector) -> dict[Direction, Counts]:
    """Return the connections between two TCP sockets of this selector whose bytes the kernel still transfers.

    Where the system does not count the bytes of a connection (outside Linux) the result is empty; `VirtualLoop` then
    waits a moment after each write.
    """
    if not hasattr(socket, "TCP_INFO"):
        return {}
    ends = dict(_ends(selector))
    return {
        (own, peer): Counts(sent, ends[peer, own][1])
        for (own, peer), (sent, _) in ends.items()
        if (peer, own) in ends and sent > ends[peer, own][1]
    }


def _ends(selector: selectors.BaseSelector) -> Iterator[tuple[Direction, tuple[int, int]]]:
    """Yield each connected TCP socket as own and peer address, with the bytes that it has sent and received."""
    for fd in list(selector.get_map()):
        try:
            end = socket.socket(fileno=fd)
        except OSError:
            continue  # a pipe of a subprocess
        try:
            if end.family in {socket.AF_INET, socket.AF_INET6} and end.type == socket.SOCK_STREAM:
                info = end.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_INFO_BYTES)
                sent, sent_again = SENT.unpack_from(info)
                (received,) = RECEIVED.unpack_from(info)
                yield (end.getsockname()[:2], end.getpeername()[:2]), (sent - sent_again, received)
        except (OSError, struct.error):
            continue  # it listens, it has been closed, or the kernel counts no bytes
        finally:
            end.detach()
