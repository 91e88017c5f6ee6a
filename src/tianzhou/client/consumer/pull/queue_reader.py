"""Reading queues one request at a time: what they hold, what the group has reached, single pulls (client.md §19)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tianzhou.client.cluster import rpc
from tianzhou.client.consumer import pulling
from tianzhou.client.consumer.offset_store import OffsetStore
from tianzhou.client.consumer.pull.queue_pull import QueuePull
from tianzhou.client.consumer.pulling import RawPull
from tianzhou.client.consumer.subscription import build_subscription
from tianzhou.client.group_client import GroupClient
from tianzhou.client.hooks import FilterContext, FilterHook, let_through
from tianzhou.client.instance import ClientInstance
from tianzhou.client.validation import check_queue
from tianzhou.errors import ClientError
from tianzhou.model import MessageExt, MessageQueue, PullResult, SubscriptionData


class QueueReader(GroupClient):
    """The part of a `PullConsumer` that keeps no position.

    Args:
        group: the consumer group.
        instance: reaches the brokers.
        offsets: where the group's offsets are stored.
        pull_timeout_ms: limit of a pull that does not wait for messages.
        filters: take out messages that the consumer is not to get.
    """

    def __init__(
        self,
        group: str,
        instance: ClientInstance,
        offsets: OffsetStore,
        pull_timeout_ms: int,
        filters: Iterable[FilterHook] = (),
    ) -> None:
        super().__init__(group, instance)
        self._offsets = offsets
        self._pull_timeout_ms = pull_timeout_ms
        self._filters = tuple(filters)
        self._subscriptions: dict[tuple[str, str | None, str | None], SubscriptionData] = {}

    async def _broker(self, queue: MessageQueue) -> str:
        check_queue(queue)
        return self._instance.send_address(await self._instance.reader(queue))

    # --- queues and offsets ----------------------------------------------------------------------------------

    async def queues(self, topic: str) -> list[MessageQueue]:
        """The topic's readable queues, sorted, as the name server knows them now.

        Raises:
            ClientError: the topic does not exist.
        """
        found = await self._instance.queues_to_read(topic, refresh=True)
        if not found:
            raise ClientError(f"topic {topic} does not exist or has no readable queue; create it or check its name")
        return found

    async def min_offset(self, queue: MessageQueue) -> int:
        """The first offset the queue still holds."""
        address = await self._broker(queue)
        return await rpc.min_offset(self._instance.remoting, address, queue, self._instance.api_timeout_ms)

    async def max_offset(self, queue: MessageQueue) -> int:
        """The offset the queue's next message will get."""
        address = await self._broker(queue)
        return await rpc.max_offset(self._instance.remoting, address, queue, self._instance.api_timeout_ms)

    async def offset_by_time(self, queue: MessageQueue, timestamp_ms: int, *, upper: bool = False) -> int:
        """The first offset stored at or after a time; with `upper` the last at or before it.

        Args:
            queue: the queue.
            timestamp_ms: milliseconds since the epoch.
            upper: see above; brokers before 5.0 do not know it.
        """
        address = await self._broker(queue)
        return await rpc.search_offset(
            self._instance.remoting,
            address,
            queue,
            timestamp_ms,
            upper=upper,
            timeout_ms=self._instance.api_timeout_ms,
        )

    async def earliest_store_time(self, queue: MessageQueue) -> int | None:
        """Store time of the queue's first message, milliseconds since the epoch; None when it holds none."""
        address = await self._broker(queue)
        return await rpc.earliest_store_time(self._instance.remoting, address, queue, self._instance.api_timeout_ms)

    async def committed(self, queue: MessageQueue) -> int | None:
        """The group's stored offset of a queue, None when it has none."""
        return await self._offsets.read(queue)

    async def commit_offsets(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Store offsets of the group, and wait until they are stored.

        Args:
            offsets: the next offset to read, by queue.

        Raises:
            ClientError: some could not be stored; the log has the reasons.
        """
        done = await self._offsets.persist(offsets, confirm=True)
        if failed := [str(queue) for queue in offsets if queue not in done]:
            raise ClientError(f"offsets of {', '.join(failed)} could not be stored for group {self._group}")

    # --- single pulls ----------------------------------------------------------------------------------------

    async def pull(
        self,
        queue: MessageQueue,
        offset: int,
        max_messages: int = 32,
        *,
        tags: str | None = "*",
        sql: str | None = None,
        suspend_ms: int = 0,
        timeout_ms: int | None = None,
        max_bytes: int | None = None,
        broker_id: int = 0,
    ) -> PullResult:
        """Pull once from a queue.

        Args:
            queue: the queue.
            offset: the first wanted offset.
            max_messages: most messages; brokers give at most 32 at once from memory, 8 from disk.
            tags: tag expression, `A || B`.
            sql: SQL92 expression instead of tags.
            suspend_ms: how long the broker may hold the request while there is no new message.
            timeout_ms: limit of the request; by default the consumer's `pull_timeout_ms` beyond `suspend_ms`.
            max_bytes: most bytes of records, where the broker knows this wish.
            broker_id: the replica to ask, 0 for the master.

        Raises:
            BrokerError: the broker refuses.
            RemotingError: it does not answer.
        """
        raw = await self.pull_raw(
            QueuePull(queue, offset, max_messages, tags, sql, suspend_ms, timeout_ms, max_bytes, broker_id)
        )
        messages: list[MessageExt] = []
        if raw.body:
            wanted = self._subscription(queue.topic, tags, sql).tags_set
            bounds, limit_bytes = (raw.min_offset, raw.max_offset), self._instance.max_unpacked_body_bytes
            namespace, unpacked = self._instance.namespace, self._instance.unpacked_bodies
            messages = pulling.messages_of(
                raw.body, queue.broker_name, wanted, namespace, bounds, limit_bytes, unpacked
            )
            if self._filters:
                context = FilterContext(self._group, queue, messages, self._instance.unit_mode)
                messages = let_through(self._filters, context)
        return PullResult(
            raw.status, raw.next_offset, raw.min_offset, raw.max_offset, messages, raw.suggested_broker_id
        )

    async def pull_raw(self, request: QueuePull) -> RawPull:
        """As `pull`, with the records still as bytes for decoders of their own (wire.md §5), and past `filter_hooks`.

        Brokers filter tags by hash only, so a decoder that asks for tags has to compare them itself.

        Args:
            request: what to pull.
        """
        queue, suspend_ms = request.queue, request.suspend_ms
        check_queue(queue)
        address = await self._instance.reader(queue, request.broker_id)
        return await pulling.pull(
            self._instance.remoting,
            address,
            self._group,
            queue,
            request.offset,
            max_messages=request.max_messages,
            max_bytes=request.max_bytes,
            subscription=self._subscription(queue.topic, request.tags, request.sql),
            suspend_ms=suspend_ms,
            timeout_ms=request.timeout_ms or suspend_ms + self._pull_timeout_ms,
        )

    def _subscription(self, topic: str, tags: str | None, sql: str | None) -> SubscriptionData:
        key = (topic, tags, sql)
        found = self._subscriptions.get(key)
        if found is None:
            found = self._subscriptions[key] = build_subscription(topic, tags, sql)
        return found
