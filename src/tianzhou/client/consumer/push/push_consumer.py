"""A push consumer: it passes messages to handlers, or to `async for` (client.md §8, §9).

Its parts: `rebalancer` assigns the queues, `assigned_queues` pulls their messages, `concurrent` or `orderly` runs the
handlers, and `send_back` returns messages that were not consumed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Self, Unpack

from tianzhou.client.cluster.tasks import Tasks
from tianzhou.client.consumer.offset_store import offset_store
from tianzhou.client.consumer.push.assigned_queues import AssignedQueues
from tianzhou.client.consumer.push.concurrent import ConcurrentDispatcher
from tianzhou.client.consumer.push.consume_rates import ConsumeRates
from tianzhou.client.consumer.push.dispatcher import HandlerDispatcher
from tianzhou.client.consumer.push.handlers import H, Handler, HandlerOptions, Handlers
from tianzhou.client.consumer.push.iteration import MessageIteration
from tianzhou.client.consumer.push.options import PushOptions, check_concurrency
from tianzhou.client.consumer.push.orderly import OrderlyDispatcher
from tianzhou.client.consumer.push.push_member import PushMember
from tianzhou.client.consumer.push.retry_policy import RetryPolicy
from tianzhou.client.consumer.push.typed_bodies import Undecodable
from tianzhou.client.consumer.rebalancer import TAKE_OVER_DELAY_S, Rebalancer
from tianzhou.client.consumer.send_back import SendBack
from tianzhou.client.consumer.subscribe_rpc import announce
from tianzhou.client.consumer.subscription import ALL, build_subscription
from tianzhou.client.group_client import GroupClient, Startable, options_and_instance
from tianzhou.client.instance import ClientInstance
from tianzhou.client.option_keywords import PushKeywords
from tianzhou.client.producer.producer_base import trace_dispatcher
from tianzhou.client.validation import DEFAULT_CONSUMER_GROUP, HOW_TO_START, check_group, check_topic
from tianzhou.errors import ClientError
from tianzhou.model import (
    MessageExt,
    MessageQueue,
    SubscriptionData,
    names,
)
from tianzhou.remoting.loop_stall import caught_up, stalled
from tianzhou.wire.bodies.clients import ConsumerRunningInfo


class PushConsumer(GroupClient, Startable):
    """A member of a consumer group; an async context manager and an async iterator of messages.

    Add a handler per topic with `on`, or subscribe and iterate. In an iteration, a message counts as consumed when the
    next one is requested, or when the `async with` block ends without an error. An error that leaves the block sends
    the message back, so that it is delivered again later.

    With `orderly`, the messages of each queue are consumed one after the other, in their order, by the member that has
    locked the queue. Different queues are consumed concurrently. A message that is not consumed is not sent back. It is
    delivered again after a short pause, and the messages behind it wait. Send related messages with the same
    `sharding_key` to store them in one queue.

    Args:
        group: the consumer group.
        namesrv_addr: name servers, see `ClientInstance`.
        instance: an instance to share; by default the consumer owns one.
        keywords: see `tianzhou.client.consumer.push.options.PushOptions` and, when the consumer owns its instance,
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
        **keywords: Unpack[PushKeywords],
    ) -> None:
        check_group(group, default=DEFAULT_CONSUMER_GROUP)
        options, own = options_and_instance(type(self), PushOptions, keywords, instance, namesrv_addr)
        super().__init__(group, own)
        self._options = options
        self._owns_instance = instance is None
        clock = own.clock
        self._tasks = Tasks(f"consumer group {group}")
        self._subscriptions: dict[str, SubscriptionData] = {}
        if not options.is_broadcast:
            retry_topic = names.retry_topic(group)
            self._subscriptions[retry_topic] = build_subscription(retry_topic, version_ms=clock.now_ms())
        self._trace = trace_dispatcher(own, group, "CONSUME", options)
        self._rates = ConsumeRates(clock.monotonic())
        self._handlers = Handlers(
            group,
            orderly=options.orderly,
            batch_size=options.consume_message_batch_max_size,
            threads=options.consume_concurrency,
            is_broadcast=options.is_broadcast,
            hooks=[*options.consume_hooks, *([self._trace.on_consume] if self._trace is not None else [])],
            rates=self._rates,
            wall_s=clock.monotonic,
        )
        self._send_back = SendBack(self._instance, group, options.max_reconsume_times)
        self._offsets = offset_store(self._instance, group, options)
        self._queues = AssignedQueues(
            self._instance,
            group,
            options,
            self._offsets,
            subscription=self._subscriptions.get,
            hand_out=lambda pq, messages: self._consuming.put(pq, messages),
            lost=self.wake_rebalance,
            rates=self._rates,
            spawn=self._tasks.spawn,
        )
        queues = self._queues
        orderly = partial(OrderlyDispatcher, relock=queues.relock, confirm=queues.confirm)
        dispatcher = orderly if options.orderly else ConcurrentDispatcher
        self._consuming: HandlerDispatcher[Any] = dispatcher(
            group, options, self._handlers, self._send_back, self._rates, clock, self._tasks.spawn
        )
        self._iterating = MessageIteration(group, options, self._consuming, self._handlers.hooks, self._rates, clock)
        self._sharing = Rebalancer(
            self._instance,
            group,
            options,
            topics=lambda: set(self._subscriptions),
            owned=lambda: self._queues.staying,
            take=self._queues.take,
            give_up=self._queues.give_up,
            take_over_s=0.0 if options.orderly else TAKE_OVER_DELAY_S,
        )
        self._member = PushMember(
            self._instance,
            group,
            options,
            self._subscriptions,
            self._queues,
            self._sharing,
            self._handlers,
            self._rates,
        )
        self._running = False
        self._has_workers = False
        self._stopped = False

    @property
    def assignment(self) -> list[MessageQueue]:
        """The queues of this member now, including those of the retry topic."""
        return sorted(self._queues.staying)

    @property
    def consume_concurrency(self) -> int:
        """Maximum number of handlers that run at the same time."""
        return self._handlers.threads

    def change_concurrency(self, count: int) -> None:
        """Change the number of handlers that run at the same time; running ones finish.

        Raises:
            ConfigError: the number is below 1 or above 1000.
        """
        check_concurrency(count)
        self._handlers.resize(count)
        self._consuming.resize(count)

    # --- subscriptions ---------------------------------------------------------------------------------------

    def subscribe(
        self,
        topic: str,
        tags: str | None = ALL,
        handler: Handler | None = None,
        *,
        sql: str | None = None,
        body: Any = None,
        undecodable: Undecodable | None = None,
        retry: RetryPolicy | None = None,
    ) -> None:
        """Subscribe to a topic; it need not exist yet.

        All members of a group have to subscribe to the same topics with the same expressions.

        Args:
            topic: the topic.
            tags: tag expression, `A || B`; `*` for all messages.
            handler: consumes the messages; without one, `async for` yields them.
            sql: SQL92 expression instead of tags.
            body: type of the values that the handler gets instead of messages: a dataclass, `TypedDict`, pydantic
                model, `dict` or any other type for JSON, `str` for text, or a function that takes bytes. The handler
                may also have parameters named `message` (`messages` with lists) and `context`.
            undecodable: treatment of a message whose body cannot be decoded: `"dead_letter"` at once, the default;
                `"retry"`, as for a failed message; or `"skip"`, the default for broadcasting. In all cases the log
                names the message and the reason.
            retry: retry policy for messages that the handler does not consume; by default they are delivered again up
                to `max_reconsume_times`.

        Raises:
            ClientError: the topic or the expression is wrong, or the first handler is added after the start.
            ConfigError: RocketMQ does not support `undecodable` or `retry` here, or bodies cannot be decoded to `body`.
        """
        check_topic(topic)
        if handler is None and (body is not None or undecodable is not None or retry is not None):
            raise ClientError(
                f"topic {topic}: body, undecodable and retry are a handler's; give one, or write "
                "decode_body(message, …) where you iterate"
            )
        if self._stopped:
            raise ClientError(f"the consumer of group {self._group} is stopped; make a new one")
        if self._running and handler is not None and not self._has_workers:
            raise ClientError(f"group {self._group} was started without handlers; subscribe with one before the start")
        now_ms = self._instance.clock.now_ms()
        subscription = build_subscription(topic, tags, sql, version_ms=now_ms)
        if handler is not None:
            self._handlers.add(topic, handler, HandlerOptions(body, undecodable, retry))
        self._subscriptions[topic] = subscription
        if self._running:
            self._tasks.spawn(self._announce())

    def unsubscribe(self, topic: str) -> None:
        """Unsubscribe from a topic and drop its queues; the brokers learn of it with the next heartbeat.

        Its handler still gets messages that were sent back before.
        """
        self._subscriptions.pop(topic, None)
        self._sharing.wake()

    def on(
        self,
        topic: str,
        tags: str | None = ALL,
        *,
        sql: str | None = None,
        body: Any = None,
        undecodable: Undecodable | None = None,
        retry: RetryPolicy | None = None,
    ) -> Callable[[H], H]:
        """Return a decorator that subscribes to a topic with the decorated function, sync or async, as its handler.

        Sync handlers run in threads, `consume_concurrency` of them. See `subscribe` and `Handler`.
        """

        def register(handler: H) -> H:
            self.subscribe(topic, tags, handler, sql=sql, body=body, undecodable=undecodable, retry=retry)
            return handler

        return register

    # --- start and stop --------------------------------------------------------------------------------------

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._iterating.leave(error)
        await self.stop()

    async def start(self) -> None:
        """Join the group and start to pull.

        Raises:
            ClientError: the consumer was started before, or the shared instance has a consumer of this group.
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
            self._consuming.start_workers(self._handlers.threads)

    async def stop(self) -> None:
        """Wait for running handlers, store the offsets, leave the group, and close the owned instance.

        A message from `async for` that is not followed by a request for the next one is not consumed. It will be
        delivered again.
        """
        if self._stopped:
            return
        was_running, self._running, self._stopped = self._running, False, True
        self._queues.stop_pulling()
        await self._consuming.drain(self._options.await_termination_ms / 1000)
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
        """Stop pulling; messages that are already pulled are still consumed."""
        self._queues.suspend()

    def resume(self) -> None:
        """Continue to pull after `suspend`."""
        self._queues.resume()
        self._sharing.wake()

    async def _announce(self) -> None:
        await announce(self._instance, self._member.consumer_data())
        if not self._options.is_broadcast:
            # Brokers create the retry topic at the first heartbeat, so request its route now instead of at the next
            # timer.
            await self._instance.route(names.retry_topic(self._group))
        self._sharing.wake()

    async def _keep_house(self) -> None:
        loop, interval_s = asyncio.get_running_loop(), self._options.persist_consumer_offset_interval_ms / 1000
        while True:
            due_s = loop.time() + interval_s
            await asyncio.sleep(interval_s)
            await self._queues.persist()
            if stalled(due_s):
                await caught_up()
            self._queues.revive()
            self._rates.sample(self._instance.clock.monotonic())
            await self._iterating.expire()

    # --- iteration -------------------------------------------------------------------------------------------

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
        """Rebalance soon."""
        self._sharing.wake()

    def running_info(self) -> ConsumerRunningInfo:
        """Return the running info for operators (client.md §17.1)."""
        return self._member.running_info()
