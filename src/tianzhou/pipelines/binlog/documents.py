"""JSON documents as MySQL stores them in row events, as the text that MySQL prints. Pure."""

from __future__ import annotations

import base64
import decimal
import struct
from typing import Final

import orjson

from tianzhou.pipelines.binlog import values as v

_LITERALS: Final = {0: "null", 1: "true", 2: "false"}
_NUMBERS: Final = {5: "<h", 6: "<H", 7: "<i", 8: "<I", 9: "<q", 10: "<Q"}
_LEAST_POINT: Final = -14
"""Fewest digits before the point of a number that MySQL prints without an exponent. Negative: zeros after the point."""
_GREATEST_POINT: Final = 15
"""Most digits before the point of a whole number that MySQL prints without an exponent."""
_SMALL: Final = 2
_LARGE: Final = 4
_DATE, _TIME, _DATETIME, _TIMESTAMP = 10, 11, 12, 7


def document_text(raw: bytes) -> str:
    """Return a document as text, with spaces as MySQL prints it.

    Args:
        raw: the type's byte and the value; empty bytes, which a table's older rows may have, are `null`.

    Raises:
        ValueError: the document is cut off or has an unknown type.
    """
    if not raw:
        return "null"
    try:
        return _value(raw[0], raw[1:])
    except (IndexError, struct.error) as error:
        raise ValueError(f"a JSON document of {len(raw)} bytes is cut off") from error


def _value(kind: int, raw: bytes) -> str:
    if kind <= 3:
        return _container(raw, _LARGE if kind & 1 else _SMALL, is_object=kind < 2)
    if kind == 4:
        return _LITERALS[raw[0]]
    if kind in _NUMBERS:
        return str(struct.unpack_from(_NUMBERS[kind], raw)[0])
    if kind == 11:
        return _double(struct.unpack_from("<d", raw)[0])
    if kind == 12:
        size, at = _length(raw)
        return _quoted(raw[at : at + size])
    if kind == 15:
        size, at = _length(raw[1:])
        return _opaque(raw[0], raw[1 + at : 1 + at + size])
    raise ValueError(f"a JSON document has a value of the type {kind}, which is not known")


def _container(raw: bytes, width: int, *, is_object: bool) -> str:
    """Decode an object or an array: count, size, entries of keys, entries of values, keys, values."""

    def number(at: int, size: int = width) -> int:
        return int.from_bytes(raw[at : at + size], "little")

    count = number(0)
    at = 2 * width
    keys = []
    if is_object:
        for _ in range(count):
            start = number(at)
            keys.append(_quoted(raw[start : start + number(at + width, 2)]))
            at += width + 2
    parts = []
    for _ in range(count):
        kind = raw[at]
        inline = kind in (4, 5, 6) or (kind in (7, 8) and width == _LARGE)
        parts.append(_value(kind, raw[at + 1 :] if inline else raw[number(at + 1) :]))
        at += 1 + width
    if is_object:
        return "{" + ", ".join(f"{key}: {part}" for key, part in zip(keys, parts, strict=True)) + "}"
    return "[" + ", ".join(parts) + "]"


def _length(raw: bytes) -> tuple[int, int]:
    """Return a length in groups of seven bits, and its number of bytes."""
    size = 0
    for at in range(5):
        size |= (raw[at] & 0x7F) << 7 * at
        if not raw[at] & 0x80:
            return size, at + 1
    raise ValueError("a length in a JSON document has more than five bytes")


def _quoted(raw: bytes) -> str:
    return orjson.dumps(raw.decode()).decode()


def _double(number: float) -> str:
    """Return the shortest digits of a number: with an exponent outside 1e-15 to 1e15, unless it has a fraction."""
    sign, found, exponent = decimal.Decimal(repr(number)).as_tuple()
    digits = "".join(str(digit) for digit in found).rstrip("0") or "0"
    point = len(found) + int(exponent) if number else 1
    minus = "-" if sign else ""
    if not _LEAST_POINT <= point <= max(_GREATEST_POINT, len(digits) - 1):
        return f"{minus}{digits[0]}{'.' * (len(digits) > 1)}{digits[1:]}e{point - 1}"
    if point <= 0:
        return f"{minus}0.{'0' * -point}{digits}"
    return f"{minus}{digits[:point]:0<{point}}.{digits[point:] or '0'}"


def _opaque(kind: int, raw: bytes) -> str:
    """Return a value of another MySQL type inside a document."""
    if kind == v.NEWDECIMAL:
        return v.decimal_text(raw[2:], raw[0], raw[1])
    if kind in (_DATE, _TIME, _DATETIME, _TIMESTAMP):
        return f'"{_packed_time(kind, int.from_bytes(raw, "little", signed=True))}"'
    return f'"base64:type{kind}:{base64.b64encode(raw).decode()}"'


def _packed_time(kind: int, number: int) -> str:
    sign, number = ("-", -number) if number < 0 else ("", number)
    fraction, clock = number & 0xFFFFFF, number >> 24
    if kind == _TIME:
        return f"{sign}{clock >> 12 & 1023:02}:{clock >> 6 & 63:02}:{clock & 63:02}.{fraction:06}"
    months, day, clock = clock >> 22, clock >> 17 & 31, clock & 0x1FFFF
    date = f"{months // 13:04}-{months % 13:02}-{day:02}"
    return date if kind == _DATE else f"{date} {clock >> 12:02}:{clock >> 6 & 63:02}:{clock & 63:02}.{fraction:06}"
