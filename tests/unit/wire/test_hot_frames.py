"""Splitting a read into commands, and replies by template."""

import struct
from types import SimpleNamespace

import pytest

from tianzhou._hot import pull_reply, send_reply
from tianzhou._hot.headers import PullHeader, PullReplyHeader, SendHeader, SendHeaderV2, SendReplyHeader
from tianzhou.errors import ProtocolError
from tianzhou.wire.command import Command, decode, encode, split
from tianzhou.wire.fields import read_header, read_reply, write_header, write_reply

pytestmark = pytest.mark.usefixtures("hot")

MAX = 16_777_216
SEND = {
    "producer_group": "pg", "topic": "T", "default_topic": "TBW102", "default_topic_queue_nums": 4, "queue_id": 2,
    "sys_flag": 0, "born_timestamp": 1700000000000, "flag": 7, "properties": "a\x01b\x02", "batch": False,
    "bname": "b-a",
}  # fmt: skip
PULL = {
    "consumer_group": "cg", "topic": "T", "queue_id": 3, "queue_offset": 1 << 40, "max_msg_nums": 32, "sys_flag": 3,
    "commit_offset": 5, "suspend_timeout_millis": 15000, "sub_version": 1700000000000, "expression_type": "TAG",
}  # fmt: skip
SENT = write_reply(310, queue_id=1, msg_id="00", queue_offset=9)
PULLED = write_reply(11, suggest_which_broker_id=0, next_begin_offset=33, max_offset=50, min_offset=1, topic_sys_flag=0)


def one(frame: bytes) -> Command:
    commands, position = split(frame, 0, len(frame), MAX)
    assert position == len(frame)
    assert len(commands) == 1
    return commands[0]


def request(code: int, **values: object) -> Command:
    return Command(code, 5, fields=write_header(code, **values), body=b"body")


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        (request(310, **SEND), SendHeaderV2),
        (request(320, **SEND), SendHeaderV2),
        (request(325, **SEND), SendHeaderV2),
        (request(10, **SEND), SendHeader),
        (request(324, **SEND), SendHeader),
        (request(11, **PULL), PullHeader),
        (request(361, **PULL), PullHeader),
        (request(310, **SEND, ns="n", nsd=True, oway=False, lo=True, req_t=0), SendHeaderV2),
        (Command(0, 5, 1, fields=SENT), SendReplyHeader),
        (Command(0, 5, 1, fields=PULLED, body=b"records"), PullReplyHeader),
        (Command(19, 5, 1, remark="NO_MESSAGE_IN_QUEUE", fields=PULLED), PullReplyHeader),
        (Command(20, 5, 1, fields=PULLED), PullReplyHeader),
        (Command(21, 5, 1, fields=PULLED), PullReplyHeader),
    ],
)
def test_hot_kinds_come_typed_and_equal_to_the_general_way(command: Command, kind: type) -> None:
    frame = encode(command)
    hot, general = one(frame), decode(frame[4:])
    assert type(hot.header) is kind
    assert general.header is None
    code = 11 if kind is PullReplyHeader else 310
    expected = read_reply(code, general) if general.is_response else read_header(general)
    assert hot.header == expected
    hot.header, hot.fields = None, general.fields
    assert hot == general == command


def test_typed_values() -> None:
    header = one(encode(request(310, **{**SEND, "batch": True}))).header
    assert (header.producer_group, header.queue_id, header.born_timestamp) == ("pg", 2, 1700000000000)
    assert (header.batch, header.unit_mode, header.reconsume_times) == (True, False, 0)
    assert (header.max_reconsume_times, header.ns, header.lo) == (None, None, None)
    header = one(encode(request(11, **PULL))).header
    assert (header.queue_offset, header.subscription, header.max_msg_bytes) == (1 << 40, None, None)
    header = one(encode(Command(0, 5, 1, fields={**SENT, "TRACE_ON": "false"}))).header
    assert (header.msg_id, header.trace_on, header.transaction_id) == ("00", False, None)


