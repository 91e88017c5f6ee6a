"""An event loop in virtual time whose connections are sockets.

`tianzhou.testing.virtual_loop.VirtualLoop` connects clients to servers of the same loop in memory. Contract tests must
cover sockets and TLS too, so this loop keeps the sockets. Its time moves only when no socket of the loop holds or
transfers bytes that another socket of the loop has sent.
"""

from __future__ import annotations

import selectors
import socket
import struct
import time
from collections.abc import Iterator
from typing import Any

from tianzhou.testing.virtual_loop import ARRIVAL_S, VirtualLoop

TCP_INFO_BYTES = 216
RECEIVED = struct.Struct("=128xQ")
SENT = struct.Struct("=200xQQ")
"""Positions of `tcpi_bytes_received`, and of `tcpi_bytes_sent` and `tcpi_bytes_retrans`, in Linux's `tcp_info`."""


class SocketLoop(VirtualLoop):
    """A `VirtualLoop` whose connections are sockets; see the module."""

    def add_reader(self, fd: Any, callback: Any, *args: Any) -> None:
        """Register a reader as asyncio does, and forget listeners: `VirtualLoop` connects to known ones in memory."""
        super().add_reader(fd, callback, *args)
        self._servers.clear()

    def _move(self, timeout: float) -> None:
        if bytes_in_flight(self._selector):
            time.sleep(ARRIVAL_S)
        elif not selectors.DefaultSelector.select(self._selector, 0):
            super()._move(timeout)


def bytes_in_flight(selector: selectors.BaseSelector) -> bool:
    """Whether the kernel still transfers bytes between two connected TCP sockets that this selector reads.

    Where the system does not count the bytes of a connection (outside Linux) it is always false; `VirtualLoop` then
    waits a moment after each write.
    """
    if not hasattr(socket, "TCP_INFO"):
        return False
    ends = dict(_ends(selector))
    return any(sent > ends[peer, own][1] for (own, peer), (sent, _) in ends.items() if (peer, own) in ends)


def _ends(selector: selectors.BaseSelector) -> Iterator[tuple[tuple[Any, Any], tuple[int, int]]]:
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
