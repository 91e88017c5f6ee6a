"""Choice of the broker with the lowest mean reply time, and retries of a slow one."""

from __future__ import annotations

from tianzhou.client.producer.answer_times import FAILURE_MS, REMEASURE_MS, AnswerTimes
from tianzhou.client.producer.latency_faults import LatencyFaults
from tianzhou.client.producer.selector import RoundRobin
from tianzhou.model import MessageQueue

QUEUES = [MessageQueue("T", broker, number) for broker in ("a", "b", "c") for number in range(2)]


def measured(**latencies_ms: float) -> AnswerTimes:
    times = AnswerTimes()
    for broker, latency_ms in latencies_ms.items():
        times.choose([broker], 0)
        times.record(broker, latency_ms, 1)
    return times


def test_every_broker_is_measured_first_and_then_the_fastest_is_chosen() -> None:
    times = AnswerTimes()
    assert [times.choose("abc", 0) for _ in range(3)] == ["a", "b", "c"]
    for broker, latency_ms in (("a", 30), ("b", 5), ("c", 80)):
        times.record(broker, latency_ms, 1)
    assert {times.choose("abc", 2) for _ in range(10)} == {"b"}
    assert times.choose("ac", 2) == "a"


def test_the_mean_follows_answers_and_not_a_single_one() -> None:
    times = measured(a=10, b=12)
    times.record("a", 18, 2)
    assert times.mean_ms("a") == 0.8 * 10 + 0.2 * 18
    assert times.choose("ab", 3) == "a"
    for at in range(3, 20):
        times.record("a", 18, at)
    assert times.choose("ab", 20) == "b"
    assert times.mean_ms("nobody") is None


def test_a_broker_that_refuses_quickly_is_not_the_fastest() -> None:
    times = measured(a=1, b=200)
    times.record("a", 1, 2, failed=True)
    assert times.mean_ms("a") == FAILURE_MS
    assert times.choose("ab", 3) == "b"
    times.record("a", 2, 4)
    assert times.mean_ms("a") == 2  # the failure is over


def test_a_slow_broker_is_measured_again_by_one_send() -> None:
    times = measured(a=10, b=500)
    chosen = []
    for at in range(0, 3 * REMEASURE_MS, 500):
        chosen.append(times.choose("ab", at))
        times.record(chosen[-1], 10 if chosen[-1] == "a" else 500, at + 1)
    assert chosen.count("b") == 2
    at = 10 * REMEASURE_MS
    assert [times.choose("ab", at + step) for step in range(3)] == ["a", "b", "a"]  # b has not answered yet
    times.record("b", 3, at + 3)
    times.record("a", 10, at + 3)
    assert times.choose("ab", at + 4) == "b"


def test_queues_of_the_fastest_broker_take_turns() -> None:
    times, turn = measured(a=30, b=5, c=80), RoundRobin(0)
    chosen = [turn.choose(QUEUES, None, None, 10, times) for _ in range(6)]
    assert {queue.broker_name for queue in chosen} == {"b"}
    assert [queue.queue_id for queue in chosen] in ([0, 1] * 3, [1, 0] * 3)


def test_a_broker_that_has_just_failed_or_is_avoided_is_left_out() -> None:
    times, turn, faults = measured(a=30, b=5, c=80), RoundRobin(0), LatencyFaults()
    assert turn.choose(QUEUES, "b", None, 10, times).broker_name == "a"
    faults.record("b", 600, 10)
    faults.record("a", 600, 10)
    assert turn.choose(QUEUES, None, faults, 11, times).broker_name == "c"
