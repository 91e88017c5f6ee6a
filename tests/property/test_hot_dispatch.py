"""Queue units and index entries written by the compiled twin, compared with those of the Python dispatcher."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hot_stores import compiled_store
from property_examples import costly
from tianzhou._hot import records, sources
from tianzhou.store.dispatch import dispatch
from tianzhou.store.dispatch.dispatch import Dispatcher
from tianzhou.store.index.index import Index
from tianzhou.store.queues.consumequeue import ConsumeQueue
from tianzhou.store.settings import StoreSettings

compiled = pytest.importorskip("tianzhou._hot._compiled", reason="the compiled twin was not built here")
pytestmark = pytest.mark.skipif(
    sources.digest() != compiled.SOURCE, reason="the compiled twin was built from other sources"
)

KEYS = st.sampled_from(["", "", "k", "one two", " one  two ", "ü k", " ", " ".join(map(str, range(30)))])
MESSAGES = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.sampled_from([0, 0, 0, 0, 1, -1]),
        st.integers(-(2**31), 2**31 - 1),
        st.sampled_from([0, 0, 0, 0, 8, 4, 12]),
        st.sampled_from(["", "u", "AC1100010000", "AC1100010000AB", "ключ"]),
        KEYS,
        st.sampled_from([0, 5, 1000, -3000, 70_000]),
    ),
    max_size=60,
)


class Arrived:
    def __init__(self) -> None:
        self.value = 0

    def advance(self, value: int) -> None:
        self.value = max(self.value, value)


def dispatched(root: Path, twin: Any, messages: list[Any], index_size: tuple[int, int], limit: int | None) -> Any:
    settings_ = StoreSettings(
        store_path_root_dir=str(root), max_hash_slot_num=index_size[0], max_index_num=index_size[1]
    )
    index = Index(settings_)
    dispatcher = Dispatcher(index, lambda *_: None, lambda: None)
    queues = [ConsumeQueue(root / name, name, 0, 2000) for name in ("T", "topic-ä", "other")]
    queues[2].arrived = Arrived()  # type: ignore[assignment]
    place, now = 0, 1_700_000_000_000
    before = dispatch.fill, dispatch.BY_HAND
    dispatch.fill, dispatch.BY_HAND = twin.fill, twin.BY_HAND
    try:
        for number, (which, gap, code, kind, unique, keys, later) in enumerate(messages):
            queue = queues[which]
            now += later
            offset = max(queue.next_offset + gap, 0)
            dispatcher.pending.append((queue, offset, place, 100, code, now, kind, unique, keys))
            queue.next_offset = offset + (kind not in (4, 12))
            place += 100
            if number % 13 == 5:
                dispatcher.drain()
        dispatcher.limit = limit
        dispatcher.drain()
        index.write_header()
        return (
            [bytes(s.view) for q in queues for s in q.files],
            [bytes(f._map) for f in index.files],
            [(q.max_offset, q.max_physical, q.min_offset, q.dirty, q._position) for q in queues],
            [q.topic for q in dispatcher.dirty],
            (queues[2].arrived.value, dispatcher.position, dispatcher.logics_timestamp, len(dispatcher.pending)),  # type: ignore[union-attr]
        )
    finally:
        dispatch.fill, dispatch.BY_HAND = before
        for queue in queues:
            queue.close()
        index.close()


@costly(0.4)  # two stores an example
@given(MESSAGES, st.sampled_from([(50, 20), (5, 1000), (200, 400)]), st.none() | st.integers(0, 6000))
def test_records_are_dispatched_alike(messages: list[Any], index_size: tuple[int, int], limit: int | None) -> None:
    found = []
    for twin in (records, compiled):
        with TemporaryDirectory() as root:
            found.append(dispatched(Path(root), twin, messages, index_size, limit))
    assert found[0] == found[1]


@compiled_store
def test_most_records_are_done_by_the_twin(tmp_path: Path) -> None:
    taken = 0

    class Counting:
        BY_HAND = 1

        @staticmethod
        def fill(*arguments: Any) -> tuple[int, int, int]:
            nonlocal taken
            found: tuple[int, int, int] = compiled.fill(*arguments)
            taken += found[0]
            return found

    dispatched(tmp_path, Counting, [(0, 0, 1, 0, "u%d", "k", 1)] * 90, (50, 1000), None)
    assert taken >= 85
