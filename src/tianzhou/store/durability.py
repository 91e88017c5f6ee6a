"""The condition of an acknowledgement: synced, copied to slaves, both, or none (store.md §11.1, broker.md §17.2)."""

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
    """The slaves that copy the log."""

    def verdict(self, end: int, record_end: int) -> PutStatus | None:
        """Return the status of a stored message with enough copies, or without hope of them; None while it must wait.

        Args:
            end: where the log ends.
            record_end: where the message's record ends.
        """
        ...

    def copied(self, end: int) -> int:
        """Return the log offset up to which enough slaves have the log; -1 when too few are connected.

        Args:
            end: where the log ends.
        """
        ...

    def refusal(self, end: int) -> str | None:
        """Return why too few brokers are in sync for a message to be stored at all; None when there are enough.

        Args:
            end: where the log ends.
        """
        ...


class Durability:
    """The safe ends of the log, and the safety that the settings require.

    Args:
        settings: settings of the store.
        flushed: log offset up to which the log is synced.

    Attributes:
        flushed: the argument.
        replicated: log offset up to which as many slaves as required have the log; in a DLedger group, the committed
            position, for which each leadership has its own watermark.
        copies: the slaves that copy the log; None without any.
        waits: whether an acknowledgement has any condition.
        grouped: whether the log belongs to a DLedger group, which decides the commit position.
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
        """Apply changed settings to the next message."""
        self.refuses = self._copied and not self.grouped and self._settings.min_in_sync_replicas > 1

    def recount(self, end: int) -> None:
        """Update the copied end after a slave has reported or disconnected, or the required number has changed.

        Args:
            end: where the log ends.
        """
        if self.copies is not None:
            self.replicated.advance(self.copies.copied(end))

    def readable_end(self, flushed: int, end: int) -> int:
        """Return the log offset up to which consumers may read.

        Args:
            flushed: log offset up to which the log is synced.
            end: where the log ends.
        """
        if not self.hides_uncopied:
            return flushed
        copied = -1 if self.copies is None else self.copies.copied(end)
        return min(flushed, max(self.replicated.value, copied))

    def refusal(self, properties: bytes, end: int) -> PutResult | None:
        """Return the rejection of a message while too few brokers are in sync; None when there are enough.

        Args:
            properties: properties of the message; one with `WAIT=false` has no condition, and is always stored.
            end: where the log ends.
        """
        if not self.refuses or get_property(properties, names.WAIT) == "false":
            return None
        text = "the HA port is not open yet" if self.copies is None else self.copies.refusal(end)
        return None if text is None else PutResult(PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH, remark=text)

    def status_at_once(self, end: int, record_end: int) -> PutStatus | None:
        """Return the status of a stored message by its copies without waiting; None when it must wait."""
        if not self._copied:
            return PutStatus.PUT_OK
        if self.grouped:
            return None
        if self.copies is None:
            return PutStatus.SLAVE_NOT_AVAILABLE
        return self.copies.verdict(end, record_end)

    @property
    def lasting(self) -> Watermark:
        """Log offset up to which no failure loses records, so that other files may rely on it."""
        return self.replicated if self.grouped else self.flushed

    def awaited(self, replicated: Watermark, *, copies: bool = True) -> list[tuple[Watermark, float, PutStatus]]:
        """Return the conditions: a watermark, its time limit in seconds, and the status after the limit.

        Args:
            replicated: value of `replicated` when the message was stored.
            copies: whether to wait for copies, where settings require them.
        """
        settings = self._settings
        found = []
        if self._sync:
            found.append((self.flushed, settings.sync_flush_timeout / 1000, PutStatus.FLUSH_DISK_TIMEOUT))
        if self.grouped:
            # Entries of a quorum are committed; with SYNC_FLUSH, entries synced by a quorum (broker.md §19.6).
            return [(replicated, GROUP_LIMIT_S, PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH)]
        if self._copied and copies:
            found.append((replicated, settings.slave_timeout / 1000, PutStatus.FLUSH_SLAVE_TIMEOUT))
        return found

    def safe_ends(self, replicated: Watermark) -> tuple[int, int]:
        """Return the log offsets up to which the log meets the settings for the disk, and for disk and slaves.

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
            result: result of the put.
            end: where the log ends.
            timeout_ms: time limit of each condition; None for `syncFlushTimeout` and `slaveTimeout`.

        Returns:
            The put's status, or why it is not known to be safe; it is stored in either case. The status of slaves has
            priority over that of the disk.
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
