"""Histograms in a program's own registry: hook events appear on Prometheus's page."""

from __future__ import annotations

import time

import pytest

from tianzhou.client import ClientMetrics
from tianzhou.client.hooks import ConsumeOutcome, HandlerCall, MessageKind, SendContext
from tianzhou.client.tracing.prometheus import MOST_SERIES
from tianzhou.model import Message, MessageExt, MessageQueue

library = pytest.importorskip("prometheus_client")
QUEUE = MessageQueue("orders", "broker-a", 0)


def sending(topic: str = "orders", error: BaseException | None = None) -> SendContext:
    queue = MessageQueue(topic, "broker-a", 0)
    return SendContext("shop", [Message(topic, b"x")], queue, "h:1", MessageKind.NORMAL, False, 1, "U", None, error)


def test_sends_and_consumption_are_timed() -> None:
    registry = library.CollectorRegistry()
    metrics = ClientMetrics(registry)
    for error in (None, None, OSError()):
        context = sending(error=error)
        metrics.on_send(context)(context)
    stored, host = int(time.time() * 1000) - 2_000, ("127.0.0.1", 1)
    message = MessageExt("orders", b"x", 0, {}, "b", 0, 0, 0, 0, 0, host, stored, host, 0, 0, 0, 1, "id")
    call = HandlerCall("billing", [message, message], QUEUE)
    after = metrics.on_consume(call)
    call.outcome = ConsumeOutcome.SUCCESS
    after(call)

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(name, labels)

    sent = {"topic": "orders", "producer_group": "shop"}
    assert value("rocketmq_send_cost_time_count", **sent, invocation_status="success") == 2
    assert value("rocketmq_send_cost_time_count", **sent, invocation_status="failure") == 1
    consumed = {"topic": "orders", "consumer_group": "billing"}
    assert value("rocketmq_process_time_count", **consumed, invocation_status="success") == 1
    assert value("tianzhou_client_consumed_messages_total", **consumed, invocation_status="success") == 2
    assert value("rocketmq_delivery_latency_count", **consumed) == 2
    assert value("rocketmq_delivery_latency_bucket", **consumed, le="500.0") == 0


def test_topics_beyond_the_most_share_a_series() -> None:
    registry = library.CollectorRegistry()
    metrics = ClientMetrics(registry)
    for number in range(MOST_SERIES + 5):
        context = sending(f"topic-{number}")
        metrics.on_send(context)(context)
    others = {"topic": "other", "producer_group": "other", "invocation_status": "success"}
    assert registry.get_sample_value("rocketmq_send_cost_time_count", others) == 5
