"""Groups for tools and consoles: create and delete (200, 225, 207), show (201, 352, 343, 345), figures (208, 317)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

from tianzhou.broker.stats import BrokerStats
from tianzhou.broker.tables import Tables
from tianzhou.broker.topics import group_name_problem
from tianzhou.clock import Clock
from tianzhou.errors import BrokerError
from tianzhou.model import MessageQueue
from tianzhou.remoting.connection import Connection, Reply
from tianzhou.store.store import MessageStore
from tianzhou.wire.bodies import (
    SUBSCRIPTION,
    BrokerConsumeStats,
    ConsumeStats,
    QueueProgress,
    SubscriptionGroupTable,
    decode_subscription_group,
    decode_subscription_group_list,
    encode_broker_consume_stats,
    encode_consume_stats,
    encode_subscription_group,
    encode_subscription_group_table,
    encode_topic_list,
)
from tianzhou.wire.codes import RequestCode, ResponseCode
from tianzhou.wire.command import Command
from tianzhou.wire.fields import read_header
from tianzhou.wire.json_dialect import dumps


class GroupHandler:
    """Changes and shows the group table, and how far groups have come.

    Args:
        tables: the broker's state.
        store: where the queues are.
        stats: counters.
        clock: wall-clock time.
        address: this broker's address.
        written: waits until a change is on the disk.
    """

    def __init__(
        self,
        tables: Tables,
        store: MessageStore,
        stats: BrokerStats,
        clock: Clock,
        address: str,
        written: Callable[[], Awaitable[None]],
    ) -> None:
        self._tables = tables
        self._store = store
        self._stats = stats
        self._clock = clock
        self._address = address
        self._written = written

    def routes(self) -> dict[int, Callable[[Connection, Command], Reply | Awaitable[Reply]]]:
        """Request codes and who serves them."""
        return {
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: self.create,
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: self.create_all,
            RequestCode.DELETE_SUBSCRIPTIONGROUP: self.delete,
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: self.all,
            RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: self.one,
            RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN: self.forbid,
            RequestCode.QUERY_TOPICS_BY_CONSUMER: self.topics,
            RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: self.subscription,
            RequestCode.GET_CONSUME_STATS: self.progress,
            RequestCode.GET_BROKER_CONSUME_STATS: self.all_progress,
        }

    async def create(self, connection: Connection, command: Command) -> Reply:
        """Create or replace a group."""
        config = decode_subscription_group(command.body)
        self._check_name(config.group_name)
        self._tables.groups.put(config, self._clock.now_ms())
        await self._written()
        return command.reply(ResponseCode.SUCCESS)

    async def create_all(self, connection: Connection, command: Command) -> Reply:
        """Create or replace several groups as one change."""
        configs = decode_subscription_group_list(command.body)
        for config in configs:
            self._check_name(config.group_name)
        self._tables.groups.put_all(configs, self._clock.now_ms())
        await self._written()
        return command.reply(ResponseCode.SUCCESS)

    def _check_name(self, group: str) -> None:
        problem = group_name_problem(group)
        if problem is not None:
            raise BrokerError(ResponseCode.INVALID_PARAMETER, problem)

    async def delete(self, connection: Connection, command: Command) -> Reply:
        """Delete a group, and its offsets when that is asked for."""
        header = read_header(command)
        group = header.group_name
        self._tables.groups.delete(group, self._clock.now_ms())
        self._tables.locks.forget_group(group)
        if header.clean_offset or header.remove_offset:
            self._tables.offsets.forget_group(group)
        await self._written()
        return command.reply(ResponseCode.SUCCESS)

    def all(self, connection: Connection, command: Command) -> Reply:
        """The whole table."""
        groups = self._tables.groups
        table = SubscriptionGroupTable(dict(groups.all()), groups.version, groups.forbidden)
        return command.reply(ResponseCode.SUCCESS, body=encode_subscription_group_table(table))

    def one(self, connection: Connection, command: Command) -> Reply:
        """One group's configuration; asking may create it."""
        name = read_header(command).group
        config = self._tables.groups.find(name, self._clock.now_ms())
        if config is None:
            raise BrokerError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"No group in this broker. group: {name}")
        return command.reply(ResponseCode.SUCCESS, body=encode_subscription_group(config))

    def forbid(self, connection: Connection, command: Command) -> Reply:
        """Forbid a group to read a topic, allow it again, or just ask."""
        header = read_header(command)
        if header.readable is not None:
            self._tables.groups.set_readable(header.group, header.topic, header.readable, self._clock.now_ms())
        readable = self._tables.groups.may_read(header.group, header.topic)
        body = dumps({"group": header.group, "readable": readable, "topic": header.topic})
        return command.reply(ResponseCode.SUCCESS, body=body)

    def topics(self, connection: Connection, command: Command) -> Reply:
        """Topics a group has offsets for."""
        topics = self._tables.offsets.topics_of(read_header(command).group)
        return command.reply(ResponseCode.SUCCESS, body=encode_topic_list(topics, self._address))

    def subscription(self, connection: Connection, command: Command) -> Reply:
        """A group's subscription to a topic, as its members announced it."""
        header = read_header(command)
        members = {"group": header.group, "topic": header.topic}
        online = self._tables.clients.consumers.get(header.group)
        found = None if online is None else online.subscriptions.get(header.topic)
        if found is not None:
            members["subscriptionData"] = SUBSCRIPTION.encode(found.data)
        return command.reply(ResponseCode.SUCCESS, body=dumps(members))

    def progress(self, connection: Connection, command: Command) -> Reply:
        """How far a group is in its queues."""
        header = read_header(command)
        group = header.consumer_group
        if header.topic:
            topics: Iterable[str] = [header.topic]
        elif header.topic_list:
            topics = [topic for topic in header.topic_list.split(";") if topic]
        else:
            online = self._tables.clients.consumers.get(group)
            topics = [
                topic
                for topic in self._tables.offsets.topics_of(group)
                if online is None or topic in online.subscriptions
            ]
        stats = ConsumeStats()
        for topic in topics:
            self._add_progress(stats, group, topic)
        return command.reply(ResponseCode.SUCCESS, body=encode_consume_stats(stats))

    def all_progress(self, connection: Connection, command: Command) -> Reply:
        """How far all groups are."""
        ordered = read_header(command).is_order
        result = BrokerConsumeStats(broker_addr=self._address)
        for group in self._tables.groups.all():
            listed = []
            for topic in self._tables.offsets.topics_of(group):
                config = self._tables.topics.get(topic)
                if config is None or (ordered and not config.order):
                    continue
                stats = ConsumeStats()
                self._add_progress(stats, group, topic)
                listed.append(stats)
                for one in stats.offset_table.values():
                    result.total_diff += one.broker_offset - one.consumer_offset
                    result.total_inflight_diff += one.pull_offset - one.consumer_offset
            result.consume_stats_list.append({group: listed})
        return command.reply(ResponseCode.SUCCESS, body=encode_broker_consume_stats(result))

    def _add_progress(self, stats: ConsumeStats, group: str, topic: str) -> None:
        config = self._tables.topics.get(topic)
        if config is None:
            return
        stats.consume_tps += self._stats.get_rate(topic, group, self._clock.now_ms())
        offsets, store = self._tables.offsets, self._store
        for queue_id in range(config.read_queue_nums):
            consumed = max(offsets.committed(group, topic, queue_id) or 0, 0)
            pulled = max(offsets.pull_offset(group, topic, queue_id) or 0, consumed)
            last = store.store_time_of(topic, queue_id, consumed - 1) if consumed > 0 else 0
            queue = MessageQueue(topic, self._tables.settings.broker_name, queue_id)
            stats.offset_table[queue] = QueueProgress(
                max(store.max_offset(topic, queue_id), 0), consumed, max(last, 0), pulled
            )
