"""Pulls: codes 11 and 361, and waiting for messages that are not there yet (broker.md §9, §10)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from tianzhou._hot import pull_reply
from tianzhou.broker.stats import BrokerStats
from tianzhou.broker.tables import Tables
from tianzhou.clock import Clock
from tianzhou.errors import BrokerError, FilterSyntaxError
from tianzhou.filter import parse_tags
from tianzhou.model import MessageModel, SubscriptionGroupConfig, TopicConfig
from tianzhou.remoting.connection import Connection, Reply
from tianzhou.store.results import GetResult, GetStatus
from tianzhou.store.store import MessageStore
from tianzhou.wire.codes import RequestCode, ResponseCode
from tianzhou.wire.command import Command
from tianzhou.wire.fields import read_header, write_reply

COMMIT_OFFSET = 0x1
SUSPEND = 0x2
SUBSCRIPTION = 0x4
"""Bits of a pull's sysFlag (broker.md §9.1)."""

_FORBIDDEN_BROKER, _FORBIDDEN_GROUP, _FORBIDDEN_TOPIC, _FORBIDDEN_BROADCAST, _FORBIDDEN_SUBSCRIPTION = range(1, 6)
_MISSING_QUEUE = (GetStatus.NO_MATCHED_LOGIC_QUEUE, GetStatus.NO_MESSAGE_IN_QUEUE)
_CODES = {
    GetStatus.FOUND: ResponseCode.SUCCESS,
    GetStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    GetStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
}


def pull_code(status: GetStatus, offset: int) -> ResponseCode:
    """The response code for what was found at an offset (broker.md §9.4)."""
    if status in _MISSING_QUEUE:
        return ResponseCode.PULL_NOT_FOUND if offset == 0 else ResponseCode.PULL_OFFSET_MOVED
    return _CODES[status]


