"""Changes of rows as messages: the binlog of MySQL or MariaDB, in order by primary key over all queues. Pure.

A change is JSON: `{"op": "insert", "table": "shop.orders", "key": {"id": 7}, "row": {…}, "position": "…", "at": …}`.
`op` is `snapshot`, `insert`, `update`, `delete` or `truncate`. The `row` of a `delete` is null. A `truncate` has
neither key nor row: it deletes all rows whose position is lower. An update that changes the key is a delete and an
insert, because the two keys may be in two queues. The primary key is the sharding key, so that all changes of a row are
in one queue. Values are those of `tianzhou.pipelines.binlog.columns`. The position in the binlog is part of the query's
checkpoint. With the sink's default delivery a crash may repeat the last changes. `position` is unique and grows, so a
reader that retains a row's greatest position (as `merged_table` does) is exact.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

Row = Mapping[str, Any]
_UNSAFE = re.compile(r"[\x00-\x20\x7f%,]")


@dataclass(frozen=True)
class Change:
    """One change of one row.

    Attributes:
        op: `snapshot`, `insert`, `update`, `delete` or `truncate`.
        table: `schema.table`.
        key: the primary key's columns; None for all rows.
        row: all columns after the change, None if the row is deleted.
        position: unique text that sorts in the order of the changes.
        at: time of the change at the server, in seconds since the epoch.
    """

    op: str
    table: str
    key: Row | None
    row: Row | None
    position: str
    at: int

    def body(self) -> bytes:
        """Return the change as JSON."""
        return orjson.dumps(vars(self))

    def key_text(self) -> str:
        """Return the key as text: the sharding key and the message's key.

        Separators of keys, and characters that a property of a message cannot contain, are percent-encoded.
        """
        values = () if self.key is None else self.key.values()
        return f"{_safe(self.table)}:" + ",".join(_safe(str(value)) for value in values)


def _safe(text: str) -> str:
    return _UNSAFE.sub(lambda found: f"%{ord(found[0]):02X}", text)


def file_number(file: str) -> int:
    """Return the number of a binlog file, which follows its last dot."""
    return int(file.rpartition(".")[2])


def position_of(file: str, offset: int, index: int = 0) -> str:
    """Return a text that sorts in the order of the binlog.

    Args:
        file: name of the binlog file. Its number follows its last dot.
        offset: the end of the event in the file.
        index: number of the change in the event, or for a snapshot a number derived from the key.
    """
    return f"{file_number(file):010d}:{offset:012d}:{index:010d}"


def snapshot(table: str, key: Row, row: Row, *, file: str, offset: int) -> Change:
    """Return the change for a row of a snapshot.

    The position contains a number derived from the row's key, not the row's number in the snapshot. So a repeated
    snapshot, of rows that have changed meanwhile, gives each row its former position, and no row the position of
    another.

    Args:
        table: `schema.table`.
        key: the primary key's columns.
        row: all columns.
        file: the binlog file at whose end the row existed.
        offset: the end in the file.
    """
    digest = hashlib.blake2s(orjson.dumps([table, key]), digest_size=8).digest()
    return Change("snapshot", table, key, row, position_of(file, offset, int.from_bytes(digest)), 0)


def truncation(table: str, *, file: str, offset: int, index: int = 0, at: int = 0) -> Change:
    """Return the change that deletes all rows of a table.

    Args:
        table: `schema.table`.
        file: the binlog file.
        offset: the end of the event in the file.
        index: number of the change in the event.
        at: seconds since the epoch.
    """
    return Change("truncate", table, None, None, position_of(file, offset, index), at)


def changes(
    kind: str,
    table: str,
    keys: Sequence[str],
    rows: Iterable[Mapping[str, Row]],
    *,
    file: str,
    offset: int,
    at: int,
    first: int = 0,
) -> Iterator[Change]:
    """Yield the changes of one binlog event.

    Args:
        kind: `insert`, `update` or `delete`.
        table: `schema.table`.
        keys: the columns of its primary key.
        rows: `values`, or `before_values` and `after_values`, of each row.
        file: the binlog file.
        offset: the end of the event in the file.
        at: seconds since the epoch.
        first: number of changes before these in the same event.
    """
    index = first

    def one(op: str, row: Row) -> Change:
        nonlocal index
        index += 1
        key = {name: row[name] for name in keys}
        return Change(op, table, key, None if op == "delete" else row, position_of(file, offset, index), at)

    for row in rows:
        if kind != "update":
            yield one(kind, row["values"])
            continue
        before, after = row["before_values"], row["after_values"]
        if all(before[name] == after[name] for name in keys):
            yield one("update", after)
        else:
            yield one("delete", before)
            yield one("insert", after)
