"""The record that opens a term of a DLedger group, and the identities that it carries (docs/adr/0024).

It is a prepared half of a system topic. RocketMQ's dispatch skips prepared halves, so the record is in no queue
(store.md §3.7).
"""

from __future__ import annotations

import re
from typing import Final

from tianzhou.errors import CorruptRecord
from tianzhou.records.checksum import Octets
from tianzhou.records.codec import Record, decode_record, encode_record
from tianzhou.records.entry import HEADER_SIZE
from tianzhou.records.layout import PREPARED, TRANSACTION_BITS

OPENING_TOPIC: Final = "TBW102"
"""Topic of the record that opens a term."""
GROUP_ID: Final = "TIANZHOU_GROUP_ID"
"""Property with the identity of the group: 32 hexadecimal digits."""
TERM_ID: Final = "TIANZHOU_TERM_ID"
"""Property with 32 random hexadecimal digits that identify the term: no other opening record has the same."""

_GROUP_ID: Final = re.compile(rb"(?:^|\x02)%s\x01([0-9a-f]{32})(?:\x02|$)" % GROUP_ID.encode())


def opening_record(
    term: int, place: int, now_ms: int, host: bytes, port: int, group_id: str = "", term_id: str = ""
) -> bytes:
    """Return the record that opens a term.

    Args:
        term: number of the term.
        place: log offset of the record.
        now_ms: wall-clock time.
        host: address of the leader's broker, 4 or 16 bytes.
        port: port of that broker.
        group_id: identity of the group; empty for a record without one.
        term_id: identity of the term; empty for a record without one.
    """
    pairs = ((GROUP_ID, group_id), (TERM_ID, term_id))
    properties = "".join(f"{name}\x01{value}\x02" for name, value in pairs if value).encode()
    return encode_record(
        Record(
            OPENING_TOPIC, 0, 0, place, 0, PREPARED, now_ms, host, port, now_ms, host, port, 0, 0, b"term %d" % term,
            properties,
        )
    )  # fmt: skip


def opening_group_id(entry: Octets) -> str:
    """Return the group's identity of an entry that opens a term; empty for every other entry.

    Args:
        entry: header and body of the entry.
    """
    try:
        record = decode_record(entry, HEADER_SIZE)
    except CorruptRecord:
        return ""
    if record.topic != OPENING_TOPIC or record.sys_flag & TRANSACTION_BITS != PREPARED:
        return ""
    found = _GROUP_ID.search(record.properties)
    return found[1].decode() if found else ""
