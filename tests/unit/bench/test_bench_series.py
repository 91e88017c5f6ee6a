"""Figures of a run: by the second, summed over processes, without the warm-up."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from property_examples import costly
from tianzhou.bench.series import DIGITS, LONGEST_US, Gathering, RunSeries, Slice


def test_messages_belong_to_the_second_in_which_they_were_done() -> None:
    gathering = Gathering(100.0)
    gathering.timed(100.2, 0.001, 10)
    gathering.timed(100.9, 0.001, 10)
    gathering.timed(101.0, 0.0025, 10, 3)
    gathering.add(101.5, 7)
    gathering.fail(101.6, "code 2: busy", 2)
    assert gathering.take() == [
        Slice(0, 2, 20, {1000: 2}),
        Slice(1, 4, 17, {2500: 3}, {"code 2: busy": 2}),
    ]
    assert gathering.take() == []
    gathering.timed(101.7, 0.001, 10)
    assert gathering.take() == [Slice(1, 1, 10, {1000: 1})]
    assert (gathering.messages, gathering.last_s) == (7, 101.7)


def test_slices_do_not_share_what_they_count() -> None:
    gathering = Gathering(0.0)
    gathering.timed(0.5, 0.001, 1)
    gathering.timed(1.5, 0.002, 1)
    first, second = gathering.take()
    assert (first.latencies, second.latencies) == ({1000: 1}, {2000: 1})


def test_the_warm_up_is_shown_and_not_in_the_figures() -> None:
    series = RunSeries(1)
    series.add([Slice(0, 5, 50, {90_000: 5}, {"x": 1}), Slice(1, 2, 20, {1_000: 2})])
    series.add([Slice(1, 1, 10, {3_000: 1}), Slice(2, 1, 10, {1_000: 1}, {"y": 1})])
    figures = series.figures(3.0)
    assert (figures["messages"], figures["bytes"], figures["errors"], figures["seconds"]) == (4, 40, 1, 2.0)
    assert figures["messages_per_second"] == 2.0
    assert figures["latency_ms"]["max"] == pytest.approx(3, rel=0.001)
    assert series.errors == {"y": 1}
    assert series.seen == 9
    assert [(one.second, one.warm_up, one.messages) for one in series.seconds()] == [
        (0, True, 5),
        (1, False, 3),
        (2, False, 1),
    ]


def test_a_second_is_shown_as_far_as_it_is_known_and_stays_as_it_was_settled() -> None:
    series = RunSeries(0)
    series.add([Slice(0, 1, 1, {1_000: 1})])
    early = series.at(0)
    assert early is not None
    assert early.latency_ms is not None
    assert early.latency_ms["max"] == pytest.approx(1, rel=0.001)
    series.add([Slice(0, 1, 1, {5_000: 1})])
    assert series.at(0).latency_ms["max"] == pytest.approx(5, rel=0.001)
    series.add([Slice(number, 1, 1, {1_000: 1}) for number in range(1, 6)])
    series.add([Slice(0, 1, 1, {9_000: 1})])  # very late: counts in the totals only; the second is unchanged
    assert series.at(0).latency_ms["max"] == pytest.approx(5, rel=0.001)
    assert series.at(0).messages == 3
    assert series.figures(6.0)["latency_ms"]["max"] == pytest.approx(9, rel=0.001)
    assert series.at(17) is None


def test_nothing_counted_has_no_latency_and_no_rate() -> None:
    figures = RunSeries(0).figures(0.0)
    assert (figures["messages_per_second"], figures["latency_ms"]) == (0.0, None)


def test_what_takes_longer_than_the_histogram_reaches_is_counted_as_its_end() -> None:
    series = RunSeries(0)
    series.add([Slice(0, 2, 2, {LONGEST_US * 5: 1, 0: 1})])
    assert series.figures(1.0)["latency_ms"]["max"] == pytest.approx(LONGEST_US / 1000, rel=0.001)
    assert series.total.get_total_count() == 2


@costly(0.08)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 10_000_000)), min_size=1, max_size=300), st.integers(1, 4))
def test_percentiles_are_those_of_all_values_however_they_were_added(
    values: list[tuple[int, int]], processes: int
) -> None:
    series = RunSeries(0)
    for share in range(processes):
        gathering = Gathering(0.0)
        for second, taken_us in values[share::processes]:
            gathering.timed(second + 0.5, (taken_us + 0.5) / 1e6, 1)
        series.add(gathering.take())
    ordered = sorted(taken_us for _, taken_us in values)
    found = series.figures(6.0)["latency_ms"]
    for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99)):
        # The histogram rounds the rank like its library, so it may return a neighbour.
        at = share * len(ordered)
        low, high = ordered[max(int(at) - 1, 0)], ordered[min(int(at) + 1, len(ordered) - 1)]
        slack = 2 * 10**-DIGITS
        assert low * (1 - slack) - 1 <= found[name] * 1000 <= high * (1 + slack) + 1
    assert found["max"] * 1000 == pytest.approx(ordered[-1], rel=0.002, abs=1)
    assert sum(one.messages for one in series.seconds()) == len(values)
