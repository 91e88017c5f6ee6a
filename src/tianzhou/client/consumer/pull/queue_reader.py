"""Single requests about queues: their offsets, the group's committed offsets, and pulls (client.md §19)."""

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
    """The part of a `PullConsumer` that has no positions.

    Args:
        group: the consumer group.
        instance: reaches the brokers.
        offsets: the store of the group's offsets.
        pull_timeout_ms: timeout of a pull that does not wait for messages.
        filters: remove messages that the consumer shall not get.
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
        """Return the topic's readable queues, sorted, from a name server's present route.

        Raises:
            ClientError: the topic does not exist.
        """
        found = await self._instance.queues_to_read(topic, refresh=True)
        if not found:
            raise ClientError(f"topic {topic} does not exist or has no readable queue; create it or check its name")
        return found

    async def min_offset(self, queue: MessageQueue) -> int:
        """Return the first offset that the queue still has."""
        address = await self._broker(queue)
        return await rpc.min_offset(self._instance.remoting, address, queue, self._instance.api_timeout_ms)

    async def max_offset(self, queue: MessageQueue) -> int:
        """Return the offset that the queue's next message will get."""
        address = await self._broker(queue)
        return await rpc.max_offset(self._instance.remoting, address, queue, self._instance.api_timeout_ms)

    async def offset_by_time(self, queue: MessageQueue, timestamp_ms: int, *, upper: bool = False) -> int:
        """Return the first offset stored at or after a time; with `upper` the last one at or before it.

        Args:
            queue: the queue.
            timestamp_ms: milliseconds since the epoch.
            upper: see above; brokers before 5.0 ignore it.
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
        """Return the store time of the queue's first message, ms since the epoch; None for an empty queue."""
        address = await self._broker(queue)
        return await rpc.earliest_store_time(self._instance.remoting, address, queue, self._instance.api_timeout_ms)

    async def committed(self, queue: MessageQueue) -> int | None:
        """Return the group's stored offset of a queue; None without one."""
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
            offset: offset to begin at.
            max_messages: maximum number of messages; brokers return at most 32 at once from memory, 8 from disk.
            tags: tag expression, `A || B`.
            sql: SQL92 expression instead of tags.
            suspend_ms: ms that the broker may hold the request while there is no new message.
            timeout_ms: timeout of the request; by default `suspend_ms` plus the consumer's `pull_timeout_ms`.
            max_bytes: maximum bytes of records, for brokers that support it.
            broker_id: id of the replica to ask; 0 is the master.

        Raises:
            BrokerError: the broker rejects the pull.
            RemotingError: the broker does not answer.
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
        """As `pull`, but return the records as bytes, and do not call `filter_hooks` (wire.md §5).

        Brokers filter tags by hash only, so the caller that decodes the records has to compare the tags.

        Args:
            request: the pull.
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
