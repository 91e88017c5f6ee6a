"""Records: bytes, failure modes, and the messages in them."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import struct
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from tianzhou.errors import CorruptRecord, ProtocolError
from tianzhou.model import MessageExt
from tianzhou.records import codec
from tianzhou.records.codec import Record
from tianzhou.records.layout import BLANK_SIZE, MAGIC_BLANK, MAGIC_V1, MAGIC_V2, STORE_HOST_V6
from tianzhou.unpacked_bodies import UnpackedBodies
from tianzhou.wire import pulled
from tianzhou.wire.batch import encode_batch
from tianzhou.wire.compression import LZ4, compress
from tianzhou.wire.delivered import body_sizes
from tianzhou.wire.properties import encode_properties

# wire.md §18: topic T, body `hi`, queue 3, flag 7, queueOffset 5, physical 4096, TAGS=A.
VECTOR = bytes.fromhex(
    "00000065daa320a758932aac000000030000000700000000000000050000000000001000000000000000018bcfe568007f00000100009c40"
    "0000018bcfe568017f00000100002a9f0000000100000000000000000000000268690154000754414753014102"
)
V4 = bytes([127, 0, 0, 1])
V6 = bytes.fromhex("20010db8000000000000000000000001")


def made(**changes: Any) -> Record:
    return msgspec.structs.replace(codec.decode_record(VECTOR), **changes)


def test_the_reference_vector() -> None:
    found = codec.decode_record(VECTOR, check_crc=True)
    assert found == Record(
        topic="T", queue_id=3, queue_offset=5, physical_offset=4096, flag=7, sys_flag=0,
        born_timestamp=1_700_000_000_000, born_host=V4, born_port=40_000, store_timestamp=1_700_000_000_001,
        store_host=V4, store_port=10_911, reconsume_times=1, prepared_transaction_offset=0, body=b"hi",
        properties=b"TAGS\x01A\x02", body_crc=1_486_039_724, size=101,
    )  # fmt: skip
    assert codec.encode_record(found) == VECTOR
    assert codec.peek(VECTOR) == (101, MAGIC_V1)


def test_an_ipv6_store_host_takes_12_more_bytes() -> None:
    data = codec.encode_record(made(store_host=V6))
    assert len(data) == 113
    found = codec.decode_record(data)
    assert (found.store_host, found.born_host, found.sys_flag) == (V6, V4, STORE_HOST_V6)
    (message,) = pulled.to_message(found, "b-a")
    assert message.offset_msg_id == "20010DB800000000000000000000000100002A9F0000000000001000"
    assert message.store_host == "[2001:db8::1]:10911"


@pytest.mark.parametrize("born", [V4, V6])
@pytest.mark.parametrize("store", [V4, V6])
@pytest.mark.parametrize("topic", ["T", "t" * 127, "t" * 128, "%RETRY%" + "g" * 248, "主题"])
def test_every_shape_comes_back(born: bytes, store: bytes, topic: str) -> None:
    original = made(born_host=born, store_host=store, topic=topic)
    data = codec.encode_record(original)
    size = codec.record_size(2, len(topic.encode()), 7, len(born), len(store))
    assert len(data) == size
    assert codec.peek(data)[1] == (MAGIC_V2 if len(topic.encode()) > 127 else MAGIC_V1)
    for offset, buffer in ((0, data), (3, b"abc" + data), (0, data + b"more"), (1, bytearray(b"x" + data + b"y"))):
        found = codec.decode_record(buffer, offset, check_crc=True)
        flags = (16 if len(born) == 16 else 0) | (32 if len(store) == 16 else 0)
        assert found == msgspec.structs.replace(original, sys_flag=flags, size=size)
        assert codec.decode_record(memoryview(buffer), offset) == found


def test_the_host_bits_follow_the_addresses() -> None:
    # Apache copies these bits from the sender and writes a record shorter than its length field (wire.md §4.4).
    data = codec.encode_record(made(sys_flag=0x1 | 0x10 | 0x20 | 0x300))
    assert codec.decode_record(data).sys_flag == 0x301


@pytest.mark.parametrize("changes", [{"born_host": b"abc"}, {"properties": bytes(32_768)}, {"topic": "t" * 32_768}])
def test_what_does_not_fit_is_not_encoded(changes: dict[str, Any]) -> None:
    with pytest.raises(CorruptRecord):
        codec.encode_record(made(**changes))


def corrupt(data: bytes, offset: int = 0, check_crc: bool = False) -> tuple[str, int]:
    reasons = set()
    for buffer in (data, bytearray(data), memoryview(data)):
        with pytest.raises(CorruptRecord) as caught:
            codec.decode_record(buffer, offset, check_crc)
        reasons.add((caught.value.reason, caught.value.size))
    assert len(reasons) == 1
    return reasons.pop()


@pytest.mark.parametrize("cut", range(101))
def test_cut_records(cut: int) -> None:
    assert corrupt(VECTOR[:cut]) == ("short", -1)


@pytest.mark.parametrize("offset", [100, 101, 500])
def test_offsets_near_and_beyond_the_end(offset: int) -> None:
    assert corrupt(VECTOR, offset)[1] == -1


def patched(at: int, value: int, code: str = "i") -> bytes:
    data = bytearray(VECTOR)
    struct.pack_into(f">{code}", data, at, value)
    return bytes(data)


def test_empty_space_and_fillers_are_no_records() -> None:
    assert corrupt(bytes(200)) == ("magic", -1)
    assert codec.peek(bytes(200)) == (0, 0)
    filler = codec.encode_blank(4096)
    assert len(filler) == BLANK_SIZE
    assert codec.peek(filler) == (4096, MAGIC_BLANK)
    assert corrupt(filler + bytes(200)) == ("magic", -1)
    assert codec.peek(b"1234567") == (0, 0)


def test_an_unknown_magic_gives_no_size() -> None:
    assert corrupt(patched(4, 0x12345678)) == ("magic", -1)


@pytest.mark.parametrize("size", [102, 2**31 - 1])
def test_a_size_beyond_the_buffer(size: int) -> None:
    assert corrupt(patched(0, size)) == ("short", -1)


@pytest.mark.parametrize("size", [0, -5, 8, 90])
def test_an_impossible_size(size: int) -> None:
    assert corrupt(patched(0, size)) == ("length", -1)


@pytest.mark.parametrize(
    ("at", "value", "code"),
    [
        *[(84, value, "i") for value in (3, -1, -100, 2**31 - 1)],
        *[(90, value, "B") for value in (2, 255)],
        *[(92, value, "h") for value in (6, -7)],
        *[(36, value, "i") for value in (0x10, 0x20, 0x30)],
    ],
)
def test_parts_that_do_not_add_up_keep_the_size(at: int, value: int, code: str) -> None:
    # store.md §3.5: then a reader can step over the record.
    data = patched(at, value, code)
    assert corrupt(data) == ("length", 101)
    assert corrupt(data + VECTOR) == ("length", 101)


def test_a_damaged_body_is_found_only_on_request() -> None:
    data = patched(88, ord("H"), "B")
    assert codec.decode_record(data).body == b"Hi"
    assert corrupt(data, check_crc=True) == ("crc", 101)
    assert codec.decode_record(codec.encode_record(made(body=b"")), check_crc=True).body == b""


def test_reading_stops_at_the_first_bad_record() -> None:
    good = [made(queue_offset=n, body=b"%d" % n) for n in range(3)]
    data = b"".join(map(codec.encode_record, good))
    assert [r.body for r in codec.decode_records(data)] == [b"0", b"1", b"2"]
    assert [r.body for r in codec.decode_records(memoryview(data + VECTOR[:50]))] == [b"0", b"1", b"2"]
    assert [r.body for r in codec.decode_records(bytearray(data + bytes(100) + VECTOR))] == [b"0", b"1", b"2"]
    assert list(codec.decode_records(b"")) == []
    for cut in range(len(data)):
        assert len(pulled.decode_messages(data[:cut], "b")) == len(list(codec.decode_records(data[:cut])))


def test_a_message_has_everything_the_record_says() -> None:
    (message,) = pulled.to_message(codec.decode_record(VECTOR), "b-a")
    assert message == MessageExt(
        topic="T", body=b"hi", flag=7, properties={"TAGS": "A"}, broker_name="b-a", queue_id=3, queue_offset=5,
        commitlog_offset=4096, sys_flag=0, born_timestamp=1_700_000_000_000, born_host="127.0.0.1:40000",
        store_timestamp=1_700_000_000_001, store_host="127.0.0.1:10911", reconsume_times=1,
        prepared_transaction_offset=0, body_crc=1_486_039_724, store_size=101,
        offset_msg_id="7F00000100002A9F0000000000001000",
    )  # fmt: skip
    assert message.tags == "A"
    assert message.msg_id == message.offset_msg_id


def test_a_delivered_message_is_an_ordinary_one() -> None:
    (message,) = pulled.to_message(codec.decode_record(VECTOR), "b-a")
    assert "properties={'TAGS': 'A'}" in repr(message)
    assert pickle.loads(pickle.dumps(message)) == message
    twin = copy.copy(message)
    twin.properties["MIN_OFFSET"] = "0"
    assert message.properties == {"TAGS": "A", "MIN_OFFSET": "0"}, "a copy is shallow, as for any message"
    message.properties = {"a": "b"}
    assert message.user_properties == {"a": "b"}
    assert message != twin


def test_compressed_bodies_are_unpacked_and_the_bit_cleared() -> None:
    body = b"hello " * 1000
    stored = codec.encode_record(made(sys_flag=0x1 | LZ4 | 0x8, body=compress(body, LZ4)))
    (message,) = pulled.decode_messages(stored, "b-a")
    assert message.body == body
    assert message.sys_flag == LZ4 | 0x8
    assert [message] == pulled.to_message(codec.decode_record(stored), "b-a")


def test_a_message_that_cannot_be_unpacked_comes_with_the_others_and_says_so_when_it_is_looked_at() -> None:
    bad = codec.encode_record(made(sys_flag=0x1, body=b"no zlib", topic="Orders"))
    first, broken, last = pulled.decode_messages(VECTOR + bad + VECTOR, "b-a")
    assert (first.body, last.body) == (b"hi", b"hi")
    for _ in range(2):
        with pytest.raises(ProtocolError, match="Orders@b-a:3 offset 5: ZLIB"):
            _ = broken.body
    assert broken.properties == first.properties


@pytest.mark.over_limit("max_unpacked_body_bytes")
def test_a_body_above_the_limit_is_never_unpacked() -> None:
    fits, bomb = (codec.encode_record(made(sys_flag=0x1, body=compress(bytes(size)))) for size in (1_000, 1_001))
    fine, refused = pulled.decode_messages(fits + bomb, "b-a", limit_bytes=1_000)
    assert fine.body == bytes(1_000)
    with pytest.raises(ProtocolError, match=r"limit of 1000 bytes; the client's max_unpacked_body_bytes raises it"):
        _ = refused.body


def test_what_waits_to_be_looked_at_takes_no_more_than_was_sent() -> None:
    bombs = b"".join(
        codec.encode_record(made(sys_flag=0x201, body=compress(bytes(64 << 20), 0x200))) for _ in range(32)
    )
    tracemalloc.start()
    messages = pulled.decode_messages(bombs, "b-a")
    assert sum(body_sizes(messages)) < len(bombs)
    assert tracemalloc.get_traced_memory()[1] < 2 << 20
    tracemalloc.stop()
    assert len(messages[0].body) == 64 << 20
    assert body_sizes(messages)[0] < len(bombs)
    (small,) = pulled.decode_messages(codec.encode_record(made(sys_flag=0x1, body=compress(bytes(1 << 20)))), "b-a")
    assert small.body is small.body
    assert body_sizes([small]) == [1 << 20]


def packed_messages(count: int, size: int, unpacked: UnpackedBodies) -> list[MessageExt]:
    record = codec.encode_record(made(sys_flag=0x1, body=compress(bytes(size))))
    return pulled.decode_messages(record * count, "b-a", unpacked=unpacked)


@pytest.mark.over_limit("max_unpacked_bytes")
def test_messages_keep_unpacked_bodies_up_to_a_sum_and_give_the_room_back() -> None:
    messages = packed_messages(4, 1_000, UnpackedBodies(2_500))
    kept = [one.body is one.body for one in messages]
    assert kept == [True, True, False, False]
    assert body_sizes(messages)[:2] == [1_000, 1_000]
    assert messages[3].body == bytes(1_000)
    messages[0].body = b"changed"
    assert [one.body is one.body for one in messages] == [True, True, True, False]
    del messages[1], messages[0]
    assert messages[1].body is messages[1].body


def test_the_memory_of_messages_that_were_looked_at_is_bounded() -> None:
    record = codec.encode_record(made(sys_flag=0x1, body=compress(bytes(1 << 20))))
    tracemalloc.start()
    messages = pulled.decode_messages(record * 200, "b-a", unpacked=UnpackedBodies(8 << 20))
    assert sum(len(message.body) for message in messages) == 200 << 20
    assert tracemalloc.get_traced_memory()[0] < 12 << 20
    tracemalloc.stop()


def test_threads_may_look_at_bodies_that_share_a_bound() -> None:
    unpacked = UnpackedBodies(10_000)
    with ThreadPoolExecutor(4) as threads:
        for _ in range(20):
            looked = threads.map(lambda message: len(message.body), packed_messages(40, 1_000, unpacked))
            assert list(looked) == [1_000] * 40
    assert [one.body is one.body for one in packed_messages(10, 1_000, unpacked)] == [True] * 10


def test_an_unpacked_message_can_be_copied_changed_and_sent_to_other_processes() -> None:
    (message,) = pulled.decode_messages(codec.encode_record(made(sys_flag=0x1, body=compress(b"paid"))), "b-a")
    assert pickle.loads(pickle.dumps(message)) == message
    assert replace(message, topic="other").body == b"paid"
    message.body = b"changed"
    assert message.body == b"changed"


@pytest.mark.parametrize("sys_flag", [0xC0, 0xC1 | 0x300])
def test_inner_batches_are_unwrapped(sys_flag: int) -> None:
    body = encode_batch([(n, b"inner %d" % n, encode_properties({"KEYS": f"k{n}"})) for n in range(3)])
    outer = made(
        sys_flag=sys_flag,
        body=compress(body) if sys_flag & 1 else body,
        queue_offset=100,
        properties=encode_properties({"INNER_NUM": "3", "INNER_BASE": "100"}),
    )
    stored = codec.encode_record(outer)
    messages = pulled.decode_messages(stored + VECTOR, "b-a")
    assert [m.body for m in messages] == [b"inner 0", b"inner 1", b"inner 2", b"hi"]
    assert [m.queue_offset for m in messages] == [100, 101, 102, 5]
    assert [m.flag for m in messages] == [0, 1, 2, 7]
    assert [m.properties for m in messages[:3]] == [{"KEYS": "k0"}, {"KEYS": "k1"}, {"KEYS": "k2"}]
    assert {m.commitlog_offset for m in messages} == {4096}


def test_an_inner_batch_that_misfits_comes_as_one_message_that_says_so() -> None:
    stored = codec.encode_record(made(sys_flag=0xC0, body=b"not a batch"))
    (message,) = pulled.decode_messages(stored, "b-a")
    with pytest.raises(ProtocolError, match="T@b-a:3 offset 5: batch entry 0"):
        _ = message.body


@pytest.mark.over_limit("maxBatchedPerAnswer")
def test_batches_of_one_answer_are_taken_apart_up_to_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    three = codec.encode_record(made(sys_flag=0xC0, body=encode_batch([(0, b"x", b"")] * 3)))
    monkeypatch.setattr(pulled, "ENTRIES_OF_ANSWER", dataclasses.replace(pulled.ENTRIES_OF_ANSWER, default=8))
    messages = pulled.decode_messages(three * 3, "b-a")
    assert [m.body for m in messages[:6]] == [b"x"] * 6
    assert len(messages) == 7
    with pytest.raises(ProtocolError, match="at most 2 more messages in batches"):
        _ = messages[6].body


def test_packed_batches_of_one_answer_share_the_limit() -> None:
    packed = compress(encode_batch([(0, bytes(600), b"")]))
    stored = codec.encode_record(made(sys_flag=0xC1 | 0x300, body=packed))
    fits, refused = pulled.decode_messages(stored * 2, "b-a", limit_bytes=1_000)
    assert fits.body == bytes(600)
    with pytest.raises(ProtocolError, match="unpacks to more than the limit"):
        _ = refused.body


@pytest.mark.parametrize(
    ("before", "kept"),
    [
        (b"", b""),
        (b"a\x01b\x02", b"a\x01b\x02"),
        (b"a\x01b", b"a\x01b\x02"),
        (b"__CRC32#\x010123456789\x02a\x01b\x02", b"a\x01b\x02"),
        (b"a\x01b\x02__CRC32#\x01x", b"a\x01b\x02"),
    ],
)
def test_the_record_crc_goes_to_the_end(before: bytes, kept: bytes) -> None:
    properties = codec.reserve_property_crc(before)
    assert properties == kept + bytes(20)
    data = bytearray(codec.encode_record(made(properties=properties)))
    assert not codec.verify_property_crc(data)
    codec.fill_property_crc(memoryview(data))
    assert codec.verify_property_crc(data)
    assert codec.decode_record(data).properties[: len(kept) + 9] == kept + b"__CRC32#\x01"
    for at in range(0, len(data), 7):
        data[at] ^= 1
        assert not codec.verify_property_crc(data)
        data[at] ^= 1


def test_records_without_crc_property_do_not_verify() -> None:
    assert not codec.verify_property_crc(VECTOR)
    assert not codec.verify_property_crc(b"short")


def with_own_crc(properties: bytes = b"TAGS\x01A\x02") -> bytes:
    data = bytearray(codec.encode_record(made(properties=codec.reserve_property_crc(properties))))
    codec.fill_property_crc(data)
    return bytes(data)


def test_a_flipped_bit_anywhere_in_a_record_with_its_own_crc_is_noticed() -> None:
    data = with_own_crc()
    assert codec.crc_property_fits(data)
    for bit in range(8 * len(data)):
        changed = bytearray(data)
        changed[bit >> 3] ^= 1 << (bit & 7)
        assert not codec.crc_property_fits(changed), f"bit {bit & 7} of byte {bit >> 3} of {len(data)}"


@pytest.mark.parametrize(
    "properties",
    [
        b"",
        b"TAGS\x01A\x02",
        b"__CRC32c\x011234567890\x02",
        b"__CRC33#\x011234567890\x02",
        b"born\x011700000000000\x02",
        b"__CRC32#\x010123456789\x02TAGS\x01A\x02",
    ],
)
def test_a_record_without_its_own_crc_is_not_taken_for_a_changed_one(properties: bytes) -> None:
    assert codec.crc_property_fits(codec.encode_record(made(properties=properties)))
