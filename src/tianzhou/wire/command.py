"""The command: the value of one frame, and both of its encodings (wire.md §1.1 to §1.5).

    i32 length | u8 serialize type | u24 header length | header | body

A JSON header is one object with its keys in alphabetical order. A binary header is

    i16 code | u8 language | i16 version | i32 opaque | i32 flag | i32 n, remark | i32 n, fields
    fields: repeated { i16 n, key | i32 n, value }
"""

from __future__ import annotations

import struct
from typing import Any

import msgspec

from tianzhou._hot import split as _split
from tianzhou._hot.frames import java_json
from tianzhou._hot.headers import LANGUAGE_CODES, LANGUAGES, OTHER, Command, Int32, header_fields
from tianzhou.errors import ProtocolError
from tianzhou.wire.codes import JSON, MAX_HEADER, ROCKETMQ, language_name

__all__ = ["Command", "decode", "encode", "split"]

_frame_head = struct.Struct(">II").pack
_BINARY_HEAD = struct.Struct(">hBhiii")
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")


def split(buffer: bytes | bytearray | memoryview, start: int, end: int, max_frame: int) -> tuple[list[Command], int]:
    """Split `buffer[start:end]` into its complete frames and decode them; the commands do not refer to the buffer.

    Commands of the hot kinds have `header` set, see `tianzhou._hot.frames`.

    Args:
        buffer: bytes read from a connection.
        start: where the first frame starts.
        end: where the bytes read so far end.
        max_frame: maximum frame size, including the length bytes.

    Returns:
        The commands in order, and where the first incomplete frame starts.

    Raises:
        ProtocolError: a frame cannot be decoded, or its length is not allowed. A wrong length raises before the whole
            frame has arrived.
    """
    return _split(buffer, start, end, max_frame, decode)


# Encoding


def encode(command: Command) -> bytes:
    """Encode a command as a whole frame, including its four length bytes.

    Raises:
        ProtocolError: the header does not fit the encoding.
    """
    fields = command.fields
    if not fields and command.header is not None:
        fields = header_fields(command.header)
    binary = command.serialize_type == ROCKETMQ
    header = _encode_binary(command, fields) if binary else _encode_json(command, fields)
    size = len(header)
    if size > MAX_HEADER:
        raise ProtocolError(f"header of {size} bytes; the limit is {MAX_HEADER}")
    body = command.body
    return b"".join((_frame_head(4 + size + len(body), command.serialize_type << 24 | size), header, body))


_JSON_HEADER = b'{"code":%d%b,"flag":%d,"language":"%b","opaque":%d%b,"serializeTypeCurrentRPC":"JSON","version":%d}'


def _encode_json(command: Command, fields: dict[str, str]) -> bytes:
    return _JSON_HEADER % (
        command.code,
        b',"extFields":' + java_json(fields) if fields else b"",
        command.flag,
        language_name(command.language).encode(),
        command.opaque,
        b"" if command.remark is None else b',"remark":' + java_json(command.remark),
        command.version,
    )


def _encode_binary(command: Command, fields: dict[str, str]) -> bytes:
    remark = _utf8(command.remark or "")
    try:
        parts = []
        for key, value in fields.items():
            name, text = _utf8(key), _utf8(value)
            parts += [_INT16.pack(len(name)), name, _INT32.pack(len(text)), text]
        table = b"".join(parts)
        head = _BINARY_HEAD.pack(
            command.code, command.language, command.version, command.opaque, command.flag, len(remark)
        )
    except struct.error as error:
        raise ProtocolError(
            f"code {command.code}, version {command.version} or a field name does not fit a binary header "
            f"({error}); send it with a JSON header"
        ) from None
    return b"".join((head, remark, _INT32.pack(len(table)), table))


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "replace")


# Decoding


def decode(frame: bytes | bytearray | memoryview) -> Command:
    """Decode the command of a frame; its header fields stay text.

    Args:
        frame: the bytes behind the four length bytes.

    Raises:
        ProtocolError: the bytes are no such frame; the error names the fault.
    """
    size = len(frame)
    if size < 4:
        raise ProtocolError(f"frame of {size} bytes; at least 4 are needed")
    kind = frame[0]
    end = 4 + int.from_bytes(frame[1:4], "big")
    if end > size:
        raise ProtocolError(f"header length {end - 4} exceeds the {size - 4} bytes the frame has left")
    if kind == JSON:
        command = _decode_json(frame[4:end])
    elif kind == ROCKETMQ:
        command = _decode_binary(bytes(frame[4:end]))
    else:
        raise ProtocolError(f"serialize type {kind}; known are 0 (JSON) and 1 (ROCKETMQ)")
    command.body = bytes(frame[end:])
    return command


