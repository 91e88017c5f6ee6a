"""A consumer that asks for messages itself: by queue and offset, or by polling assigned queues (client.md §18, §19)."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from tianzhou.client import calls, pulling
from tianzhou.client.instance import ClientInstance
from tianzhou.client.offset_store import RemoteOffsets
from tianzhou.client.polling import Polling
from tianzhou.client.pulling import RawPull
from tianzhou.client.subscription import Begin, build_subscription, first_offset
from tianzhou.client.validation import DEFAULT_CONSUMER_GROUP, check_group
from tianzhou.errors import ClientError, TianzhouError
from tianzhou.model import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    MessageExt,
    MessageQueue,
    PullResult,
    SubscriptionData,
)
from tianzhou.wire.bodies import ConsumerRunningInfo, DirectConsumption, ProcessQueueInfo

_log = logging.getLogger(__name__)

POLL_SUSPEND_MS = 15_000
POLL_REQUEST_TIMEOUT_MS = 30_000


class PullConsumer:
    """Reads queues at the caller's pace; an async context manager.

    Two ways to use it: `pull` with queue and offset, which keeps no state; or `assign`, then `poll` and `commit`,
    which keeps a position per queue. Positions are always the next offset to read.

    Args:
        group: the consumer group; offsets are kept under it.
        namesrv_addr: name servers, see `ClientInstance`.
        instance: an instance to share; by default the consumer owns one.
        consume_from_where: where `poll` begins on queues the group has no offset of.
        consume_timestamp_ms: the time for CONSUME_FROM_TIMESTAMP, milliseconds since the epoch.
        pull_batch_size: most messages `poll` asks a broker for at once.
        pull_timeout_ms: limit of a pull that does not wait for messages.
        auto_commit: whether `poll` commits now and then what former polls returned.
        auto_commit_interval_ms: how often.
        client_options: further arguments of `ClientInstance`, when the consumer owns it.
    """

    def __init__(
        self,
        group: str,
        namesrv_addr: str | Sequence[str] | None = None,
        *,
        instance: ClientInstance | None = None,
        consume_from_where: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
        consume_timestamp_ms: int | None = None,
        pull_batch_size: int = 32,
        pull_timeout_ms: int = 10_000,
        auto_commit: bool = True,
        auto_commit_interval_ms: int = 5_000,
        **client_options: Any,
    ) -> None:
        check_group(group, default=DEFAULT_CONSUMER_GROUP)
        self._group = group
        self._owns_instance = instance is None
        self._instance = instance or ClientInstance(namesrv_addr, **client_options)
        self._where = consume_from_where
        self._timestamp_ms = consume_timestamp_ms
        self._batch_size = pull_batch_size
        self._pull_timeout_ms = pull_timeout_ms
        self._auto_commit = auto_commit
        self._auto_commit_interval_ms = auto_commit_interval_ms
        self._next_commit_s = 0.0
        self._offsets = RemoteOffsets(self._instance, group)
        self._subscriptions: dict[tuple[str, str | None, str | None], SubscriptionData] = {}
        self._tags: dict[str, tuple[str, str | None]] = {}
        self._committed: dict[MessageQueue, int] = {}
        self._polling = Polling(self._instance, group, self._pull_ahead, self._first_offset)
        self._announced = False
        self._stopped = False

    @property
    def group(self) -> str:
        """The consumer group."""
        return self._group

    @property
    def instance(self) -> ClientInstance:
        """The client instance it works with."""
        return self._instance

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        """Get ready; nothing is sent yet."""
        await self._instance.start()

    async def stop(self) -> None:
        """Commit what polls have returned when `auto_commit` is on, leave the group, close what it owns."""
        if self._stopped:
            return
        self._stopped = True
        await self._polling.close()
        if self._auto_commit:
            await self.commit()
        if self._announced:
            await self._instance.remove_consumer(self._group)
        if self._owns_instance:
            await self._instance.close()

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
        address = await self._instance.master(queue.broker_name, queue.topic)
        return await calls.min_offset(self._instance.remoting, address, queue, self._instance.api_timeout_ms)

    async def max_offset(self, queue: MessageQueue) -> int:
        """The offset the queue's next message will get."""
        address = await self._instance.master(queue.broker_name, queue.topic)
        return await calls.max_offset(self._instance.remoting, address, queue, self._instance.api_timeout_ms)

    async def offset_by_time(self, queue: MessageQueue, timestamp_ms: int, *, upper: bool = False) -> int:
        """The first offset stored at or after a time; with `upper` the last at or before it.

        Args:
            queue: the queue.
            timestamp_ms: milliseconds since the epoch.
            upper: see above; brokers before 5.0 do not know it.
        """
        address = await self._instance.master(queue.broker_name, queue.topic)
        return await calls.search_offset(
            self._instance.remoting,
            address,
            queue,
            timestamp_ms,
            upper=upper,
            timeout_ms=self._instance.api_timeout_ms,
        )

    async def earliest_store_time(self, queue: MessageQueue) -> int | None:
        """When the queue's first message was stored, milliseconds since the epoch; None when it holds none."""
        address = await self._instance.master(queue.broker_name, queue.topic)
        return await calls.earliest_store_time(self._instance.remoting, address, queue, self._instance.api_timeout_ms)

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
            max_messages: at most so many; brokers give at most 32 at once from memory, 8 from disk.
            tags: tag expression, `A || B`.
            sql: SQL92 expression instead of tags.
            suspend_ms: how long the broker may hold the request while there is no new message.
            timeout_ms: limit of the request; by default the consumer's `pull_timeout_ms` beyond `suspend_ms`.
            max_bytes: at most so many bytes of records, where the broker knows this wish.
            broker_id: the replica to ask, 0 for the master.

        Raises:
            BrokerError: the broker refuses.
            RemotingError: it does not answer.
        """
        raw = await self.pull_raw(
            queue,
            offset,
            max_messages,
            tags=tags,
            sql=sql,
            suspend_ms=suspend_ms,
            timeout_ms=timeout_ms,
            max_bytes=max_bytes,
            broker_id=broker_id,
        )
        wanted = self._subscription(queue.topic, tags, sql).tags_set
        return PullResult(
            raw.status,
            raw.next_offset,
            raw.min_offset,
            raw.max_offset,
            pulling.messages_of(raw.body, queue.broker_name, wanted) if raw.body else [],
            raw.suggested_broker_id,
        )

    async def pull_raw(
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
    ) -> RawPull:
        """As `pull`, with the records still as bytes for decoders of their own (wire.md §5).

        Brokers filter tags by hash only, so a decoder that asks for tags has to compare them itself.
        """
        address = await self._instance.reader(queue, broker_id)
        return await pulling.pull(
            self._instance.remoting,
            address,
            self._group,
            queue,
            offset,
            max_messages=max_messages,
            max_bytes=max_bytes,
            subscription=self._subscription(queue.topic, tags, sql),
            suspend_ms=suspend_ms,
            timeout_ms=timeout_ms or suspend_ms + self._pull_timeout_ms,
        )

    def _subscription(self, topic: str, tags: str | None, sql: str | None) -> SubscriptionData:
        key = (topic, tags, sql)
        found = self._subscriptions.get(key)
        if found is None:
            found = self._subscriptions[key] = build_subscription(topic, tags, sql)
        return found

    # --- assigned queues -------------------------------------------------------------------------------------

    def assign(self, queues: Iterable[MessageQueue], *, tags: str | None = "*", sql: str | None = None) -> None:
        """Choose the queues that `poll` reads; replaces what was chosen before.

        Positions of queues that stay are kept; the others begin at the group's offset, or where
        `consume_from_where` says.

        Args:
            queues: the queues.
            tags: tag expression for all of them.
            sql: SQL92 expression instead of tags.

        Raises:
            ClientError: the consumer is stopped, or the expression is wrong.
        """
        self._check_running()
        chosen = set(queues)
        for topic in {queue.topic for queue in chosen}:
            self._subscription(topic, tags, sql)
            self._tags[topic] = (tags or "*", sql)
        self._polling.assign(chosen)
        if not self._announced and chosen:
            self._announced = True
            self._instance.add_consumer(self)
            self._instance.spawn(self._instance.heartbeat_all())

    @property
    def assignment(self) -> list[MessageQueue]:
        """The queues `poll` reads."""
        return self._polling.queues

    async def position(self, queue: MessageQueue) -> int:
        """The next offset `poll` will return of an assigned queue.

        Raises:
            ClientError: the queue is not assigned.
        """
        return await self._polling.position(queue)

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Continue an assigned queue at an offset; what was fetched of it already is dropped.

        Raises:
            ClientError: the queue is not assigned, or the offset is negative.
        """
        if offset < 0:
            raise ClientError(f"offset {offset} of {queue} is negative; use seek_to_begin or seek_to_end")
        self._polling.move(queue, offset)

    async def seek_to_begin(self, queue: MessageQueue) -> None:
        """Continue an assigned queue at its first offset."""
        self._polling.check_assigned(queue)
        self._polling.move(queue, await self.min_offset(queue))

    async def seek_to_end(self, queue: MessageQueue) -> None:
        """Continue an assigned queue behind its last message."""
        self._polling.check_assigned(queue)
        self._polling.move(queue, await self.max_offset(queue))

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Stop fetching from queues; what was fetched already is still returned."""
        self._polling.pause(queues)

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Fetch from paused queues again."""
        self._polling.resume(queues)

    async def poll(self, timeout_ms: float = 5_000) -> list[MessageExt]:
        """The next messages of the assigned queues, those of one pull; empty when none come in time.

        Args:
            timeout_ms: how long to wait for some.

        Raises:
            ClientError: the consumer is stopped or has no assigned queue.
        """
        self._check_running()
        if not self._polling.queues:
            raise ClientError("poll needs queues: call assign first")
        await self._commit_when_due()
        return await self._polling.next(timeout_ms)

    async def commit(self) -> None:
        """Store the positions, which are behind everything that polls have returned.

        Raises:
            ClientError: some could not be stored.
        """
        positions = self._polling.known_positions()
        changed = {queue: at for queue, at in positions.items() if self._committed.get(queue) != at}
        if changed:
            await self.commit_offsets(changed)
            self._committed |= changed

    async def _commit_when_due(self) -> None:
        if not self._auto_commit:
            return
        now = self._instance.clock.monotonic()
        if not self._next_commit_s:
            self._next_commit_s = now + self._auto_commit_interval_ms / 1000
        elif now >= self._next_commit_s:
            self._next_commit_s = now + self._auto_commit_interval_ms / 1000
            try:
                await self.commit()
            except TianzhouError as error:
                _log.warning("positions of group %s are not committed now: %s", self._group, error)

    async def _pull_ahead(self, queue: MessageQueue, offset: int) -> PullResult:
        tags, sql = self._tags[queue.topic]
        return await self.pull(
            queue,
            offset,
            self._batch_size,
            tags=tags,
            sql=sql,
            suspend_ms=POLL_SUSPEND_MS,
            timeout_ms=POLL_REQUEST_TIMEOUT_MS,
        )

    async def _first_offset(self, queue: MessageQueue) -> int:
        stored = await self._offsets.read(queue)
        if stored is not None:
            self._committed[queue] = stored
        begin = first_offset(self._where, stored, queue.topic)
        if begin is Begin.MAX_OFFSET:
            return await self.max_offset(queue)
        if begin is Begin.AT_TIMESTAMP:
            return await self.offset_by_time(queue, self._timestamp_ms or self._instance.clock.now_ms())
        assert isinstance(begin, int)
        return begin

    def _check_running(self) -> None:
        if self._stopped:
            raise ClientError(f"the consumer of group {self._group} is stopped; make a new one")

    # --- group member ----------------------------------------------------------------------------------------

    def consumer_data(self) -> ConsumerData:
        """See `GroupMember`."""
        topics = sorted(self.topics())
        return ConsumerData(
            self._group,
            ConsumeType.CONSUME_ACTIVELY,
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
            subscription_data_set=[self._subscription(topic, *self._tags[topic]) for topic in topics],
        )

    def topics(self) -> set[str]:
        """See `GroupMember`."""
        return {queue.topic for queue in self._polling.queues}

    def wake_rebalance(self) -> None:
        """See `GroupMember`; queues are assigned by hand here."""

    async def reset_offsets(self, offsets: Mapping[MessageQueue, int]) -> None:
        """See `GroupMember`."""
        for queue, offset in offsets.items():
            if queue in self._polling.queues:
                self._polling.move(queue, offset)

    def consume_offsets(self, topic: str) -> dict[MessageQueue, int]:
        """See `GroupMember`."""
        return {queue: at for queue, at in self._polling.known_positions().items() if queue.topic == topic}

    def running_info(self) -> ConsumerRunningInfo:
        """See `GroupMember`."""
        return ConsumerRunningInfo(
            properties={"PROP_CONSUME_TYPE": "CONSUME_ACTIVELY"},
            subscription_set=self.consumer_data().subscription_data_set,
            mq_table={q: ProcessQueueInfo(commit_offset=at) for q, at in self._polling.known_positions().items()},
        )

    async def consume_directly(self, message: MessageExt) -> DirectConsumption:
        """See `GroupMember`.

        Raises:
            ClientError: always; nobody has given this consumer a handler.
        """
        raise ClientError(f"group {self._group} is read by a pull consumer, which has no handler")
