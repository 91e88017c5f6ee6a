"""Random frames: both encodings round-trip, both decoders agree, and only ProtocolError is raised."""

import json
import struct
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tianzhou._hot.headers import PullReplyHeader
from tianzhou.errors import HeaderFieldError, ProtocolError
from tianzhou.wire.command import Command, decode, encode, split
from tianzhou.wire.fields import (
    REPLIES,
    REQUESTS,
    read_header,
    read_reply,
    reply_fields,
    request_fields,
    write_header,
    write_reply,
)

pytestmark = pytest.mark.usefixtures("hot")

MAX_FRAME = 1 << 20
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
# Texts that Java could hold: no half surrogate pairs. Control characters often, like in properties.
TEXT = st.text(st.one_of(st.characters(codec="utf-8"), st.sampled_from('\x00\x01\x02\x7f\x80\u2028"\\')), max_size=20)
NAME = TEXT.filter(bool)


def commands(kind: int) -> st.SearchStrategy[Command]:
    # A binary header cannot distinguish empty texts (wire.md §1.3).
    value = TEXT if kind == 0 else NAME
    return st.builds(
        Command, code=INT32 if kind == 0 else st.integers(-(2**15), 2**15 - 1), opaque=INT32, flag=INT32,
        language=st.integers(0, 13), version=st.integers(0, 2**15 - 1), remark=st.none() | value,
        fields=st.dictionaries(NAME, value, max_size=6), body=st.binary(max_size=50), serialize_type=st.just(kind),
    )  # fmt: skip


@given(st.one_of(commands(0), commands(1)))
def test_a_command_comes_back(command: Command) -> None:
    frame = encode(command)
    assert decode(frame[4:]) == command
    assert struct.unpack_from(">i", frame)[0] == len(frame) - 4


@given(commands(0))
def test_json_headers_are_json_that_others_read(command: Command) -> None:
    frame = encode(command)
    header = json.loads(frame[8 : len(frame) - len(command.body)])
    assert list(header) == sorted(header)
    assert header["code"] == command.code
    assert header.get("extFields", {}) == command.fields
    assert header.get("remark") == command.remark


@given(st.lists(st.one_of(commands(0), commands(1)), max_size=5), st.data())
def test_a_stream_is_split_alike_wherever_it_is_cut(sent: list[Command], data: st.DataObject) -> None:
    stream = b"".join(map(encode, sent))
    found: list[Command] = []
    position = 0
    for end in [*sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=4))), len(stream)]:
        more, position = split(stream, position, end, MAX_FRAME)
        found += more
    assert position == len(stream)
    assert [(command.code, command.opaque, command.body) for command in found] == [
        (command.code, command.opaque, command.body) for command in sent
    ]


VALUES = {"s": TEXT, "i": INT32, "l": INT64, "b": st.booleans(), "e": st.sampled_from(["LOWER", "UPPER"])}


@given(st.sampled_from(sorted(REQUESTS)), st.data())
def test_a_request_header_comes_back(code: int, data: st.DataObject) -> None:
    values: dict[str, Any] = {}
    for field in request_fields(code):
        if field.required or data.draw(st.booleans()):
            values[field.attribute] = data.draw(VALUES[field.kind])
    frame = encode(Command(code, fields=write_header(code, **values)))
    header = read_header(split(frame, 0, len(frame), MAX_FRAME)[0][0])
    for field in request_fields(code):
        assert getattr(header, field.attribute) == values.get(field.attribute, field.default)


@given(st.sampled_from(sorted(REPLIES)), st.data())
def test_a_reply_header_comes_back(code: int, data: st.DataObject) -> None:
    values: dict[str, Any] = {}
    for field in reply_fields(code):
        if field.required or data.draw(st.booleans()):
            values[field.attribute] = data.draw(VALUES[field.kind])
    frame = encode(Command(code).reply(0, fields=write_reply(code, **values)))
    header = read_reply(code, split(frame, 0, len(frame), MAX_FRAME)[0][0])
    for field in reply_fields(code):
        assert getattr(header, field.attribute) == values.get(field.attribute, field.default)


# The hot decoder against the general one, on frames that are almost hot

ODD_TEXT = st.sampled_from(
    ["", "0", "1", "-1", "+1", "007", "-0", "1.0", "1.5", "1e3", "0x1", "null", "true", "TRUE", "false", "2147483647",
     "2147483648", "-2147483649", "9223372036854775807", "9223372036854775808", "x", " 1", "1 ", "\u0663"]
)  # fmt: skip
ODD_VALUE = st.one_of(
    ODD_TEXT.map(json.dumps),
    st.sampled_from(["0", "1", "-1", "1.0", "1.5", "1e3", "-0", "null", "true", "false", "{}", "[1]", "1e400",
                     "2147483648", "18446744073709551616", '"\\ud83d\\ude00"', '"\\u0001"']),
)  # fmt: skip
HOT = (310, 320, 325, 10, 324, 11, 361)


