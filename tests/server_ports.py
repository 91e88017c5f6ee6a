"""Ports for servers of tests that have to know them before they start.

The kernel assigns none of them to outgoing connections, our servers choose none of them for themselves
(`tianzhou.process.free_ports`), and other workers of the test run assign other ports. Another run on this machine may
share the range of a worker. So a worker locks each port that it assigns until the port's server listens.
"""

from __future__ import annotations

import fcntl
import itertools
import os
import re
import socket
import tempfile
import threading
from collections import deque
from pathlib import Path

HOST = "127.0.0.1"
FIRST, END = 61_000, 65_536
WORKERS = 4
HELD = 400
"""Number of the last assigned ports that stay locked. Servers of earlier ports listen already, or have ended."""

_worker = int(re.sub(r"\D", "", os.environ.get("PYTEST_XDIST_WORKER", "")) or 0) % WORKERS
_size = (END - FIRST) // WORKERS
_first = FIRST + _worker * _size
_next = itertools.count(os.getpid() % _size)
_taking = threading.Lock()
_locks = (Path(tempfile.gettempdir()) / f"tianzhou-test-ports-{os.getuid()}").open("a")
_held: deque[int] = deque()


def server_ports(count: int = 1) -> int:
    """Return the first of `count` free ports in a row, all reserved for the caller."""
    # Clusters are started side by side, in threads.
    with _taking:
        for _ in range(_size):
            offset = next(_next) % _size
            if offset + count > _size:
                continue
            ports = range(_first + offset, _first + offset + count)
            if all(map(_is_free, ports)) and all(map(_locked, ports)):
                for _ in range(count - 1):
                    next(_next)
                return ports[0]
    raise RuntimeError(f"no {count} free ports in a row from {_first} to {_first + _size - 1}")


def _locked(port: int) -> bool:
    """Lock a port for this process. Return False when another process has locked it."""
    try:
        # Lock one byte of the file, at the offset with the port's number.
        fcntl.lockf(_locks, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError:
        return False
    if port in _held:
        _held.remove(port)
    _held.append(port)
    if len(_held) > HELD:
        fcntl.lockf(_locks, fcntl.LOCK_UN, 1, _held.popleft())
    return True


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True
