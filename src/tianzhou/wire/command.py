"""The command: one frame as a value, and both of its encodings (wire.md §1.1 to §1.5).

    i32 length | u8 serialize type | u24 header length | header | body

A JSON header is one object, its keys in alphabetical order; a binary header is

    i16 code | u8 language | i16 version | i32 opaque | i32 flag | i32 n, remark | i32 n, fields
    fields: repeated { i16 n, key | i32 n, value }
"""

from __future__ import annotations

import re
import struct
from typing import Annotated, Any

import msgspec
import orjson

from tianzhou._hot.frames import Command
from tianzhou.errors import ProtocolError
from tianzhou.wire.codes import JSON, MAX_HEADER, ROCKETMQ, language_code, language_name

__all__ = ["Command", "decode", "encode"]

_FRAME = struct.Struct(">II")
_BINARY = struct.Struct(">hBhiii")
_INT32 = struct.Struct(">i")


def encode(command: Command) -> bytes:
    """The whole frame, its four length bytes included.

    Raises:
        ProtocolError: the header does not fit the encoding.
    """
    if command.serialize_type == ROCKETMQ:
        header = _encode_binary(command)
    else:
        header = _encode_json(command)
    size = len(header)
    if size > MAX_HEADER:
        raise ProtocolError(f"header of {size} bytes; the limit is {MAX_HEADER}")
    body = command.body
    word = (command.serialize_type << 24) | size
    return b"".join((_FRAME.pack(4 + size + len(body), word), header, body))


_JSON_HEADER = (
    b'{"code":%d%b,"flag":%d,"language":"%b","opaque":%d%b,"serializeTypeCurrentRPC":"JSON","version":%d}'
)


def _encode_json(command: Command) -> bytes:
    fields = command.fields
    return _JSON_HEADER % (
        command.code,
        b',"extFields":' + _java_json(fields) if fields else b"",
        command.flag,
        language_name(command.language).encode(),
        command.opaque,
        b',"remark":' + _java_json(command.remark) if command.remark is not None else b"",
        command.version,
    )


# Where Java's JSON writer differs from ours: capital hex digits, and some characters it escapes.
_DIFFERS = re.compile(rb"\\u00(?:0[b-f]|1[a-f])|\x7f|\xc2[\x80-\x9f]|\xe2\x80[\xa8\xa9]")
_ESCAPED = re.compile(rb"\\\\|\\u00[01][0-9a-f]|\x7f|\xc2[\x80-\x9f]|\xe2\x80[\xa8\xa9]")


def _java_json(value: str | dict[str, str]) -> bytes:
    try:
        text = orjson.dumps(value)
    except TypeError:
        text = orjson.dumps(_without_surrogates(value))
    return _ESCAPED.sub(_java_escape, text) if _DIFFERS.search(text) else text


def _java_escape(match: re.Match[bytes]) -> bytes:
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


def _encode_binary(command: Command) -> bytes:
    if not -0x8000 <= command.code <= 0x7FFF:
        raise ProtocolError(f"code {command.code} does not fit a binary header; send it with a JSON header")
    remark = (command.remark or "").encode("utf-8", "replace")
    parts = []
    for key, value in command.fields.items():
        name, text = key.encode("utf-8", "replace"), value.encode("utf-8", "replace")
        if len(name) > 0x7FFF:
            raise ProtocolError(f"header field name of {len(name)} bytes; the limit is 32767")
        parts += (struct.pack(">h", len(name)), name, _INT32.pack(len(text)), text)
    fields = b"".join(parts)
    return b"".join(
        (
            _BINARY.pack(
                command.code, command.language, command.version, command.opaque, command.flag, len(remark)
            ),
            remark,
            _INT32.pack(len(fields)),
            fields,
        )
    )


