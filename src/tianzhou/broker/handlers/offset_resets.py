"""Offsets set by operators: resets (222), copies (314), smallest offsets (308) (wire.md §7.10)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tianzhou.broker.handlers.client_relay import refuse_old
from tianzhou.broker.handlers.handler import Handler, serves
from tianzhou.errors import BrokerError, ConnectionLost
from tianzhou.escaping import shown
from tianzhou.model import MessageQueue, TopicConfig
from tianzhou.remoting.connection import Connection, Reply
from tianzhou.remoting.turns import Pace, Slices
from tianzhou.wire.bodies.offsets import CORRECTION_OFFSETS, OFFSET_LIST, OFFSET_TABLE
from tianzhou.wire.codes import LanguageCode, RequestCode, ResponseCode
from tianzhou.wire.command import Command
from tianzhou.wire.fields import read_header, write_header


class OffsetResetHandler(Handler):
    """Handler that sets groups' offsets."""

    @serves(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET)
    async def reset(self, connection: Connection, command: Command) -> Reply:
        """Reset a group's offsets at this broker, or at its members when `useServerSideResetOffset` is off."""
        if self._replication.is_slave:
            # A slave may lack its master's last messages, so a reset to its bounds would be too low.
            raise BrokerError(
                ResponseCode.SYSTEM_ERROR, "this broker is a slave: offsets of groups are reset at its master"
            )
        header = read_header(command)
        if not self._tables.settings.use_server_side_reset_offset:
            return await self._reset_members(command, header)
        group, topic = header.group, header.topic
        config = self._topic(topic)
        if group not in self._tables.groups:
            raise BrokerError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {group} does not exist")
        queues = range(config.read_queue_nums) if header.queue_id < 0 else (header.queue_id,)
        targets = {}
        async with Pace(self._turns) as pace:
            for queue_id in queues:
                if header.queue_id >= 0 and header.offset >= 0:
                    targets[queue_id] = self._explicit(topic, queue_id, header.offset)
                else:
                    targets[queue_id] = await self._at(topic, queue_id, header.timestamp)
                await pace.rest()
            now = self._clock.now_ms()
            self._tables.offsets.check_room(group, {topic: targets.keys()})
            for queue_id, offset in targets.items():
                self._tables.offsets.reset(group, topic, queue_id, offset, now, bounded=False)
                await pace.rest()
            body = await pace.through(OFFSET_TABLE.slices(self._named(topic, targets)))
        return command.reply(ResponseCode.SUCCESS, body=body)

    def _topic(self, topic: str) -> TopicConfig:
        config = self._tables.topics.get(topic)
        if config is None:
            raise BrokerError(ResponseCode.TOPIC_NOT_EXIST, f"Topic {topic} does not exist")
        return config

    async def _at(self, topic: str, queue_id: int, timestamp: int) -> int:
        if timestamp < 0:
            return max(self._store.max_offset(topic, queue_id), 0)
        return await self._store.find(self._store.lookups.offset_steps(topic, queue_id, timestamp))

    def _explicit(self, topic: str, queue_id: int, offset: int) -> int:
        low, high = max(self._store.min_offset(topic, queue_id), 0), max(self._store.max_offset(topic, queue_id), 0)
        if not low <= offset <= high + 1:
            raise BrokerError(
                ResponseCode.SYSTEM_ERROR,
                f"Target offset {offset} not in consume queue range [{low}-{high}] of {topic} queue {queue_id}",
            )
        return offset

    def _named(self, topic: str, offsets: Mapping[int, int]) -> dict[MessageQueue, int]:
        broker = self._tables.settings.broker_name
        return {MessageQueue(topic, broker, queue_id): offset for queue_id, offset in offsets.items()}

    async def _reset_members(self, command: Command, header: Any) -> Reply:
        """Send the new offsets to the members, which commit them, as 4.9 does."""
        group, topic = header.group, header.topic
        config = self._topic(topic)
        targets = {}
        async with Pace(self._turns) as pace:
            for queue_id in range(config.write_queue_nums):
                committed = self._tables.offsets.committed(group, topic, queue_id)
                if committed is None:
                    raise BrokerError(ResponseCode.SYSTEM_ERROR, f"THe consumer group <{group}> not exist")
                target = await self._at(topic, queue_id, header.timestamp)
                targets[queue_id] = target if header.is_force or target < committed else committed
                await pace.rest()
        online = self._tables.clients.consumers.get(group)
        if online is None:
            raise BrokerError(
                ResponseCode.CONSUMER_NOT_ONLINE,
                f"Consumer not online, so can not reset offset, Group: {group} Topic: {topic}"
                f" Timestamp: {header.timestamp}",
            )
        refuse_old(online.clients.values())
        named = self._named(topic, targets)
        # A C++ client expects a list.
        listed = command.language == LanguageCode.CPP
        self._tell(list(online.clients), header, OFFSET_LIST.dumps(named) if listed else OFFSET_TABLE.dumps(named))
        return command.reply(ResponseCode.SUCCESS, body=OFFSET_TABLE.dumps(named))

    def _tell(self, connections: list[Any], header: Any, body: bytes) -> None:
        code = RequestCode.RESET_CONSUMER_CLIENT_OFFSET
        fields = write_header(
            code, topic=header.topic, group=header.group, timestamp=header.timestamp, is_force=header.is_force
        )
        for connection in connections:
            assert isinstance(connection, Connection)
            try:
                connection.invoke_oneway(Command(code, fields=fields, body=body))
            except ConnectionLost:
                continue

    @serves(RequestCode.CLONE_GROUP_OFFSET)
    def clone(self, connection: Connection, command: Command) -> Slices[Reply]:
        """Copy a group's offsets to another group."""
        fields, tables = command.fields, self._tables
        source, target = fields.get("srcGroup"), fields.get("destGroup")
        # Without its fields the answer is success, too (docs/spec/traps.md, 23).
        if source and target:
            named = fields.get("topic")
            offline = fields.get("offline", "").lower() == "true"
            its_topics = tables.offsets.topics_of(source)
            wanted = [
                topic
                for topic in ([named] if named in its_topics else [] if named else its_topics)
                if topic in tables.topics and (offline or not tables.clients.leaves_out(source, topic))
            ]
            now_ms = self._clock.now_ms()
            if wanted and not tables.groups.may_be(target):
                raise BrokerError(
                    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                    f"Group {shown(target)} does not exist; create it, or set autoCreateSubscriptionGroup",
                )
            for topic in wanted:
                yield from tables.offsets.clone(source, target, topic, now_ms)
        return command.reply(ResponseCode.SUCCESS)

    @serves(RequestCode.QUERY_CORRECTION_OFFSET)
    def correction(self, connection: Connection, command: Command) -> Slices[Reply]:
        """Return the smallest offset of all groups by queue, with a mark where the compared group is behind."""
        fields = command.fields
        topic = fields.get("topic", "")
        offsets = yield from self._tables.offsets.smallest(
            topic,
            without=frozenset(fields.get("filterGroups", "").split(",")),
            compared_to=fields.get("compareGroup", ""),
            begin=lambda queue_id: self._store.min_offset(topic, queue_id),
        )
        return command.reply(ResponseCode.SUCCESS, body=(yield from CORRECTION_OFFSETS.slices(offsets)))
