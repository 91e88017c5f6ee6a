"""Commits of a polling consumer (client.md §18)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from typing import Any

from tianzhou.client.consumer.offset_store import OffsetStore
from tianzhou.client.consumer.pull.prefetch import Prefetcher
from tianzhou.clock import Clock
from tianzhou.errors import TianzhouError
from tianzhou.model import MessageQueue

_log = logging.getLogger(__name__)

REST_S = 0.2
"""Seconds that the caller has to finish messages of a revoked queue and still have them committed."""


class AutoCommitter:
    """Commits of the assigned queues' positions: on request, at intervals, and when queues are revoked.

    Args:
        group: the consumer group.
        offsets: the store of the group's offsets.
        store: stores offsets and waits until they are stored; raises ClientError when some could not be stored.
        polling: knows the positions.
        clock: source of time.
        interval_ms: pause between automatic commits; None disables them.
    """

    def __init__(
        self,
        group: str,
        offsets: OffsetStore,
        store: Callable[[Mapping[MessageQueue, int]], Awaitable[None]],
        polling: Prefetcher,
        clock: Clock,
        interval_ms: int | None,
    ) -> None:
        self._group = group
        self._offsets = offsets
        self._store = store
        self._polling = polling
        self._clock = clock
        self._interval_ms = interval_ms
        self._next_s = 0.0
        self._stored: dict[MessageQueue, int] = {}
        self._leaving: dict[MessageQueue, int] = {}
        """Positions of revoked queues that may still be committed."""
        self._storing = asyncio.Lock()
        """Serializes commits, so that an earlier offset cannot arrive after a later one."""

    @property
    def automatic(self) -> bool:
        """Whether positions are committed automatically."""
        return self._interval_ms is not None

    async def stored(self, queue: MessageQueue) -> int | None:
        """Return the group's stored offset of a queue; None without one."""
        offset = await self._offsets.read(queue)
        if offset is not None:
            self._stored[queue] = offset
        return offset

    async def commit(self, queues: Collection[MessageQueue] | None = None) -> None:
        """Store the positions that have changed, of these queues or of all.

        Raises:
            ClientError: some could not be stored; the log has the reasons.
        """
        async with self._storing:
            await self._store_known(
                {
                    queue: at
                    for queue, at in (self._leaving | self._polling.known_positions()).items()
                    if self._stored.get(queue) != at and (queues is None or queue in queues)
                }
            )

    async def _store_known(self, offsets: Mapping[MessageQueue, int]) -> None:
        if offsets:
            await self._store(offsets)
            self._stored |= offsets

    async def before_poll(self) -> None:
        """Commit the messages of former polls when a commit is due. A new poll means that they are finished."""
        if self._interval_ms is None:
            return
        now_s = self._clock.monotonic()
        due = self._next_s and now_s >= self._next_s
        if due or not self._next_s:
            self._next_s = now_s + self._interval_ms / 1000
        if due:
            try:
                await self.commit()
            except TianzhouError as error:
                _log.warning("positions of group %s are not committed now: %s", self._group, error)

    async def before_sharing(self) -> None:
        """Commit finished messages before a rebalance, unless the user commits.

        Another member may get a queue before this member notices.
        """
        await self._advance(self._polling.done_positions)

    def leave(self, queues: Collection[MessageQueue]) -> Coroutine[Any, Any, None]:
        """Stop polling queues at once, and return a coroutine that commits their finished messages.

        The messages of the last poll count as finished if the caller polls again within `REST_S`. Otherwise the next
        owner of the queue gets them again. When the user commits, the user has the same time to commit.

        Returns:
            The coroutine to await.
        """
        positions, done = (
            {queue: of[queue] for queue in queues if queue in of}
            for of in (self._polling.known_positions(), self._polling.done_positions())
        )
        self._polling.give_up(queues)
        self._leaving |= positions
        return self._end(positions, done)

    async def _end(self, positions: dict[MessageQueue, int], done: dict[MessageQueue, int]) -> None:
        await self._advance(lambda: done)
        if positions != done and await self._polling.back_within(REST_S):
            await self._advance(lambda: positions)
        for queue, at in positions.items():
            if self._leaving.get(queue) == at:
                del self._leaving[queue]
            if queue not in self._polling.queues:
                self._stored.pop(queue, None)

    async def _advance(self, known: Callable[[], Mapping[MessageQueue, int]]) -> None:
        """Store offsets that are greater than the stored ones, unless the user commits."""
        if not self.automatic:
            return
        async with self._storing:
            try:
                await self._store_known(
                    {queue: at for queue, at in known().items() if at > self._stored.get(queue, -1)}
                )
            except TianzhouError as error:
                _log.warning("positions of group %s are not committed now: %s", self._group, error)
