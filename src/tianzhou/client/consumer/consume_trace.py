"""Notes of what a consumer gets, in the trace topic (client.md §20)."""

from __future__ import annotations

from tianzhou.client.consumer.options import ConsumerOptions
from tianzhou.client.instance import ClientInstance
from tianzhou.client.producer.producer_base import trace_dispatcher
from tianzhou.client.tracing.trace import TraceDispatcher


def consume_trace(instance: ClientInstance, group: str, options: ConsumerOptions) -> TraceDispatcher | None:
    """What notes a consumer's messages; None unless that is wanted."""
    return trace_dispatcher(instance, group, "CONSUME", options.tracing) if options.trace else None
