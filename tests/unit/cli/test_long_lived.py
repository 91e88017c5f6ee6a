"""A server's collector traverses long-lived objects once, and all objects once an hour or when memory grows."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from tianzhou.cli.gc_freeze import WHOLE_BYTES, WHOLE_S, FrozenObjects, collect_seldom


class Ring:
    """An object in a reference cycle, which only the collector can free."""

    def __init__(self) -> None:
        self.me: Ring | None = self


@pytest.fixture
def memory() -> list[int | None]:
    """Return the private memory of the process in bytes."""
    return [100 << 20]


@pytest.fixture
def seconds(memory: list[int | None]) -> Iterator[list[float]]:
    now = [100.0]
    with FrozenObjects(lambda: now[0], lambda: memory[0]):
        yield now


def test_what_was_looked_at_is_not_looked_at_again_for_an_hour(seconds: list[float]) -> None:
    gc.collect()
    kept = [Ring() for _ in range(1_000)]
    dead = weakref.ref(Ring())
    gc.collect()
    assert dead() is None, "garbage that nobody has looked at goes as ever"
    frozen = gc.get_freeze_count()
    assert frozen >= 1_000
    assert len(gc.get_objects()) < 1_000, "all others are not looked at"

    gone = weakref.ref(kept.pop())
    freed = weakref.ref(kept[0])
    kept[0].me = None
    del kept[0]
    assert freed() is None, "what is no ring goes at once"
    gc.collect()
    assert gone() is not None
    seconds[0] += WHOLE_S
    gc.collect()
    assert gone() is None, "a ring goes within the hour"
    assert gc.get_freeze_count() >= 990


def test_garbage_goes_before_the_hour_when_memory_has_grown(seconds: list[float], memory: list[int | None]) -> None:
    kept = [Ring() for _ in range(10)]
    gc.collect()
    gone = weakref.ref(kept.pop())
    memory[0] = (100 << 20) + WHOLE_BYTES - 1
    gc.collect()
    assert gone() is not None
    memory[0] = (100 << 20) + WHOLE_BYTES
    gc.collect()
    assert gone() is None

    gone = weakref.ref(kept.pop())
    gc.collect()
    assert gone() is not None, "the growth counts from the last whole collection"
    memory[0] = (100 << 20) + 2 * WHOLE_BYTES
    gc.collect()
    assert gone() is None


def test_a_system_that_tells_no_memory_collects_by_the_hour(seconds: list[float], memory: list[int | None]) -> None:
    memory[0] = None
    kept = [Ring()]
    gc.collect()
    gone = weakref.ref(kept.pop())
    gc.collect()
    assert gone() is not None


def test_a_server_whose_objects_are_cycles_keeps_no_garbage() -> None:
    with FrozenObjects(has_garbage=True) as frozen:
        frozen.started()
        at_start = gc.get_freeze_count()
        for _ in range(3):
            kept = [Ring() for _ in range(1_000)]
            gc.collect()
            gone = weakref.ref(kept[0])
            del kept
            gc.collect()
            assert gone() is None
        assert gc.get_freeze_count() <= at_start
    assert gc.get_freeze_count() == 0


def test_it_ends_as_it_began() -> None:
    before = list(gc.callbacks)
    with FrozenObjects():
        gc.collect()
        assert gc.get_freeze_count()
    assert gc.callbacks == before
    assert gc.get_freeze_count() == 0


def test_small_collections_change_nothing(seconds: list[float]) -> None:
    gc.unfreeze()
    gc.collect(0)
    gc.collect(1)
    assert gc.get_freeze_count() == 0


def test_a_start_is_looked_through_seldom_and_what_comes_after_it_as_ever() -> None:
    before = gc.get_threshold()
    gc.collect()  # garbage of a command in an earlier test
    collections = [0]

    def count(phase: str, about: dict[str, int]) -> None:
        collections[0] += phase == "stop"

    gc.callbacks.append(count)
    try:
        collect_seldom()
        made = [Ring() for _ in range(10_000)]
        assert collections == [0]
        with FrozenObjects() as frozen:
            made += [Ring() for _ in range(1_000)]
            frozen.started()
            assert gc.get_freeze_count() >= 11_000
            usual = gc.get_threshold()[0]  # 700 objects, 2 000 from Python 3.13 on
            made += [Ring() for _ in range(10_000)]
        assert collections[0] >= 10_000 // usual - 2
    finally:
        gc.callbacks.remove(count)
        gc.set_threshold(*before)
    assert gc.get_threshold() == before
