"""Frames from templates mean the same as frames from the general codec."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tianzhou.client.producer.message_properties import is_plain, message_properties
from tianzhou.errors import ClientError
from tianzhou.model import Message, MessageQueue
from tianzhou.wire.command import decode
from tianzhou.wire.compression import LZ4, ZLIB, ZSTD, decompress, pack_body
from tianzhou.wire.fields import read_header
from tianzhou.wire.properties import decode_properties, encode_properties
from tianzhou.wire.templates import (
    SendTemplate,
    json_text,
    plain_properties_json,
    properties_json,
)

text = st.text(st.characters(codec="utf-8", exclude_characters="\x01\x02"), min_size=1, max_size=20)
QUEUE = MessageQueue("%RETRY%g|x", 'broker"\\a', 3)


@given(
    properties=st.dictionaries(text, text, max_size=5),
    body=st.binary(max_size=200),
    opaque=st.integers(-(2**31), 2**31 - 1),
    flag=st.integers(-(2**31), 2**31 - 1),
)
def test_a_frame_reads_back_as_it_was_meant(properties, body, opaque, flag):
    frame = SendTemplate("pg", QUEUE, "TBW102", 4).frame(
        opaque, 1_700_000_000_000, properties_json(properties), body, flag=flag, sys_flag=0x301
    )
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    command = decode(frame[4:])
    assert (command.code, command.opaque, command.flag, command.version, bytes(command.body)) == (
        310,
        opaque,
        0,
        479,
        body,
    )
    header = read_header(command)
    assert (header.producer_group, header.topic, header.bname, header.queue_id) == ("pg", *QUEUE[:2], QUEUE.queue_id)
    assert (header.default_topic, header.default_topic_queue_nums) == ("TBW102", 4)
    assert (header.born_timestamp, header.flag, header.sys_flag) == (1_700_000_000_000, flag, 0x301)
    assert (header.reconsume_times, header.max_reconsume_times, header.batch) == (0, None, False)
    assert decode_properties(header.properties.encode()) == properties


@given(
    properties=st.dictionaries(text, text, max_size=3),
    opaque=st.integers(-(2**31), 2**31 - 1),
    born_ms=st.integers(0, 2**62),
    flag=st.integers(-(2**31), 2**31 - 1),
    sys_flag=st.integers(0, 1023),
)
def test_the_quick_way_for_a_frame_gives_the_same_bytes(properties, opaque, born_ms, flag, sys_flag):
    template = SendTemplate("pg", QUEUE, "TBW102", 4)
    pairs = properties_json(properties)
    expected = template.frame(opaque, born_ms, pairs, b"body", flag=flag, sys_flag=sys_flag)
    assert template.frames.frame(opaque, born_ms, flag, sys_flag, pairs, b"body") == expected


def test_batches_one_way_sends_and_retries_say_so():
    template = SendTemplate("pg", QUEUE, "TBW102", 4)
    batch = decode(template.frame(1, 2, "", b"x", code=320)[4:])
    assert (batch.code, read_header(batch).batch) == (320, True)
    oneway = decode(template.frame(1, 2, "", b"x", oneway=True)[4:])
    assert oneway.is_oneway
    retry = read_header(decode(template.frame(1, 2, "", b"x", reconsume_times=3, max_reconsume_times=16)[4:]))
    assert (retry.reconsume_times, retry.max_reconsume_times) == (3, 16)


@given(tags=st.none() | text, keys=text | st.lists(text, min_size=1, max_size=3))
def test_the_quick_way_for_plain_messages_gives_the_same_properties(tags, keys):
    message = Message("T", b"x", tags, keys)
    assert is_plain(message)
    assert plain_properties_json("ID", message) == properties_json(message_properties(message, "ID"))


def test_every_field_of_a_message_becomes_its_property():
    message = Message(
        "T", b"x", "A", ["k1", "k2"], properties={"p": "v"}, delay_level=3, sharding_key="s", wait_store_ok=False
    )
    assert not is_plain(message)
    assert message_properties(message, "ID") == {
        "p": "v",
        "UNIQ_KEY": "ID",
        "TAGS": "A",
        "KEYS": "k1 k2",
        "DELAY": "3",
        "__SHARDINGKEY": "s",
        "WAIT": "false",
    }
    assert message.properties == {"p": "v"}


@pytest.mark.parametrize("fill", ["x", "é", "\U0001f600", '"'])
def test_properties_have_room_for_32767_bytes_and_not_one_more(fill):
    # name, separator, value, separator
    width = len(fill.encode())
    count = (32_767 - 3) // width
    value = fill * count + "x" * (32_767 - 3 - count * width)
    assert len(encode_properties({"p": value})) == 32_767
    properties_json({"p": value})
    with pytest.raises(ClientError, match="32768 bytes, the limit is 32767"):
        properties_json({"p": value + "x"})
    with pytest.raises(ClientError, match="the limit is 32767"):
        plain_properties_json("ID", Message("T", b"x", keys=value))


def test_half_a_surrogate_pair_is_refused():
    with pytest.raises(ClientError, match="lone surrogate"):
        json_text("a\ud800")


@pytest.mark.parametrize("kind", [ZLIB, LZ4, ZSTD])
def test_large_bodies_are_compressed_when_that_helps(kind):
    body = b"abc" * 2000
    packed, flags = pack_body(body, 4096, kind, 5)
    assert flags == 1 | kind
    assert decompress(packed, flags, 10_000) == body
    assert pack_body(body[:4095], 4096, kind, 5) == (body[:4095], 0)
    noise = bytes((i * 7919 + (i >> 3) * 104729) % 251 for i in range(4096))
    unpacked, no_flags = pack_body(noise[:10], 1, kind, 5)
    assert (unpacked, no_flags) == (noise[:10], 0)
