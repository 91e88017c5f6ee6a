"""Layout of a commit-log record: the one table of its fields (store.md §3.2).

Structs, NumPy's structured type and the constants of the compiled code are derived from it.
`python -m tianzhou.records.layout` prints `layout.h`.
"""

from __future__ import annotations

import sys
from struct import Struct, calcsize
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    import numpy as np


class RecordField(NamedTuple):
    """A field of fixed width.

    Attributes:
        number: number of the row in store.md §3.2.
        name: our name of the field; `body_size` is the first half of row 15.
        form: its width, as a format of `struct`.
        offset: bytes from the record's first byte, with IPv4 hosts.
    """

    number: int
    name: str
    form: str
    offset: int


def placed(*rows: tuple[int, str, str]) -> tuple[RecordField, ...]:
    """Return consecutive fields from their numbers, names and forms."""
    fields: list[RecordField] = []
    offset = 0
    for number, name, form in rows:
        fields.append(RecordField(number, name, form, offset))
        offset += calcsize(f">{form}")
    return tuple(fields)


FIELDS: Final = placed(
    (1, "size", "i"),
    (2, "magic", "i"),
    (3, "body_crc", "i"),
    (4, "queue_id", "i"),
    (5, "flag", "i"),
    (6, "queue_offset", "q"),
    (7, "physical_offset", "q"),
    (8, "sys_flag", "i"),
    (9, "born_timestamp", "q"),
    (10, "born_host", "4s"),
    (10, "born_port", "i"),
    (11, "store_timestamp", "q"),
    (12, "store_host", "4s"),
    (12, "store_port", "i"),
    (13, "reconsume_times", "i"),
    (14, "prepared_transaction_offset", "q"),
    (15, "body_size", "i"),
)
"""The fields in front of the body. Body, topic and properties follow. A length precedes topic and properties."""
AT: Final = {field.name: field.offset for field in FIELDS}
"""Offset of each field from the record's first byte, with IPv4 hosts."""

MAGIC_V1: Final = -626843481
MAGIC_V2: Final = -626843477
"""Version 2 has two bytes for the length of the topic instead of one (store.md §3.1)."""
MAGIC_BLANK: Final = -875286124
"""Magic number of the blank record that closes a segment (store.md §3.4)."""
MAGICS: Final = frozenset((MAGIC_V1, MAGIC_V2))
MAGIC_START: Final = MAGIC_V1.to_bytes(4, "big", signed=True)[:3]
"""First three bytes of the magic numbers of both versions; only the last byte differs."""

TRANSACTION_BITS: Final = 0xC
PREPARED: Final = 0x4
COMMIT: Final = 0x8
ROLLBACK: Final = 0xC
BORN_HOST_V6: Final = 0x10
STORE_HOST_V6: Final = 0x20
HOST_BITS: Final = BORN_HOST_V6 | STORE_HOST_V6
UNWRAP: Final = 0x40
INNER_BATCH: Final = 0x80
INNER_BATCH_BITS: Final = UNWRAP | INNER_BATCH
"""Bits of `sys_flag` (store.md §0.4)."""
END_OFFSET: Final = (1 << 63) - 1
"""Offsets of a queue are below this number, so that the offset behind the last message fits into 64 bits."""

HOST_V6_EXTRA: Final = 12
"""Additional bytes of an IPv6 host. They shift all fields behind it."""
HEAD_SIZE: Final = AT["body_size"] + 4
"""Bytes in front of the body, with IPv4 hosts."""
OVERHEAD: Final = HEAD_SIZE + 1 + 2
"""Bytes of a version 1 record with IPv4 hosts, without body, topic and properties."""
UP_TO_PLACE: Final = AT["sys_flag"]
"""Bytes of a record up to its physical offset."""
UP_TO_STORE_TIME: Final = AT["store_host"] + HOST_V6_EXTRA
"""Maximum number of bytes of a record up to its store timestamp."""
BLANK_SIZE: Final = 8
"""Bytes at the end of a segment that no record may take, so that a blank record always fits."""


