"""Events of a binlog: their frame, table maps, row events and compressed ones. Pure: bytes in, values out.

Formats: MySQL's internals manual ("Binary Log Event") and MariaDB's knowledge base ("Replication Protocol").
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import zstandard

from tianzhou.pipelines.binlog.values import METADATA_BYTES

HEADER_BYTES: Final = 19
CHECKSUM_BYTES: Final = 4
QUERY, STOP, ROTATE, INTVAR, RAND, USER_VAR, FORMAT, XID = 2, 3, 4, 5, 13, 14, 15, 16
TABLE_MAP, INCIDENT, XA_PREPARE, PARTIAL_UPDATE, TRANSACTION_PAYLOAD = 19, 26, 38, 39, 40
QUERY_COMPRESSED: Final = 165
INSERT, UPDATE, DELETE = "insert", "update", "delete"
ROWS: Final = {
    23: INSERT, 24: UPDATE, 25: DELETE, 30: INSERT, 31: UPDATE, 32: DELETE,
    166: INSERT, 167: UPDATE, 168: DELETE, 169: INSERT, 170: UPDATE, 171: DELETE,
}  # fmt: skip
"""Row events of MySQL and MariaDB, versions 1 and 2, and MariaDB's compressed ones."""
COMPRESSED_ROWS: Final = range(166, 172)
_SECOND_VERSION: Final = {30, 31, 32, 169, 170, 171}
GROUP_BEGINS: Final = {33, 34, 42, 162}
"""GTID events, which begin a transaction."""
WITHOUT_ROWS: Final = GROUP_BEGINS | {STOP, INTVAR, RAND, USER_VAR, XID, 27, 28, 29, 35, 36, 37, 41, 160, 161, 163, 164}
"""Events that change no row and no table map."""
IGNORABLE: Final = 0x80
"""Flag of events that a replica may ignore if it does not know their type."""
_OPTIONAL_NAMES, _OPTIONAL_KEY, _OPTIONAL_KEY_PARTS = 4, 8, 9


@dataclass(frozen=True)
class BinlogEvent:
    """An event.

    Attributes:
        kind: number of the event's type.
        at: time when the statement began, in seconds since the epoch.
        flags: flags of the header.
        body: the event without header and checksum.
        end: the offset after the event, from its header; 0 for an event that is in no file.
        size: bytes in the file.
    """

    kind: int
    at: int
    flags: int
    body: bytes
    end: int
    size: int


@dataclass(frozen=True)
class TableMap:
    """A table map: the binlog's description of a table before its row events.

    Attributes:
        id: number of the table map in row events.
        schema: schema of the table.
        name: name of the table.
        types: type and metadata of each column.
        names: names of the columns; None if the server does not log them.
        key: indexes of the primary key's columns; None if the server does not log them.
    """

    id: int
    schema: str
    name: str
    types: tuple[tuple[int, bytes], ...]
    names: tuple[str, ...] | None
    key: tuple[int, ...] | None


@dataclass(frozen=True)
class RowsEvent:
    """A row event with undecoded rows.

    Attributes:
        kind: `INSERT`, `UPDATE` or `DELETE`.
        table: the number of its table map.
        columns: number of columns.
        is_whole: whether every row has all its columns.
        rows: the bytes of the rows.
    """

    kind: str
    table: int
    columns: int
    is_whole: bool
    rows: bytes


def event_of(raw: bytes, *, checksum: bool) -> BinlogEvent:
    """Decode an event.

    Args:
        raw: header and body.
        checksum: whether the bytes end with a checksum.

    Raises:
        ValueError: the event is cut off, or its checksum is wrong.
    """
    if len(raw) < HEADER_BYTES:
        raise ValueError(f"an event of {len(raw)} bytes is cut off")
    at, kind, _server, size, end, flags = struct.unpack_from("<IBIIIH", raw)
    if size != len(raw):
        raise ValueError(f"an event of {size} bytes has {len(raw)}")
    if not checksum:
        return BinlogEvent(kind, at, flags, raw[HEADER_BYTES:], end, size)
    body = raw[HEADER_BYTES:-CHECKSUM_BYTES]
    # Servers change fields of a file's first event when they send it. Older ones send the file's checksum, which is
    # wrong.
    if kind not in (FORMAT, ROTATE) and zlib.crc32(raw[:-CHECKSUM_BYTES]) != int.from_bytes(
        raw[-CHECKSUM_BYTES:], "little"
    ):
        raise ValueError("the event's checksum is wrong")
    return BinlogEvent(kind, at, flags, body, end, size)


def has_checksums(format_event: bytes) -> bool:
    """Whether the events of a file have checksums, according to its first event."""
    return format_event[-CHECKSUM_BYTES - 1] == 1


