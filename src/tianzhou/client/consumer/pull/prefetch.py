"""Prefetching of messages from assigned queues, for a caller who polls (client.md §18)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import NamedTuple

from tianzhou.client.consumer.pull_pace import PullPace
from tianzhou.client.instance import ClientInstance
from tianzhou.client.retry import needs_heartbeat, pull_delay_ms
from tianzhou.errors import ClientError, TianzhouError
from tianzhou.model import MessageExt, MessageQueue, PullResult, PullStatus
from tianzhou.supervision import start_owned

_log = logging.getLogger(__name__)


class _InHand(NamedTuple):
    """The messages that `next` returned last; the caller may still process them."""

    queue: MessageQueue
    first_offset: int


class Prefetcher:
    """A position per assigned queue, and at most one prefetched pull per queue.

    Args:
        instance: sends missing heartbeats, and is the source of time.
        group: the consumer group, for the log.
        pull: pulls from a queue at an offset, and waits for messages.
        first_offset: returns the offset at which the group begins on a queue.
    """

    def __init__(
        self,
        instance: ClientInstance,
        group: str,
        pull: Callable[[MessageQueue, int], Awaitable[PullResult]],
        first_offset: Callable[[MessageQueue], Awaitable[int]],
    ) -> None:
        self._instance = instance
        self._group = group
        self._pull = pull
        self._first_offset = first_offset
        self._positions: dict[MessageQueue, int | None] = {}
        self._fetches: dict[MessageQueue, asyncio.Task[None]] = {}
        self._paces: dict[MessageQueue, PullPace] = {}
        self._ready: deque[tuple[MessageQueue, PullResult]] = deque()
        self._arrived = asyncio.Event()
        self._paused: set[MessageQueue] = set()
        self._in_hand: _InHand | None = None
        self._back = asyncio.Event()

    @property
    def queues(self) -> list[MessageQueue]:
        """The assigned queues."""
        return list(self._positions)

    def known_positions(self) -> dict[MessageQueue, int]:
        """Return the next offset to return for each queue whose beginning is already known."""
        return {queue: at for queue, at in self._positions.items() if at is not None}

    def done_positions(self) -> dict[MessageQueue, int]:
        """As `known_positions`, but without the messages returned last while the caller has not asked for more."""
        positions = self.known_positions()
        if self._in_hand is not None and self._in_hand.queue in positions:
            positions[self._in_hand.queue] = self._in_hand.first_offset
        return positions

    async def back_within(self, limit_s: float) -> bool:
        """Return whether the caller asks for more within this time in seconds, or has asked already."""
        if self._in_hand is None:
            return True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                await self._back.wait()
        return self._back.is_set()

    def assign(self, queues: Iterable[MessageQueue]) -> None:
        """Read exactly these queues from now on; queues that were assigned before retain their positions."""
        chosen = set(queues)
        for queue in self._positions.keys() - chosen:
            self._drop_fetched(queue)
        self._positions = {queue: self._positions.get(queue) for queue in sorted(chosen)}
        self._paused &= chosen

    def take(self, queue: MessageQueue, at: int) -> None:
        """Add a queue, and read it from an offset."""
        self._positions[queue] = at
        self._arrived.set()

    def give_up(self, queues: Iterable[MessageQueue]) -> None:
        """Stop reading these queues, and drop prefetched messages that were not returned."""
        for queue in queues:
            self._drop_fetched(queue)
            self._positions.pop(queue, None)
            self._paused.discard(queue)

    async def position(self, queue: MessageQueue) -> int:
        """Return the next offset to return for a queue."""
        self.check_assigned(queue)
        at = self._positions[queue]
        if at is None:
            at = self._positions[queue] = await self._first_offset(queue)
        return at

    def move(self, queue: MessageQueue, offset: int) -> None:
        """Continue a queue at another offset, and drop its prefetched messages."""
        self.check_assigned(queue)
        self._drop_fetched(queue)
        self._positions[queue] = offset
        if self._in_hand is not None and self._in_hand.queue == queue:
            self._in_hand = None

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Stop fetching from queues; prefetched messages are still returned."""
        for queue in queues:
            self.check_assigned(queue)
            self._paused.add(queue)
            if queue in self._fetches:
                self._fetches.pop(queue).cancel()

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Fetch from paused queues again."""
        self._paused.difference_update(queues)

    def check_assigned(self, queue: MessageQueue) -> None:
        """Check that a queue is assigned.

        Raises:
            ClientError: the queue is not assigned.
        """
        if queue not in self._positions:
            raise ClientError(f"{queue} is not assigned to this consumer; subscribe or assign first")

    def _drop_fetched(self, queue: MessageQueue) -> None:
        self._paces.pop(queue, None)
        if queue in self._fetches:
            self._fetches.pop(queue).cancel()
        self._ready = deque((q, result) for q, result in self._ready if q != queue)

    async def close(self) -> None:
        """Cancel every fetch."""
        tasks = list(self._fetches.values())
        self._fetches.clear()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def next(self, timeout_ms: float) -> list[MessageExt]:
        """Return the messages of the next pull that has some; return an empty list when none has in time."""
        clock = self._instance.clock
        deadline = clock.monotonic() + timeout_ms / 1000
        self._in_hand = None
        self._back.set()
        while True:
            while self._ready:
                queue, result = self._ready.popleft()
                former, self._positions[queue] = self._positions[queue], result.next_offset
                self._fetch(queue)
                if result.messages:
                    self._in_hand = _InHand(queue, result.messages[0].queue_offset if former is None else former)
                    self._back.clear()
                    return result.messages
            self._arrived.clear()
            for queue in self._positions:
                self._fetch(queue)
            left_s = deadline - clock.monotonic()
            if left_s <= 0:
                return []
            try:
                # No `wait_for`: that of Python 3.11 loses a cancellation that arrives together with a message.
                async with asyncio.timeout(left_s):
                    await self._arrived.wait()
            except TimeoutError:
                return []

    def _fetch(self, queue: MessageQueue) -> None:
        if queue in self._paused or any(queue == q for q, _ in self._ready):
            return
        running = self._fetches.get(queue)
        if running is not None:
            if not running.done():
                return
            del self._fetches[queue]
            running.result()  # an error in the task is a defect, so raise it to the caller
        self._fetches[queue] = start_owned(self._fetch_one(queue), f"consumer group {self._group}")

    async def _fetch_one(self, queue: MessageQueue) -> None:
        clock = self._instance.clock
        pace = self._paces.setdefault(queue, PullPace())
        while True:
            began_s = clock.monotonic()
            try:
                offset = await self.position(queue)
                result = await self._pull(queue, offset)
            except TianzhouError as error:
                _log.warning("pull from %s for group %s failed: %s", queue, self._group, error)
                if needs_heartbeat(error):
                    await self._instance.heartbeats.all()
                await asyncio.sleep(pull_delay_ms(error) / 1000)
                continue
            if result.status is PullStatus.OFFSET_ILLEGAL:
                _log.warning(
                    "group %s continues %s at offset %d instead of %d: the broker says so, the queue holds %d to %d",
                    self._group,
                    queue,
                    result.next_offset,
                    offset,
                    result.min_offset,
                    result.max_offset,
                )
            moved = result.next_offset - offset
            if result.messages and moved > 0:
                pace.fruitless = 0
                break
            if result.status is PullStatus.OFFSET_ILLEGAL:
                moved = 0
            await asyncio.sleep(pace.rest_s(moved, clock.monotonic() - began_s))
            if result.messages:
                break
            self._positions[queue] = result.next_offset
        if self._fetches.get(queue) is asyncio.current_task():
            del self._fetches[queue]
            self._ready.append((queue, result))
            self._arrived.set()
