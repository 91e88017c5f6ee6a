"""OpenTelemetry: spans of sends and of consumption, connected across processes (docs/howto/tracing.md).

    spans = Spans()
    producer = Producer("shop", namesrv, stamp_hooks=[spans.on_message], send_hooks=[spans.on_send])
    consumer = PushConsumer("billing", namesrv, consume_hooks=[spans.on_consume])

The messages' properties contain the context in the form of the configured propagator, `traceparent` by default, so that
consumers in other languages can continue it. Names and attributes follow OpenTelemetry's conventions for messaging. It
needs the package `opentelemetry-api` (`pip install tianzhou[otel]`). The program's OpenTelemetry SDK configures the
export of spans.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from importlib import import_module
from typing import Any

from tianzhou import __version__
from tianzhou.client.hooks import EndTransactionContext, HandlerCall, MessageKind, SendContext
from tianzhou.errors import ConfigError
from tianzhou.model import ConsumeResult, Message, MessageExt
from tianzhou.wire.delivered import body_sizes

SYSTEM = "rocketmq"
_KINDS = {
    MessageKind.NORMAL: "normal",
    MessageKind.TRANSACTION_HALF: "transaction",
    MessageKind.TRANSACTION_COMMIT: "transaction",
    MessageKind.DELAY: "delay",
    MessageKind.ORDER: "fifo",
}
_here: ContextVar[object] = ContextVar("tianzhou_spans", default=None)


class Spans:
    """Hooks that create spans.

    A message gets its own span before its first attempt; this span is the parent of its consumers' spans. Each attempt
    to send it has a separate span, and each call of a handler has a child span. A handler call with several messages
    has one span, with links to the messages' own spans.

    Args:
        tracer_provider: provider of the tracer; by default the global one.
        propagator: writes contexts to messages and reads them; by default the global one.

    Raises:
        ConfigError: the package `opentelemetry-api` is not installed.
    """

    def __init__(self, tracer_provider: Any = None, propagator: Any = None) -> None:
        try:
            self._trace = import_module("opentelemetry.trace")
            self._context = import_module("opentelemetry.context")
            propagate = import_module("opentelemetry.propagate")
        except ImportError as error:
            raise ConfigError(
                "Spans needs the package opentelemetry-api, which is not installed: pip install tianzhou[otel]"
            ) from error
        self._tracer = self._trace.get_tracer("tianzhou", __version__, tracer_provider)
        self._propagator = propagator or propagate.get_global_textmap()

    def on_message(self, message: Message, unique_key: str) -> dict[str, str]:
        """Create the message's own span, and return the properties with its context; a stamp hook."""
        span = self._tracer.start_span(
            f"create {message.topic}",
            kind=self._trace.SpanKind.PRODUCER,
            attributes=_about("create", message.topic) | _of_one(message, unique_key, len(message.body)),
        )
        carrier: dict[str, str] = {}
        self._propagator.inject(carrier, context=self._trace.set_span_in_context(span))
        span.end()
        return carrier

    def on_send(self, context: SendContext) -> Callable[[SendContext], None]:
        """Create a span for an attempt; a send hook."""
        topic = context.queue.topic
        attributes = _about("send", topic) | {
            "messaging.client.group": context.group,
            "messaging.destination.partition.id": _partition(context.queue.broker_name, context.queue.queue_id),
            "messaging.rocketmq.message.type": _KINDS[context.kind],
            "server.address": context.address.rpartition(":")[0],
            "server.port": int(context.address.rpartition(":")[2]),
        }
        if len(context.messages) == 1:
            attributes |= _of_one(context.messages[0], context.unique_keys, context.body_bytes)
        else:
            attributes |= {"messaging.batch.message_count": len(context.messages)}
        span = self._tracer.start_span(f"send {topic}", kind=self._trace.SpanKind.CLIENT, attributes=attributes)

        def after(context: SendContext) -> None:
            if context.error is not None:
                self._failed(span, context.error)
            elif context.result is not None:
                span.set_attribute("messaging.rocketmq.send_result", context.result.status.name)
                span.set_attribute("messaging.rocketmq.queue_offset", context.result.queue_offset)
            span.end()

        return after

    def on_consume(self, call: HandlerCall) -> Callable[[HandlerCall], None]:
        """Create a span for a call of a handler, which is the current span during the call; a consume hook."""
        topic = call.messages[0].topic
        attributes = _about("process", topic) | {
            "messaging.consumer.group.name": call.group,
            "messaging.destination.partition.id": _partition(call.queue.broker_name, call.queue.queue_id),
        }
        contexts = [self._propagator.extract(message.properties) for message in call.messages]
        parent, links = None, []
        if len(contexts) == 1:
            parent = contexts[0]
            attributes |= _of_one(call.messages[0], call.messages[0].msg_id, *body_sizes(call.messages[:1]))
            attributes |= {"messaging.rocketmq.message.delivery_attempt": call.messages[0].reconsume_times + 1}
        else:
            attributes |= {"messaging.batch.message_count": len(contexts)}
            origins = [self._trace.get_current_span(context).get_span_context() for context in contexts]
            links = [self._trace.Link(origin) for origin in origins if origin.is_valid]
        span = self._tracer.start_span(
            f"process {topic}", parent, kind=self._trace.SpanKind.CONSUMER, attributes=attributes, links=links
        )
        token = self._context.attach(self._trace.set_span_in_context(span, parent))
        mark = object()
        _here.set(mark)

        def after(call: HandlerCall) -> None:
            if _here.get() is mark:  # a message of an iteration may end in another task than it began in
                self._context.detach(token)
            outcome = call.outcome.name if call.outcome is not None else "FAILED"
            span.set_attribute("messaging.rocketmq.consume_result", outcome)
            if call.error is not None:
                self._failed(span, call.error)
            elif not call.success and call.result is not ConsumeResult.ROLLBACK:
                span.set_status(self._trace.Status(self._trace.StatusCode.ERROR, outcome))
            span.end()

        return after

    def on_end_transaction(self, context: EndTransactionContext) -> Callable[[EndTransactionContext], None]:
        """Create a span for a transaction's end, after a check below the message's own; an end-of-transaction hook."""
        message = context.message
        parent = self._propagator.extract(message.properties) if isinstance(message, MessageExt) else None
        span = self._tracer.start_span(
            f"settle {message.topic}",
            parent,
            kind=self._trace.SpanKind.CLIENT,
            attributes=_about("settle", message.topic)
            | {
                "messaging.client.group": context.group,
                "messaging.message.id": context.msg_id,
                "messaging.rocketmq.transaction_state": context.state.name,
                "messaging.rocketmq.from_check": context.from_check,
            },
        )
        return lambda _: span.end()

    def _failed(self, span: Any, error: BaseException) -> None:
        span.record_exception(error)
        span.set_attribute("error.type", type(error).__qualname__)
        span.set_status(self._trace.Status(self._trace.StatusCode.ERROR, str(error)))


def _about(operation: str, topic: str) -> dict[str, Any]:
    return {
        "messaging.system": SYSTEM,
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
        "messaging.destination.name": topic,
    }


def _of_one(message: Message | MessageExt, unique_key: str, body_bytes: int) -> dict[str, Any]:
    found: dict[str, Any] = {"messaging.message.id": unique_key, "messaging.message.body.size": body_bytes}
    if message.tags:
        found["messaging.rocketmq.message.tag"] = message.tags
    keys: Sequence[str] = (message.key_text() if isinstance(message, Message) else message.keys).split()
    if keys:
        found["messaging.rocketmq.message.keys"] = list(keys)
    if message.delay_level:
        found["messaging.rocketmq.message.delay_time_level"] = message.delay_level
    return found


def _partition(broker_name: str, queue_id: int) -> str:
    return f"{broker_name}:{queue_id}"
