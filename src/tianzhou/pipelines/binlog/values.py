"""Values of columns: the bytes of a row event as numbers and as the texts that the database prints. Pure."""

from __future__ import annotations

import base64
import datetime as dt
import decimal
import ipaddress
import struct
import uuid
from collections.abc import Callable, Sequence
from typing import Any, Final

TINY, SHORT, LONG, FLOAT, DOUBLE = 1, 2, 3, 4, 5
LONGLONG, INT24, DATE, YEAR, NEWDATE, VARCHAR, BIT = 8, 9, 10, 13, 14, 15, 16
TIMESTAMP2, DATETIME2, TIME2 = 17, 18, 19
VECTOR, JSON, NEWDECIMAL, ENUM, SET, BLOB, VAR_STRING, STRING, GEOMETRY = 242, 245, 246, 247, 248, 252, 253, 254, 255
METADATA_BYTES: Final = {
    FLOAT: 1, DOUBLE: 1, VARCHAR: 2, BIT: 2, TIMESTAMP2: 1, DATETIME2: 1, TIME2: 1, JSON: 1, NEWDECIMAL: 2, ENUM: 2,
    SET: 2, BLOB: 1, VAR_STRING: 2, STRING: 2, GEOMETRY: 1, 140: 1, 141: 2, VECTOR: 1, 249: 1, 250: 1, 251: 1,
}  # fmt: skip
"""Bytes of a type's metadata in a table map; types that are not here have none."""
_DIGITS: Final = 9
"""Decimal digits in four bytes of a DECIMAL."""
_SIZES: Final = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
"""Number of bytes for fewer digits, by the number of digits."""
_EPOCH: Final = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - UTC, printed with a Z
_UUID_PARTS: Final = ((12, 4), (10, 2), (8, 2), (6, 2), (0, 6))
"""Offset and size of the parts of a UUID of version 1 to 5, as MariaDB stores it."""


def fixed(size: int, of: Callable[[bytes], Any]) -> Callable[[bytes, int], tuple[Any, int]]:
    """Return a reader of values of one size."""
    return lambda data, at: (of(data[at : at + size]), at + size)


def prefixed(size: int, of: Callable[[bytes], Any]) -> Callable[[bytes, int], tuple[Any, int]]:
    """Return a reader of values that follow their length. The length has `size` bytes."""

    def read(data: bytes, at: int) -> tuple[Any, int]:
        start = at + size
        end = start + int.from_bytes(data[at:start], "little")
        return of(data[start:end]), end

    return read


def string_size(metadata: bytes) -> int:
    """Return the maximum bytes of a CHAR or BINARY from its two bytes of metadata."""
    return metadata[1] | (((metadata[0] & 0x30) ^ 0x30) << 4)


def length_size(code: int, metadata: bytes) -> int | None:
    """Return the number of bytes of a text's or binary value's length; None for other types."""
    if code == VARCHAR:
        return 2 if int.from_bytes(metadata, "little") > 255 else 1
    if code in (BLOB, VECTOR):
        return metadata[0]
    if code == STRING and metadata[0] not in (ENUM, SET):
        return 2 if string_size(metadata) > 255 else 1
    return None


def bytes_text(raw: bytes) -> str:
    """Return bytes as base64, which Spark's JSON reads as BINARY."""
    return base64.b64encode(raw).decode()


def real(raw: bytes) -> float:
    """Return the number in four or eight bytes."""
    number: float = struct.unpack("<f" if len(raw) == 4 else "<d", raw)[0]
    return number


def shortest_float(number: float) -> float:
    """Return the shortest number that is the same FLOAT."""
    packed = struct.pack("<f", number)
    for digits in range(6, 9):
        short = float(f"{number:.{digits}g}")
        try:
            if struct.pack("<f", short) == packed:
                return short
        except OverflowError:  # rounded up beyond the greatest FLOAT
            continue
    return float(f"{number:.9g}")


def decimal_size(precision: int, scale: int) -> int:
    """Return the number of bytes of a DECIMAL."""
    whole, rest = divmod(precision - scale, _DIGITS)
    behind, last = divmod(scale, _DIGITS)
    return 4 * whole + _SIZES[rest] + 4 * behind + _SIZES[last]


def decimal_text(raw: bytes, precision: int, scale: int) -> str:
    """Return the digits of a DECIMAL.

    From the point to both sides, each group of nine digits has four bytes. The first bit is 1 unless the number is
    negative. All bits of a negative number are inverted.
    """
    negative = not raw[0] & 0x80
    raw = bytes([raw[0] ^ 0x80, *raw[1:]])
    if negative:
        raw = bytes(byte ^ 0xFF for byte in raw)
    whole, rest = divmod(precision - scale, _DIGITS)
    behind, last = divmod(scale, _DIGITS)
    at, digits = 0, ""
    for count in (rest, *[_DIGITS] * (whole + behind), last):
        size = 4 if count == _DIGITS else _SIZES[count]
        if count:
            digits += f"{int.from_bytes(raw[at : at + size], 'big'):0{count}d}"
        at += size
    text = (digits[: precision - scale].lstrip("0") or "0") + (f".{digits[precision - scale :]}" if scale else "")
    return f"-{text}" if negative and int(digits or 0) else text


