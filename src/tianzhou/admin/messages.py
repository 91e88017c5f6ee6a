"""Queries for messages by id, key or position (wire.md §7.5, traps.md 12 and 13)."""

from __future__ import annotations

import asyncio

from tianzhou.admin.groups import Groups
from tianzhou.admin.queue_reading import (
    AT_ONCE,
    MOST_BYTES,
    TOOLS_GROUP,
    ReadAllowance,
    Tail,
    newest_first,
    pull_records,
)
from tianzhou.admin.reach import Reach
from tianzhou.admin.tracks import MessageTrack, TrackType, track_of
from tianzhou.client.cluster import rpc
from tianzhou.client.cluster.routes import subscribe_queues
from tianzhou.client.namespaces.request_names import message_inside
from tianzhou.client.tracing.trace_reading import TraceRecord, in_order, parse
from tianzhou.errors import ClientError, ProtocolError, TianzhouError
from tianzhou.model import MessageExt, MessageQueue, PullResult
from tianzhou.model.names import TRACE_TOPIC
from tianzhou.wire.bodies.groups import GROUP_LIST
from tianzhou.wire.codes import RequestCode
from tianzhou.wire.ids import parse_offset_msg_id

MAX_MESSAGES = 64
"""Maximum messages that a broker returns per query (traps.md 12)."""
FOREVER_MS = 2**63 - 1