class _JsonHeader(msgspec.Struct, rename={"fields": "extFields"}, gc=False):
    code: Int32 = 0
    language: str = "JAVA"
    version: Int32 = 0
    opaque: Int32 = 0
    flag: Int32 = 0
    remark: str | None = None
    fields: dict[str, str] | None = None


class _LooseHeader(msgspec.Struct, rename={"fields": "extFields"}):
    """A JSON header with loose types, for headers that only a lenient decoder accepts."""

    code: Any = None
    language: Any = "JAVA"
    version: Any = None
    opaque: Any = None
    flag: Any = None
    remark: msgspec.Raw = msgspec.Raw(b"null")
    fields: dict[str, msgspec.Raw] | None = None


_decode_strict = msgspec.json.Decoder(_JsonHeader).decode
_decode_loose = msgspec.json.Decoder(_LooseHeader).decode
_decode_text = msgspec.json.Decoder(str).decode


def _decode_json(header: bytes | bytearray | memoryview) -> Command:
    try:
        try:
            found = _decode_strict(header)
        except (msgspec.ValidationError, UnicodeDecodeError):
            # Like Java, decode text that is no UTF-8 with replacement characters.
            found = _lenient(_decode_loose(bytes(header).decode("utf-8", "replace")))
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"JSON header of {len(header)} bytes cannot be read: {error}") from None
    language = LANGUAGE_CODES.get(found.language, OTHER)
    return Command(found.code, found.opaque, found.flag, language, found.version, found.remark, found.fields or {})


def _lenient(found: _LooseHeader) -> _JsonHeader:
    """Convert a loose header: numbers as text, bare values in extFields, a language by number (wire.md §1.2)."""
    fields = {name: _text(raw) for name, raw in (found.fields or {}).items()}
    return _JsonHeader(
        code=_int32("code", found.code),
        language=_language(found.language),
        version=_int32("version", found.version),
        opaque=_int32("opaque", found.opaque),
        flag=_int32("flag", found.flag),
        remark=_text(found.remark),
        fields={name: text for name, text in fields.items() if text is not None},
    )


def _int32(key: str, value: Any) -> int:
    if value is None:
        return 0
    try:
        number: int = msgspec.convert(value, Int32, strict=False)
    except msgspec.ValidationError:
        raise ProtocolError(
            f"{key} of the JSON header is {repr(value)[:80]}; expected a whole number of 32 bits"
        ) from None
    return number


def _language(value: Any) -> str:
    if isinstance(value, int):
        return language_name(value)
    return value if isinstance(value, str) else "OTHER"


def _text(raw: msgspec.Raw) -> str | None:
    """Return a JSON value as text: a string's content, None for null, the JSON text of any other value."""
    value = bytes(raw)
    if value[:1] == b'"':
        return _decode_text(value)
    return None if value == b"null" else value.decode()


def _decode_binary(header: bytes) -> Command:
    size = len(header)
    if size < _BINARY_HEAD.size + 4:
        raise ProtocolError(f"binary header of {size} bytes; at least {_BINARY_HEAD.size + 4} are needed")
    code, language, version, opaque, flag, remark_size = _BINARY_HEAD.unpack_from(header)
    position = _BINARY_HEAD.size + remark_size
    if remark_size < 0 or position + 4 > size:
        raise ProtocolError(f"remark length {remark_size} exceeds the binary header of {size} bytes")
    remark = header[_BINARY_HEAD.size : position].decode("utf-8", "replace") or None
    (total,) = _INT32.unpack_from(header, position)
    position += 4
    if total < 0 or position + total > size:
        raise ProtocolError(f"extFields length {total} exceeds the {size - position} bytes the header has left")
    fields = _decode_fields(header, position, position + total)
    if language >= len(LANGUAGES):
        language = OTHER
    return Command(code, opaque, flag, language, version, remark, fields, b"", ROCKETMQ)


def _decode_fields(header: bytes, position: int, end: int) -> dict[str, str]:
    fields = {}
    while position < end:
        key_at = position + 2
        value_at = key_at + int.from_bytes(header[position:key_at], "big") + 4
        if value_at > end:
            raise ProtocolError(f"field name at byte {position} of the binary header exceeds the extFields")
        stop = value_at + int.from_bytes(header[value_at - 4 : value_at], "big")
        if stop > end:
            raise ProtocolError(f"field value at byte {value_at} of the binary header exceeds the extFields")
        # Java reads an empty key or value as null, and treats null as absent.
        if value_at - 4 > key_at and stop > value_at:
            key = header[key_at : value_at - 4].decode("utf-8", "replace")
            fields[key] = header[value_at:stop].decode("utf-8", "replace")
        position = stop
    return fields
