"""Choosing queues: taking turns, leaving failed brokers alone, keeping keys together."""

import random

import pytest

from tianzhou.client.producer.latency_faults import PAUSES, LatencyFaults, pause_ms
from tianzhou.client.producer.selector import RoundRobin, choose_queue, select_at_random, select_by_hash
from tianzhou.errors import ClientError
from tianzhou.model import Message, MessageQueue

QUEUES = [MessageQueue("T", broker, i) for broker in ("a", "b") for i in range(2)]


def test_queues_take_turns():
    turn = RoundRobin(6)
    assert [turn.choose(QUEUES) for _ in range(5)] == [QUEUES[2], QUEUES[3], QUEUES[0], QUEUES[1], QUEUES[2]]


def test_a_broker_that_has_just_failed_is_left_out():
    turn = RoundRobin(0)
    assert {turn.choose(QUEUES, "a").broker_name for _ in range(8)} == {"b"}


def test_the_only_broker_is_tried_again():
    assert RoundRobin(0).choose(QUEUES[:2], "a").broker_name == "a"


def test_without_a_queue_nothing_can_be_sent():
    with pytest.raises(ClientError, match="no writable queue"):
        RoundRobin(0).choose([])


@pytest.mark.parametrize(
    ("latency_ms", "expected_ms"),
    [(0, 0), (50, 0), (549, 0), (550, 2000), (1799, 2000), (1800, 5000), (3000, 6000), (5000, 10000), (15000, 30000)],
)
def test_the_slower_the_longer_it_is_avoided(latency_ms, expected_ms):
    assert pause_ms(latency_ms) == expected_ms


@pytest.mark.parametrize(
    ("latency_ms", "expected_ms"),
    [(549, 0), (550, 30_000), (1000, 60_000), (2000, 120_000), (3000, 180_000), (15_000, 600_000)],
)
def test_pauses_of_clients_of_4x_are_longer(latency_ms, expected_ms):
    assert PAUSES["4.x"].after(latency_ms) == expected_ms
    faults = LatencyFaults(pauses=PAUSES["4.x"])
    faults.record("a", latency_ms, now_ms=0)
    assert faults.is_available("a", expected_ms)
    assert not expected_ms or not faults.is_available("a", expected_ms - 1)
    faults.record("b", 1, now_ms=0, isolate=True)
    assert not faults.is_available("b", 599_999)


def test_a_slow_broker_is_avoided_until_its_pause_is_over():
    faults = LatencyFaults()
    faults.record("a", 600, now_ms=1000)
    turn = RoundRobin(0)
    assert {turn.choose(QUEUES, None, faults, 1500).broker_name for _ in range(8)} == {"b"}
    assert {turn.choose(QUEUES, None, faults, 3000).broker_name for _ in range(8)} == {"a", "b"}


def test_a_failed_broker_is_avoided_for_ten_seconds_even_after_a_quick_success():
    faults = LatencyFaults()
    faults.record("a", 1, now_ms=0, isolate=True, reachable=False)
    assert not faults.is_available("a", 9_999)
    assert not faults.is_reachable("a")
    faults.record("a", 1, now_ms=100)
    assert faults.is_reachable("a")
    assert not faults.is_available("a", 9_999)
    assert faults.is_available("a", 10_000)


def test_when_all_are_slow_a_reachable_one_is_taken():
    faults = LatencyFaults()
    faults.record("a", 1, now_ms=0, isolate=True, reachable=False)
    faults.record("b", 700, now_ms=0)
    assert {RoundRobin(i).choose(QUEUES, None, faults, 1).broker_name for i in range(4)} == {"b"}


def test_switched_off_nothing_is_remembered():
    faults = LatencyFaults(enabled=False)
    faults.record("a", 9_000, now_ms=0, isolate=True)
    assert faults.is_available("a", 1)


MESSAGE = Message("T", b"x")


@pytest.mark.parametrize(
    ("key", "index"),
    # Java's hashCode of "order-1" is -1207111310, so the remainder is negative. That of "0" is 48. That of a long is
    # the exclusive or of its halves.
    [("order-1", 2), ("0", 0), ("1", 1), (7, 3), (-7, 3), (2**32 + 5, 0)],
)
def test_keys_go_where_java_sends_them(key, index):
    assert select_by_hash(QUEUES, MESSAGE, key) == QUEUES[index]


def test_the_sharding_key_is_used_by_default():
    assert select_by_hash(QUEUES, Message("T", b"x", sharding_key="1"), None) == QUEUES[1]
    with pytest.raises(ClientError, match="needs a key"):
        select_by_hash(QUEUES, MESSAGE, None)


def test_at_random_every_queue_is_met():
    select = select_at_random(random.Random(1))
    assert {select(QUEUES, MESSAGE, None) for _ in range(100)} == set(QUEUES)


@pytest.mark.parametrize("error", [SystemExit(3), GeneratorExit()])
def test_a_selector_that_exits_has_failed(error):
    def select(queues, message, key):
        raise error

    with pytest.raises(ClientError, match=f"queue selector failed.*{type(error).__name__}"):
        choose_queue(QUEUES, Message("T", b""), select, None)