def test_numbers_of_a_pull_may_have_leading_zeros_and_texts_keep_theirs() -> None:
    texts = {"consumer_group": "007", "topic": "00", "subscription": 'queueId":"01', "bname": "0"}
    fields = write_header(11, **{**PULL, **texts, "queue_offset": 120, "commit_offset": 0})
    padded = {**fields, "queueId": "03", "queueOffset": "0000000120", "commitOffset": "000"}
    plain = one(encode(Command(11, 5, fields=fields))).header
    assert type(plain) is PullHeader
    assert one(encode(Command(11, 5, fields=padded))).header == plain
    assert read_header(decode(encode(Command(11, 5, fields=padded))[4:])) == plain
    assert (plain.consumer_group, plain.topic, plain.subscription) == ("007", "00", 'queueId":"01')


@pytest.mark.parametrize(
    "fields",
    [
        {"e": None},  # missing
        {"e": "2147483648"},
        {"e": "x"},
        {"m": "TRUE"},
        {"m": "1"},
        {"lo": "null"},
        {"Signed": "s"},
        {"unitMode": "true"},
    ],
)
def test_whatever_is_unusual_keeps_its_text(fields: dict[str, str | None]) -> None:
    changed = {**write_header(310, **SEND), **fields}
    kept = {name: text for name, text in changed.items() if text is not None}
    command = one(encode(Command(310, 5, fields=kept)))
    assert command.header is None
    assert command.fields == kept


@pytest.mark.parametrize("second", ['"code":11', '"extFields":{"a":"g"}', '"opaque":"x"', '"language":3'])
def test_a_second_key_further_on_wins_either_way(second: str) -> None:
    frame = encode(request(310, **SEND))
    header = frame[8 : frame.rindex(b"}") + 1]
    changed = header[:-1] + b"," + second.encode() + b"}"
    whole = struct.pack(">II", 4 + len(changed), len(changed)) + changed
    try:
        expected = decode(whole[4:])
    except ProtocolError:
        with pytest.raises(ProtocolError):
            split(whole, 0, len(whole), MAX)
        return
    found = one(whole)
    assert found.header is None
    assert found == expected


@pytest.mark.parametrize("code", [10, 11, 12])
def test_a_success_variant_of_a_send_is_no_request(code: int) -> None:
    reply = one(encode(Command(code, 5, 1, fields=SENT)))
    assert reply.is_response
    assert read_reply(310, reply).queue_offset == 9


def test_frames_come_in_order_and_the_rest_is_left() -> None:
    frames = [encode(request(310, **{**SEND, "queue_id": i})) for i in range(5)]
    frames += [encode(Command(34, i, body=b"{}")) for i in range(3)] + [encode(Command(105, 9, serialize_type=1))]
    joined = b"".join(frames)
    ends = [sum(map(len, frames[: i + 1])) for i in range(len(frames))]
    for end in range(len(joined) + 1):
        commands, position = split(bytearray(joined), 0, end, MAX)
        complete = sum(1 for stop in ends if stop <= end)
        assert len(commands) == complete
        assert position == (ends[complete - 1] if complete else 0)
    commands, _ = split(b"junk" + joined, 4, 4 + len(joined), MAX)
    assert [command.code for command in commands] == [310] * 5 + [34] * 3 + [105]
    assert [read_header(command).queue_id for command in commands[:5]] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("kind", [bytearray, memoryview])
def test_nothing_returned_refers_to_the_buffer(kind: type) -> None:
    frame = encode(request(310, **SEND)) + encode(Command(34, 1, body=b"heartbeat"))
    store = bytearray(frame)
    commands, _ = split(kind(store), 0, len(frame), MAX)
    store[:] = b"\xff" * len(store)
    store += b"may grow: no view is held"
    assert [bytes(command.body) for command in commands] == [b"body", b"heartbeat"]
    assert commands[0].header.topic == "T"


@pytest.mark.over_limit("maxFrameBytes")
@pytest.mark.parametrize("size", [4, 8, 19, 20, 100])
@pytest.mark.parametrize("length", [-1, -(2**31), 0, 3, MAX - 3, 2**31 - 1])
def test_a_length_no_frame_may_have_is_refused_at_once(size: int, length: int) -> None:
    data = (struct.pack(">i", length) + bytes(100))[:size]
    with pytest.raises(ProtocolError, match=f"frame length {length} .*allowed are 4 to {MAX - 4}"):
        split(data, 0, len(data), MAX)


