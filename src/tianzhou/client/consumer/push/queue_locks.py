"""A member's locks on its queues at their brokers, for orderly consumption (client.md §14, wire.md §7.4)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

from tianzhou.client.cluster import rpc
from tianzhou.client.instance import ClientInstance
from tianzhou.errors import TianzhouError
from tianzhou.model import MessageQueue

_log = logging.getLogger(__name__)


class QueueLocks:
    """Client of the brokers' queue locks. It sends one request per broker.

    Args:
        instance: reaches the brokers, and its client id owns the locks.
        group: the consumer group.
    """

    def __init__(self, instance: ClientInstance, group: str) -> None:
        self._instance = instance
        self._group = group
        self.held: set[MessageQueue] = set()
        """The queues whose locks this member may hold."""

    async def lock(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, bool]:
        """Lock queues, or renew the locks.

        Returns:
            For each queue whose broker has answered, whether this member has its lock now.
        """

        async def one(broker_name: str, wanted: list[MessageQueue]) -> dict[MessageQueue, bool]:
            try:
                address = await self._instance.master(broker_name, wanted[0].topic)
                self.held.update(wanted)
                granted = await rpc.lock_queues(
                    self._instance.remoting, address, self._instance.client_id, self._group, wanted
                )
            except TianzhouError as error:
                _log.warning("locks of group %s at broker %s: no answer: %s", self._group, broker_name, error)
                return {}
            self.held.difference_update(set(wanted) - set(granted))
            return {queue: queue in granted for queue in wanted}

        answers: dict[MessageQueue, bool] = {}
        for answer in await asyncio.gather(*(one(*pair) for pair in _by_broker(queues).items())):
            answers |= answer
        return answers

    async def unlock(self, queues: Iterable[MessageQueue]) -> None:
        """Release locks. Locks of brokers that do not answer stay in `held` and expire."""

        async def one(broker_name: str, ours: list[MessageQueue]) -> None:
            self.held.difference_update(ours)
            try:
                address = await self._instance.master(broker_name, ours[0].topic)
                await rpc.unlock_queues(self._instance.remoting, address, self._instance.client_id, self._group, ours)
            except TianzhouError as error:
                self.held.update(ours)
                _log.warning("locks of group %s at broker %s are not freed: %s", self._group, broker_name, error)

        await asyncio.gather(*(one(*pair) for pair in _by_broker(queues).items()))


def _by_broker(queues: Iterable[MessageQueue]) -> dict[str, list[MessageQueue]]:
    result: dict[str, list[MessageQueue]] = {}
    for queue in sorted(queues):
        result.setdefault(queue.broker_name, []).append(queue)
    return result
