"""Number of consumers for a load: cases computed by hand, too few queues, and the limits of figures."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tianzhou.bench.consumer_capacity import (
    CLIENT_RATES,
    MAX_CONCURRENCY,
    ConsumerLoad,
    MemberWorkers,
    Way,
    plan_consumers,
    way,
)
from tianzhou.errors import ConfigError

BOOKS = ConsumerLoad(peak=5000, cpu_ms=2, io_ms=18, cores=8, headroom=0)


def test_processes_have_all_cores_of_a_node() -> None:
    # 8 x 20 / 2 = 80 at a time; 80 / 20 ms = 8 / 2 ms = 4000/s; 5000 / 4000 = 1.25
    assert way(BOOKS, MemberWorkers.processes) == Way(MemberWorkers.processes, 8, 80, 4000.0, "cpu", 2)


def test_threads_share_one_core() -> None:
    # 1 x 20 / 2 = 10 at a time; 1 / 2 ms = 500/s; 5000 / 500 = 10
    assert way(BOOKS, MemberWorkers.threads) == Way(MemberWorkers.threads, 1, 10, 500.0, "cpu", 10)


def test_the_kind_that_needs_fewer_nodes_is_chosen_and_threads_when_both_need_the_same() -> None:
    assert plan_consumers(BOOKS).chosen.workers is MemberWorkers.processes
    assert plan_consumers(replace(BOOKS, peak=400)).chosen.workers is MemberWorkers.threads
    assert plan_consumers(replace(BOOKS, cores=1)).chosen.workers is MemberWorkers.threads


@pytest.mark.parametrize(("peak", "headroom", "nodes"), [(4000, 0, 1), (4001, 0, 2), (4000, 0.5, 2), (4000, 0.4, 2)])
def test_nodes_are_rounded_up_with_the_headroom_left_free(peak: float, headroom: float, nodes: int) -> None:
    assert way(replace(BOOKS, peak=peak, headroom=headroom), MemberWorkers.processes).nodes == nodes


def test_a_handler_that_only_waits_is_bound_by_the_number_of_handlers() -> None:
    # 1000 in parallel, 2 s each: 500/s, for any number of cores.
    found = plan_consumers(ConsumerLoad(peak=400, cpu_ms=0.1, io_ms=1999.9, cores=8, headroom=0))
    assert (found.chosen.concurrency, found.chosen.bound_by) == (MAX_CONCURRENCY, "concurrency")
    assert found.chosen.rate == pytest.approx(500)
    assert any("leave cores idle" in text for text in found.warnings)


def test_a_quick_handler_is_bound_by_the_clients_own_work() -> None:
    found = plan_consumers(ConsumerLoad(peak=50_000, cpu_ms=0.01, io_ms=0, cores=8, headroom=0))
    assert (found.chosen.bound_by, found.chosen.rate) == ("client", CLIENT_RATES[MemberWorkers.threads])
    assert any("async def" in text for text in found.warnings)


def test_members_without_a_queue_are_counted() -> None:
    found = plan_consumers(replace(BOOKS, peak=20_000, queues=3))
    assert (found.chosen.nodes, found.queues, found.idle_members) == (5, 5, 2)
    assert any("5 members share 3 queues, and 2 of them would get none" in text for text in found.warnings)


def test_queues_that_are_no_multiple_of_the_members_overload_one() -> None:
    found = plan_consumers(replace(BOOKS, peak=8000, queues=3))
    # One member gets two of three queues: 8000 x 2/3 = 5333/s, but it can process 4000.
    assert (found.chosen.nodes, found.idle_members, round(found.busiest_rate)) == (2, 0, 5333)
    assert any("give the topic 4 queues" in text for text in found.warnings)
    assert not any("multiple" in text for text in plan_consumers(replace(BOOKS, peak=8000, queues=4)).warnings)


def test_many_processes_are_compared_with_several_members_of_threads() -> None:
    (text,) = (one for one in plan_consumers(BOOKS).warnings if "processes" in one)
    assert "8 members on a node with 10 threads each" in text
    assert "need 16 queues" in text


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"peak": 0}, "peak=0"),
        ({"cpu_ms": 0}, "cpu_ms=0"),
        ({"io_ms": -1}, "io_ms=-1"),
        ({"cores": 0}, "cores=0"),
        ({"headroom": 1}, "headroom=1"),
        ({"cpu_ms": float("nan")}, "cpu_ms=nan"),
    ],
)
def test_values_that_cannot_be_are_refused_by_name(change: dict[str, float], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        replace(BOOKS, **change)  # type: ignore[arg-type]


def test_more_than_ten_thousand_nodes_are_not_planned() -> None:
    with pytest.raises(ConfigError, match="more than 10000"):
        plan_consumers(replace(BOOKS, peak=1e9))


@given(
    peak=st.floats(1, 1e5),
    cpu_ms=st.floats(0.1, 100),
    io_ms=st.floats(0, 1000),
    cores=st.integers(1, 64),
    headroom=st.floats(0, 0.9),
)
def test_the_nodes_take_the_peak_and_one_less_would_not(
    peak: float, cpu_ms: float, io_ms: float, cores: int, headroom: float
) -> None:
    load = ConsumerLoad(peak=peak, cpu_ms=cpu_ms, io_ms=io_ms, cores=cores, headroom=headroom)
    for workers in MemberWorkers:
        found = way(load, workers)
        free = found.rate * (1 - headroom)
        assert found.nodes * free >= peak * (1 - 1e-6)
        assert found.nodes == 1 or (found.nodes - 1) * free < peak
        assert found.rate <= min(found.concurrency / load.wall_ms, found.cores / cpu_ms) * 1000 * (1 + 1e-9)
