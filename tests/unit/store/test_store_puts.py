"""Puts: written bytes and refusals (store.md §3, §4, §16.1)."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from small_store import by_key, opened, small_store

from store_probe import StoreProbe
from store_reads import read_now
from tianzhou.records.codec import decode_record, verify_property_crc
from tianzhou.records.layout import MAGIC_BLANK, MAGIC_V2
from tianzhou.store import MessageStore, NewRecord, PutResult, PutStatus, RecordBatch
from tianzhou.store.files.lookup_steps import at_once
from tianzhou.store.files.segments import Segment
from tianzhou.wire.hashing import tags_code

SEGMENT = 8192
small = partial(small_store, mapped_file_size_commit_log=SEGMENT)


def message(body: bytes = b"body", topic: str = "T", queue_id: int = 0, **changes: object) -> NewRecord:
    return NewRecord(topic, queue_id, body, b"K\x01v\x02", born_timestamp=1, **changes)  # type: ignore[arg-type]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with opened(small(tmp_path)) as store:
        yield store


def record_of(store: MessageStore, result: PutResult) -> bytes:
    view = at_once(store.lookups.record_steps(result.physical_offset))
    assert view is not None
    return bytes(view)


def test_a_put_is_readable_and_says_where_it_is(store: MessageStore) -> None:
    first = store.append(message(b"one"))
    second = store.append(message(b"two"))
    other = store.append(message(b"three", queue_id=3))
    assert (first.status, first.physical_offset, first.queue_offset) == (PutStatus.PUT_OK, 0, 0)
    assert (second.physical_offset, second.queue_offset) == (first.end_offset, 1)
    assert (other.queue_offset, other.end_offset) == (0, store.end_offset)
    assert decode_record(record_of(store, second), check_crc=True).body == b"two"
    assert [bytes(part) for part in read_now(store, "T", 0, 0, 10).parts] == [
        record_of(store, first),
        record_of(store, second),
    ]


def test_an_empty_body_is_legal(store: MessageStore) -> None:
    assert decode_record(record_of(store, store.append(message(b"")))).body == b""


def test_a_record_that_does_not_fit_goes_to_the_next_segment_behind_a_blank(
    store: MessageStore, tmp_path: Path
) -> None:
    result = store.append(message(b"a"))
    room = SEGMENT - result.end_offset
    overhead = result.end_offset - 1
    exact = store.append(message(b"b" * (room - overhead - 8)))
    assert exact.physical_offset == result.end_offset  # eight bytes are left for the blank
    following = store.append(message(b"c"))
    assert following.physical_offset == SEGMENT
    tail = (tmp_path / "commitlog" / f"{0:020d}").read_bytes()[exact.end_offset :]
    assert tail == (8).to_bytes(4, "big") + MAGIC_BLANK.to_bytes(4, "big", signed=True)

    again = store.append(message(b"d" * (SEGMENT - 8 - (following.end_offset - SEGMENT) - overhead + 1)))
    assert again.physical_offset == 2 * SEGMENT  # one byte too long
    assert read_now(store, "T", 0, 0, 10).count == 4


def test_a_record_larger_than_a_segment_is_refused_and_harms_nothing(store: MessageStore) -> None:
    refused = store.append(message(b"x" * SEGMENT))
    assert refused.status is PutStatus.MESSAGE_ILLEGAL
    assert f"mappedFileSizeCommitLog={SEGMENT}" in refused.remark
    assert store.append(message()).queue_offset == 0


@pytest.mark.parametrize(
    ("record", "status", "says"),
    [
        (message(topic="t" * 128), PutStatus.MESSAGE_ILLEGAL, "128 bytes long, allowed are 1 to 127"),
        (message(topic="%RETRY%" + "g" * 250), PutStatus.MESSAGE_ILLEGAL, "257 bytes long, allowed are 1 to 255"),
        (message(topic=""), PutStatus.MESSAGE_ILLEGAL, "allowed are 1 to 127"),
        (message(topic="../outside"), PutStatus.MESSAGE_ILLEGAL, "letters, digits"),
        (message(queue_id=-1), PutStatus.MESSAGE_ILLEGAL, "queue ids begin at 0"),
        (message(b"x" * 1001), PutStatus.MESSAGE_ILLEGAL, "1001 bytes, maxMessageSize is 1000"),
        (
            NewRecord("T", 0, b"", b"p" * 32_768),
            PutStatus.PROPERTIES_SIZE_EXCEEDED,
            "32768 bytes, the limit is 32767",
        ),
        (message(sys_flag=0xC0), PutStatus.MESSAGE_ILLEGAL, "inner batch"),
    ],
)
def test_what_cannot_be_stored_is_refused_with_the_limit_and_the_value(
    tmp_path: Path, record: NewRecord, status: PutStatus, says: str
) -> None:
    with opened(small(tmp_path, max_message_size=1000)) as store:
        result = store.append(record)
        assert result.status is status
        assert says in result.remark
        assert store.end_offset == 0
        assert not list((tmp_path / "commitlog").glob("*")) if (tmp_path / "commitlog").exists() else True


def test_a_closed_store_refuses(tmp_path: Path) -> None:
    store = small(tmp_path)
    assert store.append(message()).status is PutStatus.SERVICE_NOT_AVAILABLE
    store.open()
    store.close_now()
    result = store.append(message())
    assert (result.status, result.remark) == (PutStatus.SERVICE_NOT_AVAILABLE, "the store is closed")


def test_long_retry_topics_make_version_2_records(store: MessageStore) -> None:
    topic = "%RETRY%" + "g" * 200
    record = record_of(store, store.append(message(topic=topic)))
    assert int.from_bytes(record[4:8], "big", signed=True) == MAGIC_V2
    assert decode_record(record).topic == topic


def test_address_bits_are_the_stores_own(store: MessageStore, tmp_path: Path) -> None:
    """A client that sets the IPv6 bits from an IPv4 address cannot corrupt its record, or its neighbours'."""
    lying = store.append(message(sys_flag=0x30 | 0x1))
    assert decode_record(record_of(store, lying)).sys_flag == 0x1
    v6 = store.append(message(born_host=bytes(range(16)), sys_flag=0x20))
    decoded = decode_record(record_of(store, v6))
    assert (decoded.sys_flag, decoded.born_host) == (0x10, bytes(range(16)))
    with opened(MessageStore(small(tmp_path / "v6").settings, store_host=bytes(16), store_port=7)) as with_v6_host:
        decoded = decode_record(record_of(with_v6_host, with_v6_host.append(message())))
    assert (decoded.sys_flag, decoded.store_host, decoded.store_port) == (0x20, bytes(16), 7)


