"""How an archive stands against the brokers' retention: what it has not got yet, and how long it still has."""

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
    """Where an archive stands.

    Attributes:
        behind: messages that are not archived yet.
        oldest_ms: when the oldest of them was stored; None when there is none.
        kept_ms: how long the brokers keep messages, the shortest of them; None when none reports it.
    """

    behind: int
    oldest_ms: int | None
    kept_ms: int | None

    def left_ms(self, now_ms: int) -> int | None:
        """How long until a message may be deleted that is not archived; None when no broker reports a retention."""
        if self.kept_ms is None:
            return None
        oldest = now_ms if self.oldest_ms is None else self.oldest_ms
        return oldest + self.kept_ms - now_ms


async def standing(admin: Admin, topics: Iterable[str], positions: Mapping[MessageQueue, int]) -> ArchiveStanding:
    """Ask the brokers how an archive stands.

    Args:
        admin: asks them.
        topics: what is archived.
        positions: where each queue goes on; a queue that is not in it has not been begun.
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
