"""Decisions about sends: rates with one and with many producers, several limits at once, and bounded memory."""

from __future__ import annotations

import pytest

from tianzhou.broker.send_limits.limiter import SendLimiter
from tianzhou.broker.send_limits.table import SendLimitTable
from tianzhou.limits import Bounds
from tianzhou.model.send_limit import LimitScope, limit_of

TOPIC, GROUP, CLIENT = LimitScope


class Few:
    """Settings with small limits."""

    max_send_limits = 3
    max_send_buckets = 5


def limiter(*limits: tuple[object, ...], bounds: Bounds | None = None) -> tuple[SendLimiter, SendLimitTable]:
    """Return a limiter with limits, each as the arguments of `limit_of`."""
    table = SendLimitTable()
    table.put([limit_of(*one) for one in limits])  # type: ignore[arg-type]
    return SendLimiter(table, lambda topic: topic == "SYSTEM", bounds), table


def sends(
    limits: SendLimiter,
    times: int,
    now_s: float = 0.0,
    *,
    topic: str = "orders",
    group: str = "shop",
    address: str = "10.0.0.1",
    account: str = "",
    count: int = 1,
    size: int = 100,
) -> int:
    """Return the number of granted sends."""
    results = [limits.refusal(topic, group, address, account, count, size, now_s) for _ in range(times)]
    return sum(one is None for one in results)


