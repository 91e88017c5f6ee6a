"""Distribution of a run's tests over workers: each runs once, and the spare worker gets only quick ones."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest

from sharing import LongFirst, is_spare

LONG = [f"tests/interop/test_{file}.py::test_{n}" for file in "ab" for n in range(5)]
SPARK = [f"tests/spark/test_{file}.py::test_{n}" for file in "xyz" for n in range(3)]
WAITING = [f"tests/fault/test_c.py::test_{n}" for n in range(7)]
QUICK = [f"tests/unit/test_d.py::test_{n}" for n in range(40)]
ALL = LONG + SPARK + WAITING + QUICK


class Worker:
    """A worker that runs the tests it gets, one test a step."""

    def __init__(self, name: str) -> None:
        self.gateway = SimpleNamespace(id=name)
        self.shutting_down = False
        self.todo: deque[int] = deque()
        self.ran: list[int] = []

    def send_runtest_some(self, places: list[int]) -> None:
        assert not self.shutting_down
        self.todo.extend(places)

    def shutdown(self) -> None:
        self.shutting_down = True


def shared(tests: list[str], workers: int, *, spare: bool) -> list[list[str]]:
    """Return the tests that each worker runs, when each runs one in turn."""
    config: Any = SimpleNamespace(
        option=SimpleNamespace(tx=["popen"] * workers, loadscopereorder=True, numprocesses=workers),
        getoption=lambda name: {"spare_worker": spare}[name],
        getvalue=lambda name: ["popen"] * workers if name == "tx" else None,
    )
    schedule = LongFirst(config)
    nodes: list[Any] = [Worker(f"gw{n}") for n in range(workers)]
    for node in nodes:
        schedule.add_node(node)
    for node in nodes:
        schedule.add_node_collection(node, tests)
    schedule.schedule()
    for _ in range(len(tests) + 1):
        for node in nodes:
            if node.todo:
                place = node.todo.popleft()
                node.ran.append(place)
                schedule.mark_test_complete(node, place)
    assert schedule.tests_finished
    assert not schedule.has_pending
    assert all(node.shutting_down for node in nodes)
    return [[tests[place] for place in node.ran] for node in nodes]


@pytest.mark.parametrize("spare", [False, True])
@pytest.mark.parametrize("tests", [ALL, LONG, SPARK, QUICK, LONG[:1], LONG + SPARK, SPARK + QUICK])
def test_every_test_is_run_once(tests: list[str], spare: bool) -> None:
    ran = shared(tests, 3, spare=spare)
    assert sorted(name for part in ran for name in part) == sorted(tests)


def test_tests_of_a_file_that_share_servers_stay_together() -> None:
    ran = shared(ALL, 3, spare=True)
    for file in "ab":
        (worker,) = [part for part in ran if any(f"test_{file}" in name for name in part)]
        places = [place for place, name in enumerate(worker) if f"test_{file}" in name]
        assert places == list(range(places[0], places[0] + 5))


def test_all_files_of_browsers_run_on_one_worker_in_their_order() -> None:
    browsers = [f"tests/browser/test_{file}.py::test_{n}" for file in "efg" for n in range(3)]
    ran = shared(LONG + browsers + QUICK, 3, spare=True)
    (worker,) = [part for part in ran if set(part) & set(browsers)]
    assert [name for name in worker if name in browsers] == browsers


def test_the_spare_worker_takes_the_last_of_the_quick_ones() -> None:
    *others, spare = shared(ALL, 3, spare=True)
    assert spare[0] == QUICK[-1]
    assert set(spare) <= set(QUICK)
    assert [part[0] for part in others] == [LONG[0], SPARK[0]]


def test_one_worker_begins_with_spark_and_the_others_come_to_it_last() -> None:
    first, sparks, *_ = shared(ALL, 3, spare=True)
    assert sparks[: len(SPARK)] == SPARK
    assert not set(first) & set(SPARK)
    assert set(shared(SPARK + WAITING[:2], 3, spare=False)[0]) & set(SPARK), "who has nothing else helps"


def test_who_is_spare() -> None:
    assert [is_spare(f"gw{n}", 3) for n in range(3)] == [False, False, True]
