"""Deferred requests run in a fair order, for any number of requests and connections of a peer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tianzhou.remoting.turns import FairQueue


def serve(queue: FairQueue[str], costs: dict[str, float]) -> str:
    member, _ = queue.take()
    queue.charge(costs[member])
    return member


MEMBERS = st.integers(0, 11)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), MEMBERS),
        st.tuples(st.just("take"), st.floats(0, 5)),
        st.tuples(st.just("leave"), MEMBERS),
    ),
    max_size=80,
)


@given(STEPS)
def test_everybody_that_waits_is_taken_once_and_nobody_else(steps: list[tuple[str, float]]) -> None:
    queue: FairQueue[int] = FairQueue()
    waiting: dict[int, float] = {}
    for number, (step, value) in enumerate(steps):
        if step == "add":
            assert queue.add(int(value), f"10.0.0.{int(value) % 3}", number) == (int(value) not in waiting)
            waiting.setdefault(int(value), number)
        elif step == "leave":
            queue.leave(int(value), f"10.0.0.{int(value) % 3}")
            waiting.pop(int(value), None)
        elif waiting:
            member, since = queue.take()
            assert waiting.pop(member) == since
            if value > 4:  # it sends more requests, or disconnects, while it is served
                queue.add(member, f"10.0.0.{member % 3}", number)
                waiting[member] = number
            elif value > 3:
                queue.leave(member, f"10.0.0.{member % 3}")
            queue.charge(value)
        else:
            with pytest.raises(IndexError):
                queue.take()
        assert bool(queue) == bool(waiting)
    while waiting:
        member, since = queue.take()
        assert waiting.pop(member) == since
        queue.charge(1)
    assert not queue


def test_a_small_request_from_elsewhere_waits_for_one_dear_one() -> None:
    queue: FairQueue[str] = FairQueue()
    costs = {f"dear {i}": 0.005 for i in range(10_000)} | {"small": 0.0001}
    for member in costs:
        queue.add(member, "10.0.0.1" if member != "small" else "10.0.0.2", 0)
    assert "small" in [serve(queue, costs) for _ in range(2)]
    for _ in range(50):  # and so on
        queue.add("small", "10.0.0.2", 0)
        assert "small" in [serve(queue, costs) for _ in range(2)]


def test_of_one_address_who_came_first_goes_first() -> None:
    queue: FairQueue[str] = FairQueue()
    costs = {f"{i}": 0.005 for i in range(100)}
    for member in costs:
        queue.add(member, "10.0.0.1", 0)
    assert [serve(queue, costs) for _ in costs] == list(costs)


@given(st.lists(st.sampled_from([0.001, 0.002, 0.01]), min_size=2, max_size=5))
def test_addresses_get_equal_time_however_many_connections_they_have(costs: list[float]) -> None:
    queue: FairQueue[str] = FairQueue()
    spent = dict.fromkeys(range(len(costs)), 0.0)
    address_of = {}
    for address in spent:
        for number in range(1 + 10 * address):
            address_of[f"{address} {number}"] = address
    for member, address in address_of.items():
        queue.add(member, f"10.0.0.{address}", 0)
    for _ in range(2_000):
        member, _ = queue.take()
        queue.add(member, f"10.0.0.{address_of[member]}", 0)
        queue.charge(costs[address_of[member]])
        spent[address_of[member]] += costs[address_of[member]]
    assert max(spent.values()) - min(spent.values()) <= 2 * max(costs) + 1e-9


def test_who_leaves_and_comes_again_gains_nothing() -> None:
    queue: FairQueue[str] = FairQueue()
    costs = {"honest": 0.001, "fickle": 0.001}
    queue.add("honest", "10.0.0.1", 0)
    for _ in range(100):
        queue.add("fickle", "10.0.0.2", 0)
        queue.leave("fickle", "10.0.0.2")
    queue.add("fickle", "10.0.0.2", 0)
    served = []
    for _ in range(100):
        member, _ = queue.take()
        queue.add(member, "10.0.0.1" if member == "honest" else "10.0.0.2", 0)
        queue.charge(costs[member])
        served.append(member)
    assert served.count("honest") == 50
