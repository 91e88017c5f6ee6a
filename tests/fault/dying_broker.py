"""Brokers that die in tests: the bench of the broker's unit tests, in virtual time, and the files after a process's
death.
"""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
from pathlib import Path
from typing import Any

from broker_bench import Bench

from store_probe import StoreProbe
from tianzhou.store import MessageStore
from tianzhou.testing.clock import VirtualClock, run


def copy_store(source: Path, target: Path) -> None:
    """Copy the files that a process would leave; a thread of the store may be deleting a file at that moment."""

    def copy_file(name: str, to: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            shutil.copyfile(name, to)

    shutil.copytree(source, target, copy_function=copy_file)


def copy_as_slave(master: MessageStore, target: Path) -> None:
    """Create the folder of a slave that has the whole log of a store, and no other file."""
    settings = dataclasses.replace(master.settings, broker_role="SLAVE", store_path_root_dir=str(target))
    slave = MessageStore(settings, master.clock)
    slave.open()
    offset, segment = max(master.begin_offset, 0), settings.mapped_file_size_commit_log
    while offset < master.end_offset:
        # No part ends at the end of a record.
        size = min(master.end_offset - offset, segment - offset % segment, 777)
        stretch = master.log_bytes(offset, size)
        assert isinstance(stretch, memoryview)
        slave.copy.append(offset, stretch)
        offset += size
    slave.close_now()


def flush_in_the_loop(store: Any) -> None:
    """A thread needs real time, while time here flies."""

    async def flush() -> None:
        flusher.flush_now()

    flusher = StoreProbe(store).flusher
    flusher.flush = flush


def in_bench(folder: Path, now_ms: int | None, body: Any, **store: Any) -> None:
    """Run `body(bench)` with a broker on a folder, from a time on; `store` are settings of its store."""
    clock = VirtualClock() if now_ms is None else VirtualClock(now_ms)

    async def main() -> None:
        async with Bench(folder, clock, {}, store) as bench:
            flush_in_the_loop(bench.store)
            await body(bench)

    run(main(), clock)
