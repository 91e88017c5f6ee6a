"""Fast frames: split reads into commands, decode headers of the hot kinds into structs, encode replies by template.

A frame is an i32 length, a word of one type byte and 24 bits of header length, the header, the body
(wire.md §1.1). The start of a header identifies a hot kind, because Java writes JSON keys in alphabetical order:
`{"code":310,` names the struct to decode into. Every other header, and a header that does not fit its struct exactly
(an unknown field, a number out of range), is decoded by the general codec of `tianzhou.wire.command`. So both ways
give the same values.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from typing import Any, Literal

import msgspec
import orjson

from tianzhou._hot.headers import (
    LANGUAGE_CODES,
    OTHER,
    VERSION,
    Command,
    Int32,
    Int64,
    PullHeader,
    PullReplyHeader,
    SendHeader,
    SendHeaderV2,
    SendReplyHeader,
)
from tianzhou.errors import ProtocolError

Buffer = bytes | bytearray | memoryview


class _Frame(msgspec.Struct, kw_only=True, gc=False):
    """The fields that JSON headers of all kinds share; defaults as in wire.md §1.2."""

    language: str = "JAVA"
    version: Int32 = 0
    opaque: Int32 = 0
    flag: Int32 = 0
    remark: str | None = None


def _decoder(header: type[msgspec.Struct], *codes: int) -> Callable[[Buffer], Any]:
    # The code is checked again: a second "code" later in the header would override the first one.
    frame = msgspec.defstruct(
        header.__name__ + "Frame",
        [("code", Literal[codes]), ("header", header)],
        bases=(_Frame,),
        kw_only=True,
        rename={"header": "extFields"},
        gc=False,
    )
    FRAMES.append(frame)
    return msgspec.json.Decoder(frame, strict=False).decode


FRAMES: list[type[msgspec.Struct]] = []
"""Structs for frames of the hot kinds; their attributes have the same positions."""


def _number(text: bytes) -> int:
    return int.from_bytes(text, "big")


_SEND_V2 = _decoder(SendHeaderV2, 310, 320, 325)
_SEND = _decoder(SendHeader, 10, 324)
_WHOLE_PULL = _decoder(PullHeader, 11, 361)
_SEND_REPLY = _decoder(SendReplyHeader, 0)
_PULL_REPLY = _decoder(PullReplyHeader, 0, 19, 20, 21)

_PULL_NUMBERS = frozenset(
    field.encode_name.encode()
    for field in msgspec.structs.fields(PullHeader)
    if field.type in (Int32, Int64, Int32 | None)
)


def _PULL(header: Buffer) -> Any:  # noqa: N802 - one decoder among others
    try:
        return _WHOLE_PULL(header)
    except msgspec.ValidationError:
        # Java accepts "007". Some tools write numbers so to get frames of equal length.
        return _WHOLE_PULL(_without_zeros(bytes(header)))


def _without_zeros(header: bytes) -> bytes:
    before, *pieces = header.split(b'":"0')
    made = [before]
    for piece in pieces:
        if piece[:1].isdigit() and before[before.rfind(b'"') + 1 :] in _PULL_NUMBERS:
            number = piece.lstrip(b"0")
            made.append(b'":"' + number if number[:1].isdigit() else b'":"0' + number)
        else:
            made.append(b'":"0' + piece)
        before = piece
    return b"".join(made)


_peek = struct.Struct(">iIQI").unpack_from
_PEEK_SIZE = 20
_START = _number(b'{"code":')
_CODE_AT, _MOST_CODE = 16, 8  # bytes before a request's code, and bytes of the longest code with its comma
# The bytes after it identify the kind of a request. (The compiled twin reads these tables, too.)
BY_CODE = {
    _number(b"310,"): _SEND_V2,
    _number(b"320,"): _SEND_V2,
    _number(b"325,"): _SEND_V2,
    _number(b"324,"): _SEND,
    _number(b'10,"'): _SEND,
    _number(b'11,"'): _PULL,
    _number(b"361,"): _PULL,
}
# A reply's first field identifies the kind of its request; the value is the position of the field's name in the frame.
FIRST_FIELD_AT = {
    _number(b'0,"e'): 8 + len(b'{"code":0,"extFields":{"'),
    _number(b'19,"'): 8 + len(b'{"code":19,"extFields":{"'),
    _number(b'20,"'): 8 + len(b'{"code":20,"extFields":{"'),
    _number(b'21,"'): 8 + len(b'{"code":21,"extFields":{"'),
}
_peek_name = struct.Struct(">Q").unpack_from
BY_FIRST_FIELD = {_number(b'queueId"'): _SEND_REPLY, _number(b"suggestW"): _PULL_REPLY}
_JSON_WORD_MAX = 0xFFFFFF
PEEK_SIZE = _PEEK_SIZE
"""Minimum bytes of a frame of a hot kind."""
_STORED = _number(b'0,"e')
_STORED_NAME_AT, _STORED_NAME = FIRST_FIELD_AT[_STORED], _number(b'queueId"')


def stored_at(buffer: Buffer, view: memoryview, start: int, end: int) -> tuple[Any, int]:
    """Return the ordinary reply to a send that is complete in `buffer[start:end]`, and its end.

    Args:
        buffer: bytes read from a connection.
        view: a view of `buffer`.
        start: start of a frame.
        end: end of the bytes read so far, at least `PEEK_SIZE` after `start`.

    Returns:
        The frame with code, flag, opaque and a `SendReplyHeader`; None and `start` without such a reply.
    """
    length, word, first, second = _peek(buffer, start)
    stop = start + 4 + length
    if first != _START or second != _STORED or not start + 8 + word <= stop <= end or word > _JSON_WORD_MAX:
        return None, start
    if start + _STORED_NAME_AT + 8 > stop or _peek_name(buffer, start + _STORED_NAME_AT)[0] != _STORED_NAME:
        return None, start
    try:
        return _SEND_REPLY(view[start + 8 : start + 8 + word]), stop
    except (ValueError, RecursionError):
        return None, start


def request_code(buffer: Buffer, start: int, end: int) -> int:
    """Return the code of the request whose frame begins at `start`; -1 when its header does not begin with the code.

    Args:
        buffer: bytes of a read.
        start: start of the frame.
        end: end of the bytes read so far.
    """
    if end - start < _PEEK_SIZE or _peek(buffer, start)[2] != _START:
        return -1
    digits, mark, _ = bytes(buffer[start + _CODE_AT : min(start + _CODE_AT + _MOST_CODE, end)]).partition(b",")
    return int(digits) if mark and digits.isdigit() else -1


def split(
    buffer: Buffer, start: int, end: int, max_frame: int, decode: Callable[[memoryview], Command]
) -> tuple[list[Command], int]:
    """Split `buffer[start:end]` into its whole frames and decode them.

    Bodies are copied out once; the results do not refer to the buffer.

    Args:
        buffer: bytes read from a connection.
        start: start of the first frame.
        end: end of the bytes read so far.
        max_frame: maximum bytes of a frame, including its length word.
        decode: decodes a frame of another kind from the bytes after its length word.

    Returns:
        The commands in order, and the start of the first incomplete frame.

    Raises:
        ProtocolError: a frame length is invalid, found before the frame has arrived; or `decode` raised it.
    """
    commands: list[Command] = []
    position = start
    view = memoryview(buffer)
    while end - position >= _PEEK_SIZE:
        length, word, first, second = _peek(buffer, position)
        stop = position + 4 + length
        if length < 4 or length + 4 > max_frame:
            raise ProtocolError(_bad_length(view, position, max_frame))
        if stop > end:
            return commands, position
        body = position + 8 + word
        if first == _START and body <= stop and word <= _JSON_WORD_MAX:
            unpack = BY_CODE.get(second)
            if unpack is None:
                at = FIRST_FIELD_AT.get(second)
                if at is not None and position + at + 8 <= stop:
                    unpack = BY_FIRST_FIELD.get(_peek_name(buffer, position + at)[0])
            if unpack is not None:
                try:
                    found = unpack(view[position + 8 : body])
                except (ValueError, RecursionError):
                    pass
                else:
                    commands.append(
                        Command(
                            found.code,
                            found.opaque,
                            found.flag,
                            LANGUAGE_CODES.get(found.language, OTHER),
                            found.version,
                            found.remark,
                            {},
                            bytes(view[body:stop]),
                            0,
                            found.header,
                            signed_content(bytes(view[position + 8 : body])),
                        )
                    )
                    position = stop
                    continue
        commands.append(decode(view[position + 4 : stop]))
        position = stop
    while end - position >= 4:  # frames too short for a hot kind
        length = int.from_bytes(view[position : position + 4], "big", signed=True)
        if length < 4 or length + 4 > max_frame:
            raise ProtocolError(_bad_length(view, position, max_frame))
        stop = position + 4 + length
        if stop > end:
            break
        commands.append(decode(view[position + 4 : stop]))
        position = stop
    return commands, position


class _Fields(msgspec.Struct, rename={"fields": "extFields"}, gc=False):
    fields: dict[str, str]


_FIELDS = msgspec.json.Decoder(_Fields).decode


def signed_content(header: bytes) -> bytes:
    """Return the content that the signature in a JSON header covers: the field values in the order of their names.

    Args:
        header: header of a request.

    Returns:
        Empty without a signature, or when only the general codec can decode the fields.
    """
    if b'"Signature"' not in header:
        return b""
    try:
        fields = _FIELDS(header).fields
    except ValueError:
        return b""
    return "".join([value for name, value in sorted(fields.items()) if name != "Signature"]).encode()


def _bad_length(view: memoryview, position: int, max_frame: int) -> str:
    shown = bytes(view[position : position + 4])
    length = int.from_bytes(shown, "big", signed=True)
    return f"frame length {length} (bytes {shown!r}); allowed are 4 to {max_frame - 4}"


# Templates

_TAIL = f'"serializeTypeCurrentRPC":"JSON","version":{VERSION}}}'
_frame_head = struct.Struct(">II").pack
# Pieces that repeat from reply to reply. Limited, because a remark may be any text.
_regions: dict[tuple[str, bool], str] = {}
_remarks: dict[str | None, str] = {None: ""}
_MAX_PIECES = 64


def send_reply(
    opaque: int, msg_id: str, queue_id: int, queue_offset: int, transaction_id: str | None, region: str, trace_on: bool
) -> bytes:
    """Return the reply frame for a stored message (code 0, wire.md §4.6).

    Fields and their order are those of Apache 5.3.3; see `Command.reply` for version and language.

    Args:
        opaque: opaque of the request.
        msg_id: offset message id; of a batch, all of them joined by commas.
        queue_id: queue of the message.
        queue_offset: its queue offset; of a batch, the first message's.
        transaction_id: the message's unique key, None to omit it.
        region: the broker's region.
        trace_on: whether the broker wants traces.
    """
    middle = _regions.get((region, trace_on)) or _region_text(region, trace_on)
    if transaction_id is None:
        transaction = ""
    elif transaction_id.isalnum() and transaction_id.isascii():
        transaction = f'"transactionId":"{transaction_id}",'
    else:
        transaction = f'"transactionId":{java_json(transaction_id).decode()},'
    header = (
        f'{{"code":0,"extFields":{{"queueId":"{queue_id}",{transaction}"msgId":"{msg_id}",{middle}'
        f'"queueOffset":"{queue_offset}"}},"flag":1,"language":"PYTHON","opaque":{opaque},{_TAIL}'
    ).encode()
    size = len(header)
    return _frame_head(4 + size, size) + header


def message_ids(id_head: str, places: tuple[int, ...]) -> str:
    """Return the ids of a batch's messages, joined by commas (wire.md §4.6).

    Args:
        id_head: common prefix of all message ids of this broker.
        places: commit-log offsets of the messages, which complete their ids.
    """
    rests = struct.pack(f">{len(places)}q", *places).hex(",", 8).upper()
    return id_head + rests.replace(",", "," + id_head)


def stored_reply(
    opaque: int,
    id_head: str,
    place: int,
    queue_id: int,
    queue_offset: int,
    transaction_id: str | None,
    region: str,
    trace_on: bool,
) -> bytes:
    """Return the reply frame for one stored message, as `send_reply`.

    Args:
        opaque: opaque of the request.
        id_head: common prefix of all message ids of this broker.
        place: commit-log offset of the message, which completes its id.
        queue_id: queue of the message.
        queue_offset: its queue offset.
        transaction_id: the message's unique key.
        region: the broker's region.
        trace_on: whether the broker wants traces.
    """
    if transaction_id is None or not transaction_id.isalnum() or not transaction_id.isascii():
        return send_reply(opaque, f"{id_head}{place:016X}", queue_id, queue_offset, transaction_id, region, trace_on)
    middle = _regions.get((region, trace_on)) or _region_text(region, trace_on)
    header = (
        f'{{"code":0,"extFields":{{"queueId":"{queue_id}","transactionId":"{transaction_id}","msgId":"{id_head}{place:016X}",'
        f'{middle}"queueOffset":"{queue_offset}"}},"flag":1,"language":"PYTHON","opaque":{opaque},{_TAIL}'
    ).encode()
    size = len(header)
    return _frame_head(4 + size, size) + header


def _region_text(region: str, trace_on: bool) -> str:
    trace = "true" if trace_on else "false"
    text = f'"TRACE_ON":"{trace}","MSG_REGION":{java_json(region).decode()},'
    if len(_regions) < _MAX_PIECES:
        _regions[region, trace_on] = text
    return text


def _remark_text(remark: str) -> str:
    text = f'"remark":{java_json(remark).decode()},'
    if len(_remarks) < _MAX_PIECES:
        _remarks[remark] = text
    return text


def pull_reply(
    opaque: int,
    code: int,
    remark: str | None,
    next_begin_offset: int,
    min_offset: int,
    max_offset: int,
    suggest_which_broker_id: int,
    group_sys_flag: int,
    topic_sys_flag: int,
    records: bytes,
) -> tuple[bytes, bytes]:
    """Return the reply to a pull with code 0, 19, 20 or 21 (wire.md §6.2): the bytes before the records, and these.

    Args:
        opaque: opaque of the request.
        code: response code.
        remark: name of the store's status.
        next_begin_offset: queue offset of the next pull.
        min_offset: the queue's first offset.
        max_offset: the offset of the queue's next message.
        suggest_which_broker_id: id of the replica for the next pull.
        group_sys_flag: the group's flags.
        topic_sys_flag: the topic's flags.
        records: the records.
    """
    text = _remarks.get(remark)
    if text is None:
        assert remark is not None  # None is in the table
        text = _remark_text(remark)
    header = (
        f'{{"code":{code},"extFields":{{"suggestWhichBrokerId":"{suggest_which_broker_id}",'
        f'"groupSysFlag":"{group_sys_flag}","nextBeginOffset":"{next_begin_offset}",'
        f'"maxOffset":"{max_offset}","minOffset":"{min_offset}","topicSysFlag":"{topic_sys_flag}"}},'
        f'"flag":1,"language":"PYTHON","opaque":{opaque},{text}{_TAIL}'
    ).encode()
    size = len(header)
    return _frame_head(4 + size + len(records), size) + header, records


# JSON text as Java writes it

# Differences of Java's writer from orjson: capital hex digits, and some more escaped characters.
_CONTROL = re.compile(rb"\\u00(?:0[b-f]|1[a-f])")
_ESCAPED = re.compile(rb"\\\\|\\u00[01][0-9a-f]|\x7f|\xc2[\x80-\x9f]|\xe2\x80[\xa8\xa9]")


def java_json(value: str | dict[str, str]) -> bytes:
    """Return a text, or an object of texts, as Java's JSON writer writes it (wire.md §1.2)."""
    try:
        text = orjson.dumps(value)
    except TypeError:
        text = orjson.dumps(_without_surrogates(value))
    same = (
        b"\x7f" not in text
        and b"\xc2" not in text
        and b"\xe2\x80" not in text
        and (b"\\u00" not in text or _CONTROL.search(text) is None)
    )
    return text if same else _ESCAPED.sub(_escape, text)


def _escape(match: re.Match[bytes]) -> bytes:
    found = match[0]
    if found == rb"\\":
        return found
    if found[:1] == b"\\":
        return rb"\u" + found[2:].upper()
    return b"\\u%04X" % ord(found.decode())


def _without_surrogates(value: str | dict[str, str]) -> str | dict[str, str]:
    # Half of a surrogate pair has no UTF-8 form; Java writes a question mark.
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    return {str(_without_surrogates(k)): str(_without_surrogates(v)) for k, v in value.items()}
