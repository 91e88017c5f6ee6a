"""Replies read into blocks, against the split that copies each body out of its frame."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tianzhou._hot import pull_reply
from tianzhou._hot.headers import PullReplyHeader
from tianzhou.client.consumer.pull.pull_replies import MAX_FRAME, PullReplies, PullReply
from tianzhou.errors import ProtocolError
from tianzhou.wire.codes import ROCKETMQ
from tianzhou.wire.command import Command, encode, split

SMALL = 1 << 20


def found(opaque: int, body: bytes) -> bytes:
    """A reply to a pull."""
    return b"".join(pull_reply(opaque, 0, "FOUND", opaque + 1, 0, 99, 0, 0, 0, body))


FRAMES = st.one_of(
    st.builds(found, st.integers(0, 1000), st.binary(max_size=3000)),
    st.builds(
        lambda code, opaque, body, kind: encode(
            Command(code, opaque, 1, remark="no", body=body, serialize_type=kind, fields={"nextBeginOffset": "3"})
        ),
        st.sampled_from([0, 1, 17, 19, 21, 1500]),
        st.integers(0, 1000),
        st.binary(max_size=100),
        st.sampled_from([0, ROCKETMQ]),
    ),
)


def feed(replies: PullReplies, data: bytes, most: int) -> list[PullReply]:
    """Have data arrive, in pieces."""
    come, at = [], 0
    while at < len(data):
        room = replies.writable()
        piece = data[at : at + min(most, len(room))]
        room[: len(piece)] = piece
        del room
        come += replies.received(len(piece))
        at += len(piece)
    return come


@given(st.lists(st.lists(FRAMES, min_size=1, max_size=6), max_size=4), st.integers(1, 5000), st.booleans())
def test_what_is_split_is_the_same_and_stays(runs: list[list[bytes]], most: int, hold: bool) -> None:
    replies = PullReplies(block_bytes=SMALL)
    held: list[PullReply] = []
    for frames in runs:
        replies.begin()
        data = b"".join(frames)
        come = feed(replies, data, most)
        expected, after = split(data, 0, len(data), MAX_FRAME)
        assert after == len(data)
        for one, other in zip(come, expected, strict=True):
            assert one.body == other.body
            head, same = one.command, other.__copy__()
            same.body = b""
            assert head == same
            assert type(head.header) is type(same.header)
        held += come if hold else []
        del come, one
    bodies = [split(frame, 0, len(frame), MAX_FRAME)[0][0].body for frames in runs for frame in frames]
    assert [one.body for one in held] == (bodies if hold else [])


def test_a_body_is_a_view_and_its_header_the_one_of_a_pull() -> None:
    (one,) = feed(PullReplies(), found(5, b"records"), 1)
    assert (one.body, one.command.opaque, type(one.command.header)) == (b"records", 5, PullReplyHeader)
    assert isinstance(one.body, memoryview)


def test_a_block_is_written_again_once_nobody_looks_at_it() -> None:
    replies = PullReplies(block_bytes=SMALL)
    (first,) = feed(replies, found(1, b"a" * 100_000), SMALL)
    block = first.body.obj
    replies.begin()
    (second,) = feed(replies, found(2, b"b" * 100_000), SMALL)
    assert second.body.obj is block, "it goes behind what is looked at"
    assert (bytes(first.body), bytes(second.body)) == (b"a" * 100_000, b"b" * 100_000)
    del first, second
    replies.begin()
    (third,) = feed(replies, found(3, b"c" * 100_000), SMALL)
    assert third.body.obj is block
    assert bytes(block[:200_000]).count(b"a") < 1000


@pytest.mark.parametrize("size", [SMALL // 2, SMALL, 3 * SMALL])
def test_frames_that_do_not_fit_go_on_in_another_block(size: int) -> None:
    replies = PullReplies(block_bytes=SMALL)
    bodies = [bytes([number]) * size for number in range(5)]
    come = feed(replies, b"".join(found(number, body) for number, body in enumerate(bodies)), 70_000)
    assert [bytes(one.body) for one in come] == bodies


@pytest.mark.parametrize(
    "data",
    [
        b"\x00\x00\x00\x03\x00\x00\x00\x00",
        b"\xff\xff\xff\xff\x00\x00\x00\x00",
        b"\x00\x00\x00\x08\x00\x00\x00\x05",
        (MAX_FRAME - 3).to_bytes(4, "big") + b"\x00\x00\x00\x00",
        b"\x00\x00\x00\x08\x00\x00\x00\x04nope",
    ],
)
def test_what_is_no_frame_is_an_error_before_any_of_it_has_come(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        feed(PullReplies(block_bytes=SMALL), data, 100)
