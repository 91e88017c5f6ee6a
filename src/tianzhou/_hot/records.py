"""Records into a mapped segment and out of it: the pure twin of the compiled functions (store.md §3.2).

Plain values in, bytes out; nothing here knows what a store is.
"""

from __future__ import annotations

import struct
import zlib
from mmap import mmap
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Buffer

_crc32: Callable[[Buffer], int]
try:
    from isal import isal_zlib

    _crc32 = isal_zlib.crc32
except ImportError:  # pragma: no cover - the extra `fast` is optional
    _crc32 = zlib.crc32

OVERHEAD: Final = 91
"""Bytes of a version 1 record with IPv4 hosts beside body, topic and properties."""

# A layout compiled for the lengths of body, topic and properties writes a whole record in one call. Producers
# send few shapes; beyond the limit the pieces are written one by one.
_SHAPES: Final[dict[tuple[int, int, int], struct.Struct]] = {}
_MAX_SHAPES: Final = 2048
_MAX_SHAPED_BODY: Final = 16_384
_HEAD_V4: Final = struct.Struct(">iiiiiqqiq4siq8siqi")
_HEADS: Final = {
    (host, store): struct.Struct(f">iiiiiqqiq{host}siq{store + 4}siqi") for host in (4, 16) for store in (4, 16)
}
_I16: Final = struct.Struct(">h")


class Storable(Protocol):
    """What `put_record` reads of a message to be stored."""

    queue_id: int
    body: bytes
    properties: bytes
    flag: int
    born_timestamp: int
    born_host: bytes
    born_port: int
    reconsume_times: int
    prepared_transaction_offset: int


def put_record(
    target: mmap,
    position: int,
    size: int,
    physical_offset: int,
    magic: int,
    topic_field: bytes,
    queue_offset: int,
    sys_flag: int,
    store_timestamp: int,
    store_host_field: bytes,
    record: Storable,
) -> None:
    """Write one record at `position` of a mapped segment.

    Args:
        target: the segment.
        position: where the record begins in it.
        size: of the whole record.
        physical_offset: field 7 of store.md §3.2.
        magic: signed magic number of the record version.
        topic_field: length (1 or 2 bytes by version) and topic.
        queue_offset: field 6.
        sys_flag: field 8, with the address bits set to fit the hosts.
        store_timestamp: field 11.
        store_host_field: address and port of field 12, 8 or 20 bytes.
        record: all other fields.
    """
    body = record.body
    properties = record.properties
    born_host = record.born_host
    body_length = len(body)
    properties_length = len(properties)
    if len(born_host) == 4 and len(store_host_field) == 8:
        shape = (body_length, len(topic_field), properties_length)
        layout = _SHAPES.get(shape)
        if layout is None and len(_SHAPES) < _MAX_SHAPES and body_length <= _MAX_SHAPED_BODY:
            layout = _SHAPES[shape] = struct.Struct(
                f">iiiiiqqiq4siq8siqi{body_length}s{shape[1]}sh{properties_length}s"
            )
        if layout is not None:
            layout.pack_into(
                target,
                position,
                size,
                magic,
                _crc32(body) & 0x7FFFFFFF,
                record.queue_id,
                record.flag,
                queue_offset,
                physical_offset,
                sys_flag,
                record.born_timestamp,
                born_host,
                record.born_port,
                store_timestamp,
                store_host_field,
                record.reconsume_times,
                record.prepared_transaction_offset,
                body_length,
                body,
                topic_field,
                properties_length,
                properties,
            )
            return
        head = _HEAD_V4
    else:
        head = _HEADS[len(born_host), len(store_host_field) - 4]
    head.pack_into(
        target,
        position,
        size,
        magic,
        _crc32(body) & 0x7FFFFFFF,
        record.queue_id,
        record.flag,
        queue_offset,
        physical_offset,
        sys_flag,
        record.born_timestamp,
        born_host,
        record.born_port,
        store_timestamp,
        store_host_field,
        record.reconsume_times,
        record.prepared_transaction_offset,
        body_length,
    )
    start = position + head.size
    end = start + body_length
    target[start:end] = body
    target[end : position + size] = b"".join((topic_field, _I16.pack(properties_length), properties))
