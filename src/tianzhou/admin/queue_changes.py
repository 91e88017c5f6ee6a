"""Execution of a change of a topic's queue numbers, in the order that `queue_numbers` decides."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from tianzhou.admin.groups import Groups
from tianzhou.admin.progress import QueueLag
from tianzhou.admin.queue_numbers import (
    DroppedQueue,
    QueueNumbers,
    QueuePlan,
    QueueStep,
    QueueUse,
    dropped_queues,
    wanted_numbers,
)
from tianzhou.admin.reach import Reach
from tianzhou.admin.topics import Topics, on_brokers
from tianzhou.client.cluster import rpc
from tianzhou.errors import ClientError
from tianzhou.model import MessageQueue
from tianzhou.model.subscription import MessageModel

QUEUES_AT_ONCE: Final = 100
"""Maximum number of concurrent requests for the end of a queue."""


class QueueChange:
    """A change of a topic's queue numbers.

    Args:
        topics: reads and changes topics.
        groups: reads the progress of groups.
        reach: sends the requests for the ends of queues.
        topic: name of the topic.
        read: wanted number of read queues; None leaves each broker's number.
        write: wanted number of write queues; None leaves each broker's number.
        brokers: names of the brokers to change; None for all brokers that have the topic.
    """

    def __init__(
        self,
        topics: Topics,
        groups: Groups,
        reach: Reach,
        topic: str,
        read: int | None,
        write: int | None,
        brokers: Collection[str] | None,
    ) -> None:
        self._topics, self._groups, self._reach = topics, groups, reach
        self._topic, self._read, self._write, self._brokers = topic, read, write, brokers

    async def plan(self) -> QueuePlan:
        """Return the plan of the change, based on the brokers' present numbers.

        Raises:
            ClientError: the topic does not exist, or does not exist on one of the brokers.
        """
        configs = await self._topics.config(self._topic)
        if not configs:
            raise ClientError(f"topic {self._topic} does not exist; create it first")
        present = {
            broker: QueueNumbers(one.read_queue_nums, one.write_queue_nums)
            for broker, one in on_brokers(self._topic, configs, self._brokers).items()
        }
        numbers = wanted_numbers(present, self._read, self._write)
        if all(new.read >= old.read for old, new in numbers.values()):
            return QueuePlan(self._topic, numbers)
        stats, lags = await asyncio.gather(self._topics.stats(self._topic), self._lags(numbers))
        return QueuePlan(self._topic, numbers, dropped_queues(numbers, stats.offset_table, lags))

    async def _lags(self, numbers: Mapping[str, tuple[QueueNumbers, QueueNumbers]]) -> dict[str, list[QueueLag]]:
        """Return the unread queues that will be dropped, by group."""
        found: dict[str, list[QueueLag]] = {}
        for group in await self._topics.groups(self._topic):
            lag = await self._groups.lag(group, self._topic)
            behind = [one for one in lag.queues if one.lag and _goes(one.queue, numbers)]
            if behind and not await self._broadcasts(group):
                found[group] = behind
        return found

    async def _broadcasts(self, group: str) -> bool:
        members = await self._groups.connections(group)
        return members is not None and members.message_model is MessageModel.BROADCASTING

    async def run(self, drop_unread: bool) -> QueuePlan:
        """Run the steps, and return the plan of the remaining steps.

        Args:
            drop_unread: whether to drop queues that have unread messages.

        Raises:
            ClientError: see `plan`.
            BrokerError: a broker refuses.
        """
        for step in (await self.plan()).steps:
            if step.cuts_reading:
                await self._cut(step, drop_unread)
            else:
                await self._set(step.use, step.number, step.brokers)
        return await self.plan()

    async def _set(self, use: QueueUse, number: int, brokers: Iterable[str]) -> None:
        named = tuple(brokers)
        if use is QueueUse.READ:
            await self._topics.update(self._topic, read_queue_nums=number, brokers=named)
        else:
            await self._topics.update(self._topic, write_queue_nums=number, brokers=named)

    async def _cut(self, step: QueueStep, drop_unread: bool) -> None:
        """Drop the queues that groups have consumed, and restore a broker's queues when a message arrived meanwhile."""
        plan = await self.plan()  # producers have stored messages since the plan was made
        brokers = [one for one in step.brokers if drop_unread or not plan.unread([one])]
        if not brokers:
            return
        await self._set(step.use, step.number, brokers)
        if drop_unread:
            return
        # A producer with an old route may write to a queue as long as the queue is read. From now on brokers refuse
        # these sends, so only messages that came between the plan and the step can be unread.
        for broker in await self._brokers_with_late_messages(plan, brokers):
            await self._set(step.use, plan.numbers[broker][0].read, [broker])

    async def _brokers_with_late_messages(self, plan: QueuePlan, brokers: Collection[str]) -> list[str]:
        masters = await self._reach.masters_of(self._topic)
        going = [one for one in plan.dropped if one.broker_name in brokers]

        async def has_more(queue: DroppedQueue) -> bool:
            place = MessageQueue(self._topic, queue.broker_name, queue.queue_id)
            return await rpc.max_offset(self._reach.remoting, masters[queue.broker_name], place) > queue.next_offset

        late: set[str] = set()
        for begin in range(0, len(going), QUEUES_AT_ONCE):
            queues = going[begin : begin + QUEUES_AT_ONCE]
            answers = await asyncio.gather(*map(has_more, queues))
            late.update(one.broker_name for one, more in zip(queues, answers, strict=True) if more)
        return sorted(late)


def _goes(queue: MessageQueue, numbers: Mapping[str, tuple[QueueNumbers, QueueNumbers]]) -> bool:
    old, new = numbers.get(queue.broker_name, (QueueNumbers(0, 0), QueueNumbers(0, 0)))
    return new.read <= queue.queue_id < old.read
