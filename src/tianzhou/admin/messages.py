"""Messages: find them by id, key or position (wire.md §7.5, traps.md 12 and 13)."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from tianzhou.admin.groups import Groups
from tianzhou.admin.reach import Reach
from tianzhou.client.cluster import rpc
from tianzhou.client.namespaces.request_names import message_inside
from tianzhou.errors import ClientError, ProtocolError, TianzhouError
from tianzhou.model import ConsumeType, MessageExt, MessageModel, MessageQueue, PullResult
from tianzhou.wire.bodies.groups import GROUP_LIST
from tianzhou.wire.codes import RequestCode
from tianzhou.wire.ids import parse_offset_msg_id

TOOLS_GROUP = "TOOLS_CONSUMER"
MAX_MESSAGES = 64
"""Maximum messages that a broker returns per query (traps.md 12)."""
FOREVER_MS = 2**63 - 1


@dataclass(slots=True, frozen=True)
class MessageTrack:
    """What became of a message in a consumer group.

    Attributes:
        group: the group.
        kind: `CONSUMED`, `CONSUMED_BUT_FILTERED`, `NOT_CONSUME_YET`, `NOT_ONLINE`, `PULL` (its members pull, so only
            they know), `CONSUME_BROADCASTING` or `UNKNOWN`.
        why: why it is unknown; empty otherwise.
    """

    group: str
    kind: str
    why: str = ""


class Messages:
    """Queries for messages.

    Args:
        reach: finds and asks the servers.
    """

    def __init__(self, reach: Reach) -> None:
        self._reach = reach
        self._groups = Groups(reach)

    async def view(self, topic: str, msg_id: str) -> MessageExt:
        """A message by either of its ids.

        Args:
            topic: its topic.
            msg_id: the unique key its producer gave it, or its offset id.

        Raises:
            ClientError: there is none.
        """
        found = await self.by_unique_key(topic, msg_id)
        if found is not None:
            return found
        try:
            return await self.by_offset_id(msg_id, topic=topic)
        except TianzhouError as error:
            raise ClientError(
                f"topic {topic} has no message with id {msg_id}: no unique key of that name, and as an offset id it "
                f"leads nowhere ({error})"
            ) from error

    async def by_offset_id(self, offset_msg_id: str, *, topic: str | None = None) -> MessageExt:
        """The message at an offset id, from the broker the id names.

        Args:
            offset_msg_id: the id.
            topic: its topic, which some brokers check permissions by.

        Raises:
            ClientError: the id names no broker the name server knows.
            BrokerError: the broker holds no message there.
            ProtocolError: it is no offset id.
        """
        host, port, offset = parse_offset_msg_id(offset_msg_id)
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        broker_name = ""
        for broker in await self._reach.brokers():
            if address in broker.broker_addrs.values():
                broker_name = broker.broker_name
        if not broker_name:
            raise ClientError(f"id {offset_msg_id} names broker {address}, which the name server does not know")
        message = await rpc.view_message(
            self._reach.remoting,
            address,
            offset,
            topic=topic,
            broker_name=broker_name,
            timeout_ms=self._reach.timeout_ms,
        )
        if message.offset_msg_id.upper() != offset_msg_id.upper():
            raise ProtocolError(f"{address} answered with message {message.offset_msg_id} for id {offset_msg_id}")
        return message_inside(self._reach.instance.namespace, message)

    async def by_unique_key(self, topic: str, unique_key: str) -> MessageExt | None:
        """The first message with a unique key, None when there is none.

        Raises:
            ClientError: the topic does not exist.
        """
        return next(iter(await self.all_by_unique_key(topic, unique_key)), None)

    async def all_by_unique_key(self, topic: str, unique_key: str) -> list[MessageExt]:
        """All messages with a unique key, oldest first: a message that was sent again keeps its key.

        Raises:
            ClientError: the topic does not exist.
        """
        found = await self._query(topic, unique_key, MAX_MESSAGES, 0, FOREVER_MS, unique_key=True)
        matching = [message for message in found if message.msg_id == unique_key]
        return sorted(matching, key=lambda message: message.store_timestamp)

    async def by_key(
        self, topic: str, key: str, *, max_num: int = MAX_MESSAGES, begin_ms: int = 0, end_ms: int = FOREVER_MS
    ) -> list[MessageExt]:
        """The messages with a business key, oldest first.

        Args:
            topic: the topic.
            key: one key, as in `Message.keys`.
            max_num: maximum messages of each broker; brokers give at most 64.
            begin_ms: stored at or after this time, milliseconds since the epoch.
            end_ms: stored at or before this time.

        Raises:
            ClientError: the topic does not exist.
        """
        found = await self._query(topic, key, max_num, begin_ms, end_ms)
        matching = [m for m in found if m.topic == topic and key in m.keys.split(" ")]
        return sorted(matching, key=lambda m: (m.store_timestamp, m.broker_name, m.commitlog_offset))

    async def _query(
        self, topic: str, key: str, max_num: int, begin_ms: int, end_ms: int, *, unique_key: bool = False
    ) -> list[MessageExt]:
        route = await self._reach.existing_route(topic)
        names = {
            broker.master or broker.broker_addrs[min(broker.broker_addrs)]: broker.broker_name
            for broker in route.broker_datas
            if broker.broker_addrs
        }
        found = await self._reach.each(
            names,
            lambda address: rpc.query_messages(
                self._reach.remoting,
                address,
                topic,
                key,
                max_num=max_num,
                begin_ms=begin_ms,
                end_ms=end_ms,
                unique_key=unique_key,
                broker_name=names[address],
            ),
        )
        namespace = self._reach.instance.namespace
        return [message_inside(namespace, message) for messages in found.values() for message in messages]

    async def bounds(self, queue: MessageQueue) -> tuple[int, int]:
        """The first offset a queue holds and the one its next message will get."""
        address, remoting = await self._reach.instance.master(queue.broker_name, queue.topic), self._reach.remoting
        low, high = await asyncio.gather(
            rpc.min_offset(remoting, address, queue), rpc.max_offset(remoting, address, queue)
        )
        return low, high

    async def offset_at(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The first offset of a queue whose message was stored at or after a time, milliseconds since the epoch."""
        address = await self._reach.instance.master(queue.broker_name, queue.topic)
        return await rpc.search_offset(self._reach.remoting, address, queue, timestamp_ms)

    async def read(
        self, queue: MessageQueue, offset: int, *, expression: str = "*", max_messages: int = 32
    ) -> PullResult:
        """Read from a queue once, as no consumer: nothing is committed.

        Args:
            queue: the queue.
            offset: the first wanted offset.
            expression: tags, as `TagA || TagB`.
            max_messages: maximum of messages.
        """
        # What parses expressions is not for those who read no queue: commands start sooner without.
        from tianzhou.client.consumer import pulling
        from tianzhou.client.consumer.subscription import build_subscription

        address, instance = await self._reach.instance.master(queue.broker_name, queue.topic), self._reach.instance
        raw = await pulling.pull(
            self._reach.remoting,
            address,
            TOOLS_GROUP,
            queue,
            offset,
            max_messages=max_messages,
            subscription=build_subscription(queue.topic, expression),
            timeout_ms=self._reach.timeout_ms,
        )
        wanted = frozenset(part.strip() for part in expression.split("||")) - {"*", ""}
        found = pulling.messages_of(
            raw.body,
            queue.broker_name,
            namespace=instance.namespace,
            limit_bytes=instance.max_unpacked_body_bytes,
        )
        chosen = [message for message in found if not wanted or message.tags in wanted]
        return PullResult(raw.status, raw.next_offset, raw.min_offset, raw.max_offset, chosen)

    async def tracks(self, message: MessageExt) -> list[MessageTrack]:
        """What became of a message in every group that consumes its topic."""
        masters = await self._reach.masters_of(message.topic)
        code = RequestCode.QUERY_TOPIC_CONSUME_BY_WHO
        found = await self._reach.load_each(masters.values(), code, GROUP_LIST, topic=message.topic)
        names = sorted({group for listed in found.values() for group in listed})
        return [await self._track(message, group) for group in names]

    async def _track(self, message: MessageExt, group: str) -> MessageTrack:
        try:
            connection = await self._groups.connections(group)
            if connection is None:
                return MessageTrack(group, "NOT_ONLINE")
            if connection.consume_type is ConsumeType.CONSUME_ACTIVELY:
                return MessageTrack(group, "PULL")
            if connection.message_model is MessageModel.BROADCASTING:
                return MessageTrack(group, "CONSUME_BROADCASTING")
            lag = await self._groups.lag(group, message.topic)
        except TianzhouError as error:
            return MessageTrack(group, "UNKNOWN", str(error))
        place = MessageQueue(message.topic, message.broker_name, message.queue_id)
        if not any(one.queue == place and one.consumer_offset > message.queue_offset for one in lag.queues):
            return MessageTrack(group, "NOT_CONSUME_YET")
        subscription = connection.subscription_table.get(message.topic)
        tags = set(subscription.tags_set) if subscription is not None else set()
        return MessageTrack(group, "CONSUMED_BUT_FILTERED" if tags and message.tags not in tags else "CONSUMED")

    async def by_offset(self, queue: MessageQueue, offset: int) -> MessageExt | None:
        """The message at an offset of a queue, None when the queue holds none there."""
        found = await self.read(queue, offset, max_messages=1)
        return next((message for message in found.messages if message.queue_offset == offset), None)
