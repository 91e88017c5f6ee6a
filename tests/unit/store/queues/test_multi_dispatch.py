"""Multi-dispatch and light queues: offsets assigned at the put, units in every named queue (store.md §7)."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_store import by_key, opened, read_queue, small_store

from store_reads import read_now
from tianzhou.records.codec import decode_record, verify_property_crc
from tianzhou.store import MessageStore, NewRecord, PutStatus, RecordBatch
from tianzhou.store.files.lookup_steps import at_once
from tianzhou.store.queues.multi_dispatch import dispatched_queues, stored_places, with_offsets
from tianzhou.wire.hashing import tags_code
from tianzhou.wire.properties import decode_properties, encode_properties

NAMED = "INNER_MULTI_DISPATCH"
TAG = tags_code("M")
GIVEN = "INNER_MULTI_QUEUE_OFFSET"
small = partial(small_store, enable_lmq=True, enable_multi_dispatch=True)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with opened(small(tmp_path / "store")) as store:
        yield store


def message(named: str, topic: str = "T", queue_id: int = 0, body: bytes = b"x", sys_flag: int = 0) -> NewRecord:
    properties = encode_properties({"UNIQ_KEY": "K", NAMED: named, "TAGS": "M"})
    return NewRecord(topic, queue_id, body, properties, sys_flag=sys_flag, tags_code=TAG, uniq_key="K")


def bodies(store: MessageStore, topic: str, queue_id: int = 0) -> list[bytes]:
    return [record.body for record in read_queue(store, topic, queue_id)]


def offsets(store: MessageStore, physical: int) -> str | None:
    record = at_once(store.lookups.record_steps(physical))
    assert record is not None
    return decode_properties(decode_record(record).properties).get(GIVEN)


def test_each_queue_named_gets_a_unit_and_the_record_the_offsets(store: MessageStore) -> None:
    told = []
    for number, named in enumerate(("%LMQ%a", "%LMQ%a,%LMQ%b", "other,%LMQ%b", "%LMQ%a,%LMQ%a", "%LMQ%b,T,%LMQ%a")):
        result = store.append(message(named, queue_id=3, body=b"%d" % number))
        assert (result.status, result.queue_offset, result.physical_offsets) == (PutStatus.PUT_OK, number, ())
        told.append(offsets(store, result.physical_offset))
    assert told == ["0", "1,0", "0,1", "2,2", "2,4,3"]
    assert bodies(store, "%LMQ%a") == [b"0", b"1", b"3", b"4"]
    assert bodies(store, "%LMQ%b") == [b"1", b"2", b"4"]
    assert bodies(store, "other", 3) == [b"2"]
    assert bodies(store, "T", 3) == [b"0", b"1", b"2", b"3", b"4"]
    assert read_now(store, "%LMQ%a", 0, 0, 32, frozenset({TAG})).count == 4
    assert len(by_key(store, "K", limit=32).physical_offsets) == 5, "indexed once"


def test_members_of_a_batch_are_dispatched_each(store: MessageStore) -> None:
    own = [b"", b"%s\x01%%LMQ%%a\x02" % NAMED.encode(), b"%s\x01%%LMQ%%a,%%LMQ%%b\x02" % NAMED.encode()]
    result = store.append(
        RecordBatch(NewRecord("T", 0, b"", b""), [(0, b"%d" % n, text) for n, text in enumerate(own)])
    )
    assert [offsets(store, place) for place in result.physical_offsets] == [None, "0", "1,0"]
    assert bodies(store, "%LMQ%a") == [b"1", b"2"]
    assert bodies(store, "%LMQ%b") == [b"2"]


@pytest.mark.parametrize(
    "topic", ["%RETRY%g", "SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer", "RMQ_SYS_TRANS_HALF_TOPIC"]
)
def test_what_is_not_delivered_yet_is_in_its_own_queue_only(store: MessageStore, topic: str) -> None:
    result = store.append(message("%LMQ%a", topic))
    assert offsets(store, result.physical_offset) is None
    assert store.topics() == [topic]


def test_rolled_back_messages_are_in_no_queue(store: MessageStore) -> None:
    store.append(message("%LMQ%a", sys_flag=0xC))
    assert store.topics() == []


def test_without_the_setting_nothing_is_dispatched(tmp_path: Path) -> None:
    with opened(small(tmp_path, enable_multi_dispatch=False)) as store:
        result = store.append(message("%LMQ%a"))
        assert offsets(store, result.physical_offset) is None
        assert store.topics() == ["T"]


def test_there_are_at_most_so_many_light_queues(tmp_path: Path) -> None:
    with opened(small(tmp_path, max_lmq_consume_queue_num=2)) as store:
        for named in ("%LMQ%a", "%LMQ%b", "%LMQ%a,%LMQ%b"):
            assert store.append(message(named)).status is PutStatus.PUT_OK
        refused = store.append(message("%LMQ%a,%LMQ%c"))
        assert refused.status is PutStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED
        assert "maxLmqConsumeQueueNum=2" in refused.remark
        assert store.append(message("ordinary")).status is PutStatus.PUT_OK
        assert store.max_offset("%LMQ%a", 0, committed=False) == 2
        store.delete_topic("%LMQ%b")
        assert store.append(message("%LMQ%c")).status is PutStatus.PUT_OK


@pytest.mark.parametrize("named", ["../x", "a/b", "%LMQ%" + "x" * 200])
def test_queues_that_no_folder_can_be_named_after_are_refused(store: MessageStore, named: str) -> None:
    refused = store.append(message(f"%LMQ%a,{named}"))
    assert refused.status is PutStatus.MESSAGE_ILLEGAL
    assert named in refused.remark
    assert store.end_offset == 0
    assert store.append(message("%LMQ%a")).queue_offset == 0


def test_offsets_given_by_a_client_are_not_trusted(store: MessageStore) -> None:
    forged = encode_properties({NAMED: "%LMQ%a", GIVEN: "1000000"})
    result = store.append(NewRecord("T", 0, b"x", forged))
    assert offsets(store, result.physical_offset) == "0"


def test_the_crc_covers_the_offsets(tmp_path: Path) -> None:
    with opened(small(tmp_path, enabled_append_prop_crc=True)) as store:
        result = store.append(message("%LMQ%a,%LMQ%b"))
        record = at_once(store.lookups.record_steps(result.physical_offset))
        assert record is not None
        assert offsets(store, result.physical_offset) == "0,0"
        assert verify_property_crc(record)


@pytest.mark.parametrize("crashed", [False, True])
@pytest.mark.parametrize("lost", [(), ("%LMQ%a",), ("T",), ("%LMQ%a", "%LMQ%b", "T")])
def test_units_of_light_queues_are_found_again_or_rebuilt(
    tmp_path: Path, lost: tuple[str, ...], *, crashed: bool
) -> None:
    with opened(small(tmp_path)) as store:
        for number in range(90):
            store.append(message(("%LMQ%a", "%LMQ%b,%LMQ%a", "T")[number % 3], body=b"%d" % number))
        expected = {topic: bodies(store, topic) for topic in ("T", "%LMQ%a", "%LMQ%b")}
    before = {path: path.read_bytes() for path in tmp_path.glob("consumequeue/*/*/*")}
    for topic in lost:
        shutil.rmtree(tmp_path / "consumequeue" / topic)
    if crashed:
        (tmp_path / "abort").write_text("1")
    with opened(MessageStore(store.settings)) as store:
        assert (store.report.clean, store.report.damaged) == (not crashed, [])
        assert {topic: bodies(store, topic) for topic in expected} == expected
        assert {path: path.read_bytes() for path in tmp_path.glob("consumequeue/*/*/*")} == before
        assert offsets(store, store.append(message("%LMQ%a,%LMQ%b")).physical_offset) == "60,30"


def test_light_queues_survive_a_crash_while_multi_dispatch_is_off(tmp_path: Path) -> None:
    with opened(small(tmp_path)) as store:
        for _ in range(30):
            store.append(message("%LMQ%a"))
    (tmp_path / "abort").write_text("1")
    with opened(small(tmp_path, enable_multi_dispatch=False)) as store:
        assert len(bodies(store, "%LMQ%a")) == 30


# the property


NAMES = st.sampled_from(["%LMQ%a", "%LMQ%b", "%LMQ%c", "T", "U", ""])


@given(st.lists(NAMES, min_size=1, max_size=8), st.integers(0, 5))
def test_what_is_written_is_what_is_read(listed: list[str], queue_id: int) -> None:
    properties = encode_properties({NAMED: ",".join(listed), "X": "1"} if any(listed) else {"X": "1"})
    places = dispatched_queues("T", queue_id, properties)
    assert ("T", queue_id) not in places
    assert len(set(places)) == len(places)
    assert all(number == (0 if name.startswith("%LMQ%") else queue_id) for name, number in places)
    if places:
        stored = with_offsets("T", queue_id, properties, lambda name, _: len(name) * 7)
        assert stored_places("T", queue_id, stored) == [(name, number, len(name) * 7) for name, number in places]


@pytest.mark.parametrize("given_offsets", ["", "1", "1,2,3", "x,y", "1,-2"])
def test_lists_that_disagree_count_for_nothing(given_offsets: str) -> None:
    properties = encode_properties({NAMED: "%LMQ%a,%LMQ%b", GIVEN: given_offsets})
    assert len(stored_places("T", 0, properties)) == (1 if given_offsets == "1,-2" else 0)
