"""The connection engine, driven with plain bytes."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tianzhou.errors import ProtocolError
from tianzhou.remoting.session import MAX_FRAME, SMALL_FRAME, OpaqueCounter, Session, scratch_buffer
from tianzhou.wire.command import Command, encode

SMALL = encode(Command(105, opaque=1, fields={"topic": "T"}))
BINARY = encode(Command(105, opaque=2, fields={"topic": "T"}, serialize_type=1))


def receive(session: Session, data: bytes, step: int | None = None) -> list[Command]:
    """Feed a session like a transport, `step` bytes at a time; commands before an error are returned first."""
    commands: list[Command] = []
    rest = data
    while session.error is None and rest:
        target = session.writable()
        count = min(len(target), len(rest), step or len(rest))
        target[:count] = rest[:count]
        commands += session.received(count)
        rest = rest[count:]
    if session.error is not None and not commands:
        raise session.error
    return commands


def test_commands_come_in_order_whatever_the_pieces() -> None:
    data = b"".join(encode(Command(10, opaque=i, body=b"x" * i)) for i in range(50)) + BINARY
    for step in (1, 2, 3, 7, 64, 1000, len(data)):
        found = receive(Session(), data, step)
        assert [c.opaque for c in found] == [*range(50), 2]
        assert [len(c.body) for c in found] == [*range(50), 0]


@given(
    sizes=st.lists(st.sampled_from([0, 1, 100, SMALL_FRAME - 200, SMALL_FRAME, SMALL_FRAME + 1, 200_000]), max_size=6),
    cuts=st.lists(st.integers(1, 150_000), min_size=2, max_size=8),
)
def test_any_cut_of_small_and_large_frames(sizes: list[int], cuts: list[int]) -> None:
    data = b"".join(encode(Command(10, opaque=i, body=bytes([i]) * size)) for i, size in enumerate(sizes))
    session, position, turn, found = Session(), 0, 0, []
    while position < len(data):
        step = cuts[turn % len(cuts)]
        turn += 1
        found += receive(session, data[position : position + step])
        position += step
    assert [(c.opaque, bytes(c.body)) for c in found] == [(i, bytes([i]) * size) for i, size in enumerate(sizes)]
    assert session.reserved == 0


def test_sessions_that_share_a_scratch_buffer_do_not_mix() -> None:
    scratch = scratch_buffer()
    left, right = Session(scratch=scratch), Session(scratch=scratch)
    assert receive(left, SMALL[:20]) == []
    assert receive(right, BINARY[:20]) == []
    (one,) = receive(left, SMALL[20:])
    (two,) = receive(right, BINARY[20:])
    assert (one.opaque, two.opaque) == (1, 2)


def test_the_largest_frame_passes_and_one_byte_more_is_refused() -> None:
    header = encode(Command(10, opaque=7))
    body = b"z" * (MAX_FRAME - len(header))
    frame = encode(Command(10, opaque=7, body=body))
    assert len(frame) == MAX_FRAME
    (command,) = receive(Session(), frame)
    assert len(command.body) == len(body)
    with pytest.raises(ProtocolError, match="16777213"):
        receive(Session(), struct.pack(">I", MAX_FRAME - 3) + b"\0" * 100)


def test_an_announced_size_takes_no_memory_before_its_bytes_arrive() -> None:
    session = Session()
    receive(session, struct.pack(">I", MAX_FRAME - 4) + b"\0\0\0\x02{}")
    assert len(session.writable()) <= 4 * SMALL_FRAME
    assert session.reserved == 2048


def test_a_large_frame_fed_in_small_pieces_is_not_copied_again_and_again() -> None:
    frame = encode(Command(10, body=b"q" * 4_000_000))
    session = Session()
    buffers = set()
    for start in range(0, len(frame), 4096):
        receive(session, frame[start : start + 4096])
        buffers.add(id(session._large))
    assert len(buffers) < 12  # doubling: each byte is moved twice on average


def test_a_small_frame_that_comes_byte_by_byte_is_not_copied_at_every_byte() -> None:
    frame = encode(Command(10, body=b"q" * (SMALL_FRAME - 300)))
    session = Session()
    moves, last, found = 0, None, []
    for position in range(len(frame)):
        found += receive(session, frame[position : position + 1])
        moves += session._large is not last
        last = session._large
    assert len(found) == 1
    assert moves < 8


@pytest.mark.parametrize(
    "data",
    [
        b"\0\0\0\0",
        b"\0\0\0\x03\0\0\0",
        b"\xff\xff\xff\xff",
        b"\x80\0\0\0aaaa",
        b"\0\0\0\x04\0\0\0\0",
        b"\0\0\0\x06\0\0\0\x02[]",
        b"\0\0\0\x06\0\0\0\x02{]",
        b"\0\0\0\x06\x02\0\0\x02{}",
        b"\0\0\0\x06\0\0\0\x03{}",
        b"\0\0\0\x06\x01\0\0\x02{}",
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03",
        b"PROXY TCP4 127.0.0.1 127.0.0.1 1 2\r\n",
    ],
)
def test_garbage_is_an_error_at_once(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        receive(Session(), data)


def test_tls_is_named_in_the_error() -> None:
    with pytest.raises(ProtocolError, match="TLS"):
        receive(Session(), b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03")


def test_commands_in_front_of_garbage_are_served_first() -> None:
    session = Session()
    found = receive(session, SMALL + BINARY + b"\0\0\0\x06\x07\0\0\x02{}" + SMALL)
    assert [c.opaque for c in found] == [1, 2]
    with pytest.raises(ProtocolError, match="type"):
        receive(session, b"")
    with pytest.raises(ProtocolError):
        receive(session, SMALL)


def test_opaques_wrap_as_int32_and_do_not_repeat() -> None:
    counter = OpaqueCounter(0x7FFFFFFE)
    assert [counter.next() for _ in range(4)] == [0x7FFFFFFE, 0x7FFFFFFF, -0x80000000, -0x7FFFFFFF]
