"""What an acknowledgement waits for: the disk, slaves, both, or nothing (store.md §11.1, broker.md §17.2)."""

from __future__ import annotations

import asyncio
from typing import Protocol

from tianzhou.errors import StoreError
from tianzhou.store.results import PutResult, PutStatus
from tianzhou.store.settings import StoreSettings
from tianzhou.watermark import Watermark


class Copies(Protocol):
    """Who copies the log elsewhere."""

    def verdict(self, end: int, record_end: int) -> PutStatus | None:
        """The status of a stored message that has enough copies, or will not get them; None for one that has to wait.

        Args:
            end: where the log ends.
            record_end: where the message's record ends.
        """
        ...


class Durability:
    """Knows how far the log is safe, and what the settings ask of that.

    Args:
        settings: of the store.
        flushed: log offset up to which the disk has everything.

    Attributes:
        flushed: the argument.
        replicated: log offset up to which as many slaves as are asked for have everything.
        copies: who copies the log; None where nobody does.
        waits: whether an acknowledgement has anything to wait for.
    """

    def __init__(self, settings: StoreSettings, flushed: Watermark) -> None:
        self._settings = settings
        self.flushed = flushed
        self.replicated = Watermark(0)
        self.copies: Copies | None = None
        self._sync = settings.sync_flush
        self._copied = settings.broker_role == "SYNC_MASTER"
        self.waits = self._sync or self._copied

    def status_at_once(self, end: int, record_end: int) -> PutStatus | None:
        """What copies make of a stored message's status without waiting; None when they are waited for."""
        if not self._copied:
            return PutStatus.PUT_OK
        if self.copies is None:
            return PutStatus.SLAVE_NOT_AVAILABLE
        return self.copies.verdict(end, record_end)

    def awaited(self, *, copies: bool = True) -> list[tuple[Watermark, float, PutStatus]]:
        """What is waited for: a watermark, for how many seconds, and the status when it does not get there.

        Args:
            copies: whether copies are waited for, where settings ask for them.
        """
        settings = self._settings
        found = []
        if self._sync:
            found.append((self.flushed, settings.sync_flush_timeout / 1000, PutStatus.FLUSH_DISK_TIMEOUT))
        if self._copied and copies:
            found.append((self.replicated, settings.slave_timeout / 1000, PutStatus.FLUSH_SLAVE_TIMEOUT))
        return found

    def safe_ends(self) -> tuple[int, int]:
        """Log offsets up to which the log is as safe as the settings ask of the disk, and of disk and slaves."""
        flushed = self.flushed.value if self._sync else 1 << 63
        return flushed, min(flushed, self.replicated.value) if self._copied else flushed

    async def settle(self, result: PutResult, end: int, timeout_ms: int | None = None) -> PutStatus:
        """Wait until a stored message is as safe as the settings promise.

        Args:
            result: of the put.
            end: where the log ends.
            timeout_ms: at most so long for each; None for `syncFlushTimeout` and `slaveTimeout`.

        Returns:
            The put's status, or why it is not known to be safe; it is stored in either case. What is said of slaves
            counts more than what is said of the disk.
        """
        if not self.waits or result.status is not PutStatus.PUT_OK:
            return result.status
        at_once = self.status_at_once(end, result.end_offset)
        status: PutStatus = result.status
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        for mark, limit_s, late in self.awaited(copies=at_once is None):
            if mark.value >= result.end_offset:
                continue
            if timeout_ms is not None:
                limit_s = timeout_ms / 1000
            try:
                async with asyncio.timeout_at(began_s + limit_s):
                    await mark.reach(result.end_offset)
            except (TimeoutError, StoreError):
                status = late
        return status if at_once is None or at_once is PutStatus.PUT_OK else at_once
