"""The limits of one read of a queue (store.md §14.1)."""

from __future__ import annotations

import os
from typing import Final

from tianzhou._hot.records import GatherLimits
from tianzhou.store.queues.consumequeue import UNIT_SIZE
from tianzhou.store.settings import StoreSettings

_MOST_MADE: Final = 256


class ReadLimits:
    """The limits of one read's scan and result.

    Args:
        settings: the limits.
        memory: bytes of main memory; None for this machine's.

    Attributes:
        memory_bound: bytes at the end of the log that reads treat as being in memory.
        units: queue units that one read may scan.
        segments: queue segments that one read may scan.
    """

    __slots__ = ("_made", "_memory", "_settings", "memory_bound", "segments", "units")

    def __init__(self, settings: StoreSettings, memory: int | None = None) -> None:
        if memory is None:
            memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        self._settings, self._memory = settings, memory
        self._made: dict[tuple[int, int], GatherLimits] = {}
        self.settings_changed()

    def of(self, max_messages: int, max_bytes: int) -> GatherLimits:
        """Return the limits of a read with its own maximum of messages and bytes."""
        made = self._made.get((max_messages, max_bytes))
        return self._make(max_messages, max_bytes) if made is None else made

    def settings_changed(self) -> None:
        """Apply settings that were changed while the store runs."""
        settings = self._settings
        self._made.clear()
        self.memory_bound = self._memory * settings.access_message_in_memory_max_ratio // 100
        self.units = -(-settings.max_filter_message_size // UNIT_SIZE)
        self.segments = max(1, settings.travel_cq_file_num_when_get_message)

    def _make(self, max_messages: int, max_bytes: int) -> GatherLimits:
        settings = self._settings
        if len(self._made) >= _MOST_MADE:
            self._made.clear()
        made = self._made[max_messages, max_bytes] = GatherLimits(
            self.memory_bound,
            min(max_messages, settings.max_transfer_count_on_message_in_memory),
            min(max_bytes, settings.max_transfer_bytes_on_message_in_memory),
            min(max_messages, settings.max_transfer_count_on_message_in_disk),
            min(max_bytes, settings.max_transfer_bytes_on_message_in_disk),
        )
        return made
