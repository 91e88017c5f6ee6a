"""Requests for the progress of groups: per queue (208), all groups (317), in time (303) (wire.md §9.6, §9.8)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from tianzhou.broker.handlers.handler import Handler, serves
from tianzhou.errors import BrokerError
from tianzhou.model import MessageQueue
from tianzhou.remoting.connection import Connection, Reply
from tianzhou.remoting.turns import Pace
from tianzhou.wire.bodies.offsets import (
    BROKER_CONSUME_STATS,
    CONSUME_STATS,
    TIME_SPANS,
    BrokerConsumeStats,
    ConsumeStats,
    QueueProgress,
    QueueTimeSpan,
)
from tianzhou.wire.codes import RequestCode, ResponseCode
from tianzhou.wire.command import Command
from tianzhou.wire.fields import read_header


def unread_cut_queues(stored: Iterable[int], read_queues: int, is_unread: Callable[[int], bool]) -> list[int]:
    """Return the queues that a reduction of a topic's read queues left with unconsumed messages of a group.

    No member can pull these messages until the topic has as many read queues again, so the lag counts them.

    Args:
        stored: ids of the queues in the store.
        read_queues: number of read queues of the topic.
        is_unread: whether a queue has messages that the group has not consumed.
    """
    return [queue_id for queue_id in stored if queue_id >= read_queues and is_unread(queue_id)]


class ConsumeStatsHandler(Handler):
    """Handler of requests for the progress of groups."""

    @serves(RequestCode.GET_CONSUME_STATS)
    async def of_group(self, connection: Connection, command: Command) -> Reply:
        """Return the progress of a group in its queues."""
        header = read_header(command)
        group = header.consumer_group
        if header.topic_list:
            known = self._tables.topics
            topics: Iterable[str] = [topic for topic in dict.fromkeys(header.topic_list.split(";")) if topic in known]
        else:
            # RocketMQ omits topics that the members do not subscribe to, even the topic that a request names.
            wanted = [header.topic] if header.topic else self._tables.offsets.topics_of(group)
            topics = [topic for topic in wanted if not self._tables.clients.leaves_out(group, topic)]
        stats = ConsumeStats()
        async with Pace(self._turns) as pace:
            for topic in topics:
                await self._add(stats, group, topic, pace)
            body = await pace.through(CONSUME_STATS.slices(stats))
        return command.reply(ResponseCode.SUCCESS, body=body)

    @serves(RequestCode.GET_BROKER_CONSUME_STATS)
    async def of_all(self, connection: Connection, command: Command) -> Reply:
        """Return the progress of all groups."""
        ordered = command.fields.get("isOrder", "").lower() == "true"
        result = BrokerConsumeStats(broker_addr=self._address)
        async with Pace(self._turns) as pace:
            for group in list(self._tables.groups.all()):
                await pace.rest()
                listed = []
                for topic in self._tables.offsets.topics_of(group):
                    config = self._tables.topics.get(topic)
                    left_out = self._tables.clients.leaves_out(group, topic)
                    if config is None or (ordered and not config.order) or left_out:
                        continue
                    stats = ConsumeStats()
                    await self._add(stats, group, topic, pace)
                    listed.append(stats)
                    for one in stats.offset_table.values():
                        result.total_diff += one.broker_offset - one.consumer_offset
                        result.total_inflight_diff += one.pull_offset - one.consumer_offset
                result.consume_stats_list.append({group: listed})
            body = await pace.through(BROKER_CONSUME_STATS.slices(result))
        return command.reply(ResponseCode.SUCCESS, body=body)

    async def _add(self, stats: ConsumeStats, group: str, topic: str, pace: Pace) -> None:
        config = self._tables.topics.get(topic)
        if config is None:
            return
        stats.consume_tps += self._stats.get_rate(topic, group, self._clock.now_ms())
        offsets, store = self._tables.offsets, self._store
        find, times = store.find, store.lookups.time_steps
        cut = unread_cut_queues(store.queues(topic), config.read_queue_nums, partial(self._is_unread, group, topic))
        for queue_id in (*range(config.read_queue_nums), *cut):
            consumed = max(offsets.committed(group, topic, queue_id) or 0, 0)
            pulled = max(offsets.pull_offset(group, topic, queue_id) or 0, consumed)
            last = await find(times(topic, queue_id, consumed - 1)) if consumed > 0 else 0
            queue = MessageQueue(topic, self._tables.settings.broker_name, queue_id)
            stats.offset_table[queue] = QueueProgress(
                max(store.max_offset(topic, queue_id), 0), consumed, max(last, 0), pulled
            )
            await pace.rest()

    def _is_unread(self, group: str, topic: str, queue_id: int) -> bool:
        """Whether a queue has messages that the group has not consumed."""
        consumed = max(
            self._tables.offsets.committed(group, topic, queue_id) or 0, self._store.min_offset(topic, queue_id)
        )
        return consumed < self._store.max_offset(topic, queue_id)

    @serves(RequestCode.QUERY_CONSUME_TIME_SPAN)
    async def in_time(self, connection: Connection, command: Command) -> Reply:
        """Return the store times of the messages at both ends of each queue and at the group's offset."""
        header = read_header(command)
        topic, group, store = header.topic, header.group, self._store
        config = self._tables.topics.get(topic)
        if config is None:
            raise BrokerError(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")
        find, times = store.find, store.lookups.time_steps
        spans = []
        async with Pace(self._turns) as pace:
            for queue_id in range(config.write_queue_nums):
                begin, end = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
                # A group without an offset starts at the queue's begin; Apache's broker counts from 1970.
                consumed = max(self._tables.offsets.committed(group, topic, queue_id) or 0, begin, 0)
                first = await find(store.lookups.first_time_steps(topic, queue_id))
                last = await find(times(topic, queue_id, end - 1))
                at = await find(times(topic, queue_id, consumed - 1)) if consumed > max(begin, 0) else first
                waits = await find(times(topic, queue_id, consumed)) if consumed < end else -1
                delay = max(self._clock.now_ms() - waits, 0) if waits > 0 else 0
                queue = MessageQueue(topic, self._tables.settings.broker_name, queue_id)
                spans.append(QueueTimeSpan(queue, first, last, at, delay))
                await pace.rest()
            body = await pace.through(TIME_SPANS.slices(spans))
        return command.reply(ResponseCode.SUCCESS, body=body)
