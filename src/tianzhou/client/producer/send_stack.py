"""The layers of a send, put together once from a producer's options (client.md §5, §6).

From the top: the outbox, back-pressure, the producer's own rate, durability, the choice of queues with repetition,
hooks, the transport. What the options do not ask for is not there. Automatic batching is above all of them: it makes
one send of several.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from tianzhou.client.hooks import Hooks
from tianzhou.client.instance import ClientInstance
from tianzhou.client.producer.backpressure import Backpressure, with_backpressure
from tianzhou.client.producer.batching import Accumulator
from tianzhou.client.producer.delivery import Delivery
from tianzhou.client.producer.durable import ROUND_MS, refuse_oneway, until_durable
from tianzhou.client.producer.latency_faults import LatencyFaults
from tianzhou.client.producer.message_builder import MessageBuilder
from tianzhou.client.producer.options import IN_TURN, ProducerOptions
from tianzhou.client.producer.ordered_sends import OrderedSends
from tianzhou.client.producer.outbox.outbox_entry import OutboxEntry
from tianzhou.client.producer.outbox_fallback import with_outbox
from tianzhou.client.producer.publish_plan import PublishPlans
from tianzhou.client.producer.rate_limit import SendRate, with_rate
from tianzhou.client.producer.selector import select_by_hash
from tianzhou.client.producer.send_request import Layer, SendRequest
from tianzhou.client.producer.transport import AnyTransport, HookedTransport, Transport
from tianzhou.client.retry import SendRetries
from tianzhou.model import Message, MessageQueue, SendResult

if TYPE_CHECKING:
    from tianzhou.client.producer.outbox.outbox import Outbox


class SendStack:
    """A producer's layers, each entered where a kind of send begins.

    Args:
        instance: reaches the brokers.
        group: the producer group, as users know it.
        options: of the producer.
        builder: makes what is sent.
        plans: the queues of each topic.
        faults: what is known about slow brokers.
        hooks: what is called around each attempt.

    Attributes:
        transport: the lowest layer: one attempt to one queue.
        attempt: the same with the hooks, if there are any.
        delivery: above it, the choice of queues and repetition.
        send_without_outbox: above that, back-pressure; for what must not be sent later.
        send: all of it, with the outbox on top.
        send_oneway: delivery of one-way sends, with the outbox on top.
        batching: collects messages that may wait; None when none do.
        outbox: where messages wait that no broker takes; None without one.
        is_bare: whether no option asks for more than a first attempt and, when that fails, repetition.
    """

    def __init__(
        self,
        instance: ClientInstance,
        group: str,
        options: ProducerOptions,
        builder: MessageBuilder,
        plans: PublishPlans,
        faults: LatencyFaults,
        hooks: Hooks,
    ) -> None:
        self._builder = builder
        self._timeout_ms = options.limit_ms
        self.transport = Transport(instance)
        self.attempt: AnyTransport = HookedTransport(self.transport, group, hooks) if hooks else self.transport
        self.delivery = Delivery(instance, options, plans, faults, self.attempt)
        self._delivered: Layer = self.delivery.send
        self.send_oneway: Callable[[SendRequest], Awaitable[SendResult | None]] = self.delivery.send_oneway
        if options.durable:
            self._delivered = until_durable(
                self.delivery.send,
                SendRetries(codes=frozenset(options.retry_response_codes)),
                plans,
                instance.refresh_route,
                instance.clock.monotonic,
                max(ROUND_MS, options.send_msg_timeout_ms),
            )
            self.send_oneway = refuse_oneway
        self._outbox_sends = self._delivered
        if options.send_rate is not None or options.send_rate_bytes is not None:
            rate = SendRate(options, instance.clock.monotonic)
            self._outbox_sends = with_rate(self._delivered, rate, unlimited=True)
            self._delivered = with_rate(self._delivered, rate)
            self.send_oneway = self.send_oneway if options.durable else with_rate(self.send_oneway, rate)
        self.send_without_outbox: Layer = self._delivered
        if options.enable_backpressure_for_async_mode:
            limits = options.back_pressure_for_async_send_num, options.back_pressure_for_async_send_size
            self.send_without_outbox = with_backpressure(
                self._delivered, Backpressure(*limits), instance.clock.monotonic
            )
        self.send: Layer = self.send_without_outbox
        self.outbox: Outbox | None = None
        if options.outbox is not None:
            from tianzhou.client.producer.outbox.outbox import Outbox, store_of

            store = store_of(options.outbox)
            self.outbox = Outbox(instance, store, group, options.outbox_max_bytes, self._send_entries)
            beside = self.outbox, builder, plans, OrderedSends(), instance.clock.monotonic
            self.send = with_outbox(self.send_without_outbox, *beside)
            if not options.durable:
                self.send_oneway = with_outbox(self.send_oneway, *beside)
        self.batching = Accumulator(options, self._send_together) if options.auto_batch else None
        self.is_bare = not (
            options.send_latency_fault_enable
            or options.queue_selector != IN_TURN
            or options.retry_another_broker_when_not_store_ok
            or options.durable
            or options.send_msg_max_timeout_per_request_ms
            or options.enable_backpressure_for_async_mode
            or self._outbox_sends is not self._delivered
            or options.stamp_hooks
            or hooks
            or self.batching
            or self.outbox
            or instance.namespace
            or instance.remoting.hooks
        )

    async def _send_together(self, messages: list[Message], queue: MessageQueue | None) -> SendResult:
        alone = len(messages) == 1
        prepared = self._builder.single(messages[0]) if alone else self._builder.batch(messages)
        return await self.send(SendRequest(prepared, self._timeout_ms, queue))

    async def _send_entries(self, entries: Sequence[OutboxEntry]) -> SendResult:
        """Send entries of the outbox; those of one sharding key go to the queue of its hash also as a batch."""
        prepared = self._builder.from_outbox(entries)
        selector = select_by_hash if prepared.messages[0].sharding_key is not None else None
        return await self._outbox_sends(SendRequest(prepared, self._timeout_ms, entries[0].queue, selector))
