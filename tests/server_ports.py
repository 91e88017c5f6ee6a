"""Ports for servers of tests that have to know them before they start.

They are none that the kernel gives to outgoing connections, none that servers of ours choose for themselves
(`tianzhou.free_ports`), and none that another worker of the test run gives away.
"""

from __future__ import annotations

import itertools
import os
import re
import socket
import threading

HOST = "127.0.0.1"
FIRST, END = 61_000, 65_536
WORKERS = 4

_worker = int(re.sub(r"\D", "", os.environ.get("PYTEST_XDIST_WORKER", "")) or 0) % WORKERS
_size = (END - FIRST) // WORKERS
_first = FIRST + _worker * _size
_next = itertools.count(os.getpid() % _size)
_taking = threading.Lock()


def server_ports(count: int = 1) -> int:
    """Return the first of so many free ports in a row, all of them for the caller alone."""
    # Clusters are started side by side, in threads.
    with _taking:
        for _ in range(_size):
            offset = next(_next) % _size
            if offset + count > _size:
                continue
            ports = range(_first + offset, _first + offset + count)
            if all(map(_is_free, ports)):
                for _ in range(count - 1):
                    next(_next)
                return ports[0]
    raise RuntimeError(f"no {count} free ports in a row from {_first} to {_first + _size - 1}")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True
