"""What a polling consumer commits, and when (client.md §18)."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping

from tianzhou.client.offset_store import OffsetStore
from tianzhou.client.polling import Polling
from tianzhou.clock import Clock
from tianzhou.errors import TianzhouError
from tianzhou.model import MessageQueue

_log = logging.getLogger(__name__)


class Commits:
    """The positions of the assigned queues, stored on demand or now and then.

    Args:
        group: the consumer group.
        offsets: where they are kept.
        store: stores offsets and waits until they are stored; raises ClientError when some could not be.
        polling: knows the positions.
        clock: source of time.
        interval_ms: how often to commit without being asked; None for never.
    """

    def __init__(
        self,
        group: str,
        offsets: OffsetStore,
        store: Callable[[Mapping[MessageQueue, int]], Awaitable[None]],
        polling: Polling,
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
        self._settled: dict[MessageQueue, int] = {}

    @property
    def automatic(self) -> bool:
        """Whether positions are committed without being asked."""
        return self._interval_ms is not None

    async def stored(self, queue: MessageQueue) -> int | None:
        """The group's stored offset of a queue, None when it has none."""
        offset = await self._offsets.read(queue)
        if offset is not None:
            self._stored[queue] = offset
        return offset

    async def commit(self, queues: Collection[MessageQueue] | None = None) -> None:
        """Store the positions that have moved, of these queues or of all.

        Raises:
            ClientError: some could not be stored; the log has the reasons.
        """
        await self._store_known(
            {
                queue: at
                for queue, at in self._polling.known_positions().items()
                if self._stored.get(queue) != at and (queues is None or queue in queues)
            }
        )

    async def _store_known(self, offsets: Mapping[MessageQueue, int]) -> None:
        if offsets:
            await self._store(offsets)
            self._stored |= offsets

    async def before_poll(self) -> None:
        """What former polls returned counts as done by now; commit it when that is due."""
        self._settled = self._polling.known_positions()
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

    async def before_leaving(self, queues: Collection[MessageQueue]) -> None:
        """Queues go to another member: commit of them what is done without doubt, unless the user commits."""
        if self.automatic:
            ahead = {
                queue: at for queue in queues if (at := self._settled.get(queue, -1)) > self._stored.get(queue, -1)
            }
            try:
                await self._store_known(ahead)
            except TianzhouError as error:
                _log.warning("positions of group %s are not committed: %s", self._group, error)
        for queue in queues:
            self._stored.pop(queue, None)
            self._settled.pop(queue, None)
