"""Codec of batch bodies: consecutive entries without count or frame (wire.md §4.5, store.md §16.1)."""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import Final

from tianzhou.errors import ProtocolError
from tianzhou.records.checksum import Octets

_HEAD: Final = Struct(">iiiii")  # totalSize, magic, bodyCRC, flag, bodyLength
_LENGTH: Final = Struct(">h")
_OVERHEAD: Final = _HEAD.size + _LENGTH.size


def entry_size(body_size: int, properties_size: int) -> int:
    """Return the number of bytes of an entry.

    Args:
        body_size: bytes of the message's body.
        properties_size: bytes of its property string.
    """
    return _OVERHEAD + body_size + properties_size


def count_entries(body: Octets) -> int:
    """Return the number of entries of a batch body, at least 1; counting ends at a broken entry.

    Args:
        body: the entries.
    """
    count = at = 0
    end = len(body) - _OVERHEAD
    while at <= end:
        (_total, _magic, _crc, _flag, body_size) = _HEAD.unpack_from(body, at)
        properties_at = at + _HEAD.size + body_size
        if not at + _HEAD.size <= properties_at <= len(body) - _LENGTH.size:
            break
        (properties_size,) = _LENGTH.unpack_from(body, properties_at)
        if properties_size < 0:
            break
        at = properties_at + _LENGTH.size + properties_size
        count += 1
    return max(count, 1)


def encode_batch(entries: Iterable[tuple[int, Octets, Octets]]) -> bytes:
    """Encode (flag, body, property string) entries as a batch body; magic and CRC are 0, as Java writes them."""
    parts: list[Octets] = []
    for flag, body, properties in entries:
        body_size, properties_size = len(body), len(properties)
        parts += (
            _HEAD.pack(_OVERHEAD + body_size + properties_size, 0, 0, flag, body_size),
            body,
            _LENGTH.pack(properties_size),
            properties,
        )
    return b"".join(parts)


def decode_batch(body: Octets, most: int | None = None) -> list[tuple[int, memoryview, memoryview]]:
    """Decode the (flag, body, property string) entries of a batch body; body and properties are views into it.

    Apache's decoder uses only the lengths of body and properties and ignores an entry's total size. This decoder
    rejects a total size that is neither correct nor 0.

    Args:
        body: the entries.
        most: maximum number of entries; None for any number.

    Raises:
        ProtocolError: an entry does not fit, or there are too many entries; the error names its number and offset.
    """
    view = memoryview(body)
    end = len(view)
    entries: list[tuple[int, memoryview, memoryview]] = []
    at = 0
    while at < end:
        where = f"batch entry {len(entries)} at byte {at}"
        if len(entries) == most:
            raise ProtocolError(f"{where}: an answer has at most {most} more messages in batches")
        if end - at < _OVERHEAD:
            raise ProtocolError(f"{where}: {end - at} bytes are left, an entry needs at least {_OVERHEAD}")
        total, _magic, _crc, flag, body_size = _HEAD.unpack_from(view, at)
        body_at = at + _HEAD.size
        if not 0 <= body_size <= end - body_at - _LENGTH.size:
            raise ProtocolError(f"{where}: body length {body_size} exceeds the {end - body_at} bytes left")
        (properties_size,) = _LENGTH.unpack_from(view, body_at + body_size)
        properties_at = body_at + body_size + _LENGTH.size
        if not 0 <= properties_size <= end - properties_at:
            raise ProtocolError(
                f"{where}: properties length {properties_size} exceeds the {end - properties_at} bytes left"
            )
        following = properties_at + properties_size
        if total not in (0, following - at):
            raise ProtocolError(f"{where}: totalSize {total} is not its size of {following - at} bytes")
        entries.append((flag, view[body_at : body_at + body_size], view[properties_at:following]))
        at = following
    return entries
