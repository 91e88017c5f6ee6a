"""Token buckets: the burst is exact, the rate holds, and no order of requests gets more tokens than available."""

from __future__ import annotations

from copy import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tianzhou.token_bucket import TokenBucket

RATES = (10, 100, 500, 5_000, 100_000)
STARTS_S = (0.0, 1e6 + 1 / 3)


def granted(bucket: TokenBucket, amount: float, now_s: float) -> bool:
    """Take tokens if enough are available; return whether they were."""
    if bucket.wait_s(amount, now_s):
        return False
    bucket.take(amount)
    return True


@pytest.mark.parametrize("start_s", STARTS_S)
@pytest.mark.parametrize("rate", RATES)
def test_the_burst_is_exact(rate: int, start_s: float) -> None:
    for burst in (1, 7, 1_000, 2 * rate):
        bucket = TokenBucket(rate, burst, start_s)
        assert sum(granted(bucket, 1, start_s) for _ in range(burst + 50)) == burst
        # After a long time without requests the bucket is full again, and not more.
        assert sum(granted(bucket, 1, start_s + 3_600) for _ in range(burst + 50)) == burst


@pytest.mark.parametrize("start_s", STARTS_S)
@pytest.mark.parametrize("step_s", [0.001, 1 / 3_000, 0.07])
@pytest.mark.parametrize("rate", RATES[:-1])
def test_the_rate_holds_within_two_percent_over_ten_seconds(rate: int, step_s: float, start_s: float) -> None:
    bucket, burst = TokenBucket(rate, rate, start_s), rate
    assert sum(granted(bucket, 1, start_s) for _ in range(burst)) == burst
    offered_per_step = int(3 * rate * step_s) + 2
    steps = round(10 / step_s)
    count = 0
    for step in range(1, steps + 1):
        for _ in range(offered_per_step):
            if not granted(bucket, 1, start_s + step * step_s):
                break
            count += 1
    assert count == pytest.approx(10 * rate, rel=0.02)
    assert count <= steps * step_s * rate + 1


def test_a_rate_of_a_hundred_thousand_holds() -> None:
    bucket, count = TokenBucket(100_000, 1_000, 5.0), 0
    for step in range(1, 10_001):
        while granted(bucket, 1, 5.0 + step / 1_000):
            count += 1
    assert count == pytest.approx(1_000_000 + 900, rel=0.001)


def test_a_bucket_owes_what_a_large_request_takes() -> None:
    bucket = TokenBucket(10, 5, 0.0)
    assert granted(bucket, 32, 0.0)
    assert bucket.wait_s(1, 0.0) == pytest.approx(2.8)
    assert not granted(bucket, 32, 3.1)  # not full before the debt is paid and 5 tokens are available
    assert granted(bucket, 32, 3.2)


def test_a_change_keeps_the_tokens_and_cuts_them_to_the_new_burst() -> None:
    bucket = TokenBucket(10, 100, 0.0)
    bucket.take(60)
    bucket.change(1, 10, 1.0)
    assert sum(granted(bucket, 1, 1.0) for _ in range(50)) == 10
    bucket.change(5, 1_000, 1.0)
    assert sum(granted(bucket, 1, 3.0) for _ in range(50)) == 10


def test_an_earlier_time_gives_no_tokens() -> None:
    bucket = TokenBucket(10, 1, 100.0)
    assert granted(bucket, 1, 100.0)
    assert not granted(bucket, 1, 50.0)
    assert not granted(bucket, 1, 100.05)
    assert granted(bucket, 1, 100.1)


@given(
    rate=st.floats(0.5, 1e5),
    burst=st.integers(1, 10_000),
    requests=st.lists(st.tuples(st.floats(0, 2), st.integers(1, 100)), max_size=60),
)
def test_no_requests_get_more_than_rate_and_burst_allow(
    rate: float, burst: int, requests: list[tuple[float, int]]
) -> None:
    bucket, now_s, taken = TokenBucket(rate, burst, 0.0), 0.0, 0
    for pause_s, amount in requests:
        now_s += pause_s
        wait_s = bucket.wait_s(amount, now_s)
        if wait_s:
            now_s += wait_s
            assert bucket.wait_s(amount, now_s) <= 1e-6, "the wait that it names is long enough"
        bucket.take(amount)
        taken += amount
        # A request above the burst is granted in advance.
        assert taken <= burst + rate * now_s + max(amount - burst, 0) + 1e-3 * rate
        assert copy(bucket).is_full(now_s + (taken + 1) / rate + 1)


@given(st.lists(st.integers(1, 50), max_size=30))
def test_reserved_tokens_are_served_in_order(amounts: list[int]) -> None:
    bucket, waits = TokenBucket(10, 20, 0.0), []
    for amount in amounts:
        waits.append(bucket.wait_s(amount, 0.0))
        bucket.take(amount)
    single = [wait for wait, amount in zip(waits, amounts, strict=True) if amount == 1]
    assert single == sorted(single)
    for amount in amounts:
        bucket.put_back(amount)
    assert bucket.is_full(0.0)
