"""Failures that are retried, and the time limit of retries."""

import pytest

from tianzhou.client.retry import SendRetries, needs_heartbeat, pull_delay_ms
from tianzhou.errors import BrokerError, ClientError, ConnectFailed, ProtocolError, RequestTimeout


@pytest.mark.parametrize("code", [17, 14, 1, 2, 16, 204, 205, 1500])
def test_answers_another_broker_may_not_give(code):
    assert SendRetries().should_retry(BrokerError(code, "no"))


@pytest.mark.parametrize("code", [13, 29, 3, 26])
def test_answers_that_all_brokers_would_give(code):
    assert not SendRetries().should_retry(BrokerError(code, "no"))
    assert SendRetries(codes=frozenset({code})).should_retry(BrokerError(code, "no"))


def test_failures_of_the_network_are_tried_again_and_mistakes_are_not():
    assert SendRetries().should_retry(ConnectFailed("x"))
    assert SendRetries().should_retry(RequestTimeout("x"))
    assert not SendRetries().should_retry(ProtocolError("x"))
    assert not SendRetries().should_retry(ClientError("x"))


def test_attempts_share_the_time():
    policy = SendRetries(times=2)
    assert policy.timeout_of(0, 0, 3000) == 3000
    assert policy.timeout_of(1, 2000, 3000) == 1000
    assert policy.timeout_of(2, 3100, 3000) < 0


def test_an_attempt_is_cut_short_while_another_one_remains():
    policy = SendRetries(times=1, attempt_timeout_ms=500)
    assert policy.timeout_of(0, 0, 3000) == 500
    assert policy.timeout_of(1, 500, 3000) == 2500


def test_pull_loops_wait_little_under_flow_control():
    assert pull_delay_ms(BrokerError(215, "slow down")) == 20
    assert pull_delay_ms(BrokerError(1, "x")) == 1000
    assert pull_delay_ms(ConnectFailed("x")) == 1000


@pytest.mark.parametrize(("code", "expected"), [(24, True), (25, True), (27, True), (28, True), (17, False)])
def test_a_broker_that_forgot_us_gets_a_heartbeat(code, expected):
    assert needs_heartbeat(BrokerError(code, "x")) is expected