def decode(frame: bytes | bytearray | memoryview) -> Command:
    """The command in a frame.

    Args:
        frame: what follows the four length bytes.

    Raises:
        ProtocolError: the bytes are no such frame; the text names what is wrong.
    """
    size = len(frame)
    if size < 4:
        raise ProtocolError(f"frame of {size} bytes; at least 4 are needed")
    kind = frame[0]
    end = 4 + int.from_bytes(frame[1:4], "big")
    if end > size:
        raise ProtocolError(f"header length {end - 4} exceeds the frame, which has {size - 4} bytes left")
    header = memoryview(frame)[4:end]
    if kind == JSON:
        command = _decode_json(header)
    elif kind == ROCKETMQ:
        command = _decode_binary(header)
    else:
        raise ProtocolError(f"serialize type {kind}; known are 0 (JSON) and 1 (ROCKETMQ)")
    command.body = bytes(frame[end:])
    return command


_Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]


class _JsonHeader(msgspec.Struct, rename={"fields": "extFields"}):
    code: _Int32 = 0
    language: str = "JAVA"
    version: _Int32 = 0
    opaque: _Int32 = 0
    flag: _Int32 = 0
    remark: str | None = None
    fields: dict[str, str] | None = None


_decode_usual = msgspec.json.Decoder(_JsonHeader).decode


def _decode_json(header: memoryview) -> Command:
    try:
        try:
            found = _decode_usual(header)
        except msgspec.ValidationError:
            found = _lenient(msgspec.json.decode(header))
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"JSON header cannot be read: {error}") from None
    return Command(
        found.code,
        found.opaque,
        found.flag,
        language_code(found.language),
        found.version,
        found.remark,
        found.fields or {},
    )


def _lenient(found: Any) -> _JsonHeader:
    """A header in a spelling only a tolerant reader takes: numbers as text, bare values in extFields, and so on."""
    if not isinstance(found, dict):
        raise ProtocolError(f"JSON header is no object but {_shown(found)}")
    fields = found.get("extFields")
    if fields is not None and not isinstance(fields, dict):
        raise ProtocolError(f"extFields of the JSON header is no object but {_shown(fields)}")
    remark = found.get("remark")
    return _JsonHeader(
        code=_int32(found, "code"),
        language=_language(found.get("language", "JAVA")),
        version=_int32(found, "version"),
        opaque=_int32(found, "opaque"),
        flag=_int32(found, "flag"),
        remark=None if remark is None else _text(remark),
        fields={key: _text(value) for key, value in (fields or {}).items() if value is not None},
    )


def _shown(value: Any) -> str:
    return repr(value)[:80]


def _int32(found: dict[str, Any], key: str) -> int:
    value = found.get(key)
    if value is None:
        return 0
    try:
        number = int(value) if isinstance(value, (int, str)) else None
    except ValueError:
        number = None
    if number is None or not -(2**31) <= number < 2**31:
        raise ProtocolError(
            f"{key} of the JSON header is {_shown(value)}; expected a whole number of 32 bits"
        )
    return number


def _language(value: Any) -> str:
    if isinstance(value, int):
        return language_name(value)
    return value if isinstance(value, str) else "OTHER"


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return orjson.dumps(value).decode()


def _decode_binary(header: memoryview) -> Command:
    try:
        code, language, version, opaque, flag, remark_size = _BINARY.unpack_from(header)
        position = _BINARY.size + remark_size
        remark = str(header[_BINARY.size : position], "utf-8") or None
        (total,) = _INT32.unpack_from(header, position)
        position += 4
        fields = _decode_fields(header[position : position + total])
    except (struct.error, ValueError) as error:
        raise ProtocolError(f"binary header of {len(header)} bytes cannot be read: {error}") from None
    return Command(code, opaque, flag, language, version, remark, fields, b"", ROCKETMQ)


def _decode_fields(data: memoryview) -> dict[str, str]:
    fields = {}
    position, end = 0, len(data)
    while position < end:
        key_size = int.from_bytes(data[position : position + 2], "big")
        position += 2
        key = str(data[position : position + key_size], "utf-8")
        position += key_size
        (value_size,) = _INT32.unpack_from(data, position)
        position += 4
        value = str(data[position : position + value_size], "utf-8")
        position += value_size
        if key and value:
            fields[key] = value
    return fields
