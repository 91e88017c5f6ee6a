"""The patches of the product in a simulation: calls of the kernel, and its own threads.

The product gets everything else as arguments, above all clocks and random numbers. This list is short on purpose.
Before you add an entry, check whether an argument can replace it.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from random import Random
from typing import Any
from unittest.mock import patch

from tianzhou.client import instance
from tianzhou.clock import SystemClock
from tianzhou.remoting.server import RemotingServer
from tianzhou.replication.ha_server import HaServer
from tianzhou.store import coldreads
from tianzhou.store.dispatch import catchup, dispatch
from tianzhou.store.entries import framed_log
from tianzhou.store.entries.entry_index import EntryIndex
from tianzhou.store.files import folder, pages
from tianzhou.store.index import index
from tianzhou.store.log import log_copy
from tianzhou.store.log.flush import Ranges, SyncThread
from tianzhou.testing.disk import ForgetfulDisk, watching
from tianzhou.testing.simulation.clocks import START_MS
from tianzhou.testing.simulation.loop import SimulationLoop
from tianzhou.testing.simulation.processes import here

UNITS_BYTES = 64 << 10
"""Size of an index file of entries, which a simulated disk copies at each sync."""
SYNC_S = 0.004
"""Maximum duration of a sync, seconds; one of eight takes fifty times as long."""


class _BootId:
    """The boot id of a machine's life."""

    def exists(self) -> bool:
        return True

    def read_text(self) -> str:
        process = here()
        return "outside" if process is None else process.boot


class _Time:
    """The functions of the module `time` that a machine's programs use."""

    def __init__(self, loop: SimulationLoop) -> None:
        self._loop = loop

    def time(self) -> float:
        return START_MS / 1000 + self._loop.time()

    def sleep(self, seconds: float) -> None:
        """Return at once."""


@contextmanager
def simulated(loop: SimulationLoop, rng: Random, disks: Callable[[], Iterable[ForgetfulDisk]]) -> Iterator[None]:
    """Run the product on the simulation.

    Args:
        loop: its time.
        rng: decides how long syncs take.
        disks: returns the disks of the running machines.
    """
    real_pid, zone = os.getpid, os.environ.get("TZ")

    def pid() -> int:
        process = here()
        return real_pid() if process is None else process.pid

    async def bind(server: RemotingServer) -> Any:
        return loop.network.listen(server.host, server.port)

    async def bind_ha(server: HaServer) -> Any:
        return loop.network.listen(server._host, server._port)

    def sync(thread: SyncThread, ranges: Ranges) -> asyncio.Future[None]:
        seconds = rng.random() * SYNC_S * (50 if rng.random() < 0.125 else 1)
        return loop.done_later(seconds, thread.bring, ranges)

    def now_ms(_: SystemClock) -> int:
        return START_MS + round(loop.time() * 1000)

    def local_ip(_towards: str = "") -> str:
        process = here()
        return "127.0.0.1" if process is None else process.host.address

    patches: list[tuple[Any, str, Any]] = [
        (os, "getpid", pid),
        (RemotingServer, "_bind", bind),
        (HaServer, "_bind", bind_ha),
        (SyncThread, "sync", sync),
        (SystemClock, "now_ms", now_ms),
        (SystemClock, "monotonic", staticmethod(loop.time)),
        (instance, "local_ip", local_ip),
        (folder, "_BOOT_ID", _BootId()),
        # All files are in memory, so skip the kernel's check of each page.
        (pages, "resident", lambda *_: True),
        (index, "time", _Time(loop)),
        (framed_log, "EntryIndex", partial(EntryIndex, file_size=UNITS_BYTES)),
        # No time passes within a step, so slices of work end by their number.
        (coldreads, "monotonic", loop.time),
        *((module, "perf_counter", loop.time) for module in (catchup, dispatch, log_copy)),
    ]
    with ExitStack() as stack:
        for target, name, value in patches:
            stack.enter_context(patch.object(target, name, value))
        stack.enter_context(watching(disks))
        # Message ids count from the beginning of the local month.
        os.environ["TZ"] = "UTC"
        time.tzset()
        try:
            yield
        finally:
            if zone is None:
                del os.environ["TZ"]
            else:
                os.environ["TZ"] = zone
            time.tzset()