def test_the_record_crc_replaces_one_that_came_along(tmp_path: Path) -> None:
    with opened(small(tmp_path, enabled_append_prop_crc=True)) as store:
        record = message()
        record.properties = b"A\x01b\x02__CRC32#\x010000000000\x02C\x01d"
        stored = record_of(store, store.append(record))
        assert verify_property_crc(stored)
        assert decode_record(stored).properties.startswith(b"A\x01b\x02C\x01d\x02__CRC32#\x01")
        assert decode_record(stored).properties.count(b"__CRC32#") == 1


def test_prepared_and_rolled_back_messages_take_no_place_in_the_queue(store: MessageStore) -> None:
    store.append(message(b"1"))
    for kind in (0x4, 0xC):
        result = store.append(message(b"hidden", sys_flag=kind))
        assert result.queue_offset == 0
    assert store.append(message(b"2", sys_flag=0x8)).queue_offset == 1
    assert [decode_record(part).body for part in read_now(store, "T", 0, 0, 10).parts] == [b"1", b"2"]


def test_delayed_messages_carry_their_deliver_time_in_the_queue(store: MessageStore) -> None:
    for level, delay in ((b"1", 1000), (b"18", 7_200_000), (b"99", 7_200_000)):
        record = NewRecord("SCHEDULE_TOPIC_XXXX", 0, b"", b"DELAY\x01" + level + b"\x02", tags_code=5)
        result = store.append(record)
        due = result.store_timestamp + delay
        assert read_now(store, "SCHEDULE_TOPIC_XXXX", 0, result.queue_offset, 1, frozenset({due})).count == 1