@pytest.mark.parametrize("producers", [1, 100])
@pytest.mark.parametrize("rate", [10, 500, 2_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_a_rate_holds_with_any_number_of_producers(rate: int, producers: int) -> None:
    burst = max(rate // 5, 1)
    limits, _ = limiter((TOPIC, "orders", rate, burst))
    names = [{"group": f"g{n}", "address": f"10.0.0.{n}"} for n in range(producers)]
    granted = 0
    for one in names:
        granted += sends(limits, burst // producers + 2, **one)  # type: ignore[arg-type]
    assert granted == burst
    held, step_s = 0, 0.01
    for step in range(1, 1_001):
        for offered in range(int(1.5 * rate * step_s) + 1):
            held += sends(limits, 1, step * step_s, **names[(step + offered) % producers])  # type: ignore[arg-type]
    assert held == pytest.approx(10 * rate, rel=0.02)


def test_a_refusal_names_the_limit_and_the_time_until_the_next_token() -> None:
    limits, _ = limiter((TOPIC, "orders", 500, 1_000))
    assert sends(limits, 2_000) == 1_000
    refusal = limits.refusal("orders", "shop", "10.0.0.1", "", 1, 100, 0.0)
    assert refusal is not None
    assert (refusal.buckets.key, refusal.wait_ms) == ("topic:orders", 2)
    assert "topic orders is limited to 500 messages/s (burst 1000), next token in 2 ms" in refusal.text
    assert sends(limits, 5, 0.002) == 1


def test_a_send_needs_tokens_of_every_limit_and_a_refused_one_takes_none() -> None:
    limits, _ = limiter((TOPIC, "orders", 10, 10), (GROUP, "shop", 1, 4), (CLIENT, "10.0.0.1", 1, 2))
    assert sends(limits, 10) == 2
    assert sends(limits, 10, address="10.0.0.2") == 2
    assert sends(limits, 10, group="other", address="10.0.0.2") == 6
    refusal = limits.refusal("orders", "shop", "10.0.0.1", "", 1, 1, 0.0)
    assert refusal is not None
    assert refusal.wait_ms == 1_000


def test_bytes_are_limited_beside_messages() -> None:
    limits, _ = limiter((TOPIC, "orders", 100, 100, 1_000, 2_000))
    assert sends(limits, 10, size=500) == 4
    assert sends(limits, 1, 0.4, size=500) == 0
    assert sends(limits, 1, 0.5, size=500) == 1
    refusal = limits.refusal("orders", "shop", "10.0.0.1", "", 1, 500, 0.5)
    assert refusal is not None
    assert "100 messages/s (burst 100) and 1000 bytes/s (burst 2000)" in refusal.text


def test_a_batch_counts_each_message_and_may_be_larger_than_the_burst() -> None:
    limits, _ = limiter((TOPIC, "orders", 10, 20))
    assert sends(limits, 3, count=8) == 2
    assert sends(limits, 1, 0.4, count=8) == 1
    limits, _ = limiter((TOPIC, "orders", 10, 4))
    assert sends(limits, 3, count=32) == 1
    assert sends(limits, 3, 3.1, count=32) == 0
    assert sends(limits, 3, 3.2, count=32) == 1


def test_the_default_gives_each_name_tokens_of_its_own_and_a_named_limit_replaces_it() -> None:
    limits, _ = limiter((TOPIC, "*", 2, 2), (TOPIC, "orders", 5, 5))
    assert [sends(limits, 10, topic=topic) for topic in ("a", "b", "orders")] == [2, 2, 5]
    refusal = limits.refusal("a", "shop", "10.0.0.1", "", 1, 1, 0.0)
    assert refusal is not None
    assert "topic a (limit of topic *) is limited to 2 messages/s" in refusal.text


def test_retries_dead_letters_and_topics_of_the_system_are_not_counted_by_a_default() -> None:
    limits, table = limiter((TOPIC, "*", 1, 1), (GROUP, "*", 1, 1), (CLIENT, "*", 1, 1))
    for topic in ("%RETRY%shop", "%DLQ%shop", "SYSTEM"):
        assert sends(limits, 10, topic=topic) == 10
        assert not limits.covers(topic)
    assert limits.covers("orders")
    table.put([limit_of(TOPIC, "SYSTEM", 1, 1)])
    assert limits.covers("SYSTEM")
    assert sends(limits, 10, topic="SYSTEM") == 1


def test_a_client_is_its_account_and_else_its_address() -> None:
    limits, _ = limiter((CLIENT, "alice", 3, 3), (CLIENT, "10.0.0.9", 1, 1), (CLIENT, "*", 2, 2))
    assert sends(limits, 9, account="alice") == 3
    assert sends(limits, 9, account="alice", address="10.0.0.2") == 0
    assert sends(limits, 9, address="10.0.0.9") == 1
    assert sends(limits, 9, address="10.0.0.8") == 2
    assert sends(limits, 9, account="bob", address="10.0.0.7") == 2
    assert sends(limits, 9, account="bob", address="10.0.0.6") == 0
    # One machine has all addresses of a network of 64 bits.
    assert sends(limits, 9, address="2001:db8::1") == 2
    assert sends(limits, 9, address="2001:db8::2") == 0
    assert sends(limits, 9, address="2001:db8:0:1::1") == 2


def test_a_limit_that_is_changed_keeps_its_tokens() -> None:
    limits, table = limiter((TOPIC, "orders", 10, 10), (TOPIC, "*", 10, 10))
    assert sends(limits, 8) == 8
    assert sends(limits, 8, topic="other") == 8
    table.put([limit_of(TOPIC, "orders", 1, 100), limit_of(TOPIC, "*", 1, 1)])
    assert sends(limits, 8) == 2
    assert sends(limits, 8, topic="other") == 1
    table.delete(["topic:orders"])
    assert sends(limits, 8) == 1
    table.delete(["topic:*"])
    assert not limits.covers("orders")
    assert sends(limits, 8) == 8


@pytest.mark.over_limit("maxSendBuckets")
def test_invented_names_neither_fill_the_memory_nor_escape_the_limit() -> None:
    limits, _ = limiter((GROUP, "*", 1, 2), bounds=Bounds(Few()))
    granted = sum(sends(limits, 2, group=f"g{n}") for n in range(1_000))
    assert granted == 2 * (Few.max_send_buckets + 1), "the names without a bucket share one"
    # Full buckets are removed to make space.
    assert sum(sends(limits, 3, 60.0, group=f"h{n}") for n in range(5)) == 10
