"""The loop that keeps a member's queues in line with its group (client.md §10)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection
from typing import TypeAlias

from tianzhou.client import calls
from tianzhou.client.instance import ClientInstance
from tianzhou.client.rebalance import AllocateStrategy, changes, sorted_client_ids
from tianzhou.errors import TianzhouError
from tianzhou.model import MessageModel, MessageQueue

_log = logging.getLogger(__name__)

INTERVAL_S = 20.0
MIN_INTERVAL_S = 0.2
"""Changes come in swarms, when many members start; one round meets the rest of a swarm."""
RETRY_S = 1.0
TAKE_OVER_DELAY_S = 0.3
"""Between another member's losing a queue and our taking it: it stores its offset meanwhile."""

SharesChanged: TypeAlias = Callable[[str, list[MessageQueue], list[MessageQueue]], None]
"""Told of a topic, all its queues and those that are ours now."""


class Sharing:
    """Decides again and again which queues are ours, and has them taken and given up.

    Args:
        instance: knows routes, brokers and our client id.
        group: the consumer group.
        model: broadcasting takes all queues.
        strategy: how members share.
        topics: the topics to share queues of.
        owned: the queues that are ours now.
        take: takes a queue over; False when that has to be tried again.
        give_up: gives queues up.
        changed: told of a topic, its queues and ours, when our share of it has changed.
        take_over_s: how long to let a queue's former owner store its offset.
    """

    def __init__(
        self,
        instance: ClientInstance,
        group: str,
        model: MessageModel,
        strategy: AllocateStrategy,
        *,
        topics: Callable[[], Collection[str]],
        owned: Callable[[], Collection[MessageQueue]],
        take: Callable[[MessageQueue], Awaitable[bool]],
        give_up: Callable[[list[MessageQueue]], Awaitable[None]],
        changed: SharesChanged | None = None,
        take_over_s: float = TAKE_OVER_DELAY_S,
    ) -> None:
        self._instance = instance
        self._group = group
        self._model = model
        self._strategy = strategy
        self._topics = topics
        self._owned = owned
        self._take = take
        self._give_up = give_up
        self._changed = changed
        self._take_over_s = take_over_s
        self._wake = asyncio.Event()

    def wake(self) -> None:
        """Share anew, soon."""
        self._wake.set()

    async def run(self) -> None:
        """Share until cancelled: when woken, every 20 s, and every second while something is amiss."""
        wait_s = 0.0
        while True:
            # Not wait_for: Python 3.11's forgets that it was cancelled when it is woken in the same turn of the loop.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._wake.wait()
            self._wake.clear()
            wait_s = INTERVAL_S if await self._round() else RETRY_S
            await asyncio.sleep(MIN_INTERVAL_S)

    async def _round(self) -> bool:
        balanced = True
        topics = set(self._topics())
        for topic in sorted(topics):
            try:
                balanced = await self._share(topic) and balanced
            except TianzhouError as error:
                balanced = False
                _log.info("queues of %s cannot be shared in group %s now: %s", topic, self._group, error)
            except Exception:  # noqa: BLE001 - strategies and listeners may be the user's; the sharing goes on
                balanced = False
                _log.exception("queues of %s cannot be shared in group %s now", topic, self._group)
        gone = [queue for queue in self._owned() if queue.topic not in topics]
        if gone:
            await self._give_up(gone)
        return balanced

    async def _share(self, topic: str) -> bool:
        queues = await self._instance.queues_to_read(topic)
        if not queues:
            return True  # it does not exist yet; the instance looks for it and wakes us
        members = 1
        mine = queues
        if self._model is MessageModel.CLUSTERING:
            address = await self._instance.any_broker_of(topic)
            if address is None:
                return False
            client_ids = sorted_client_ids(
                await calls.consumer_ids(self._instance.remoting, address, self._group, self._instance.api_timeout_ms)
            )
            if not client_ids:
                await self._instance.heartbeats.to(address)
                return False
            members = len(client_ids)
            mine = self._strategy.allocate(self._instance.client_id, queues, client_ids)
        lost, taken = changes([queue for queue in self._owned() if queue.topic == topic], mine)
        if lost:
            await self._give_up(lost)
        if taken and members > 1:
            await asyncio.sleep(self._take_over_s)
        results = await asyncio.gather(*map(self._take, taken))
        if self._changed is not None and (lost or any(results)):
            self._changed(topic, queues, [queue for queue in self._owned() if queue.topic == topic])
        if not taken:
            return True
        _log.info(
            "%s in group %s has %d of %d queues of %s, shared by %d",
            self._instance.client_id,
            self._group,
            len(mine),
            len(queues),
            topic,
            members,
        )
        return all(results)
