"""Storing the consumed offsets of queues, and waiting for the confirmation (client.md §16)."""

from __future__ import annotations

import asyncio
import logging

from tianzhou.client.consumer.offset_store import OffsetStore
from tianzhou.client.consumer.push.process_queue import ProcessQueue
from tianzhou.client.instance import ClientInstance
from tianzhou.errors import TianzhouError

_log = logging.getLogger(__name__)

CONFIRM_RETRY_S = 1.0
"""Seconds before an offset that was not confirmed is sent again."""


class QueueOffsets:
    """Writer of the offsets of a push consumer's queues.

    Args:
        instance: source of time.
        group: the consumer group.
        offsets: the store of the group's offsets.
    """

    def __init__(self, instance: ClientInstance, group: str, offsets: OffsetStore) -> None:
        self._instance = instance
        self._group = group
        self._offsets = offsets

    async def store(self, queues: list[ProcessQueue], *, confirm: bool = False) -> None:
        """Store the offsets that have changed.

        Args:
            queues: the queues.
            confirm: whether to wait until they are stored.
        """
        now_s = self._instance.clock.monotonic()
        doubtful = [pq for pq in queues if confirm and pq.doubtful(now_s)]
        moved = {
            pq.queue: pq
            for pq in queues
            if not pq.dropped and (pq.tracker.committable != pq.committed or pq in doubtful)
        }
        if not moved:
            return
        offsets = {queue: pq.tracker.committable for queue, pq in moved.items()}
        for queue in await self._offsets.persist(offsets, confirm=confirm):
            moved[queue].committed = offsets[queue]
        await asyncio.gather(*(self._restore(pq, offsets[pq.queue]) for pq in doubtful if not pq.dropped))

    async def confirm(self, pq: ProcessQueue) -> None:
        """Store the offset of a queue, and retry each second until it is confirmed or the queue is revoked."""
        while not pq.given_up and pq.committed != (offset := pq.tracker.committable):
            await self.store([pq], confirm=True)
            if pq.committed != offset:
                await asyncio.sleep(CONFIRM_RETRY_S)

    async def _restore(self, pq: ProcessQueue, offset: int) -> None:
        # Apache's broker has separate threads for pulls and commits. So it may execute the commit of an earlier pull
        # after this one, which sets the group's offset back.
        try:
            put_back = await self._offsets.read(pq.queue) == pq.carried != offset
        except TianzhouError as error:
            _log.info("the offset of %s of group %s cannot be looked at: %s", pq.queue, self._group, error)
            return
        if put_back:
            await self._offsets.persist({pq.queue: offset}, confirm=True)
