"""The figures of running info: the last minute, and failures of the last hour."""

import pytest

from tianzhou.client.consumer.push.consume_rates import ConsumeRates


def test_a_steady_consumer():
    rates = ConsumeRates(0.0)
    of_topic = rates.of("T")
    for second in range(0, 200, 5):
        rates.sample(float(second))
        of_topic.pulls += 5
        of_topic.pull_ms += 5 * 20
        of_topic.pulled += 50
        of_topic.calls += 50
        of_topic.call_ms += 50 * 3
        of_topic.consumed += 45
        of_topic.failed += 5
    status = rates.status("T", 200.0)
    assert status.pull_tps == pytest.approx(10, rel=0.1)
    assert status.pull_rt == pytest.approx(20)
    assert status.consume_rt == pytest.approx(3)
    assert status.consume_ok_tps == pytest.approx(9, rel=0.1)
    assert status.consume_failed_tps == pytest.approx(1, rel=0.1)
    assert status.consume_failed_msgs == 200
    assert (rates.consumed, rates.failed) == (1800, 200)


def test_a_consumer_that_rests_keeps_its_hour():
    rates = ConsumeRates(0.0)
    of_topic = rates.of("T")
    of_topic.calls, of_topic.call_ms, of_topic.consumed, of_topic.failed = 10, 70.0, 8, 2
    for second in range(0, 1800, 5):
        rates.sample(float(second))
    status = rates.status("T", 1800.0)
    assert (status.consume_ok_tps, status.consume_failed_tps, status.pull_rt) == (0.0, 0.0, 0.0)
    assert (status.consume_rt, status.consume_failed_msgs) == (7.0, 2)
    for second in range(1800, 7200, 5):
        rates.sample(float(second))
    assert rates.status("T", 7200.0).consume_failed_msgs == 0


def test_the_first_moments_do_not_exaggerate():
    rates = ConsumeRates(5.0)
    rates.of("T").consumed += 3
    assert rates.status("T", 5.01).consume_ok_tps == 3.0
