"""The layers of a send, built once from a producer's options (client.md §5, §6).

From the top: the outbox, back-pressure, the producer's own rate, durability, the choice of queues with retries, hooks,
and the transport. Layers that the options do not enable are missing. Automatic batching is above all layers: it
combines several sends into one.
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
    """A producer's layers; each kind of send enters at its own layer.

    Args:
        instance: reaches the brokers.
        group: the producer group, by its users' name.
        options: the producer's options.
        builder: prepares messages.
        plans: the queues of each topic.
        faults: known faults of brokers.
        hooks: called before and after each attempt.

    Attributes:
        transport: the lowest layer: one attempt to one queue.
        attempt: the transport with the hooks, if there are any.
        delivery: the layer above `attempt`: the choice of queues and retries.
        send_without_outbox: the layers up to back-pressure, for messages that must not be sent later.
        send: all layers, with the outbox on top.
        send_oneway: delivery of one-way sends, with the outbox on top.
        batching: collects messages that may wait; None without automatic batching.
        outbox: stores messages that no broker accepts; None without one.
        is_bare: whether the options need only a first attempt and, after its failure, retries.
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
        """Send entries of the outbox. Also a batch of one sharding key goes to the queue of the key's hash."""
        prepared = self._builder.from_outbox(entries)
        selector = select_by_hash if prepared.messages[0].sharding_key is not None else None
        return await self._outbox_sends(SendRequest(prepared, self._timeout_ms, entries[0].queue, selector))
