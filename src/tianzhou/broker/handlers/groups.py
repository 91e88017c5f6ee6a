"""Groups for tools and consoles: create and delete (200, 225, 207), show (201, 352, 343, 345, 353)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from tianzhou.broker.handlers.handler import Handler, serves
from tianzhou.broker.large_bodies import decoded
from tianzhou.broker.messages.retry_queues import widen_retry_topics
from tianzhou.broker.services import Services
from tianzhou.broker.tables.groups import is_plain
from tianzhou.errors import BrokerError
from tianzhou.escaping import shown
from tianzhou.limits import GROUP_CONFIG, QUEUES_OF_TOPIC
from tianzhou.model import SubscriptionGroupConfig
from tianzhou.model.name_rules import group_name_problem
from tianzhou.remoting.connection import Connection, Reply
from tianzhou.remoting.turns import Pace, Slices
from tianzhou.wire.bodies.groups import (
    SUBSCRIPTION_GROUP,
    SUBSCRIPTION_GROUP_TABLE,
    SUBSCRIPTION_GROUPS,
    SubscriptionGroupTable,
)
from tianzhou.wire.bodies.heartbeat import SUBSCRIPTION
from tianzhou.wire.bodies.topics import TOPIC_LIST, TopicList
from tianzhou.wire.codes import RequestCode, ResponseCode
from tianzhou.wire.command import Command
from tianzhou.wire.fields import read_header
from tianzhou.wire.json_dialect import dumps


class GroupHandler(Handler):
    """Handler that changes and shows the group table.

    Args:
        services: the broker's services.
        written: waits until a change is on the disk.
    """

    def __init__(self, services: Services, written: Callable[[], Awaitable[None]]) -> None:
        super().__init__(services)
        self._written = written

    @serves(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP)
    async def create(self, connection: Connection, command: Command) -> Reply:
        """Create or replace a group."""
        config = decoded(command, SUBSCRIPTION_GROUP.loads)
        self._check(config)
        self._keep_attributes(config)
        self._tables.groups.put(config, self._clock.now_ms())
        widen_retry_topics(self._tables, [config], self._clock.now_ms())
        await self._written()
        return command.reply(ResponseCode.SUCCESS)

    @serves(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST)
    async def create_all(self, connection: Connection, command: Command) -> Reply:
        """Create or replace several groups as one change."""
        configs = decoded(command, SUBSCRIPTION_GROUPS.loads)
        if not command.body:
            raise BrokerError(ResponseCode.SYSTEM_ERROR, "the body holds no groupConfigList")
        async with Pace(self._turns) as pace:
            for config in configs:
                self._check(config)
                self._keep_attributes(config)
                await pace.rest()
            self._tables.groups.put_all(configs, self._clock.now_ms())
            widen_retry_topics(self._tables, configs, self._clock.now_ms())
        await self._written()
        return command.reply(ResponseCode.SUCCESS)

    def _check(self, config: SubscriptionGroupConfig) -> None:
        problem = group_name_problem(config.group_name)
        if problem is not None:
            raise BrokerError(ResponseCode.INVALID_PARAMETER, problem)
        bounds, where = self._tables.bounds, f"group {config.group_name}"
        bounds.check(QUEUES_OF_TOPIC, config.retry_queue_nums, f"retryQueueNums of {where}")
        if not is_plain(config):
            bounds.check(GROUP_CONFIG, len(SUBSCRIPTION_GROUP.dumps(config)), where)

    def _keep_attributes(self, config: SubscriptionGroupConfig) -> None:
        """Replace a request's attribute changes by the group's present attributes.

        Raises:
            BrokerError: code 1; RocketMQ has no attributes of groups, so its brokers also refuse every change.
        """
        before = self._tables.groups.get(config.group_name)
        if config.attributes:
            names = ", ".join(shown(name) for name in config.attributes)
            raise BrokerError(
                ResponseCode.SYSTEM_ERROR,
                f"unsupported key: {names}; groups have no attributes, so leave out --attributes of group "
                f"{config.group_name}",
            )
        config.attributes = {} if before is None else dict(before.attributes)

    @serves(RequestCode.DELETE_SUBSCRIPTIONGROUP)
    async def delete(self, connection: Connection, command: Command) -> Reply:
        """Delete a group, and on request its offsets."""
        header = read_header(command)
        group = header.group_name
        self._tables.groups.delete(group, self._clock.now_ms())
        self._tables.locks.forget_group(group)
        self._tables.void_positions.forget_group(group)
        if header.clean_offset or header.remove_offset:
            self._tables.offsets.forget_group(group)
        self._stats.forget_group(group)
        await self._written()
        return command.reply(ResponseCode.SUCCESS)

    @serves(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    def all(self, connection: Connection, command: Command) -> Slices[Reply]:
        """Return the complete table."""
        groups = self._tables.groups
        forbidden = {group: dict(topics) for group, topics in groups.forbidden.items()}
        table = SubscriptionGroupTable(dict(groups.all()), groups.version, forbidden)
        return self._table_reply(command, (yield from SUBSCRIPTION_GROUP_TABLE.slices(table)))

    @serves(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG)
    def one(self, connection: Connection, command: Command) -> Reply:
        """Return a group's configuration; create the group if allowed."""
        name = read_header(command).group
        config = self._tables.groups.find(name, self._clock.now_ms())
        if config is None:
            raise BrokerError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"No group in this broker. group: {name}")
        return command.reply(ResponseCode.SUCCESS, body=SUBSCRIPTION_GROUP.dumps(config))

    @serves(RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN)
    def forbid(self, connection: Connection, command: Command) -> Reply:
        """Forbid a group to read a topic, allow it again, or return the present state."""
        header = read_header(command)
        if header.readable is not None:
            # An entry can be removed even after its topic was deleted.
            if header.topic not in self._tables.groups.forbidden.get(header.group, {}):
                self._check_known(header.group, header.topic)
            self._tables.groups.set_readable(header.group, header.topic, header.readable, self._clock.now_ms())
        readable = self._tables.groups.may_read(header.group, header.topic)
        body = dumps({"group": header.group, "readable": readable, "topic": header.topic})
        return command.reply(ResponseCode.SUCCESS, body=body)

    @serves(RequestCode.QUERY_TOPICS_BY_CONSUMER)
    def topics(self, connection: Connection, command: Command) -> Slices[Reply]:
        """Return the topics for which a group has offsets."""
        topics = self._tables.offsets.topics_of(command.fields.get("group", ""))
        body = yield from TOPIC_LIST.slices(TopicList(topics, self._address))
        return command.reply(ResponseCode.SUCCESS, body=body)

    @serves(RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER)
    def subscription(self, connection: Connection, command: Command) -> Reply:
        """Return a group's subscription to a topic, from heartbeats or pulls of its members."""
        header = read_header(command)
        members = {"group": header.group, "topic": header.topic}
        found = self._tables.clients.subscription(header.group, header.topic)
        if found is not None:
            members["subscriptionData"] = SUBSCRIPTION.encode(found.data)
        return command.reply(ResponseCode.SUCCESS, body=dumps(members))
