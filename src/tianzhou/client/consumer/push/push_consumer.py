"""A consumer that is handed messages: by handlers, or by `async for` (client.md §8, §9).

Its parts: `sharing` decides which queues are ours, `owned_queues` keeps them filled, `consuming` or `in_order` runs
the handlers, `send_back` returns what was not consumed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tianzhou.client.borrowed_instance import shared_or_own
from tianzhou.client.cluster.tasks import Tasks
from tianzhou.client.consumer.allocation import AllocateStrategy, Averagely, check_strategy
from tianzhou.client.consumer.offset_store import LocalOffsets, OffsetStore, RemoteOffsets
from tianzhou.client.consumer.push.assigned_queues import OwnedQueues
from tianzhou.client.consumer.push.concurrent import Consuming
from tianzhou.client.consumer.push.consume_rates import ConsumeRates
from tianzhou.client.consumer.push.consumer_settings import ConsumerSettings, check_concurrency
from tianzhou.client.consumer.push.dispatcher import Consumption
from tianzhou.client.consumer.push.handlers import H, Handler, Handlers
from tianzhou.client.consumer.push.iteration import Iterating
from tianzhou.client.consumer.push.orderly import UNLIMITED_TIMES, InOrder
from tianzhou.client.consumer.push.pull_options import PullOptions
from tianzhou.client.consumer.push.push_member import PushMember
from tianzhou.client.consumer.rebalancer import TAKE_OVER_DELAY_S, SharesChanged, Sharing
from tianzhou.client.consumer.send_back import SendBack
from tianzhou.client.consumer.subscribe_rpc import announce
from tianzhou.client.consumer.subscription import ALL, build_subscription
from tianzhou.client.hooks import ConsumeHook, FilterHook
from tianzhou.client.instance import ClientInstance
from tianzhou.client.producer.producer_base import trace_dispatcher
from tianzhou.client.tracing.trace import TraceDispatcher, TraceOptions
from tianzhou.client.validation import DEFAULT_CONSUMER_GROUP, HOW_TO_START, check_group, check_topic
from tianzhou.errors import ClientError
from tianzhou.model import (
    ConsumeFromWhere,
    MessageExt,
    MessageModel,
    MessageQueue,
    SubscriptionData,
    names,
)
from tianzhou.remoting.loop_stall import caught_up, stalled
from tianzhou.wire.bodies.clients import ConsumerRunningInfo

DEFAULT_HISTORY_MS = 30 * 60_000
"""CONSUME_FROM_TIMESTAMP without a time begins so long before the consumer was made."""


class PushConsumer:
    """A member of a consumer group; an async context manager and an async iterator of messages.

    Give it a handler per topic with `on`, or subscribe and iterate. Iterating, a message counts as consumed when
    the next one is asked for, or when the `async with` block ends without an error; an error that leaves the block
    sends the message back, to be delivered again later.

    With `orderly` the messages of each queue are consumed one after the other, in their order, by whichever member
    has locked the queue; different queues are consumed side by side. A message that is not consumed is not sent back
    but delivered again after a moment, and those behind it wait. Send with a `sharding_key` to have related messages
    in one queue.

    Args:
        group: the consumer group.
        namesrv_addr: name servers, see `ClientInstance`.
        instance: an instance to share; by default the consumer owns one.
        orderly: whether queues are consumed in order; all members of a group should agree.
        message_model: whether members share the messages, or each gets all.
        consume_from_where: where a group begins on queues it has no offset of.
        consume_timestamp_ms: the time for CONSUME_FROM_TIMESTAMP, milliseconds since the epoch; by default half
            an hour ago.
        allocate_message_queue_strategy: how members share the queues; all have to use the same.
        consume_concurrency: how many handlers run at the same time.
        consume_message_batch_max_size: most messages a handler gets at once; above 1 it gets lists.
        consume_timeout_ms: a message not consumed in this time is sent back; not with `orderly`.
        max_reconsume_times: after so many attempts a message goes to the dead letters; -1 for the default, 16, and
            for no limit with `orderly`.
        suspend_current_queue_time_ms: with `orderly`, how long a queue rests before its messages are delivered again.
        pull_batch_size: most messages asked for at once.
        pull_batch_size_in_bytes: most bytes asked for at once, where brokers know this wish.
        pull_interval_ms: pause between pulls of a queue.
        broker_suspend_max_time_ms: how long a broker may hold a pull while there is no new message.
        pull_threshold_for_queue: pulling a queue pauses above so many unfinished messages.
        pull_threshold_for_topic: so many unfinished messages are shared by all queues; -1 for no such limit.
        pull_threshold_size_for_queue_bytes: pulling a queue pauses above so many unfinished bytes.
        pull_threshold_size_for_topic_bytes: so many unfinished bytes are shared by all queues; -1 for no such limit.
        consume_concurrently_max_span: pulling a queue pauses above so large a span of unfinished offsets; not with
            `orderly`.
        persist_consumer_offset_interval_ms: how often offsets are stored.
        await_termination_ms: how long `stop` lets running handlers finish.
        local_offset_dir: where offsets are kept when broadcasting; by default `~/.rocketmq_offsets`.
        instance_name: names this member in that folder when broadcasting; keep it the same over restarts.
        queues_changed: called with a topic, all its queues and those that are ours, after our share has changed.
        post_subscription_when_pull: say in each pull what is subscribed to; brokers else know it from heartbeats.
        filter_hooks: called with what each pull brings, to take out what nobody shall get.
        consume_hooks: called around each call of a handler, or around each message that iteration gives out, see
            `tianzhou.client.hooks`.
        trace: note the same in the trace topic, see `tianzhou.client.tracing.trace`.
        trace_topic: the trace topic; by default `RMQ_SYS_TRACE_TOPIC`.
        trace_msg_batch_num: so many calls are noted in one message; 20 at most.
        access_channel: `LOCAL`, or `CLOUD` for the trace form of the cloud service.
        client_options: further arguments of `ClientInstance`, when the consumer owns it.
    """

    def __init__(
        self,
        group: str,
        namesrv_addr: str | Sequence[str] | None = None,
        *,
        instance: ClientInstance | None = None,
        orderly: bool = False,
        message_model: MessageModel = MessageModel.CLUSTERING,
        consume_from_where: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
        consume_timestamp_ms: int | None = None,
        allocate_message_queue_strategy: AllocateStrategy | None = None,
        consume_concurrency: int = 20,
        consume_message_batch_max_size: int = 1,
        consume_timeout_ms: int = 15 * 60_000,
        max_reconsume_times: int = -1,
        suspend_current_queue_time_ms: int = 1_000,
        pull_batch_size: int = 32,
        pull_batch_size_in_bytes: int = 256 * 1024,
        pull_interval_ms: int = 0,
        broker_suspend_max_time_ms: int = 15_000,
        pull_threshold_for_queue: int = 1_000,
        pull_threshold_for_topic: int = -1,
        pull_threshold_size_for_queue_bytes: int = 100 * 1024 * 1024,
        pull_threshold_size_for_topic_bytes: int = -1,
        consume_concurrently_max_span: int = 2_000,
        persist_consumer_offset_interval_ms: int = 5_000,
        await_termination_ms: int = 10_000,
        local_offset_dir: Path | str | None = None,
        instance_name: str = "DEFAULT",
        queues_changed: SharesChanged | None = None,
        post_subscription_when_pull: bool = False,
        filter_hooks: Iterable[FilterHook] = (),
        consume_hooks: Iterable[ConsumeHook] = (),
        trace: bool = False,
        trace_topic: str | None = None,
        trace_msg_batch_num: int = 10,
        access_channel: str = "LOCAL",
        **client_options: Any,
    ) -> None:
        check_group(group, default=DEFAULT_CONSUMER_GROUP)
        strategy = check_strategy(allocate_message_queue_strategy or Averagely())
        self._group = group
        self._owns_instance = instance is None
        self._instance = shared_or_own(instance, namesrv_addr, client_options, type(self))
        clock = self._instance.clock
        now_ms = clock.now_ms()
        self._settings = settings = ConsumerSettings(
            orderly,
            message_model,
            consume_from_where,
            now_ms - DEFAULT_HISTORY_MS if consume_timestamp_ms is None else consume_timestamp_ms,
            strategy.name,
            consume_concurrency,
            consume_message_batch_max_size,
            consume_timeout_ms,
            max_reconsume_times,
            suspend_current_queue_time_ms,
            pull_batch_size,
            pull_batch_size_in_bytes,
            pull_interval_ms,
            pull_threshold_for_queue,
            pull_threshold_for_topic,
            pull_threshold_size_for_queue_bytes,
            pull_threshold_size_for_topic_bytes,
            consume_concurrently_max_span,
            await_termination_ms,
            post_subscription_when_pull,
        )
        self._tasks = Tasks(f"consumer group {group}")
        self._persist_interval_s = persist_consumer_offset_interval_ms / 1000
        self._subscriptions: dict[str, SubscriptionData] = {}
        if message_model is MessageModel.CLUSTERING:
            retry_topic = names.retry_topic(group)
            self._subscriptions[retry_topic] = build_subscription(retry_topic, version_ms=now_ms)
        self._trace: TraceDispatcher | None = None
        if trace:
            options = TraceOptions(trace_topic, trace_msg_batch_num, access_channel).check()
            self._trace = trace_dispatcher(self._instance, group, "CONSUME", options)
            consume_hooks = [*consume_hooks, self._trace.on_consume]
        self._handlers = Handlers(
            group,
            orderly=orderly,
            batch_size=consume_message_batch_max_size,
            threads=consume_concurrency,
            hooks=consume_hooks,
        )
        self._rates = ConsumeRates(clock.monotonic())
        self._send_back = SendBack(self._instance, group, max_reconsume_times)
        self._offsets: OffsetStore
        if message_model is MessageModel.BROADCASTING:
            self._offsets = LocalOffsets.of(self._instance, local_offset_dir, instance_name, group)
        else:
            self._offsets = RemoteOffsets(self._instance, group)
        self._queues = OwnedQueues(
            self._instance,
            group,
            PullOptions.of(settings, broker_suspend_max_time_ms, filter_hooks),
            self._offsets,
            subscription=self._subscriptions.get,
            hand_out=lambda pq, messages: self._consuming.put(pq, messages),
            lost=self.wake_rebalance,
            rates=self._rates,
            spawn=self._tasks.spawn,
        )
        self._consuming = self._make_consumption()
        self._iterating = Iterating(
            group,
            self._consuming,
            self._handlers.hooks,
            self._rates,
            clock,
            timeout_s=None if orderly or message_model is MessageModel.BROADCASTING else consume_timeout_ms / 1000,
        )
        self._sharing = Sharing(
            self._instance,
            group,
            message_model,
            strategy,
            topics=lambda: set(self._subscriptions),
            owned=lambda: self._queues.kept,
            take=self._queues.take,
            give_up=self._queues.give_up,
            changed=queues_changed,
            take_over_s=0.0 if orderly else TAKE_OVER_DELAY_S,
        )
        self._member = PushMember(
            self._instance,
            group,
            settings,
            self._subscriptions,
            self._queues,
            self._sharing,
            self._handlers,
            self._rates,
        )
        self._running = False
        self._has_workers = False
        self._stopped = False

    def _make_consumption(self) -> Consumption:
        settings = self._settings
        parts = (
            self._group,
            settings.message_model,
            self._handlers,
            self._send_back,
            self._rates,
            self._instance.clock,
            self._tasks.spawn,
        )
        if not settings.orderly:
            return Consuming(*parts, timeout_s=settings.consume_timeout_ms / 1000)
        return InOrder(
            *parts,
            relock=self._queues.relock,
            rest_default_ms=settings.suspend_current_queue_time_ms,
            max_times=settings.max_reconsume_times if settings.max_reconsume_times >= 0 else UNLIMITED_TIMES,
        )

    @property
    def group(self) -> str:
        """The consumer group."""
        return self._group

    @property
    def instance(self) -> ClientInstance:
        """The client instance it works with."""
        return self._instance

    @property
    def assignment(self) -> list[MessageQueue]:
        """The queues that are ours now, those of the retry topic included."""
        return sorted(self._queues.kept)

    @property
    def consume_concurrency(self) -> int:
        """How many handlers run at the same time."""
        return self._settings.consume_concurrency

    def change_concurrency(self, count: int) -> None:
        """Change how many handlers run at the same time; those that run now are let finish.

        Raises:
            ConfigError: it is below 1 or above 1000.
        """
        check_concurrency(count)
        self._settings.consume_concurrency = count
        self._handlers.resize(count)
        self._consuming.resize(count)

    # --- subscriptions ---------------------------------------------------------------------------------------

    def subscribe(
        self, topic: str, tags: str | None = ALL, handler: Handler | None = None, *, sql: str | None = None
    ) -> None:
        """Subscribe to a topic; it need not exist yet.

        All members of a group have to subscribe to the same topics with the same expressions.

        Args:
            topic: the topic.
            tags: tag expression, `A || B`; `*` for all messages.
            handler: consumes the messages; without one they come to `async for`.
            sql: SQL92 expression instead of tags.

        Raises:
            ClientError: the topic or the expression is wrong, or a first handler comes after the start.
        """
        check_topic(topic)
        if self._stopped:
            raise ClientError(f"the consumer of group {self._group} is stopped; make a new one")
        if self._running and handler is not None and not self._has_workers:
            raise ClientError(f"group {self._group} was started without handlers; subscribe with one before the start")
        now_ms = self._instance.clock.now_ms()
        self._subscriptions[topic] = build_subscription(topic, tags, sql, version_ms=now_ms)
        if handler is not None:
            self._handlers.add(topic, handler)
        if self._running:
            self._tasks.spawn(self._announce())

    def unsubscribe(self, topic: str) -> None:
        """Give up a topic's queues; the brokers learn of it with the next heartbeat.

        Its handler still gets messages that were sent back before.
        """
        self._subscriptions.pop(topic, None)
        self._sharing.wake()

    def on(self, topic: str, tags: str | None = ALL, *, sql: str | None = None) -> Callable[[H], H]:
        """Decorator: subscribe to a topic with the decorated function, sync or async, as its handler.

        Sync handlers run in threads, `consume_concurrency` of them. See `subscribe` and `Handler`.
        """

        def register(handler: H) -> H:
            self.subscribe(topic, tags, handler, sql=sql)
            return handler

        return register

    # --- life ------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._iterating.leave(error)
        await self.stop()

    async def start(self) -> None:
        """Join the group and begin to pull.

        Raises:
            ClientError: it was started before, or the shared instance has a consumer of this group.
            BrokerError: a broker cannot serve an SQL subscription.
        """
        if self._running or self._stopped:
            raise ClientError(f"the consumer of group {self._group} was started before; make a new one")
        await self._offsets.load()
        await self._instance.start()
        self._instance.add_consumer(self._member)
        self._running = True
        if self._trace is not None:
            await self._trace.start()
        try:
            await self._announce()
        except BaseException:
            await self.stop()
            raise
        self._tasks.keep("sharing queues", self._sharing.run)
        self._tasks.keep("keeping house", self._keep_house)
        self._tasks.keep("keeping locks", self._queues.keep_locks)
        if self._handlers:
            self._has_workers = True
            self._consuming.start_workers(self._settings.consume_concurrency)

    async def stop(self) -> None:
        """Let running handlers finish, store the offsets, leave the group, close what it owns.

        A message given out by `async for` and not followed by a request for the next one is not consumed: it will
        be delivered again.
        """
        if self._stopped:
            return
        was_running, self._running, self._stopped = self._running, False, True
        self._queues.stop_pulling()
        await self._consuming.drain(self._settings.await_termination_ms / 1000)
        await self._tasks.end()
        if was_running:
            await self._queues.persist(confirm=True)
            await self._queues.unlock_all()
            await self._instance.remove_consumer(self._group)
        self._iterating.abandon()
        self._queues.close()
        self._handlers.close()
        if self._trace is not None:
            await self._trace.stop()
        await self._send_back.stop()
        if self._owns_instance:
            await self._instance.close()

    def suspend(self) -> None:
        """Stop pulling; what was pulled already is still consumed."""
        self._queues.suspend()

    def resume(self) -> None:
        """Pull again."""
        self._queues.resume()
        self._sharing.wake()

    async def _announce(self) -> None:
        await announce(self._instance, self._member.consumer_data())
        if self._settings.message_model is MessageModel.CLUSTERING:
            # Brokers make the retry topic on the first heartbeat; ask at once instead of at the next timer.
            await self._instance.route(names.retry_topic(self._group))
        self._sharing.wake()

    async def _keep_house(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due_s = loop.time() + self._persist_interval_s
            await asyncio.sleep(self._persist_interval_s)
            await self._queues.persist()
            if stalled(due_s):
                await caught_up()
            self._queues.revive()
            self._rates.sample(self._instance.clock.monotonic())
            await self._iterating.expire()

    # --- iterating -------------------------------------------------------------------------------------------

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> MessageExt:
        if not self._iterating.begun:
            self._check_can_iterate()
        return await self._iterating.next()

    def _check_can_iterate(self) -> None:
        if self._handlers:
            raise ClientError("a consumer with handlers cannot be iterated; subscribe without them to iterate")
        if self._handlers.batch_size > 1:
            raise ClientError("iteration gives one message at a time; leave consume_message_batch_max_size at 1")
        if self._stopped:
            return
        if not self._running:
            raise ClientError(f"the consumer of group {self._group} is not running; {HOW_TO_START}")
        if not self._subscriptions.keys() - {names.retry_topic(self._group)}:
            raise ClientError(f"group {self._group} has no subscription, so nothing would ever come; subscribe first")

    # --- as a member of the group ----------------------------------------------------------------------------

    def wake_rebalance(self) -> None:
        """Share the queues anew, soon."""
        self._sharing.wake()

    def running_info(self) -> ConsumerRunningInfo:
        """What operators are told when they ask how it is (client.md §17.1)."""
        return self._member.running_info()
