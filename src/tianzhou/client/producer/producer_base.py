"""What all producers share: options, life, and the careful way to send (client.md §4, §5)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from tianzhou.client.borrowed_instance import shared_or_own
from tianzhou.client.cluster.member import StateCheck
from tianzhou.client.hooks import ForbiddenHook, Hooks, MessageKind, SendHook, StampHook
from tianzhou.client.instance import ClientInstance
from tianzhou.client.namespaces.namespaces import wrap
from tianzhou.client.producer.backpressure import Backpressure
from tianzhou.client.producer.batching import (
    DEFAULT_BATCH_BYTES,
    DEFAULT_DELAY_MS,
    DEFAULT_HELD_BYTES,
    Accumulator,
    AutoBatch,
)
from tianzhou.client.producer.delivery import Attempts, choose
from tianzhou.client.producer.detector import Detector
from tianzhou.client.producer.latency_faults import LatencyFaults
from tianzhou.client.producer.message_builder import Composer
from tianzhou.client.producer.outbox.outbox_entry import Kept, OutboxStatus
from tianzhou.client.producer.publish_plan import REPLY, Outgoing, Plan, Plans
from tianzhou.client.producer.selector import QueueSelector
from tianzhou.client.retry import RETRY_ON_OTHER_BROKER, RetryPolicy
from tianzhou.client.tracing.trace import (
    MAX_MESSAGE_BYTES,
    SEND_TIMEOUT_MS,
    TraceDispatcher,
    TraceOptions,
    trace_group,
)
from tianzhou.client.validation import (
    COMPRESSION_KINDS,
    DEFAULT_PRODUCER_GROUP,
    HOW_TO_START,
    MAX_MESSAGE_SIZE,
    check_compression,
    check_group,
    check_number,
    check_sendable,
)
from tianzhou.errors import ClientError, TianzhouError
from tianzhou.model import Message, MessageQueue, SendResult, SendStatus, names

if TYPE_CHECKING:
    from tianzhou.client.producer.outbox.outbox import Outbox

T = TypeVar("T")


class Sender:
    """A member of a producer group, without the methods that send.

    Args:
        group: the producer group.
        namesrv_addr: name servers, see `ClientInstance`.
        instance: an instance to share; by default the producer owns one.
        send_msg_timeout_ms: limit of one send with all its attempts.
        send_msg_max_timeout_per_request_ms: limit of one attempt while another one remains; None for none.
        retry_times_when_send_failed: further attempts, on another broker where there is one. A repeated attempt
            whose predecessor was lost on the way back stores the message twice; both have the same unique key.
        retry_another_broker_when_not_store_ok: repeat also when flush or replication was not confirmed.
        retry_response_codes: the answers worth another attempt.
        compress_msg_body_over_howmuch: bodies of so many bytes or more are compressed.
        compress_level: 0 to 9.
        compress_type: `ZLIB`, `LZ4` or `ZSTD`; consumers before RocketMQ 5 know only ZLIB.
        max_message_size: longest body in bytes; brokers have a limit of their own.
        create_topic_key: the topic whose route and permission an unknown topic borrows.
        default_topic_queue_nums: queues asked for when a topic is created by sending to it.
        send_latency_fault_enable: avoid brokers for a while that were slow or failed.
        start_detector_enable: with the above, ask brokers that did not answer whether they do again.
        detect_timeout_ms: how long such a question may take.
        detect_interval_ms: how often a broker is asked.
        send_hooks: called around each attempt, see `tianzhou.client.hooks`.
        check_forbidden_hooks: called before each attempt; one that raises prevents it.
        stamp_hooks: called with each message before the first attempt; what they return is stored as its properties.
        auto_batch: let messages wait a moment and travel together; not those with a time limit of their own, delayed
            ones, requests, replies and parts of transactions.
        batch_max_delay_ms: how long a message waits at most.
        batch_max_bytes: a batch of more bytes is sent at once.
        total_batch_max_bytes: with so much waiting, messages are sent alone.
        enable_backpressure_for_async_mode: let senders wait while too much is on its way.
        back_pressure_for_async_send_num: most messages on their way, at least 10.
        back_pressure_for_async_send_size: most bytes of bodies on their way, at least 1 MiB.
        outbox: a folder; messages that no broker takes are kept there, and sent in order once one does, see
            `tianzhou.client.producer.outbox`. `send` then returns the status KEPT_IN_OUTBOX. Not for requests, replies
            and transactions. Off by default.
        outbox_max_bytes: most bytes that may wait there; above it `send` raises OutboxFull.
        trace: note each send in the trace topic, see `tianzhou.client.tracing.trace`.
        trace_topic: the trace topic; by default `RMQ_SYS_TRACE_TOPIC`.
        trace_msg_batch_num: so many sends are noted in one message; 20 at most.
        access_channel: `LOCAL`, or `CLOUD` for the trace form of the cloud service.
        client_options: further arguments of `ClientInstance`, when the producer owns it.
    """

    def __init__(
        self,
        group: str,
        namesrv_addr: str | Sequence[str] | None = None,
        *,
        instance: ClientInstance | None = None,
        send_msg_timeout_ms: int = 3_000,
        send_msg_max_timeout_per_request_ms: int | None = None,
        retry_times_when_send_failed: int = 2,
        retry_another_broker_when_not_store_ok: bool = False,
        retry_response_codes: Iterable[int] = RETRY_ON_OTHER_BROKER,
        compress_msg_body_over_howmuch: int = 4_096,
        compress_level: int = 5,
        compress_type: str = "ZLIB",
        max_message_size: int = MAX_MESSAGE_SIZE,
        create_topic_key: str = names.AUTO_CREATE_TOPIC,
        default_topic_queue_nums: int = 4,
        send_latency_fault_enable: bool = False,
        start_detector_enable: bool = False,
        detect_timeout_ms: int = 200,
        detect_interval_ms: int = 2_000,
        send_hooks: Iterable[SendHook] = (),
        check_forbidden_hooks: Iterable[ForbiddenHook] = (),
        stamp_hooks: Iterable[StampHook] = (),
        auto_batch: bool = False,
        batch_max_delay_ms: int = DEFAULT_DELAY_MS,
        batch_max_bytes: int = DEFAULT_BATCH_BYTES,
        total_batch_max_bytes: int = DEFAULT_HELD_BYTES,
        enable_backpressure_for_async_mode: bool = False,
        back_pressure_for_async_send_num: int = 10_000,
        back_pressure_for_async_send_size: int = 100 * 1024 * 1024,
        outbox: Path | str | None = None,
        outbox_max_bytes: int = 256 * 1024 * 1024,
        trace: bool = False,
        trace_topic: str | None = None,
        trace_msg_batch_num: int = 10,
        access_channel: str = "LOCAL",
        **client_options: Any,
    ) -> None:
        check_group(group, default=DEFAULT_PRODUCER_GROUP)
        check_compression(compress_type, compress_level)
        check_number("send_msg_timeout_ms", send_msg_timeout_ms, 1)
        check_number("retry_times_when_send_failed", retry_times_when_send_failed, 0)
        self._group = group
        self._owns_instance = instance is None
        self._instance = shared_or_own(instance, namesrv_addr, client_options, type(self))
        self._wire_group = wrap(self._instance.namespace, group)
        self._timeout_ms = send_msg_timeout_ms
        self._compress_over = compress_msg_body_over_howmuch
        self._hooks = Hooks(list(send_hooks), list(check_forbidden_hooks), stamp=list(stamp_hooks))
        self._composer = Composer(
            self._instance,
            max_message_size=max_message_size,
            compress_over=compress_msg_body_over_howmuch,
            compress_kind=COMPRESSION_KINDS[compress_type],
            compress_level=compress_level,
            stamp_hooks=self._hooks.stamp,
        )
        self._max_message_size = max_message_size
        self._faults = LatencyFaults(enabled=send_latency_fault_enable, detecting=start_detector_enable)
        self._detector = Detector(self._instance, self._faults, detect_timeout_ms, detect_interval_ms)
        self._plans = Plans(self._instance, self._wire_group, create_topic_key, default_topic_queue_nums)
        self._attempts = Attempts(
            self._instance,
            group,
            self._plans,
            RetryPolicy(
                retry_times_when_send_failed, frozenset(retry_response_codes), send_msg_max_timeout_per_request_ms
            ),
            self._faults,
            self._hooks,
            retry_not_stored=retry_another_broker_when_not_store_ok,
        )
        self._trace: TraceDispatcher | None = None
        if trace:
            options = TraceOptions(trace_topic, trace_msg_batch_num, access_channel).check()
            self._trace = trace_dispatcher(self._instance, group, "PRODUCE", options)
            self._hooks.send.append(self._trace.on_send)
            self._hooks.end_transaction.append(self._trace.on_end_transaction)
        self._accumulator: Accumulator | None = None
        if auto_batch:
            batching = AutoBatch(batch_max_delay_ms, batch_max_bytes, total_batch_max_bytes).check()
            self._accumulator = Accumulator(batching, max_message_size, self._send_together)
        self._pressure: Backpressure | None = None
        if enable_backpressure_for_async_mode:
            self._pressure = Backpressure(back_pressure_for_async_send_num, back_pressure_for_async_send_size)
        self._outbox: Outbox | None = None
        if outbox is not None:
            # Imported here because it needs locks that not every system has.
            from tianzhou.client.producer.outbox.outbox import Outbox

            self._outbox = Outbox(self._instance, outbox, outbox_max_bytes, self._send_kept)
        # Without these options the first attempt needs no more than its connection.
        self._straight = not (
            send_latency_fault_enable
            or retry_another_broker_when_not_store_ok
            or send_msg_max_timeout_per_request_ms
            or self._hooks
            or self._hooks.stamp
            or self._accumulator
            or self._pressure
            or self._outbox
            or self._instance.namespace
            or self._instance.remoting.hooks
        )
        self._ready_plans = self._plans.table
        self._remoting = self._instance.remoting
        self._routes = self._instance.routes
        self._now_ms = self._instance.clock.now_ms
        self._monotonic = self._instance.clock.monotonic
        self._next_opaque = self._remoting.group.opaques.next
        self._ids = self._instance.ids
        self._mark, self._marked_ms = "", -1
        self._state_check: StateCheck | None = None
        self._running = False

    @property
    def group(self) -> str:
        """The producer group."""
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
        """Get ready to send.

        Raises:
            ClientError: the shared instance has a producer of this group already, or is closed.
        """
        if self._running:
            return
        if self._owns_instance and self._instance.closed:
            raise ClientError(f"the producer of group {self._group} is stopped; make a new one")
        await self._instance.start()
        self._instance.add_producer(self._wire_group, self._state_check)
        self._running = True
        self._detector.start()
        if self._trace is not None:
            await self._trace.start()
        if self._outbox is not None:
            try:
                await self._outbox.start()
            except BaseException:
                await self.stop()
                raise

    async def stop(self) -> None:
        """Tell the brokers that this producer is gone, and close what it owns."""
        if not self._running:
            if self._owns_instance:
                await self._instance.close()
            return
        if self._accumulator is not None:
            await self._accumulator.close()
        if self._outbox is not None:
            await self._outbox.stop()
        self._running = False
        self._detector.stop()
        if self._trace is not None:
            await self._trace.stop()
        await self._instance.remove_producer(self._wire_group)
        if self._owns_instance:
            await self._instance.close()

    @property
    def outbox(self) -> OutboxStatus | None:
        """What waits in the outbox; None without one."""
        return self._outbox.status() if self._outbox is not None else None

    async def queues(self, topic: str) -> list[MessageQueue]:
        """The queues messages of a topic are sent to.

        Raises:
            ClientError: the topic does not exist and cannot be created by sending.
        """
        return list((await self._plan_of(self._plans.wire_topic(topic))).queues)

    # --- the careful way ---------------------------------------------------------------------------------------

    async def send_outside(self, message: Message) -> SendResult:
        """Send a message whose topic is named as the servers know it, whatever the namespace."""
        outgoing = self._composer.single(message)
        return await self._deliver(outgoing._replace(topic=message.topic), None, None, None, None)

    async def _send_carefully(
        self,
        message: Message,
        queue: MessageQueue | None,
        selector: QueueSelector | None,
        selector_arg: Any,
        timeout_ms: float | None,
    ) -> SendResult:
        accumulator = self._accumulator
        if accumulator is not None and timeout_ms is None and accumulator.takes(message):
            if queue is None and (selector is not None or message.sharding_key is not None):
                plan = await self._plan_of(self._plans.wire_topic(message.topic))
                queue = choose(plan, message, selector, selector_arg)
            self._check_running()
            return await accumulator.add(message, queue)
        outgoing = self._composer.single(message)
        return await self._deliver_or_keep(outgoing, queue, selector, selector_arg, timeout_ms)

    async def _send_together(self, messages: list[Message], queue: MessageQueue | None) -> SendResult:
        outgoing = self._composer.single(messages[0]) if len(messages) == 1 else self._composer.batch(messages)
        return await self._deliver_or_keep(outgoing, queue, None, None, None)

    async def _deliver_or_keep(
        self,
        outgoing: Outgoing,
        queue: MessageQueue | None,
        selector: QueueSelector | None,
        selector_arg: Any,
        timeout_ms: float | None,
    ) -> SendResult:
        return await self._or_keep(
            outgoing,
            queue,
            selector,
            selector_arg,
            lambda: self._deliver(outgoing, queue, selector, selector_arg, timeout_ms),
        )

    async def _or_keep(
        self,
        outgoing: Outgoing,
        queue: MessageQueue | None,
        selector: QueueSelector | None,
        selector_arg: Any,
        attempt: Callable[[], Awaitable[T]],
    ) -> T | SendResult:
        """Make an attempt to send, or keep the messages in the outbox: at once while others wait there."""
        outbox = self._outbox
        if outbox is None or outgoing.code == REPLY or outgoing.kind is MessageKind.TRANSACTION_HALF:
            return await attempt()
        self._check_running()
        silence: TianzhouError | None = None
        if not outbox.pending:
            try:
                return await attempt()
            except TianzhouError as error:
                if not await outbox.is_silence(error):
                    raise
                silence = error
        check_sendable(outgoing.topic)
        if queue is None and selector is not None:
            plan = self._ready_plans.get(outgoing.topic)
            if plan is None:
                raise ClientError(
                    f"no broker answers, so the queues of topic {outgoing.topic} are not known and a selector cannot "
                    "choose; give the message a sharding_key instead"
                ) from silence
            queue = choose(plan, outgoing.messages[0], selector, selector_arg)
        await outbox.keep(self._composer.to_keep(outgoing, queue))
        topic = outgoing.messages[0].topic
        return SendResult(SendStatus.KEPT_IN_OUTBOX, outgoing.unique_keys, "", queue or MessageQueue(topic, "", -1), -1)

    async def _send_kept(self, kept: Sequence[Kept]) -> SendResult:
        outgoing = self._composer.kept(kept)
        queue = kept[0].queue
        if queue is None and outgoing.messages[0].sharding_key is not None:
            queue = choose(await self._plan_of(outgoing.topic), outgoing.messages[0], None, None)
        return await self._deliver_now(outgoing, queue, None, None, self._timeout_ms)

    async def _deliver(
        self,
        outgoing: Outgoing,
        queue: MessageQueue | None,
        selector: QueueSelector | None,
        selector_arg: Any,
        timeout_ms: float | None,
    ) -> SendResult:
        limit_ms = self._timeout_ms if timeout_ms is None else timeout_ms
        if self._pressure is None:
            return await self._deliver_now(outgoing, queue, selector, selector_arg, limit_ms)
        started_s = self._monotonic()
        async with self._pressure.room(len(outgoing.body), limit_ms):
            limit_ms -= (self._monotonic() - started_s) * 1000
            return await self._deliver_now(outgoing, queue, selector, selector_arg, limit_ms)

    async def _deliver_now(
        self,
        outgoing: Outgoing,
        queue: MessageQueue | None,
        selector: QueueSelector | None,
        selector_arg: Any,
        limit_ms: float,
    ) -> SendResult:
        plan = await self._plan_of(outgoing.topic)
        target = self._attempts.target(plan, outgoing, queue, selector, selector_arg)
        if target is None:
            return await self._attempts.anywhere(plan, outgoing, limit_ms)
        return await self._attempts.once(target, outgoing, limit_ms)

    async def _plan_of(self, topic: str) -> Plan:
        self._check_running()
        return await self._plans.make(topic)

    def _check_running(self) -> None:
        if self._running:
            return
        if self._instance.closed:
            raise ClientError(f"the producer of group {self._group} is stopped; make a new one")
        raise ClientError(f"the producer of group {self._group} is not running; {HOW_TO_START}")


def trace_dispatcher(instance: ClientInstance, group: str, kind: str, options: TraceOptions) -> TraceDispatcher:
    """A dispatcher with a producer of its own.

    Args:
        instance: the client instance of the producer or consumer that is traced.
        group: its group, as users know it.
        kind: `PRODUCE` or `CONSUME`.
        options: how to trace.
    """
    producer = Sender(
        trace_group(group, kind),
        instance=instance,
        send_msg_timeout_ms=SEND_TIMEOUT_MS,
        # Keys may take some space beside the records.
        max_message_size=2 * MAX_MESSAGE_BYTES,
    )
    return TraceDispatcher(instance, group, options, producer)
