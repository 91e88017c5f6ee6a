"""The base of all producers: a member of a producer group, its start and stop, and the layers of a send."""

from __future__ import annotations

from asyncio import get_running_loop
from collections.abc import Sequence
from typing import Unpack

from tianzhou._hot import QuickSends
from tianzhou.client.cluster.member import StateCheck
from tianzhou.client.group_client import GroupClient, Startable, options_and_instance
from tianzhou.client.hooks import Hooks
from tianzhou.client.instance import ClientInstance
from tianzhou.client.namespaces.namespaces import wrap
from tianzhou.client.option_keywords import ProducerKeywords
from tianzhou.client.producer.detector import Detector
from tianzhou.client.producer.latency_faults import PAUSES, LatencyFaults
from tianzhou.client.producer.message_builder import MessageBuilder
from tianzhou.client.producer.message_properties import quick_properties
from tianzhou.client.producer.options import ProducerOptions
from tianzhou.client.producer.outbox.outbox_entry import OutboxStatus
from tianzhou.client.producer.publish_plan import PublishPlans
from tianzhou.client.producer.send_request import SendRequest
from tianzhou.client.producer.send_stack import SendStack
from tianzhou.client.tracing.options import TraceOptions
from tianzhou.client.tracing.trace import MAX_MESSAGE_BYTES, SEND_TIMEOUT_MS, TraceDispatcher, trace_group
from tianzhou.client.validation import DEFAULT_PRODUCER_GROUP, HOW_TO_START, check_group
from tianzhou.errors import ClientError
from tianzhou.model import Message, MessageQueue, SendResult


class BaseProducer(GroupClient, Startable):
    """A member of a producer group, without the methods that send.

    Args:
        group: the producer group.
        namesrv_addr: name servers, see `ClientInstance`.
        instance: an instance to share; by default the producer owns one.
        keywords: see `tianzhou.client.producer.options.ProducerOptions` and, when the producer owns its instance,
            `tianzhou.client.options.ClientOptions`.

    Raises:
        ClientError: the group's name cannot be used.
        ConfigError: an option is unknown, or its value is not allowed.
    """

    def __init__(
        self,
        group: str,
        namesrv_addr: str | Sequence[str] | None = None,
        *,
        instance: ClientInstance | None = None,
        **keywords: Unpack[ProducerKeywords],
    ) -> None:
        check_group(group, default=DEFAULT_PRODUCER_GROUP)
        options, own = options_and_instance(type(self), ProducerOptions, keywords, instance, namesrv_addr)
        super().__init__(group, own)
        self._owns_instance = instance is None
        self._wire_group = wrap(self._instance.namespace, group)
        self._hooks = Hooks(list(options.send_hooks), list(options.check_forbidden_hooks))
        self._trace = trace_dispatcher(self._instance, group, "PRODUCE", options)
        if self._trace is not None:
            self._hooks.send.append(self._trace.on_send)
            self._hooks.end_transaction.append(self._trace.on_end_transaction)
        self._faults = LatencyFaults(
            enabled=options.send_latency_fault_enable,
            detecting=options.start_detector_enable,
            pauses=PAUSES[options.latency_pauses],
        )
        self._detector = Detector(self._instance, self._faults, options.detect_timeout_ms, options.detect_interval_ms)
        self._builder = MessageBuilder(self._instance, options)
        self._plans = PublishPlans(self._instance, self._wire_group, options, self._check_running)
        self._stack = SendStack(self._instance, group, options, self._builder, self._plans, self._faults, self._hooks)
        self._state_check: StateCheck | None = None
        self._running = False
        # Attributes that `Producer.send` reads for every message.
        self._is_bare = self._stack.is_bare
        self._transport = self._stack.transport
        self._timeout_ms = options.limit_ms
        self._async_send_limits = (
            options.back_pressure_for_async_send_num, options.back_pressure_for_async_send_size,
        )  # fmt: skip
        self._remoting = self._instance.remoting
        self._now_ms = self._instance.clock.now_ms
        self._monotonic = self._instance.clock.monotonic
        self._quick = QuickSends(
            self._plans.table,
            self._instance.routes,
            self._instance.remoting.open_connections,
            self._instance.remoting.group,
            self._instance.ids,
            self._instance.clock,
            get_running_loop,
            quick_properties,
            self._builder.pack,
            options.compress_msg_body_over_howmuch,
            options.max_message_size,
        )
        self._begin = self._quick.begin

    @property
    def async_send_limits(self) -> tuple[int, int]:
        """Maximum number of messages, and of bytes of their bodies, that blocking producers have in flight."""
        return self._async_send_limits

    @property
    def send_limit_ms(self) -> int:
        """Timeout of one send with all its attempts, unless the send has one of its own."""
        return self._timeout_ms

    async def start(self) -> None:
        """Start the producer.

        Raises:
            ClientError: the shared instance has a producer of this group already, or is closed.
        """
        if self._running:
            return
        if self._owns_instance and self._instance.closed:
            raise ClientError(f"the producer of group {self._group} is stopped; make a new one")
        await self._instance.start()
        self._instance.add_producer(self._wire_group, self._state_check)
        self._running = self._quick.open = True
        self._detector.start()
        if self._trace is not None:
            await self._trace.start()
        if self._stack.outbox is not None:
            try:
                await self._stack.outbox.start()
            except BaseException:
                await self.stop()
                raise

    async def stop(self) -> None:
        """Unregister this producer at the brokers, and close the owned instance."""
        if not self._running:
            if self._owns_instance:
                await self._instance.close()
            return
        if self._stack.batching is not None:
            await self._stack.batching.close()
        if self._stack.outbox is not None:
            await self._stack.outbox.stop()
        self._running = self._quick.open = False
        self._detector.stop()
        if self._trace is not None:
            await self._trace.stop()
        await self._instance.remove_producer(self._wire_group)
        if self._owns_instance:
            await self._instance.close()

    @property
    def outbox(self) -> OutboxStatus | None:
        """Status of the outbox; None without one."""
        return self._stack.outbox.status() if self._stack.outbox is not None else None

    async def queues(self, topic: str) -> list[MessageQueue]:
        """Return the queues that messages of a topic are sent to.

        Raises:
            ClientError: the topic does not exist and cannot be created by sending.
        """
        return list((await self._plans.make(self._plans.wire_topic(topic))).queues)

    async def send_outside(self, message: Message) -> SendResult:
        """Send a message whose topic is already the servers' name, without the namespace."""
        prepared = self._builder.single(message)._replace(topic=message.topic)
        return await self._stack.send_without_outbox(SendRequest(prepared, self._timeout_ms))

    def _check_running(self) -> None:
        if self._running:
            return
        if self._instance.closed:
            raise ClientError(f"the producer of group {self._group} is stopped; make a new one")
        raise ClientError(f"the producer of group {self._group} is not running; {HOW_TO_START}")


def trace_dispatcher(instance: ClientInstance, group: str, kind: str, options: TraceOptions) -> TraceDispatcher | None:
    """Return a dispatcher of trace records with a producer of its own; None unless `options` enable traces.

    Args:
        instance: client instance of the traced producer or consumer.
        group: its group, by its users' name.
        kind: `PRODUCE` or `CONSUME`.
        options: options of the trace.
    """
    if not options.trace:
        return None
    producer = BaseProducer(
        trace_group(group, kind),
        instance=instance,
        send_msg_timeout_ms=SEND_TIMEOUT_MS,
        # Keys may take some space in addition to the records.
        max_message_size=2 * MAX_MESSAGE_BYTES,
    )
    return TraceDispatcher(instance, group, options, producer)