class Messages:
    """Queries for messages.

    Args:
        reach: finds the servers and sends the requests.
    """

    def __init__(self, reach: Reach) -> None:
        self._reach = reach
        self._groups = Groups(reach)

    async def view(self, topic: str, msg_id: str, failures: dict[str, str] | None = None) -> MessageExt:
        """Return a message by its unique key or its offset id.

        Args:
            topic: topic of the message.
            msg_id: the unique key that the producer assigned, or the offset id.
            failures: receives the reason of each broker that does not answer, by name; None raises the first failure.

        Raises:
            ClientError: there is no such message.
        """
        found = await self.all_by_unique_key(topic, msg_id, failures)
        if found:
            return found[0]
        try:
            return await self.by_offset_id(msg_id, topic=topic)
        except TianzhouError as error:
            raise ClientError(
                f"topic {topic} has no message with id {msg_id}: no unique key of that name, and as an offset id it "
                f"leads nowhere ({error})"
            ) from error

    async def by_offset_id(self, offset_msg_id: str, *, topic: str | None = None) -> MessageExt:
        """Return the message with an offset id, from the broker that the id names.

        Args:
            offset_msg_id: the offset id.
            topic: topic of the message; some brokers check permissions by it.

        Raises:
            ClientError: the name server does not know the broker that the id names.
            BrokerError: the broker has no message at this offset.
            ProtocolError: the id is no offset id.
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
        """Return the first message with a unique key; None when there is none.

        Raises:
            ClientError: the topic does not exist.
        """
        return next(iter(await self.all_by_unique_key(topic, unique_key)), None)

    async def all_by_unique_key(
        self, topic: str, unique_key: str, failures: dict[str, str] | None = None
    ) -> list[MessageExt]:
        """Return all messages with a unique key, the oldest first. A message that was sent again has the same key.

        Args:
            topic: the topic.
            unique_key: the unique key.
            failures: receives the reason of each broker that does not answer, by name; None raises the first failure.

        Raises:
            ClientError: the topic does not exist.
        """
        found = await self._query(topic, unique_key, MAX_MESSAGES, 0, FOREVER_MS, failures, unique_key=True)
        matching = [message for message in found if message.msg_id == unique_key]
        return sorted(matching, key=lambda message: message.store_timestamp)

    async def by_key(
        self,
        topic: str,
        key: str,
        *,
        max_num: int = MAX_MESSAGES,
        begin_ms: int = 0,
        end_ms: int = FOREVER_MS,
        failures: dict[str, str] | None = None,
    ) -> list[MessageExt]:
        """Return the messages with a business key, the oldest first.

        Args:
            topic: the topic.
            key: one key, as in `Message.keys`.
            max_num: maximum number of messages from each broker; brokers return at most 64.
            begin_ms: earliest store time, in ms since the epoch, inclusive.
            end_ms: latest store time, in ms since the epoch, inclusive.
            failures: receives the reason of each broker that does not answer, by name; None raises the first failure.

        Raises:
            ClientError: the topic does not exist.
        """
        found = await self._query(topic, key, max_num, begin_ms, end_ms, failures)
        matching = [m for m in found if m.topic == topic and key in m.keys.split(" ")]
        return sorted(matching, key=lambda m: (m.store_timestamp, m.broker_name, m.commitlog_offset))

    async def _query(
        self,
        topic: str,
        key: str,
        max_num: int,
        begin_ms: int,
        end_ms: int,
        failures: dict[str, str] | None = None,
        *,
        unique_key: bool = False,
    ) -> list[MessageExt]:
        route = await self._reach.existing_route(topic)
        addresses = {
            broker.broker_name: broker.master or broker.broker_addrs[min(broker.broker_addrs)]
            for broker in route.broker_datas
            if broker.broker_addrs
        }
        found = await self._reach.each_broker(
            addresses,
            lambda name, address: rpc.query_messages(
                self._reach.remoting,
                address,
                topic,
                key,
                max_num=max_num,
                begin_ms=begin_ms,
                end_ms=end_ms,
                unique_key=unique_key,
                broker_name=name,
            ),
            failures,
        )
        namespace = self._reach.instance.namespace
        return [message_inside(namespace, message) for messages in found.values() for message in messages]

    async def bounds(self, queue: MessageQueue) -> tuple[int, int]:
        """Return the first offset and the next offset of a queue."""
        address, remoting = await self._reach.instance.master(queue.broker_name, queue.topic), self._reach.remoting
        low, high = await asyncio.gather(
            rpc.min_offset(remoting, address, queue), rpc.max_offset(remoting, address, queue)
        )
        return low, max(low, high)

    async def offset_at(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """Return the first offset of a queue whose message was stored at or after a time in ms since the epoch."""
        address = await self._reach.instance.master(queue.broker_name, queue.topic)
        return await rpc.search_offset(self._reach.remoting, address, queue, timestamp_ms)

    async def read(
        self, queue: MessageQueue, offset: int, *, expression: str = "*", max_messages: int = 32
    ) -> PullResult:
        """Read once from a queue without a consumer group's offset: nothing is committed.

        Args:
            queue: the queue.
            offset: offset of the first message to read.
            expression: tags, such as `TagA || TagB`.
            max_messages: maximum number of messages.
        """
        # Imported here because parsing expressions is slow to load. Commands that read no queue start faster.
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
            unpacked=instance.unpacked_bodies,
        )
        chosen = [message for message in found if not wanted or message.tags in wanted]
        return PullResult(raw.status, raw.next_offset, raw.min_offset, raw.max_offset, chosen)

    async def tracks(self, message: MessageExt, failures: dict[str, str] | None = None) -> list[MessageTrack]:
        """Return the consumption state of a message in every group that consumes its topic.

        Args:
            message: the message.
            failures: receives the reason of each broker that does not answer, by name; None raises the first failure.
        """

        async def groups(_: str, address: str) -> list[str]:
            code = RequestCode.QUERY_TOPIC_CONSUME_BY_WHO
            return await self._reach.load(address, code, GROUP_LIST, topic=message.topic)

        found = await self._reach.each_broker(await self._reach.masters_of(message.topic), groups, failures)
        names = sorted({group for listed in found.values() for group in listed})
        queue = MessageQueue(message.topic, message.broker_name, message.queue_id)
        address = await self._reach.instance.master(queue.broker_name, queue.topic)
        turn = asyncio.Semaphore(AT_ONCE)

        async def one(group: str) -> MessageTrack:
            async with turn:
                try:
                    offset = await rpc.query_offset(self._reach.remoting, address, group, queue)
                    return track_of(message, group, await self._groups.connections(group), offset)
                except TianzhouError as error:
                    return MessageTrack(group, TrackType.UNKNOWN, str(error))

        return list(await asyncio.gather(*map(one, names)))

    async def by_time(
        self,
        topic: str,
        begin_ms: int = 0,
        end_ms: int = FOREVER_MS,
        *,
        limit: int = 100,
        failures: dict[str, str] | None = None,
    ) -> list[MessageExt]:
        """Return the newest messages of a topic within a time range, the newest first.

        The query reads at most 64 MiB of records and bodies. Above this size it returns fewer messages than `limit`. To
        get earlier messages, query again with `end_ms` set to the store time of the last message.

        Args:
            topic: the topic.
            begin_ms: earliest store time, in ms since the epoch, inclusive.
            end_ms: latest store time, in ms since the epoch, inclusive.
            limit: maximum number of messages.
            failures: receives the reason of each broker that does not answer, by name; None raises the first failure.

        Raises:
            ClientError: the topic does not exist, none of its brokers has a master, or the messages are too large.
        """
        remoting, turn = self._reach.remoting, asyncio.Semaphore(AT_ONCE)

        async def part(queue: MessageQueue, address: str) -> Tail:
            async with turn:
                low, high = await self.bounds(queue)
                # Brokers of RocketMQ 4 ignore the boundary type and may return the offset next to the right one.
                if begin_ms > 0 and low < high:
                    low = max(low, await rpc.search_offset(remoting, address, queue, begin_ms) - 1)
                if end_ms < FOREVER_MS and low < high:
                    high = min(high, await rpc.search_offset(remoting, address, queue, end_ms + 1) + 1)
            return Tail(self._reach, address, queue, low, high, begin_ms, end_ms)

        by_broker: dict[str, list[MessageQueue]] = {}
        masters: dict[str, str] = {}
        for queue, address in await self._queues(topic):
            masters[queue.broker_name] = address
            by_broker.setdefault(queue.broker_name, []).append(queue)

        async def parts(name: str, address: str) -> list[Tail]:
            # The first queue shows whether the broker answers, so a hung broker costs only one timeout.
            first, *others = by_broker[name]
            return [await part(first, address), *await asyncio.gather(*(part(one, address) for one in others))]

        found = await self._reach.each_broker(masters, parts, failures)
        return await newest_first(
            [tail for tails in found.values() for tail in tails], limit, ReadAllowance(MOST_BYTES)
        )

    async def newest_records(
        self, topic: str, each: int, *, most_bytes: int = MOST_BYTES
    ) -> list[tuple[MessageQueue, int, int, list[bytes]]]:
        """Return the newest records of every queue of a topic in wire format, for callers that decode them to columns.

        Args:
            topic: the topic.
            each: maximum number of messages per queue.
            most_bytes: maximum total size of the records, in bytes.

        Returns:
            By queue: the queue, the first offset, the offset after the last, and the records (wire.md §5).

        Raises:
            ClientError: the topic does not exist, or none of its brokers has a master.
        """
        allowance = ReadAllowance(most_bytes)
        found = []
        for queue, address in await self._queues(topic):
            low, high = await self.bounds(queue)
            begin = max(low, high - each)
            pieces = await pull_records(self._reach, address, queue, begin, high, allowance)
            found.append((queue, begin, high, pieces))
        return found

    async def _queues(self, topic: str) -> list[tuple[MessageQueue, str]]:
        """Return the queues of a topic with their masters' addresses."""
        masters = await self._reach.masters_of(topic)
        route = await self._reach.existing_route(topic)
        return [
            (queue, masters[queue.broker_name])
            for queue in subscribe_queues(topic, route)
            if queue.broker_name in masters
        ]

    async def trace(
        self, msg_id: str, *, trace_topic: str = TRACE_TOPIC, failures: dict[str, str] | None = None
    ) -> list[TraceRecord]:
        """Return the trace records of a message by time. Clients write them only when tracing is enabled.

        Args:
            msg_id: unique key of the message.
            trace_topic: the topic of the trace records.
            failures: receives the reason of each broker that does not answer, by name; None raises the first failure.

        Raises:
            ClientError: the trace topic does not exist.
        """
        notes = await self.by_key(trace_topic, msg_id, failures=failures)
        records = [record for note in notes for record in parse(note.body.decode(errors="replace"))]
        return in_order(record for record in records if record.msg_id == msg_id)

    async def by_offset(self, queue: MessageQueue, offset: int) -> MessageExt | None:
        """Return the message at an offset of a queue; None when the queue has no message there."""
        found = await self.read(queue, offset, max_messages=1)
        return next((message for message in found.messages if message.queue_offset == offset), None)
