"""`maxMessagesPerSecond` on a virtual clock: messages stored in any second, for any brokers and tasks."""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tianzhou.spark.sink.send_rate import SinkSendRate

MOST = 512
ROUNDING = 1e-9


def most_in_a_second(stored: list[float]) -> int:
    """Return the maximum number of messages in [t, t + 1) for any t."""
    stored = sorted(stored)
    return max((bisect_left(stored, at + 1 - ROUNDING) - n for n, at in enumerate(stored)), default=0)


class World:
    """A clock, and the store times of a broker: each between sending and acknowledgement."""

    def __init__(self) -> None:
        self.now = 0.0
        self.stored: list[float] = []

    def task(
        self,
        per_second: int,
        rows: int,
        latencies: Iterator[float],
        moments: Iterator[float],
        pauses: Iterator[float] | None = None,
    ) -> None:
        """Run one task: `latencies` of its slices, `moments` (0 to 1) of storing within them, `pauses` before
        rows come.
        """
        rate = SinkSendRate(per_second, MOST)
        while rows:
            self.now += next(pauses) if pauses is not None else 0
            messages = min(rows, rate.slice)
            self._wait(rate.wait_s)
            began, took = self.now, next(latencies)
            self.stored += [began + took * next(moments) for _ in range(messages)]
            self.now += took
            rate.sent(messages, began, self.now)
            rows -= messages
        self._wait(rate.rest_s)

    def _wait(self, left_s: Callable[[float], float]) -> None:
        for _ in range(9):
            self.now += left_s(self.now)
        assert left_s(self.now) == 0


LATENCIES = st.sampled_from([0.0, 0.001, 0.02, 0.1, 0.3, 1.0, 2.5])
MOMENTS = st.sampled_from([0.0, 0.3, 1.0])
PAUSES = st.sampled_from([0.0, 0.0, 0.05, 2.0])


@given(
    st.sampled_from([1, 2, 9, 10, 19, 40, 45]),
    st.lists(st.integers(0, 60), min_size=1, max_size=5),
    st.lists(st.tuples(LATENCIES, MOMENTS, PAUSES), min_size=1, max_size=40),
)
def test_no_second_has_more_than_the_rate_and_a_slice(
    per_second: int, tasks: list[int], drawn: list[tuple[float, float, float]]
) -> None:
    world = World()
    latencies, moments, pauses = (itertools.cycle([part[index] for part in drawn]) for index in range(3))
    for rows in tasks:
        world.task(per_second, rows, latencies, moments, pauses)
    assert len(world.stored) == sum(tasks)
    assert most_in_a_second(world.stored) <= per_second + max(1, per_second // 10)


def test_a_late_acknowledgement_is_not_followed_by_a_burst() -> None:
    """The first slice is stored as late as possible, all others at the time of sending."""
    world = World()
    world.task(40, 120, itertools.chain([0.9], itertools.repeat(0.0)), itertools.repeat(1.0))
    assert most_in_a_second(world.stored) <= 44


def test_nor_is_the_last_one_of_a_task() -> None:
    world = World()
    for last in (0.8, 0.001, 0.001):
        world.task(40, 40, itertools.chain(itertools.repeat(0.001, 9), [last]), itertools.repeat(1.0))
    assert most_in_a_second(world.stored) <= 44


@pytest.mark.parametrize("took", [0.001, 0.02, 0.099])
@pytest.mark.parametrize("per_second", [10, 40, 1000])
def test_it_is_hardly_slower_than_the_rate_while_answers_come_in_a_tenth(per_second: int, took: float) -> None:
    world = World()
    world.task(per_second, 5 * per_second, itertools.repeat(took), itertools.repeat(1.0))
    assert 5 <= world.now + ROUNDING <= 5.1 + took


def test_slices_are_even_and_no_longer_than_allowed() -> None:
    assert [SinkSendRate(rate, MOST).slice for rate in (1, 9, 10, 40, 1000, 100_000)] == [1, 1, 1, 4, 100, MOST]
    world = World()
    world.task(40, 40, itertools.repeat(0.0), itertools.repeat(0.0))
    times = sorted(set(world.stored))
    assert [round(b - a, 6) for a, b in itertools.pairwise(times)] == [0.1] * 9


def test_a_task_without_rows_waits_for_nothing() -> None:
    rate = SinkSendRate(10, MOST)
    assert (rate.wait_s(5.0), rate.rest_s(5.0)) == (0, 0)
