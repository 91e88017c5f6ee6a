"""Records into a mapped segment and out of it: the pure twin of the compiled functions (store.md §3.2).

Plain values in, bytes out; nothing here knows what a store is.
"""

from __future__ import annotations

import struct
import zlib
from mmap import mmap
from typing import TYPE_CHECKING, Final

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


def put_record(
    target: mmap,
    position: int,
    size: int,
    magic: int,
    topic_field: bytes,
    queue_id: int,
    body: bytes | memoryview,
    properties: bytes,
    flag: int,
    sys_flag: int,
    queue_offset: int,
    physical_offset: int,
    born_timestamp: int,
    born_host: bytes,
    born_port: int,
    store_timestamp: int,
    store_host_field: bytes,
    reconsume_times: int,
    prepared_transaction_offset: int,
) -> None:
    """Write one record at `position` of a mapped segment.

    Args:
        target: the segment.
        position: where the record begins.
        size: of the whole record.
        magic: signed magic number of the record version.
        topic_field: length (1 or 2 bytes by version) and topic.
        queue_id: field 4 of store.md §3.2, and so the others.
        body: as stored.
        properties: the property string.
        flag: field 5.
        sys_flag: field 8, with the address bits already set to fit the hosts.
        queue_offset: field 6.
        physical_offset: field 7.
        born_timestamp: field 9.
        born_host: 4 or 16 bytes.
        born_port: its port.
        store_timestamp: field 11.
        store_host_field: address and port of field 12, 8 or 20 bytes.
        reconsume_times: field 13.
        prepared_transaction_offset: field 14.
    """
    body_length = len(body)
    crc = _crc32(body) & 0x7FFFFFFF
    if len(born_host) == 4 and len(store_host_field) == 8:
        shape = (body_length, len(topic_field), len(properties))
        layout = _SHAPES.get(shape)
        if layout is None and len(_SHAPES) < _MAX_SHAPES and body_length <= _MAX_SHAPED_BODY:
            layout = _SHAPES[shape] = struct.Struct(f">iiiiiqqiq4siq8siqi{body_length}s{shape[1]}sh{shape[2]}s")
        if layout is not None and type(body) is bytes:
            layout.pack_into(
                target,
                position,
                size,
                magic,
                crc,
                queue_id,
                flag,
                queue_offset,
                physical_offset,
                sys_flag,
                born_timestamp,
                born_host,
                born_port,
                store_timestamp,
                store_host_field,
                reconsume_times,
                prepared_transaction_offset,
                body_length,
                body,
                topic_field,
                len(properties),
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
        crc,
        queue_id,
        flag,
        queue_offset,
        physical_offset,
        sys_flag,
        born_timestamp,
        born_host,
        born_port,
        store_timestamp,
        store_host_field,
        reconsume_times,
        prepared_transaction_offset,
        body_length,
    )
    start = position + head.size
    end = start + body_length
    target[start:end] = body  # type: ignore[assignment]
    target[end : position + size] = b"".join((topic_field, _I16.pack(len(properties)), properties))
