# Written by scripts/facade from the async classes; change those, then run it again.
"""The blocking push consumer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tianzhou import client
from tianzhou.client.consumer.allocation import AllocateStrategy
from tianzhou.client.consumer.push.handlers import H, Handler
from tianzhou.client.consumer.rebalancer import SharesChanged
from tianzhou.client.consumer.subscription import ALL
from tianzhou.client.hooks import ConsumeHook, FilterHook
from tianzhou.client.instance import ClientInstance
from tianzhou.model import ConsumeFromWhere, MessageExt, MessageModel, MessageQueue
from tianzhou.sync.background import Blocking


class PushConsumer(Blocking):
    """A member of a consumer group; a context manager and an iterator of messages.

    Give it a handler per topic with `on`, or subscribe and iterate. Iterating, a message counts as consumed when
    the next one is asked for, or when the `with` block ends without an error; an error that leaves the block
    sends the message back, to be delivered again later.

    With `orderly` the messages of each queue are consumed one after the other, in their order, by whichever member
    has locked the queue; different queues are consumed side by side. A message that is not consumed is not sent back
    but delivered again after a moment, and those behind it wait. Send with a `sharding_key` to have related messages
    in one queue.

    Sync handlers run in threads of their own, so they may block and may use other objects of `tianzhou.sync`.

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

    _async: client.PushConsumer

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
        Blocking.__init__(
            self,
            client.PushConsumer(
                group,
                namesrv_addr,
                instance=instance,
                orderly=orderly,
                message_model=message_model,
                consume_from_where=consume_from_where,
                consume_timestamp_ms=consume_timestamp_ms,
                allocate_message_queue_strategy=allocate_message_queue_strategy,
                consume_concurrency=consume_concurrency,
                consume_message_batch_max_size=consume_message_batch_max_size,
                consume_timeout_ms=consume_timeout_ms,
                max_reconsume_times=max_reconsume_times,
                suspend_current_queue_time_ms=suspend_current_queue_time_ms,
                pull_batch_size=pull_batch_size,
                pull_batch_size_in_bytes=pull_batch_size_in_bytes,
                pull_interval_ms=pull_interval_ms,
                broker_suspend_max_time_ms=broker_suspend_max_time_ms,
                pull_threshold_for_queue=pull_threshold_for_queue,
                pull_threshold_for_topic=pull_threshold_for_topic,
                pull_threshold_size_for_queue_bytes=pull_threshold_size_for_queue_bytes,
                pull_threshold_size_for_topic_bytes=pull_threshold_size_for_topic_bytes,
                consume_concurrently_max_span=consume_concurrently_max_span,
                persist_consumer_offset_interval_ms=persist_consumer_offset_interval_ms,
                await_termination_ms=await_termination_ms,
                local_offset_dir=local_offset_dir,
                instance_name=instance_name,
                queues_changed=queues_changed,
                post_subscription_when_pull=post_subscription_when_pull,
                filter_hooks=filter_hooks,
                consume_hooks=consume_hooks,
                trace=trace,
                trace_topic=trace_topic,
                trace_msg_batch_num=trace_msg_batch_num,
                access_channel=access_channel,
                **client_options,
            ),
        )

    @property
    def group(self) -> str:
        """The consumer group."""
        return self._async.group

    @property
    def instance(self) -> ClientInstance:
        """The client instance it works with; it belongs to the background loop."""
        return self._async.instance

    @property
    def assignment(self) -> list[MessageQueue]:
        """The queues that are ours now, those of the retry topic included."""
        return self._call(lambda: self._async.assignment)

    @property
    def consume_concurrency(self) -> int:
        """How many handlers run at the same time."""
        return self._async.consume_concurrency

    def change_concurrency(self, count: int) -> None:
        """Change how many handlers run at the same time; those that run now are let finish.

        Raises:
            ConfigError: it is below 1 or above 1000.
        """
        self._call(self._async.change_concurrency, count)

    def subscribe(
        self, topic: str, tags: str | None = ALL, handler: Handler | None = None, *, sql: str | None = None
    ) -> None:
        """Subscribe to a topic; it need not exist yet.

        All members of a group have to subscribe to the same topics with the same expressions.

        Args:
            topic: the topic.
            tags: tag expression, `A || B`; `*` for all messages.
            handler: consumes the messages; without one they come to `for`.
            sql: SQL92 expression instead of tags.

        Raises:
            ClientError: the topic or the expression is wrong, or a first handler comes after the start.
        """
        self._call(self._async.subscribe, topic, tags, handler, sql=sql)

    def unsubscribe(self, topic: str) -> None:
        """Give up a topic's queues; the brokers learn of it with the next heartbeat.

        Its handler still gets messages that were sent back before.
        """
        self._call(self._async.unsubscribe, topic)

    def on(self, topic: str, tags: str | None = ALL, *, sql: str | None = None) -> Callable[[H], H]:
        """Decorator: subscribe to a topic with the decorated function, sync or async, as its handler.

        Sync handlers run in threads, `consume_concurrency` of them. See `subscribe` and `Handler`.
        """

        def register(handler: H) -> H:
            self.subscribe(topic, tags, handler, sql=sql)
            return handler

        return register

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._run(self._async.__aexit__(kind, error, trace))

    def start(self) -> None:
        """Join the group and begin to pull.

        Raises:
            ClientError: it was started before, or the shared instance has a consumer of this group.
            BrokerError: a broker cannot serve an SQL subscription.
        """
        self._run(self._async.start())

    def stop(self) -> None:
        """Let running handlers finish, store the offsets, leave the group, close what it owns.

        A message given out by `for` and not followed by a request for the next one is not consumed: it will
        be delivered again.
        """
        self._run(self._async.stop())

    def suspend(self) -> None:
        """Stop pulling; what was pulled already is still consumed."""
        self._call(self._async.suspend)

    def resume(self) -> None:
        """Pull again."""
        self._call(self._async.resume)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> MessageExt:
        try:
            return self._run(self._async.__anext__())
        except StopAsyncIteration:
            raise StopIteration from None