def number(data: bytes, at: int) -> tuple[int, int]:
    """Return a number of one to nine bytes, and the index after it."""
    first = data[at]
    if first < 251:
        return first, at + 1
    size = {252: 2, 253: 3, 254: 8}[first]
    return int.from_bytes(data[at + 1 : at + 1 + size], "little"), at + 1 + size


def table_map_of(body: bytes) -> TableMap:
    """Decode a table map."""
    at = 8
    names = []
    for _ in range(2):
        size = body[at]
        names.append(body[at + 1 : at + 1 + size].decode())
        at += size + 2
    count, at = number(body, at)
    codes, at = body[at : at + count], at + count
    _, at = number(body, at)
    types = []
    for code in codes:
        size = METADATA_BYTES.get(code, 0)
        types.append((code, body[at : at + size]))
        at += size
    at += (count + 7) // 8
    columns, key = None, None
    while at < len(body):
        field = body[at]
        size, at = number(body, at + 1)
        value, at = body[at : at + size], at + size
        if field == _OPTIONAL_NAMES:
            columns = tuple(_texts(value))
        elif field == _OPTIONAL_KEY:
            key = tuple(_numbers(value))
        elif field == _OPTIONAL_KEY_PARTS:
            key = tuple(_numbers(value))[::2]
    return TableMap(int.from_bytes(body[:6], "little"), names[0], names[1], tuple(types), columns, key)


def _texts(data: bytes) -> Iterator[str]:
    at = 0
    while at < len(data):
        size, at = number(data, at)
        yield data[at : at + size].decode()
        at += size


def _numbers(data: bytes) -> Iterator[int]:
    at = 0
    while at < len(data):
        found, at = number(data, at)
        yield found


def rows_of(event: BinlogEvent) -> RowsEvent:
    """Decode a row event.

    Raises:
        ValueError: compressed bytes are damaged.
    """
    body, kind = event.body, ROWS[event.kind]
    at = 8
    if event.kind in _SECOND_VERSION:
        at += int.from_bytes(body[8:10], "little")
    columns, at = number(body, at)
    whole = (1 << columns) - 1
    size = (columns + 7) // 8
    is_whole = True
    for _ in range(2 if kind == UPDATE else 1):
        is_whole = is_whole and int.from_bytes(body[at : at + size], "little") & whole == whole
        at += size
    rows = body[at:]
    if event.kind in COMPRESSED_ROWS:
        rows = inflated(rows)
    return RowsEvent(kind, int.from_bytes(body[:6], "little"), columns, is_whole, rows)


def inflated(raw: bytes) -> bytes:
    """Return the uncompressed bytes of a part that MariaDB compressed.

    Args:
        raw: a byte of algorithm and size, the length in up to seven bytes, zlib.

    Raises:
        ValueError: the algorithm is unknown or the bytes are damaged.
    """
    if not raw[0] & 0x80 or raw[0] & 0x70:
        raise ValueError(f"the compression {raw[0]:#x} is not known")
    size = raw[0] & 7
    try:
        found = zlib.decompress(raw[1 + size :])
    except zlib.error as error:
        raise ValueError(f"compressed bytes are damaged ({error})") from error
    if len(found) != int.from_bytes(raw[1 : 1 + size], "big"):
        raise ValueError("compressed bytes have another length than their header names")
    return found


def query_of(event: BinlogEvent) -> tuple[str, str]:
    """Return the default schema and the text of a statement.

    Raises:
        ValueError: compressed bytes are damaged.
    """
    body = event.body
    schema_size, status_size = body[8], int.from_bytes(body[11:13], "little")
    at = 13 + status_size
    schema, text = body[at : at + schema_size], body[at + schema_size + 1 :]
    if event.kind == QUERY_COMPRESSED:
        text = inflated(text)
    return schema.decode(errors="replace"), text.decode(errors="replace")


def payload_of(body: bytes) -> Iterator[BinlogEvent]:
    """Yield the events of a compressed transaction of MySQL.

    Raises:
        ValueError: the algorithm is unknown or the bytes are damaged.
    """
    at, fields = 0, dict[int, int]()
    while True:
        field, at = number(body, at)
        if not field:
            break
        size, at = number(body, at)
        fields[field], at = number(body, at)[0], at + size
    raw, algorithm = body[at:], fields.get(2, 255)
    if algorithm == 0:
        try:
            raw = zstandard.ZstdDecompressor().decompressobj().decompress(raw)
        except zstandard.ZstdError as error:
            raise ValueError(f"a compressed transaction is damaged ({error})") from error
        if len(raw) != fields.get(3, len(raw)):
            raise ValueError("a compressed transaction has another length than its header names")
    elif algorithm != 255:
        raise ValueError(f"a transaction has the compression {algorithm}, which is not known")
    at = 0
    while at < len(raw):
        size = int.from_bytes(raw[at + 9 : at + 13], "little")
        yield event_of(raw[at : at + max(size, HEADER_BYTES)], checksum=False)
        at += size
