"""A consumer that pulls messages by queue and offset, or polls assigned queues (client.md §18, §19)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from typing import Unpack

from tianzhou.client.consumer.offset_store import offset_store
from tianzhou.client.consumer.pull.auto_commit import AutoCommitter
from tianzhou.client.consumer.pull.options import PullOptions
from tianzhou.client.consumer.pull.prefetch import Prefetcher
from tianzhou.client.consumer.pull.pull_member import PullMember
from tianzhou.client.consumer.pull.queue_reader import QueueReader
from tianzhou.client.consumer.pull.queue_watch import QueuesListener, QueueWatch
from tianzhou.client.consumer.rebalancer import Rebalancer
from tianzhou.client.consumer.send_back import SendBack
from tianzhou.client.consumer.subscribe_rpc import announce
from tianzhou.client.consumer.subscription import Begin, first_offset, original_topic
from tianzhou.client.group_client import Startable, options_and_instance
from tianzhou.client.hooks import ConsumeOutcome, HandlerCall, begin, end
from tianzhou.client.instance import ClientInstance
from tianzhou.client.option_keywords import PullKeywords
from tianzhou.client.producer.producer_base import trace_dispatcher
from tianzhou.client.validation import (
    DEFAULT_CONSUMER_GROUP,
    HOW_TO_START,
    check_group,
    check_queue,
    check_topic,
)
from tianzhou.errors import ClientError, TianzhouError
from tianzhou.model import (
    ConsumeResult,
    MessageExt,
    MessageQueue,
    PullResult,
    names,
)
from tianzhou.wire.delivered import add_property

_log = logging.getLogger(__name__)

POLL_SUSPEND_MS = 15_000
POLL_REQUEST_TIMEOUT_MS = 30_000


class PullConsumer(QueueReader, Startable):
    """A consumer whose caller pulls or polls messages; an async context manager.

    There are three ways to use it. `pull` with queue and offset stores no state. `subscribe`, then `poll` and `commit`,
    shares the queues of topics with the other members of the group, and stores a position per queue. `assign` instead
    of `subscribe` reads the queues that the caller selects, independent of other members. A position is always the next
    offset to read.

    Args:
        group: the consumer group; offsets are stored under it.
        namesrv_addr: name servers, see `ClientInstance`.
        instance: an instance to share; by default the consumer owns one.
        keywords: see `tianzhou.client.consumer.pull.options.PullOptions` and, when the consumer owns its instance,
            `tianzhou.client.options.ClientOptions`.

    Raises:
        ConfigError: an option is unknown, or its value is not allowed.
    """

    def __init__(
        self,
        group: str,
        namesrv_addr: str | Sequence[str] | None = None,
        *,
        instance: ClientInstance | None = None,
        **keywords: Unpack[PullKeywords],
    ) -> None:
        check_group(group, default=DEFAULT_CONSUMER_GROUP)
        options, own = options_and_instance(type(self), PullOptions, keywords, instance, namesrv_addr)
        self._options = options
        self._owns_instance = instance is None
        self._made_ms = own.clock.now_ms()
        super().__init__(group, own, offset_store(own, group, options), options.pull_timeout_ms, options.filter_hooks)
        self._trace = trace_dispatcher(own, group, "CONSUME", options)
        self._hooks = [*options.consume_hooks, *([self._trace.on_consume] if self._trace is not None else [])]
        self._send_back = SendBack(self._instance, group)
        self._tags: dict[str, tuple[str, str | None]] = {}
        self._shared: set[str] = set()
        self._polling = Prefetcher(self._instance, group, self._pull_ahead, self._first_offset)
        interval_ms = options.auto_commit_interval_ms if options.auto_commit else None
        self._commits = AutoCommitter(
            group, self._offsets, self.commit_offsets, self._polling, self._instance.clock, interval_ms
        )
        self._sharing = Rebalancer(
            self._instance,
            group,
            options,
            topics=lambda: self._shared,
            owned=lambda: self._polling.queues,
            take=self._take,
            give_up=self._commits.leave,
        )
        self._member = PullMember(
            group,
            options.message_model,
            self._polling,
            self._sharing,
            shared=self._shared,
            subscription=lambda topic: self._subscription(topic, *self._tags[topic]),
            commit_soon=self._commit_soon,
        )
        self._watch = QueueWatch(self._instance, options.topic_check_interval_ms / 1000)
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._announced = False
        self._running = False
        self._stopped = False

    async def start(self) -> None:
        """Start the consumer, and join the group when topics are subscribed.

        Raises:
            ClientError: the consumer is stopped.
            BrokerError: a broker cannot serve an SQL subscription.
        """
        self._check_running()
        await self._offsets.load()
        await self._instance.start()
        self._running = True
        if self._trace is not None:
            await self._trace.start()
        if self._shared:
            try:
                await self._join()
            except BaseException:
                await self.stop()
                raise

    async def stop(self) -> None:
        """Commit the positions when `auto_commit` is on, leave the group, and close the owned instance."""
        if self._stopped:
            return
        self._stopped = True
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await self._polling.close()
        try:
            if self._commits.automatic and self._running:
                await self._commits.commit()
        finally:
            if self._announced:
                await self._instance.remove_consumer(self._group)
            if self._trace is not None:
                await self._trace.stop()
            await self._send_back.stop()
            if self._owns_instance:
                await self._instance.close()

    def _keep(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        self._tasks[name] = self._instance.keep(f"{name} of group {self._group}", work)

    async def _join(self) -> None:
        if not self._announced:
            self._announced = True
            self._instance.add_consumer(self._member)
        await announce(self._instance, self._member.consumer_data())
        if "sharing" not in self._tasks:
            self._keep("sharing", self._sharing.run)
        self._sharing.wake()

    # --- shared queues ---------------------------------------------------------------------------------------

    def watch_queues(self, topic: str, listener: QueuesListener) -> None:
        """Call `listener` with the topic and its readable queues whenever these have changed.

        Args:
            topic: the topic.
            listener: called in the event loop; it replaces a former listener of this topic.
        """
        self._check_running()
        self._watch.add(topic, listener)
        if "watch" not in self._tasks:
            self._keep("watch", self._watch.run)

    def subscribe(self, topic: str, tags: str | None = "*", *, sql: str | None = None) -> None:
        """Let `poll` read this member's share of a topic's queues; the topic need not exist yet.

        All members of a group have to subscribe to the same topics with the same expressions.

        Args:
            topic: the topic.
            tags: tag expression, `A || B`; `*` for all messages.
            sql: SQL92 expression instead of tags.

        Raises:
            ClientError: queues are assigned with `assign`, the consumer is stopped, or topic or expression are wrong.
        """
        self._check_running()
        check_topic(topic)
        if not self._shared and self._polling.queues:
            raise ClientError(f"group {self._group} has queues assigned by hand here; either subscribe or assign")
        self._subscription(topic, tags, sql)
        self._tags[topic] = (tags or "*", sql)
        self._shared.add(topic)
        if self._running:
            self._instance.spawn(self._join())

    def unsubscribe(self, topic: str) -> None:
        """Unsubscribe from a topic and stop reading its queues; the brokers learn of it with the next heartbeat."""
        self._shared.discard(topic)
        gone = [queue for queue in self._polling.queues if queue.topic == topic]
        if gone:
            self._instance.spawn(self._commits.leave(gone))
        self._sharing.wake()

    def _commit_soon(self) -> None:
        if self._shared and self._running and not self._stopped and not self._options.is_broadcast:
            self._instance.spawn(self._commits.before_sharing())

    async def _take(self, queue: MessageQueue) -> bool:
        try:
            at = await self._first_offset(queue)
        except TianzhouError as error:
            _log.info("the first offset of %s for group %s is not known yet: %s", queue, self._group, error)
            return False
        if not self._stopped and queue.topic in self._shared:
            self._polling.take(queue, at)
        return True

    # --- assigned queues -------------------------------------------------------------------------------------

    def assign(self, queues: Iterable[MessageQueue], *, tags: str | None = "*", sql: str | None = None) -> None:
        """Select the queues that `poll` reads; this replaces a former selection.

        Queues of the former selection continue at their positions. The others begin at the group's offset, or at
        `consume_from_where` without one.

        Args:
            queues: the queues.
            tags: tag expression for all of them.
            sql: SQL92 expression instead of tags.

        Raises:
            ClientError: the consumer is stopped, or the expression is wrong.
        """
        self._check_running()
        if self._shared:
            raise ClientError(
                f"group {self._group} subscribes to {', '.join(sorted(self._shared))} here; assign does not go with it"
            )
        chosen = set(queues)
        for queue in chosen:
            check_queue(queue)
        for topic in {queue.topic for queue in chosen}:
            self._subscription(topic, tags, sql)
            self._tags[topic] = (tags or "*", sql)
        self._polling.assign(chosen)
        if not self._announced and chosen:
            self._announced = True
            self._instance.add_consumer(self._member)
            self._instance.spawn(self._instance.heartbeats.all())

    @property
    def assignment(self) -> list[MessageQueue]:
        """The queues that `poll` reads."""
        return self._polling.queues

    async def position(self, queue: MessageQueue) -> int:
        """Return the next offset that `poll` will return for an assigned queue.

        Raises:
            ClientError: the queue is not assigned.
        """
        return await self._polling.position(queue)

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Continue an assigned queue at another offset, and drop its prefetched messages.

        Raises:
            ClientError: the queue is not assigned, or the offset is not between its first offset and its end.
        """
        self._polling.check_assigned(queue)
        first, end = await asyncio.gather(self.min_offset(queue), self.max_offset(queue))
        if not first <= offset <= end:
            raise ClientError(
                f"offset {offset} is outside of {queue}, which holds {first} to {end}; "
                "use seek_to_begin, seek_to_end or an offset between"
            )
        self._polling.move(queue, offset)

    async def seek_to_begin(self, queue: MessageQueue) -> None:
        """Continue an assigned queue at its first offset."""
        self._polling.check_assigned(queue)
        self._polling.move(queue, await self.min_offset(queue))

    async def seek_to_end(self, queue: MessageQueue) -> None:
        """Continue an assigned queue behind its last message."""
        self._polling.check_assigned(queue)
        self._polling.move(queue, await self.max_offset(queue))

    async def seek_to_time(self, queue: MessageQueue, timestamp_ms: int) -> None:
        """Continue an assigned queue at the first message stored at or after a time, milliseconds since the epoch."""
        self._polling.check_assigned(queue)
        self._polling.move(queue, await self.offset_by_time(queue, timestamp_ms))

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Stop fetching from queues; prefetched messages are still returned."""
        self._polling.pause(queues)

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Fetch from paused queues again."""
        self._polling.resume(queues)

    async def poll(self, timeout_ms: float = 5_000) -> list[MessageExt]:
        """Return the messages of one pull from the consumer's queues; an empty list when none arrive in time.

        Args:
            timeout_ms: maximum ms to wait for messages.

        Raises:
            ClientError: the consumer is not running, or has no subscription and no assigned queue.
        """
        self._check_running()
        if not self._running:
            raise ClientError(f"the consumer of group {self._group} is not running; {HOW_TO_START}")
        if not self._shared and not self._polling.queues:
            raise ClientError("poll needs queues: call subscribe or assign first")
        await self._commits.before_poll()
        messages = await self._polling.next(timeout_ms)
        add_property(messages, names.CONSUME_START_TIME, str(self._instance.clock.now_ms()))
        if messages and self._hooks:
            first = messages[0]
            call = HandlerCall(self._group, messages, MessageQueue(first.topic, first.broker_name, first.queue_id))
            afters = begin(self._hooks, call)
            call.outcome, call.result = ConsumeOutcome.SUCCESS, ConsumeResult.SUCCESS
            end(afters, call)
        return messages

    async def commit(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Store the positions, which are behind all messages that polls have returned.

        Args:
            queues: only these queues; None for all.

        Raises:
            ClientError: some could not be stored, or the consumer is stopped.
        """
        self._check_running()
        await self._commits.commit(None if queues is None else set(queues))

    async def send_back(self, message: MessageExt, delay_level: int = 0) -> None:
        """Request a later delivery of a message: it goes to the group's retry topic, and finally to its dead letters.

        Push consumers of the group read that topic. A consumer that polls has to subscribe to `%RETRY%` and the group's
        name.

        Args:
            message: the message, as delivered.
            delay_level: the delay level; 0 lets the broker choose by the number of attempts, -1 makes it a dead letter.

        Raises:
            ClientError: no broker accepts it, or the consumer is stopped.
        """
        self._check_running()
        message = replace(message, topic=original_topic(message.topic, message.properties, self._group))
        if not await self._send_back.give(message, delay_level):
            raise ClientError(f"no broker takes {message.msg_id} back for group {self._group} now; try again later")

    async def _pull_ahead(self, queue: MessageQueue, offset: int) -> PullResult:
        tags, sql = self._tags[queue.topic]
        return await self.pull(
            queue,
            offset,
            self._options.pull_batch_size,
            tags=tags,
            sql=sql,
            suspend_ms=POLL_SUSPEND_MS,
            timeout_ms=POLL_REQUEST_TIMEOUT_MS,
        )

    async def _first_offset(self, queue: MessageQueue) -> int:
        stored = await self._commits.stored(queue)
        begin = first_offset(self._options.begin_where, stored, queue.topic)
        if begin is Begin.MAX_OFFSET:
            return await self.max_offset(queue)
        if begin is Begin.AT_TIMESTAMP:
            return await self.offset_by_time(queue, self._options.begin_ms(self._made_ms))
        assert isinstance(begin, int)
        return begin

    def _check_running(self) -> None:
        if self._stopped:
            raise ClientError(f"the consumer of group {self._group} is stopped; make a new one")
