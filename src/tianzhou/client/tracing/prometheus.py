"""Prometheus: histograms of sends and of consumption in the registry of the program (docs/howto/monitoring.md).

    metrics = ClientMetrics()
    producer = Producer("shop", namesrv, send_hooks=[metrics.on_send])
    consumer = PushConsumer("billing", namesrv, consume_hooks=[metrics.on_consume])
    prometheus_client.start_http_server(8000)

Names are those of RocketMQ 5's clients. It needs the package `prometheus-client` (`pip install tianzhou[metrics]`). The
program itself exports its registry.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib import import_module
from typing import Any, Final

from tianzhou.client.hooks import HandlerCall, SendContext
from tianzhou.errors import ConfigError

MOST_SERIES: Final = 1_000
"""Maximum pairs of topic and group with their own series; further ones share the series of the topic `other`."""
_SEND_MS: Final = (1, 5, 10, 20, 50, 200, 500)
_DELIVERY_MS: Final = _SEND_MS
_PROCESS_MS: Final = (1, 5, 10, 100, 1_000, 10_000, 60_000)
_CPU_MS: Final = (0.1, 0.5, 1, 2, 5, 10, 50, 100, 1_000, 10_000)


class ClientMetrics:
    """Hooks that count messages and measure times; times are milliseconds.

    Args:
        registry: registry of the histograms; by default the package's global one. Two objects of this class cannot
            share a registry: one object serves all producers and consumers of a program.

    Raises:
        ConfigError: the package `prometheus-client` is not installed.
    """

    def __init__(self, registry: Any = None) -> None:
        try:
            library = import_module("prometheus_client")
        except ImportError as error:
            raise ConfigError(
                "ClientMetrics needs the package prometheus-client, which is not installed: pip install "
                "tianzhou[metrics]"
            ) from error
        where = {"registry": library.REGISTRY if registry is None else registry}
        self._sends = library.Histogram(
            "rocketmq_send_cost_time", "Milliseconds of an attempt to send.",
            ("topic", "producer_group", "invocation_status"), buckets=_SEND_MS, **where,
        )  # fmt: skip
        self._deliveries = library.Histogram(
            "rocketmq_delivery_latency", "Milliseconds from the store to the handler, of each message.",
            ("topic", "consumer_group"), buckets=_DELIVERY_MS, **where,
        )  # fmt: skip
        self._processing = library.Histogram(
            "rocketmq_process_time", "Milliseconds of a handler's call.",
            ("topic", "consumer_group", "invocation_status"), buckets=_PROCESS_MS, **where,
        )  # fmt: skip
        self._cpu = library.Histogram(
            "tianzhou_client_handler_cpu_time", "Milliseconds of a processor in a handler's call.",
            ("topic", "consumer_group"), buckets=_CPU_MS, **where,
        )  # fmt: skip
        self._consumed = library.Counter(
            "tianzhou_client_consumed_messages", "Messages that handlers were called with.",
            ("topic", "consumer_group", "invocation_status"), **where,
        )  # fmt: skip
        self._known: set[tuple[str, str]] = set()

    def on_send(self, context: SendContext) -> Callable[[SendContext], None]:
        """Observe the time and the outcome of an attempt; a send hook."""
        began = time.monotonic()

        def after(context: SendContext) -> None:
            status = "success" if context.error is None else "failure"
            place = self._place(context.queue.topic, context.group)
            self._sends.labels(*place, status).observe((time.monotonic() - began) * 1000)

        return after

    def on_consume(self, call: HandlerCall) -> Callable[[HandlerCall], None]:
        """Observe the messages' latency, and the handler's duration, processor time and outcome; a consume hook."""
        place, now_ms = self._place(call.queue.topic, call.group), time.time() * 1000
        for message in call.messages:
            self._deliveries.labels(*place).observe(max(now_ms - message.store_timestamp, 0))
        began = time.monotonic()

        def after(call: HandlerCall) -> None:
            status = "success" if call.success else "failure"
            self._processing.labels(*place, status).observe((time.monotonic() - began) * 1000)
            if call.cpu_s is not None:
                self._cpu.labels(*place).observe(call.cpu_s * 1000)
            self._consumed.labels(*place, status).inc(len(call.messages))

        return after

    def _place(self, topic: str, group: str) -> tuple[str, str]:
        place = topic, group
        if place not in self._known:
            if len(self._known) >= MOST_SERIES:
                return "other", "other"
            self._known.add(place)
        return place
