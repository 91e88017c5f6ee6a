"""The loop that updates a member's queues when its group or its topics change (client.md §10)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection
from typing import NamedTuple, TypeVar

from tianzhou.client.cluster import rpc
from tianzhou.client.consumer.allocation import changes, sorted_client_ids
from tianzhou.client.consumer.options import ConsumerOptions
from tianzhou.client.instance import ClientInstance
from tianzhou.errors import TianzhouError
from tianzhou.model import MessageModel, MessageQueue
from tianzhou.remoting.callbacks import failure_of

T = TypeVar("T")

_log = logging.getLogger(__name__)

INTERVAL_S = 20.0
MIN_INTERVAL_S = 0.2
"""Minimum seconds between two rounds. Many members often start together, and one round handles all their changes."""
RETRY_S = 1.0
TAKE_OVER_DELAY_S = 0.5
"""Seconds between the assignment of a queue and its first pull. The former owner needs this time to learn of the change
(`MIN_INTERVAL_S` at most), to finish its handlers and to store its offset."""

EARLY_S = 0.001
"""Maximum seconds by which a timer of the event loop may fire early."""


class _Share(NamedTuple):
    """A member's share of a topic's queues."""

    queues: list[MessageQueue]
    members: int
    lost: list[MessageQueue]
    wanted: list[MessageQueue]


class Rebalancer:
    """A loop that repeatedly determines this member's queues, and adds and revokes queues accordingly.

    A round revokes lost queues of all topics at once, and never sleeps. A later round adds a queue that another member
    owned. So a member that waits for queues still releases queues for other members.

    Args:
        instance: knows routes, brokers and the client id.
        group: the consumer group.
        options: they have the strategy, broadcasting (each member takes all queues), and the callback for changed
            shares.
        topics: returns the topics whose queues are shared.
        owned: returns the present queues of this member.
        take: adds a queue; returns False when it has to be retried.
        give_up: revokes queues.
        take_over_s: seconds that a queue's former owner has to store its offset.
    """

    def __init__(
        self,
        instance: ClientInstance,
        group: str,
        options: ConsumerOptions,
        *,
        topics: Callable[[], Collection[str]],
        owned: Callable[[], Collection[MessageQueue]],
        take: Callable[[MessageQueue], Awaitable[bool]],
        give_up: Callable[[list[MessageQueue]], Awaitable[None]],
        take_over_s: float = TAKE_OVER_DELAY_S,
    ) -> None:
        self._instance = instance
        self._group = group
        self._model = options.message_model
        self._strategy = options.strategy
        self._topics = topics
        self._owned = owned
        self._take = take
        self._give_up = give_up
        self._changed = options.queues_changed
        self._take_over_s = take_over_s
        self._wake = asyncio.Event()
        self._due: dict[MessageQueue, float] = {}
        """Earliest time of the loop's clock to add a queue that another member owned."""

    def wake(self) -> None:
        """Start a round soon."""
        self._wake.set()

    async def run(self) -> None:
        """Run rounds until cancelled: when woken, every 20 s, and every second after a failure."""
        loop = asyncio.get_running_loop()
        next_s = loop.time()
        while True:
            # No `wait_for`: that of Python 3.11 loses a cancellation when it is woken in the same turn of the loop.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(next_s):
                    await self._wake.wait()
            self._wake.clear()
            balanced = await self._round()
            now_s = loop.time()
            next_s = now_s + (INTERVAL_S if balanced else RETRY_S)
            next_s = min([next_s, *(due_s for due_s in self._due.values() if due_s > now_s)])
            await asyncio.sleep(MIN_INTERVAL_S)

    async def _round(self) -> bool:
        shares: dict[str, _Share] = {}
        topics = sorted(set(self._topics()))
        for topic in topics:
            share = await self._guarded(topic, self._look(topic))
            if share is not None:
                shares[topic] = share
        balanced = len(shares) == len(topics)
        lost = [queue for queue in self._owned() if queue.topic not in topics]
        lost += [queue for share in shares.values() for queue in share.lost]
        if lost:
            await self._guarded(", ".join(sorted({queue.topic for queue in lost})), self._give_up(lost))
        now_s = asyncio.get_running_loop().time()
        self._due = {
            queue: self._due.get(queue, now_s + (self._take_over_s if share.members > 1 else 0.0))
            for share in shares.values()
            for queue in share.wanted
        }
        for topic, share in shares.items():
            ready = [queue for queue in share.wanted if self._due[queue] <= now_s + EARLY_S]
            balanced = await self._guarded(topic, self._take_all(topic, share, ready)) is True and balanced
        return balanced

    async def _guarded(self, topic: str, work: Awaitable[T]) -> T | None:
        """Return the result of the work. Log its failure and return None."""
        task = asyncio.current_task()
        try:
            return await work
        except TianzhouError as error:
            _log.info("queues of %s cannot be shared in group %s now: %s", topic, self._group, error)
        except BaseException as error:  # noqa: BLE001 - a user's strategy or listener must not stop rebalancing
            failure = failure_of(error, task)
            _log.error("queues of %s cannot be shared in group %s now", topic, self._group, exc_info=failure)
        return None

    async def _look(self, topic: str) -> _Share | None:
        """Return this member's share of a topic; None when it cannot be determined now."""
        queues = await self._instance.queues_to_read(topic)
        if not queues:
            return _Share([], 1, [], [])  # the topic does not exist yet; the instance polls for it and wakes this loop
        members = 1
        mine = queues
        if self._model is MessageModel.CLUSTERING:
            address = await self._instance.any_broker_of(topic)
            if address is None:
                return None
            client_ids = sorted_client_ids(
                await rpc.consumer_ids(self._instance.remoting, address, self._group, self._instance.api_timeout_ms)
            )
            if not client_ids:
                await self._instance.heartbeats.to(address)
                return None
            members = len(client_ids)
            mine = self._strategy.allocate(self._instance.client_id, queues, client_ids)
        lost, wanted = changes([queue for queue in self._owned() if queue.topic == topic], mine)
        return _Share(queues, members, lost, wanted)

    async def _take_all(self, topic: str, share: _Share, ready: list[MessageQueue]) -> bool:
        """Add queues and call the callback for changed shares; return False when some queues have to be retried."""
        taken = await asyncio.gather(*map(self._take, ready))
        for queue, done in zip(ready, taken, strict=True):
            if done:
                del self._due[queue]
        ours = [queue for queue in self._owned() if queue.topic == topic]
        if self._changed is not None and (share.lost or any(taken)):
            self._changed(topic, share.queues, ours)
        if any(taken):
            _log.info(
                "%s in group %s has %d of %d queues of %s, shared by %d",
                self._instance.client_id,
                self._group,
                len(ours),
                len(share.queues),
                topic,
                share.members,
            )
        return all(taken)