def test_other_protocols_are_shown_in_the_words() -> None:
    with pytest.raises(ProtocolError, match="b'GET '"):
        split(b"GET / HTTP/1.1\r\n\r\n", 0, 18, MAX)


def test_the_largest_frame_is_awaited() -> None:
    data = struct.pack(">i", MAX - 4) + bytes(60)
    assert split(data, 0, len(data), MAX) == ([], 0)
    assert split(data, 0, 4, MAX) == ([], 0)
    assert split(data, 0, 3, MAX) == ([], 0)


@pytest.mark.parametrize("bad", [b"\x00\x00\x00\x04\x05\x00\x00\x00", b"\x00\x00\x00\x06\x00\x00\x00\x02[}"])
def test_garbage_in_a_good_frame_is_refused(bad: bytes) -> None:
    for data in (bad, bad + bytes(30)):
        with pytest.raises(ProtocolError):
            split(data, 0, len(data), MAX)


def test_a_header_longer_than_its_frame_is_refused() -> None:
    header = encode(request(310, **SEND))[8:]
    data = struct.pack(">II", 4 + len(header), len(header) + 1) + header + b"}"
    with pytest.raises(ProtocolError, match="header length"):
        split(data, 0, len(data), MAX)


def test_a_name_split_by_the_frames_end_is_not_read_beyond_it() -> None:
    first = b'{"code":0,"extFields":{'
    data = struct.pack(">II", 4 + len(first), len(first)) + first + b'"queueId":"1"' + bytes(40)
    with pytest.raises(ProtocolError, match="JSON header of 23 bytes cannot be read"):
        split(data, 0, len(data), MAX)


@pytest.mark.parametrize("transaction_id", [None, "FD0000000000", 'we"ird\\ \x01中', "", "a-b"])
@pytest.mark.parametrize(("region", "trace_on"), [("DefaultRegion", True), ('r"\x02', False)])
def test_send_reply_equals_the_general_codec(
    hot: SimpleNamespace, transaction_id: str | None, region: str, trace_on: bool
) -> None:
    for opaque, ids in ((0, "7F0000010000792300,7F0000010000792301"), (-1, ""), (2**31 - 1, "7F00000100002A9F")):
        fields = write_reply(
            310,
            queue_id=3,
            transaction_id=transaction_id,
            msg_id=ids + "0000000012345ABC",
            trace_on=trace_on,
            msg_region=region,
            queue_offset=1 << 50,
        )
        general = encode(Command(310, opaque).reply(0, fields=fields))
        told = 3, 1 << 50, transaction_id, region, trace_on
        assert send_reply(opaque, ids + "0000000012345ABC", *told) == general
        made = hot.stored_reply(opaque, ids, 0x12345ABC, *told)
        assert made == general
        assert one(made).header is not None


def test_pull_reply_equals_the_general_codec() -> None:
    cases = [(0, "FOUND", b"one, two"), (19, None, b""), (21, 'odd "\x01', b""), (20, "", b"")]
    for code, remark, body in cases:
        fields = write_reply(
            11,
            suggest_which_broker_id=1,
            group_sys_flag=2,
            next_begin_offset=1 << 50,
            max_offset=7,
            min_offset=-1,
            topic_sys_flag=3,
        )
        general = encode(Command(11, 77).reply(code, remark, fields, body))
        made = b"".join(pull_reply(77, code, remark, 1 << 50, -1, 7, 1, 2, 3, body))
        assert made == general
        assert one(made).header.next_begin_offset == 1 << 50


def test_many_remarks_and_regions_stay_right(hot: SimpleNamespace) -> None:
    for number in range(200):
        remark = f"remark {number % 150}"
        assert decode(pull_reply(1, 19, remark, 0, 0, 0, 0, 0, 0, b"")[0][4:]).remark == remark
        region = f"region {number % 150}"
        assert read_reply(310, decode(hot.stored_reply(1, "m", 0, 0, 0, "u", region, True)[4:])).msg_region == region
