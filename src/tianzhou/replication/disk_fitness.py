"""The check whether the disk of a group's member accepts writes, so that the member may lead (broker.md §19.7)."""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path
from typing import Final

from tianzhou.clock import Clock
from tianzhou.store.store import MessageStore
from tianzhou.supervision import start_owned

PATIENCE_S: Final = 5.0
"""Seconds that a leader's disk may refuse writes before the leader transfers its leadership."""
PROBE_S: Final = 1.0
"""Seconds between two probe writes to a disk that refused an append."""
PROBE_BYTES: Final = 64 << 10

_log = logging.getLogger(__name__)


class DiskRefusal:
    """The time since when a disk refuses writes. Pure."""

    def __init__(self) -> None:
        self._since_s: float | None = None

    def unfit(self, why: str, now_s: float, *, leads: bool) -> str:
        """Return why the member must not lead; empty when it may.

        Args:
            why: why the disk refuses writes now; empty when it accepts them.
            now_s: monotonic time.
            leads: whether the member leads. A leader has `PATIENCE_S`, other members have no grace time.
        """
        if not why:
            self._since_s = None
            return ""
        if self._since_s is None:
            self._since_s = now_s
        return "" if leads and now_s - self._since_s < PATIENCE_S else f"its disk refuses writes: {why}"


class DiskFitness:
    """Checks the store's disk. After a refused append it probes the disk with small writes.

    Args:
        store: the member's store.
        clock: monotonic time.
    """

    def __init__(self, store: MessageStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._refusal = DiskRefusal()
        self._probing: asyncio.Task[None] | None = None

    def unfit(self, *, leads: bool) -> str:
        """Return why the member must not lead; empty when it may. The node calls this with each tick."""
        why = self._store.failures.disk_refusal
        if self._store.failures.refused_append and self._probing is None:
            self._probing = start_owned(self._probe(), "disk probe")
        return self._refusal.unfit(why, self._clock.monotonic(), leads=leads)

    def close(self) -> None:
        """Cancel the probe."""
        if self._probing is not None:
            self._probing.cancel()

    async def _probe(self) -> None:
        try:
            while self._store.failures.refused_append:
                await asyncio.sleep(PROBE_S)
                try:
                    await asyncio.to_thread(write_probe, self._store.settings.entry_folder)
                except OSError as error:
                    _log.debug("the disk of %s still refuses writes: %s", self._store.settings.root, error)
                else:
                    self._store.failures.disk_answers()
        finally:
            self._probing = None


def write_probe(folder: Path) -> None:
    """Write and sync a small file, and remove it.

    Raises:
        OSError: the disk refuses the write.
    """
    path = folder / f"probe-{os.getpid()}"
    try:
        with path.open("wb") as file:
            file.write(bytes(PROBE_BYTES))
            file.flush()
            os.fsync(file.fileno())
    finally:
        path.unlink(missing_ok=True)