class PullHandler:
    """Gives consumers what their queues hold.

    Args:
        tables: the broker's state.
        store: where messages are.
        stats: counters.
        clock: wall-clock time.
    """

    def __init__(self, tables: Tables, store: MessageStore, stats: BrokerStats, clock: Clock) -> None:
        self._tables = tables
        self._store = store
        self._stats = stats
        self._clock = clock
        self._held: dict[tuple[str, str, int], list[asyncio.Timeout]] = {}
        tables.offsets.on_reset = self._wake

    def routes(self) -> dict[int, Callable[[Connection, Command], Reply | Awaitable[Reply]]]:
        """Request codes and who serves them."""
        return {RequestCode.PULL_MESSAGE: self.pull, RequestCode.LITE_PULL_MESSAGE: self.pull}

    def pull(self, connection: Connection, command: Command) -> Reply | Awaitable[Reply]:
        """Answer with messages, or with why there are none; or wait for some, when that is wanted."""
        header = command.header
        if header is None:
            header = read_header(command)
        try:
            group, topic, codes = self._check(command, header)
        except _Forbidden as refusal:
            fields = write_reply(RequestCode.PULL_MESSAGE, forbidden_type=refusal.kind)
            return command.reply(refusal.code, refusal.remark, fields)
        offsets = self._tables.offsets
        name, queue_id, offset = header.topic, header.queue_id, header.queue_offset
        if offsets.reset_waits(header.consumer_group, name, queue_id):
            return self._tell_reset(command, header, group, topic)
        read = self._store.read(name, queue_id, offset, max(header.max_msg_nums, 1), codes)
        if header.sys_flag & COMMIT_OFFSET:
            offsets.commit(header.consumer_group, name, queue_id, header.commit_offset, self._clock.now_ms())
        if not isinstance(read, GetResult):
            return self._read_cold(connection, command, header, group, topic, codes, read)
        found = read
        if header.sys_flag & SUSPEND and pull_code(found.status, offset) is ResponseCode.PULL_NOT_FOUND:
            return self._wait(connection, command, header, group, topic, codes, found)
        return self._answer(command, header, group, topic, found)

    def _tell_reset(self, command: Command, header: Any, group: SubscriptionGroupConfig, topic: TopicConfig) -> Reply:
        name, queue_id = header.topic, header.queue_id
        found = GetResult(
            GetStatus.OFFSET_TOO_SMALL,
            self._tables.offsets.take_reset(header.consumer_group, name, queue_id) or 0,
            max(self._store.min_offset(name, queue_id), 0),
            max(self._store.max_offset(name, queue_id), 0),
        )
        return self._answer(command, header, group, topic, found, "OFFSET_RESET")

    def _wake(self, group: str, topic: str, queue_id: int) -> None:
        """Let held pulls of a queue end now, because the group's offset was reset."""
        for limit in self._held.get((group, topic, queue_id), ()):
            if not limit.expired():
                limit.reschedule(0)

    async def _read_cold(
        self,
        connection: Connection,
        command: Command,
        header: Any,
        group: SubscriptionGroupConfig,
        topic: TopicConfig,
        codes: frozenset[int] | None,
        reading: Awaitable[GetResult],
    ) -> Reply:
        began = self._clock.monotonic()
        found = await reading
        cold_ms = int((self._clock.monotonic() - began) * 1000)
        await connection.drain()
        if header.sys_flag & SUSPEND and pull_code(found.status, header.queue_offset) is ResponseCode.PULL_NOT_FOUND:
            return await self._wait(connection, command, header, group, topic, codes, found)
        return self._answer(command, header, group, topic, found, cold_ms=cold_ms)

    def _check(
        self, command: Command, header: Any
    ) -> tuple[SubscriptionGroupConfig, TopicConfig, frozenset[int] | None]:
        tables = self._tables
        settings = tables.settings
        if not settings.readable:
            raise _Forbidden(
                _FORBIDDEN_BROKER, f"the broker[{settings.broker_ip1}] pulling message is forbidden (brokerPermission)"
            )
        if command.code == RequestCode.LITE_PULL_MESSAGE and not settings.lite_pull_message_enable:
            raise _Forbidden(
                _FORBIDDEN_BROKER,
                f"the broker[{settings.broker_ip1}] for lite pull consumer is forbidden (litePullMessageEnable)",
            )
        group_name, name = header.consumer_group, header.topic
        group = tables.groups.get(group_name) or tables.groups.find(group_name, self._clock.now_ms())
        if group is None:
            raise BrokerError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group [{group_name}] does not exist"
                " (autoCreateSubscriptionGroup decides whether using one creates it)",
            )
        if not group.consume_enable:
            raise _Forbidden(_FORBIDDEN_GROUP, f"subscription group no permission, {group_name}")
        topic = tables.topics.get(name)
        if topic is None:
            raise BrokerError(ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist, apply first please!")
        if not topic.readable:
            raise _Forbidden(_FORBIDDEN_TOPIC, f"the topic[{name}] pulling message is forbidden")
        if not 0 <= header.queue_id < topic.read_queue_nums:
            raise BrokerError(
                ResponseCode.INVALID_PARAMETER,
                f"queueId[{header.queue_id}] is illegal, topic:[{name}]"
                f" topicConfig.readQueueNums:[{topic.read_queue_nums}]",
            )
        return group, topic, self._codes(header)

    def _codes(self, header: Any) -> frozenset[int] | None:
        """Tag hashes the pull selects, None for all."""
        if header.sys_flag & SUBSCRIPTION:
            self._refuse_sql(header.expression_type)
            try:
                return parse_tags(header.subscription).codes
            except FilterSyntaxError as error:
                raise BrokerError(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error)) from None
        tables = self._tables
        name = header.consumer_group
        online = tables.clients.consumers.get(name)
        if online is None:
            raise BrokerError(
                ResponseCode.SUBSCRIPTION_NOT_EXIST, f"the consumer's group info not exist, group: {name}"
            )
        group = tables.groups.get(name)
        if (
            online.message_model is MessageModel.BROADCASTING
            and group is not None
            and not group.consume_broadcast_enable
        ):
            raise _Forbidden(_FORBIDDEN_BROADCAST, f"the consumer group[{name}] can not consume by broadcast way")
        if tables.groups.forbidden and not tables.groups.may_read(name, header.topic):
            raise _Forbidden(
                _FORBIDDEN_SUBSCRIPTION, f"the consumer group[{name}] is forbidden for topic[{header.topic}]"
            )
        subscription = online.subscriptions.get(header.topic)
        if subscription is None:
            raise BrokerError(
                ResponseCode.SUBSCRIPTION_NOT_EXIST,
                f"the consumer's subscription not exist, group: {name}, topic: {header.topic}",
            )
        if subscription.data.sub_version < header.sub_version:
            raise BrokerError(ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest")
        self._refuse_sql(subscription.data.expression_type)
        return subscription.codes

    def _refuse_sql(self, expression_type: str | None) -> None:
        # The place where an SQL92 filter will be looked up; until then it is refused, never taken for "all".
        if expression_type not in (None, "", "TAG"):
            raise BrokerError(
                ResponseCode.SYSTEM_ERROR,
                f"The broker does not support consumer to filter message by {expression_type}",
            )

    async def _wait(
        self,
        connection: Connection,
        command: Command,
        header: Any,
        group: SubscriptionGroupConfig,
        topic: TopicConfig,
        codes: frozenset[int] | None,
        found: GetResult,
    ) -> Reply:
        settings = self._tables.settings
        suspend_ms = (
            header.suspend_timeout_millis if settings.long_polling_enable else settings.short_polling_time_mills
        )
        name, queue_id = header.topic, header.queue_id
        arrived = self._store.arrived(name, queue_id)
        position = found.next_offset
        place = header.consumer_group, name, queue_id
        limit = asyncio.timeout(max(suspend_ms, 0) / 1000)
        held = self._held.setdefault(place, [])
        try:
            async with limit:
                held.append(limit)
                while True:
                    await arrived.reach(position + 1)
                    # Whoever waits here may wake with a thousand others, for a peer that reads slowly.
                    await connection.drain()
                    found = self._store.get(name, queue_id, position, max(header.max_msg_nums, 1), codes)
                    passed_over = found.status is GetStatus.NO_MATCHED_MESSAGE and found.next_offset > position
                    if not passed_over:
                        break
                    position = found.next_offset
        except TimeoutError:
            if self._tables.offsets.reset_waits(*place):
                return self._tell_reset(command, header, group, topic)
        finally:
            held.remove(limit)
            if not held:
                self._held.pop(place, None)
        return self._answer(command, header, group, topic, found)

    def _answer(
        self,
        command: Command,
        header: Any,
        group: SubscriptionGroupConfig,
        topic: TopicConfig,
        found: GetResult,
        remark: str | None = None,
        cold_ms: int | None = None,
    ) -> Reply:
        name = header.topic
        self._tables.offsets.pulled(header.consumer_group, name, header.queue_id, found.next_offset)
        status = found.status
        if status is GetStatus.FOUND:
            self._stats.found += 1
            traffic = self._stats.got(name, header.consumer_group)
            traffic.add(header.queue_id, found.count, found.bytes)
            if cold_ms is not None:
                traffic.add_cold(header.queue_id, found.count, found.bytes, cold_ms)
        else:
            self._stats.missed += 1
        suggested = 0
        if self._tables.settings.slave_read_enable:
            suggested = group.which_broker_when_consume_slowly if found.suggest_slave else group.broker_id
        return pull_reply(
            command.opaque,
            pull_code(status, header.queue_offset),
            remark or status.name,
            found.next_offset,
            found.min_offset,
            found.max_offset,
            suggested,
            group.group_sys_flag,
            topic.topic_sys_flag,
            found.parts,
        )


class _Forbidden(BrokerError):
    """NO_PERMISSION, with the kind of what forbids (`forbiddenType` of the reply)."""

    def __init__(self, kind: int, remark: str) -> None:
        super().__init__(ResponseCode.NO_PERMISSION, remark)
        self.kind = kind
