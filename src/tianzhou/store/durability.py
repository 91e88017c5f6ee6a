"""What an acknowledgement waits for: the disk, slaves, both, or nothing (store.md §11.1, broker.md §17.2)."""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

from tianzhou.errors import StoreError
from tianzhou.model import names
from tianzhou.store.results import PutResult, PutStatus
from tianzhou.store.settings import StoreSettings
from tianzhou.watermark import Watermark
from tianzhou.wire.properties import get_property

GROUP_LIMIT_S: Final = 2.5
"""Seconds that an acknowledgement waits for a quorum of a DLedger group (broker.md §19.6)."""


class Copies(Protocol):
    """Who copies the log elsewhere."""

    def verdict(self, end: int, record_end: int) -> PutStatus | None:
        """The status of a stored message that has enough copies, or will not get them; None for one that has to wait.

        Args:
            end: where the log ends.
            record_end: where the message's record ends.
        """
        ...

    def copied(self, end: int) -> int:
        """Up to where as many slaves as required have the log; -1 when there are not so many.

        Args:
            end: where the log ends.
        """
        ...

    def refusal(self, end: int) -> str | None:
        """Why too few brokers are in sync for a message to be stored at all; None when there are enough.

        Args:
            end: where the log ends.
        """
        ...


class Durability:
    """Knows how far the log is safe, and what the settings ask of that.

    Args:
        settings: of the store.
        flushed: log offset up to which the disk has everything.

    Attributes:
        flushed: the argument.
        replicated: log offset up to which as many slaves as required have everything; in a DLedger group, the
            committed position, of which each leadership has a watermark of its own.
        copies: who copies the log; None where nobody does.
        waits: whether an acknowledgement has anything to wait for.
        grouped: whether the log is that of a DLedger group, which says what is committed.
        refuses: whether a message is stored only when enough brokers are in sync (`minInSyncReplicas`).
        hides_uncopied: see `StoreSettings.hides_uncopied`.
    """

    def __init__(self, settings: StoreSettings, flushed: Watermark) -> None:
        self._settings = settings
        self.flushed = flushed
        self.replicated = Watermark(0)
        self.copies: Copies | None = None
        self._sync = settings.sync_flush
        self.grouped = settings.enable_d_leger_commit_log
        self._copied = self.grouped or settings.broker_role == "SYNC_MASTER"
        self.hides_uncopied = settings.hides_uncopied
        self.waits = self._sync or self._copied
        self.refuses = False
        self.settings_changed()

    def settings_changed(self) -> None:
        """Let changed settings count for the next message."""
        self.refuses = self._copied and not self.grouped and self._settings.min_in_sync_replicas > 1

    def recount(self, end: int) -> None:
        """Take note of what slaves have by now: one has reported or gone, or settings ask for another number of them.

        Args:
            end: where the log ends.
        """
        if self.copies is not None:
            self.replicated.advance(self.copies.copied(end))

    def readable_end(self, flushed: int, end: int) -> int:
        """Return the log offset up to which consumers may read.

        Args:
            flushed: log offset up to which the disk has everything.
            end: where the log ends.
        """
        if not self.hides_uncopied:
            return flushed
        copied = -1 if self.copies is None else self.copies.copied(end)
        return min(flushed, max(self.replicated.value, copied))

    def refusal(self, properties: bytes, end: int) -> PutResult | None:
        """What a message gets in place of being stored while too few brokers are in sync; None when there are enough.

        Args:
            properties: of the message; one with `WAIT=false` waits for nobody, and is stored whoever is there.
            end: where the log ends.
        """
        if not self.refuses or get_property(properties, names.WAIT) == "false":
            return None
        text = "the HA port is not open yet" if self.copies is None else self.copies.refusal(end)
        return None if text is None else PutResult(PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH, remark=text)

    def status_at_once(self, end: int, record_end: int) -> PutStatus | None:
        """What copies make of a stored message's status without waiting; None when they are waited for."""
        if not self._copied:
            return PutStatus.PUT_OK
        if self.grouped:
            return None
        if self.copies is None:
            return PutStatus.SLAVE_NOT_AVAILABLE
        return self.copies.verdict(end, record_end)

    @property
    def lasting(self) -> Watermark:
        """Log offset up to which no failure takes anything, so that other files may rely on it."""
        return self.replicated if self.grouped else self.flushed

    def awaited(self, replicated: Watermark, *, copies: bool = True) -> list[tuple[Watermark, float, PutStatus]]:
        """What is waited for: a watermark, for how many seconds, and the status when it does not get there.

        Args:
            replicated: what `replicated` was when the message was stored.
            copies: whether copies are waited for, where settings ask for them.
        """
        settings = self._settings
        found = []
        if self._sync:
            found.append((self.flushed, settings.sync_flush_timeout / 1000, PutStatus.FLUSH_DISK_TIMEOUT))
        if self.grouped:
            # What a quorum has is committed, with SYNC_FLUSH what its disks have (broker.md §19.6).
            return [(replicated, GROUP_LIMIT_S, PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH)]
        if self._copied and copies:
            found.append((replicated, settings.slave_timeout / 1000, PutStatus.FLUSH_SLAVE_TIMEOUT))
        return found

    def safe_ends(self, replicated: Watermark) -> tuple[int, int]:
        """Log offsets up to which the log is as safe as the settings ask of the disk, and of disk and slaves.

        Args:
            replicated: as `awaited`.
        """
        if self.grouped:
            return replicated.value, replicated.value
        flushed = self.flushed.value if self._sync else 1 << 63
        return flushed, min(flushed, replicated.value) if self._copied else flushed

    async def settle(self, result: PutResult, end: int, timeout_ms: int | None = None) -> PutStatus:
        """Wait until a stored message is as safe as the settings promise.

        Args:
            result: of the put.
            end: where the log ends.
            timeout_ms: at most so long for each; None for `syncFlushTimeout` and `slaveTimeout`.

        Returns:
            The put's status, or why it is not known to be safe; it is stored in either case. The status of
            slaves counts more than that of the disk.
        """
        if not self.waits or result.status is not PutStatus.PUT_OK:
            return result.status
        at_once = self.status_at_once(end, result.end_offset)
        status: PutStatus = result.status
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        for mark, limit_s, late in self.awaited(self.replicated, copies=at_once is None):
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