@st.composite
def nearly_hot_headers(draw: st.DrawFn) -> bytes:
    """Draw a header that begins like a hot one, with some fields odd, missing, repeated or unknown."""
    code = draw(st.sampled_from((*HOT, 0, 19, 20, 21)))
    is_request = code in HOT
    table = request_fields(code) if is_request else reply_fields(draw(st.sampled_from((310, 11))))
    usual = {"s": '"x"', "i": '"1"', "l": '"2"', "b": '"true"'}
    fields = [(field.wire, usual[field.kind]) for field in table if field.required or draw(st.integers(0, 3)) == 0]
    if not is_request:
        fields.sort(key=lambda field: field[0] not in ("queueId", "suggestWhichBrokerId"))
    for _ in range(draw(st.integers(0, 2))):
        where = draw(st.integers(0, len(fields)))
        name = draw(st.sampled_from([*(field.wire for field in table), "Signature"]))
        value = draw(ODD_VALUE)
        if draw(st.booleans()) and where < len(fields):
            fields[where] = (fields[where][0], value)
        else:
            fields.insert(where, (name, value))
    text = ",".join(f'"{name}":{value}' for name, value in fields)
    rest = [
        f'"{name}":{draw(ODD_VALUE)}'
        for name in draw(
            st.lists(
                st.sampled_from(["flag", "language", "opaque", "remark", "version", "code", "what", "extFields"]),
                max_size=2,
            )
        )
    ]
    more = "".join("," + item for item in rest)
    return f'{{"code":{code},"extFields":{{{text}}},"flag":0,"language":"GO","opaque":5{more}}}'.encode()


SIGNED = (
    b'{"code":310,"extFields":{"i":"a\\u0001\\"\\\\\\/\\n\xc3\xa9\\u00e9","Signature":"s","a":"g","b":"t","c":"T","d":"1","e":"0",'
    b'"f":"0","g":"1","h":"0","AccessKey":"k"},"opaque":5%b}'
)


def framed(header: bytes, body: bytes = b"") -> bytes:
    return struct.pack(">II", 4 + len(header) + len(body), len(header)) + header + body


def outcome(attempt: Callable[[], Command]) -> tuple[Command | None, str | None]:
    """Return the result of decoding: a command, or the text of a refusal."""
    try:
        return attempt(), None
    except ProtocolError as error:
        return None, str(error)


@given(nearly_hot_headers(), st.binary(max_size=5))
@example(b'{"code":310,"extFields":{"a":"\xff"}}', b"")
@example(b'{"code":11,"extFields":{}}', b"x")
@example(SIGNED % b"", b"x")
@example(SIGNED % b',"extFields":{"Signature":"s","a":"other"}', b"x")
@example(SIGNED % b',"extF\\u0069elds":{"Signature":"s","a":"other"}', b"x")
def test_hot_and_general_agree_on_what_looks_hot(header: bytes, body: bytes) -> None:
    frame = framed(header, body)
    general, refused = outcome(lambda: decode(frame[4:]))
    hot, refused_hot = outcome(lambda: split(frame, 0, len(frame), MAX_FRAME)[0][0])
    assert refused_hot == refused
    if general is None or hot is None:
        return
    if hot.header is None:
        assert hot == general
        return
    read = read_header
    if hot.code in (0, 19, 20, 21):
        code = 11 if isinstance(hot.header, PullReplyHeader) else 310
        read = lambda command: read_reply(code, command)  # noqa: E731
    assert hot.header == read(general)
    if hot.signed:
        values = [value for name, value in sorted(general.fields.items()) if name != "Signature"]
        assert hot.signed.decode() == "".join(values)
    hot.header, hot.fields, hot.signed = None, general.fields, b""
    assert hot == general


# Random bytes


@given(st.binary(max_size=80))
@example(b"\x00\x00\x00\x04\x01\x00\x00\x00")
def test_no_bytes_do_more_than_a_protocol_error(data: bytes) -> None:
    for frame in (data, b"\x00" + data, b"\x01\x00\x00" + bytes([max(0, len(data) - 1)]) + data):
        with suppress(ProtocolError):
            decode(frame)
        with suppress(ProtocolError):
            split(frame, 0, len(frame), MAX_FRAME)


@given(st.one_of(commands(0), commands(1)), st.data())
def test_a_damaged_frame_does_no_more_than_a_protocol_error(command: Command, data: st.DataObject) -> None:
    frame = bytearray(encode(command))
    for _ in range(data.draw(st.integers(1, 4))):
        frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    with suppress(ProtocolError):
        found, position = split(frame, 0, len(frame), MAX_FRAME)
        assert 0 <= position <= len(frame)
        for one in found:
            with suppress(HeaderFieldError):
                read_header(one)