def test_a_batch_stays_together(store: MessageStore) -> None:
    store.append(message(b"x" * 7000))
    entries = [(n, b"b%d" % n * 100, b"TAGS\x01t%d\x02KEYS\x01k%d" % (n, n)) for n in range(5)]
    common = NewRecord("T", 1, b"", b"UNIQ_KEY\x01U\x02", born_timestamp=5)
    result = store.append(RecordBatch(common, entries))
    assert result.status is PutStatus.PUT_OK
    assert result.physical_offset == result.physical_offsets[0] == SEGMENT
    assert result.end_offset == store.end_offset
    found = read_now(store, "T", 1, 0, 10)
    assert [part.tobytes() for part in found.parts] == [
        bytes(at_once(store.lookups.record_steps(o)) or b"") for o in result.physical_offsets
    ]
    for number, part in enumerate(found.parts):
        record = decode_record(part, check_crc=True)
        assert (record.flag, record.queue_offset) == (number, number)
        assert record.properties == b"TAGS\x01t%d\x02KEYS\x01k%d\x02UNIQ_KEY\x01U\x02" % (number, number)
    assert read_now(store, "T", 1, 0, 10, frozenset({tags_code("t3")})).count == 1
    assert by_key(store, "k3").physical_offsets == [result.physical_offsets[3]]
    assert by_key(store, "U").physical_offsets == list(result.physical_offsets)


@pytest.mark.parametrize(
    ("entries", "sys_flag", "says"),
    [
        ([], 0, "without messages"),
        ([(0, b"x" * 600, b"")] * 2, 0, "1200 bytes, maxMessageSize is 1000"),
        ([(0, b"x", b"p" * 40_000)], 0, "40000 bytes, the limit is 32767"),
        ([(0, b"x", b"")], 0x4, "one by one"),
    ],
)
def test_batches_that_cannot_be_stored_leave_nothing(
    tmp_path: Path, entries: list[tuple[int, bytes, bytes]], sys_flag: int, says: str
) -> None:
    with opened(small(tmp_path, max_message_size=1000)) as store:
        result = store.append(RecordBatch(NewRecord("T", 0, b"", b"", sys_flag=sys_flag), entries))
        assert result.status in {PutStatus.MESSAGE_ILLEGAL, PutStatus.PROPERTIES_SIZE_EXCEEDED}
        assert says in result.remark
        assert store.end_offset == 0


def test_a_full_disk_refuses_puts_and_reading_goes_on(store: MessageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store.append(message())

    def no_space(self: Segment, start: int, end: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Segment, "reserve_range", no_space)
        refused = [store.append(message(b"x" * 5000)) for _ in range(3)]
    assert refused[-1].status is PutStatus.SERVICE_NOT_AVAILABLE
    assert "disk" in refused[-1].remark
    assert "full" in refused[-1].remark
    stored = 1 + sum(result.status is PutStatus.PUT_OK for result in refused)
    assert read_now(store, "T", 0, 0, 10).count == stored
    assert store.append(message()).queue_offset == stored


def test_a_segment_that_cannot_be_made_is_its_own_status(store: MessageStore, tmp_path: Path) -> None:
    store.append(message(b"x" * 8000))
    (tmp_path / "commitlog" / f"{SEGMENT:020d}").mkdir()
    result = store.append(message(b"x" * 8000))
    assert result.status is PutStatus.CREATE_MAPPED_FILE_FAILED
    (tmp_path / "commitlog" / f"{SEGMENT:020d}").rmdir()
    assert store.append(message(b"x" * 8000)).status is PutStatus.PUT_OK


def test_queues_and_index_that_cannot_be_written_stop_puts_until_they_can(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.append(message())
    with monkeypatch.context() as patch:
        patch.setattr("tianzhou.store.dispatch.dispatch.fill", lambda *_: (0, 0, 0))  # leaves it to the queue
        patch.setattr(
            "tianzhou.store.queues.consumequeue.ConsumeQueue.put",
            lambda *_: (_ for _ in ()).throw(OSError(errno.ENOSPC, "No space left on device")),
        )
        assert store.append(message()).status is PutStatus.PUT_OK  # the log had room
        refused = store.append(message())
    assert refused.status is PutStatus.SERVICE_NOT_AVAILABLE
    assert "the queues in" in refused.remark
    assert store.max_offset("T", 0) == 1
    StoreProbe(store).dispatch_all()
    assert store.max_offset("T", 0) == 2
    assert store.append(message()).queue_offset == 2