def head_format(born_host: int = 4, store_host: int = 4, *, whole_store_address: bool = False) -> str:
    """Return the struct format of all fields in front of the body.

    Args:
        born_host: bytes of the sender's address, 4 or 16.
        store_host: bytes of the broker's address, 4 or 16.
        whole_store_address: whether address and port of the broker are one field.
    """
    sizes = {"born_host": f"{born_host}s", "store_host": f"{store_host}s"}
    if whole_store_address:
        sizes |= {"store_host": f"{store_host + 4}s", "store_port": ""}
    return ">" + "".join(sizes.get(field.name, field.form) for field in FIELDS)


HEADS: Final = {
    bits: Struct(head_format(16 if bits & BORN_HOST_V6 else 4, 16 if bits & STORE_HOST_V6 else 4))
    for bits in (0, BORN_HOST_V6, STORE_HOST_V6, HOST_BITS)
}
"""All fields in front of the body, by the host bits of `sys_flag`."""
SYS_FLAG: Final = [*AT].index("sys_flag")
"""Index of `sys_flag` in the fields of `HEADS`."""


def fields_at(*names: str) -> Struct:
    """Return a struct of some fields, for use at the record's first byte; it skips the fields between them.

    It finds fields behind `born_host` only in records with IPv4 hosts.
    """
    form, end = ">", 0
    for field in FIELDS:
        if field.name in names:
            form += f"{field.offset - end}x{field.form}"
            end = field.offset + calcsize(f">{field.form}")
    return Struct(form)


SIZE_MAGIC: Final = fields_at("size", "magic")
"""First fields of every record and blank."""
PLACE: Final = fields_at("size", "magic", "physical_offset")
"""Fields that identify a record: its magic number, and the offset where it begins."""
NUMBER: Final = Struct(">i")
POSITION: Final = Struct(">q")
"""An offset or a timestamp."""
LENGTH: Final = Struct(">h")
"""Length of the properties, and of a version 2 topic."""


def store_time_at(sys_flag: int) -> int:
    """Return the offset of the store timestamp from the record's first byte."""
    return AT["store_timestamp"] + (HOST_V6_EXTRA if sys_flag & BORN_HOST_V6 else 0)


def body_size_at(sys_flag: int) -> int:
    """Return the offset of the body's length from the record's first byte."""
    return HEADS[sys_flag & HOST_BITS].size - 4


def numpy_type(first: str, last: str) -> np.dtype[Any]:
    """Return NumPy's structured type of consecutive fields; all of them must be numbers."""
    import numpy as np

    names = [field.name for field in FIELDS]
    chosen = FIELDS[names.index(first) : names.index(last) + 1]
    return np.dtype([(field.name, f">i{calcsize('>' + field.form)}") for field in chosen])


def c_header() -> str:
    """Return the constants as a C header file: the text of `layout.h`."""
    lines = [f"#define TZ_AT_{name.upper()} {offset}" for name, offset in AT.items()]
    numbers = {
        "HEAD_SIZE": HEAD_SIZE, "OVERHEAD": OVERHEAD, "UP_TO_PLACE": UP_TO_PLACE, "BLANK_SIZE": BLANK_SIZE,
        "MAGIC_V1": MAGIC_V1, "MAGIC_V2": MAGIC_V2,
        "TRANSACTION_BITS": TRANSACTION_BITS, "PREPARED": PREPARED, "ROLLBACK": ROLLBACK, "HOST_BITS": HOST_BITS,
        "INNER_BATCH": INNER_BATCH, "INNER_BATCH_BITS": INNER_BATCH_BITS,
    }  # fmt: skip
    lines += [f"#define TZ_{name} {f'({value})' if value < 0 else value}" for name, value in numbers.items()]
    guard = "TIANZHOU_LAYOUT_H"
    title = "/* Where the fields of a commit-log record are; printed by `python -m tianzhou.records.layout`. */"
    return "\n".join([title, f"#ifndef {guard}", f"#define {guard}", "", *lines, "", "#endif", ""])


if __name__ == "__main__":
    sys.stdout.write(c_header())
