"""Lag of an archive compared with the brokers' retention: unarchived messages, and the time left to archive them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tianzhou.model import MessageQueue

if TYPE_CHECKING:
    from tianzhou.admin import Admin

HOUR_MS = 3_600_000


@dataclass(frozen=True)
class ArchiveStanding:
    """The state of an archive.

    Attributes:
        behind: number of messages that are not archived yet.
        oldest_ms: store time of the oldest of them; None if there are none.
        kept_ms: shortest retention of the brokers in ms; None if no broker reports it.
    """

    behind: int
    oldest_ms: int | None
    kept_ms: int | None

    def left_ms(self, now_ms: int) -> int | None:
        """Return the ms until an unarchived message may be deleted; None if no broker reports a retention."""
        if self.kept_ms is None:
            return None
        oldest = now_ms if self.oldest_ms is None else self.oldest_ms
        return oldest + self.kept_ms - now_ms


async def standing(admin: Admin, topics: Iterable[str], positions: Mapping[MessageQueue, int]) -> ArchiveStanding:
    """Query the brokers for the state of an archive.

    Args:
        admin: the client for the brokers.
        topics: the archived topics.
        positions: the next offset of each queue; a missing queue has not been begun.
    """
    behind, oldest = 0, []
    for topic in topics:
        for queue, bounds in (await admin.topics.stats(topic)).offset_table.items():
            at = max(positions.get(queue, 0), bounds.min_offset)
            if at >= bounds.max_offset:
                continue
            behind += bounds.max_offset - at
            message = await admin.messages.by_offset(queue, at)
            if message is not None:
                oldest.append(message.store_timestamp)
    hours_ms = []
    for address in (await admin.cluster.masters()).values():
        hours = (await admin.cluster.broker_config(address)).get("fileReservedTime", "")
        if hours.isdecimal():
            hours_ms.append(int(hours) * HOUR_MS)
    return ArchiveStanding(behind, min(oldest, default=None), min(hours_ms, default=None))