def fixed_point(value: Any, scale: int) -> str:
    """Return a DECIMAL that the server printed, with as many digits as a row event has."""
    return f"{decimal.Decimal(value):.{scale}f}"


def _fraction(number: int, digits: int) -> str:
    """Return the digits of a second's fraction. The bytes contain an even number of digits."""
    return f".{number:0{(digits + 1) // 2 * 2}d}"[: digits + 1] if digits else ""


def date_text(raw: bytes) -> str:
    """Return a DATE; parts may be zero."""
    number = int.from_bytes(raw, "little")
    return f"{number >> 9:04}-{number >> 5 & 15:02}-{number & 31:02}"


def datetime_text(raw: bytes, digits: int) -> str:
    """Return a DATETIME with the digits of its fraction."""
    number = int.from_bytes(raw[:5], "big") - (1 << 39)
    months, day, clock = number >> 22, number >> 17 & 31, number & 0x1FFFF
    return (
        f"{months // 13:04}-{months % 13:02}-{day:02} {clock >> 12:02}:{clock >> 6 & 63:02}:{clock & 63:02}"
        f"{_fraction(int.from_bytes(raw[5:], 'big'), digits)}"
    )


def time_text(raw: bytes, digits: int) -> str:
    """Return a TIME with the digits of its fraction.

    The bytes contain the time plus the middle of their range.
    """
    bits = 8 * (len(raw) - 3)
    number = int.from_bytes(raw, "big") - (1 << (23 + bits))
    sign, number = ("-", -number) if number < 0 else ("", number)
    clock, fraction = number >> bits, number & ((1 << bits) - 1)
    return f"{sign}{clock >> 12 & 1023:02}:{clock >> 6 & 63:02}:{clock & 63:02}{_fraction(fraction, digits)}"


def instant_text(text: str) -> str:
    """Return a TIMESTAMP that was read in UTC, as text with a zone."""
    return f"{text.replace(' ', 'T')}Z"


def timestamp_text(raw: bytes, digits: int) -> str:
    """Return a TIMESTAMP. Zero seconds are the zero date."""
    seconds, fraction = int.from_bytes(raw[:4], "big"), int.from_bytes(raw[4:], "big")
    if not seconds and not fraction:
        return instant_text("0000-00-00 00:00:00" + _fraction(0, digits))
    at = _EPOCH + dt.timedelta(seconds=seconds)
    return instant_text(f"{at:%Y-%m-%d %H:%M:%S}{_fraction(fraction, digits)}")


def enum_text(number: int, members: Sequence[str]) -> str:
    """Return an ENUM's member. 0 is the empty text, which replaces a value that the server rejected."""
    if number > len(members):
        raise ValueError(f"{number} is no member of {', '.join(members)}")
    return members[number - 1] if number else ""


def set_text(mask: int, members: Sequence[str]) -> str:
    """Return a SET's members in the order of declaration."""
    if mask >> len(members):
        raise ValueError(f"{mask:#x} has more than the members {', '.join(members)}")
    return ",".join(member for number, member in enumerate(members) if mask >> number & 1)


def uuid_text(raw: bytes) -> str:
    """Return MariaDB's UUID from its stored bytes. The parts of versions 1 to 5 are stored in reverse order."""
    if raw[6] & 0x80 and 0 < raw[8] <= 0x80:
        raw = b"".join(raw[at : at + size] for at, size in _UUID_PARTS)
    return str(uuid.UUID(bytes=raw))


def inet4_text(raw: bytes) -> str:
    """Return MariaDB's INET4."""
    return str(ipaddress.IPv4Address(raw))


def inet6_text(raw: bytes) -> str:
    """Return MariaDB's INET6. An address with an IPv4 address inside ends with that in dotted form.

    MariaDB replaces the first of the longest runs of zeros, even if the run has one group.
    """
    mapped = raw[:12] == b"\0" * 10 + b"\xff\xff"
    if mapped or (raw[:12] == b"\0" * 12 and raw[12:14] != b"\0\0"):
        return ("::ffff:" if mapped else "::") + inet4_text(raw[12:])
    groups = [f"{group:x}" for group in struct.unpack(">8H", raw)]
    runs = [(size, -at) for size in range(1, 9) for at in range(9 - size) if set(groups[at : at + size]) == {"0"}]
    if not runs:
        return ":".join(groups)
    size, start = max(runs)
    return ":".join(groups[:-start]) + "::" + ":".join(groups[size - start :])
