"""Batches that the compiled twin stores directly, compared with batches that the store decodes."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hot_stores import compiled_store
from property_examples import costly
from store_probe import StoreProbe
from tianzhou._hot import records, sources
from tianzhou.errors import ProtocolError
from tianzhou.store import MessageStore, NewRecord, RecordBatch, StoreSettings, appender
from tianzhou.store.results import PutStatus
from tianzhou.testing.clock import VirtualClock
from tianzhou.wire.batch import encode_batch

compiled = pytest.importorskip("tianzhou._hot._compiled", reason="the compiled twin was not built here")
pytestmark = pytest.mark.skipif(
    sources.digest() != compiled.SOURCE, reason="the compiled twin was built from other sources"
)

USUAL = b"UNIQ_KEY\x01AC11\x02WAIT\x01true\x02TAGS\x01TagA"
ENTRIES = st.lists(
    st.tuples(
        st.sampled_from([0, 7, -1]),
        st.binary(max_size=60),
        st.just(USUAL)
        | st.sampled_from(
            [
                b"",
                b"\x02",
                USUAL + b"\x02",
                USUAL + b"\x02KEYS\x01a b\x02",
                USUAL + b"\x02UNIQ_KEY\x01other\x02",
                "KEYS\x01ключ\x02".encode(),
                b"KEYS\x01\x02",
                b"none",
                b"a\x01\x00\x02",
                b"x\x01" + b"y" * 32_700,
            ]
        )
        | st.binary(max_size=20),
    ),
    max_size=5,
)
JAVAS = b"UNIQ_KEY\x01BATCH\x02WAIT\x01true\x02"
SHARED = st.sampled_from(
    [b"", b"", b"C\x01c\x02", b"TAGS\x01t\x02", b"C\x01c", b"KEYS\x01k\x02", b"p\x01\xff\x02", JAVAS, b"TAGS\x01\x02"]
)
MANY_KEYS = USUAL + b"\x02KEYS\x01" + " ".join(map(str, range(30))).encode()
DAMAGE = st.none() | st.tuples(st.integers(0, 200), st.integers(0, 255)) | st.integers(0, 200)
BATCHES = st.lists(
    st.tuples(
        ENTRIES, SHARED, st.sampled_from([0, 0, 1, 2, 8, 4, 12, 0x80, 0x30]), st.sampled_from([4, 4, 4, 16]), DAMAGE
    ),
    max_size=4,
)


def damaged(batch: bytes, how: Any) -> bytes:
    if isinstance(how, int):
        return batch[:how]
    if how and how[0] < len(batch):
        return batch[: how[0]] + bytes([how[1]]) + batch[how[0] + 1 :]
    return batch


def stored(root: Path, twin: Any, batches: list[Any], changes: dict[str, Any], limit: int | None = None) -> Any:
    """Return the replies and contents of a store after some batches, and the number of batches that the twin stored
    itself.

    Batches up to `limit` are dispatched immediately, the others later.
    """
    given_settings = StoreSettings(
        store_path_root_dir=str(root), mapped_file_size_commit_log=65_536, mapped_file_size_consume_queue=2000,
        max_hash_slot_num=50, max_index_num=200, **changes,
    )  # fmt: skip
    store = MessageStore(given_settings, VirtualClock())
    store.open()
    before, taken = appender.put_batch, 0
    answers: list[Any] = []

    def counted(*arguments: Any) -> Any:
        nonlocal taken
        result = twin.put_batch(*arguments)
        taken += result is not None
        return result

    appender.put_batch = counted
    try:
        store.append(NewRecord("T", 0, b"first", b""))
        StoreProbe(store).dispatcher.limit = limit
        for entries, shared, sys_flag, host, damage in batches:
            record = NewRecord("T", 0, b"", shared, 5, sys_flag, 6, bytes(range(host)), 7, 8)
            batch = damaged(encode_batch(entries), damage)
            try:
                answers.append(store.append(RecordBatch(record, batch)))
            except ProtocolError as error:
                answers.append(str(error))
        answers.append([(queue.max_offset, queue.max_physical) for queue in StoreProbe(store).queues("T")])
        StoreProbe(store).dispatcher.limit = None
        StoreProbe(store).dispatch_all()
        found = (
            answers,
            [bytes(segment.view) for segment in StoreProbe(store).log.files],
            StoreProbe(store).log.position,
            [(queue.next_offset, queue.max_offset, queue.max_physical) for queue in StoreProbe(store).queues("T")],
            [bytes(segment.view) for queue in StoreProbe(store).queues("T") for segment in queue.files],
            StoreProbe(store).index_bytes(),
        )
        return found, taken
    finally:
        appender.put_batch = before
        store.close_now()


@costly(0.4)
@given(BATCHES, st.sampled_from([{}, {}, {}, {"max_message_size": 100}, {"enabled_append_prop_crc": True}]))
@example([([(0, b"x", USUAL)], b"", 0, 4, (20, 255))], {})
@example([([(0, b"x" * 60, USUAL)] * 5, b"C\x01c\x02", 0, 4, None)] * 40, {})
@example([([(0, b"x", USUAL), (7, b"y", USUAL + b"\x02KEYS\x01a  b")] * 37, JAVAS, 0, 4, None)] * 3, {})
@example([([(0, b"x", MANY_KEYS)] * 9, b"", 0, 4, None), ([(0, b"", b"")] * 100, b"", 0, 4, None)], {})
@example([([(0, b"x", b"KEYS\x01" + b"k" * 3000)] * 9, b"", 0, 4, None)] * 2, {})
def test_batches_are_stored_alike(batches: list[Any], changes: dict[str, Any]) -> None:
    found = []
    for twin in (records, compiled):
        with TemporaryDirectory() as root:
            found.append(stored(Path(root), twin, batches, changes)[0])
    assert found[0] == found[1]


@costly(0.2)
@given(st.integers(0, 12_000))
def test_batches_wait_for_the_limit_alike(limit: int) -> None:
    batches = [([(0, b"x" * 20, USUAL)] * 40, b"", 0, 4, None)] * 2
    found = []
    for twin in (records, compiled):
        with TemporaryDirectory() as root:
            found.append(stored(Path(root), twin, batches, {}, limit)[0])
    assert found[0] == found[1]


@compiled_store
@pytest.mark.parametrize("shared", [b"C\x01c\x02", JAVAS])
def test_ordinary_batches_are_stored_as_they_came(tmp_path: Path, shared: bytes) -> None:
    batches = [([(0, b"body", USUAL)] * 5, shared, 0, 4, None)] * 20
    (answers, *_), taken = stored(tmp_path, compiled, batches, {})
    del answers[-1]
    assert taken >= 18
    assert all(answer.status is PutStatus.PUT_OK for answer in answers)
    assert [len(answer.physical_offsets) for answer in answers] == [5] * 20
