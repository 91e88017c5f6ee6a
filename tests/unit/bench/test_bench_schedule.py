"""Due times of messages: they follow the rate, independent of the replies."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tianzhou.bench.schedule import Tickets


def all_of(tickets: Tickets, now_s: float = 0.0) -> list[float]:
    found = []
    while (due := tickets.next(now_s)) is not None:
        found.append(due)
        assert len(found) < 100_000
    return found


def test_times_follow_from_the_rate_and_not_from_the_clock() -> None:
    tickets = Tickets(100.0, rate=10, seconds=0.5)
    # Asked early, late and very late: a server that stalls for a second does not move the due times.
    assert [tickets.next(now) for now in (99.0, 100.0, 105.0)] == [100.0, 100.1, 100.2]
    assert all_of(tickets, 200.0) == pytest.approx([100.3, 100.4])


@settings(deadline=None)
@given(
    rate=st.integers(1, 2_000),
    processes=st.integers(1, 7),
    seconds=st.floats(0.01, 3),
    warm_up=st.integers(0, 2),
)
def test_processes_share_the_times_of_one(rate: int, processes: int, seconds: float, warm_up: int) -> None:
    alone = all_of(Tickets(5.0, rate=rate, seconds=seconds, warm_up_s=warm_up))
    shared = [
        due
        for share in range(processes)
        for due in all_of(Tickets(5.0, rate=rate, seconds=seconds, warm_up_s=warm_up, share=share, of=processes))
    ]
    assert sorted(shared) == alone
    assert len(alone) == pytest.approx(rate * (seconds + warm_up), abs=1)


@settings(deadline=None)
@given(count=st.integers(0, 500), processes=st.integers(1, 7), warm_up=st.integers(0, 2), rate=st.sampled_from([0, 37]))
def test_the_count_is_of_what_is_measured(count: int, processes: int, warm_up: int, rate: float) -> None:
    measured = 0
    for share in range(processes):
        tickets = Tickets(0.0, rate=rate, warm_up_s=warm_up, count=count, share=share, of=processes)
        now_s = 0.0
        while (due := tickets.next(now_s)) is not None:
            measured += due >= warm_up
            now_s += 0.25
    assert measured == count


def test_without_a_rate_everything_is_due_now_until_the_time_is_over() -> None:
    tickets = Tickets(10.0, seconds=2, warm_up_s=1)
    assert [tickets.next(now) for now in (10.0, 12.999, 13.0)] == [10.0, 12.999, None]


def test_without_limits_it_ends_when_it_is_closed() -> None:
    tickets = Tickets(0.0)
    assert tickets.next(1e9) == 1e9
    tickets.closed = True
    assert tickets.next(1e9) is None
