"""The record of a change entry: an entry of a group's log that holds changes of the broker's tables (docs/adr/0024).

It is a prepared half of the system topic that opening records use. RocketMQ's dispatch and ours skip prepared halves,
so the record is in no queue. Its queue number and a property distinguish it from an opening record.
"""

from __future__ import annotations

from typing import Final

from tianzhou.records.layout import AT, PREPARED, TRANSACTION_BITS

CHANGE_TOPIC: Final = "TBW102"
"""Topic of the record, the same as that of opening records."""
CHANGE_QUEUE: Final = 1
"""Queue number of the record; that of an opening record is 0."""
CHANGE_PROPERTIES: Final = b"TIANZHOU_TABLES\x011\x02"
"""Properties of the record: the version of its body's format."""
HEAD_SIZE: Final = AT["sys_flag"] + 4
"""Number of bytes of a record that `may_be_change` reads."""
_QUEUE: Final = slice(AT["queue_id"], AT["queue_id"] + 4)
_FLAGS: Final = slice(AT["sys_flag"], AT["sys_flag"] + 4)


def is_change(topic: str, queue_id: int, sys_flag: int) -> bool:
    """Whether a record is the record of a change entry."""
    return queue_id == CHANGE_QUEUE and sys_flag & TRANSACTION_BITS == PREPARED and topic == CHANGE_TOPIC


def may_be_change(head: memoryview) -> bool:
    """Whether the first `HEAD_SIZE` bytes of a record may belong to the record of a change entry."""
    if int.from_bytes(head[_QUEUE]) != CHANGE_QUEUE:
        return False
    return int.from_bytes(head[_FLAGS]) & TRANSACTION_BITS == PREPARED
