"""Changes of rows as messages: what a MySQL or MariaDB binlog says, in order by primary key over all queues. Pure.

A change is JSON: `{"op": "insert", "table": "shop.orders", "key": {"id": 7}, "row": {…}, "position": "…", "at": …}`.
`op` is `snapshot`, `insert`, `update` or `delete`, whose `row` is null. An update that changes the key is a delete and
an insert, since the two keys may be in two queues. The primary key is the sharding key, so that all changes of a row
are in one queue. Where in the binlog to go on is part of the query's checkpoint. With the sink's default delivery a
crash may repeat the last changes: `position` is unique and grows, so a reader that keeps a row's greatest position
(as `merged_table` does) is exact.
"""

from __future__ import annotations

import base64
import datetime as dt
import decimal
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Change:
    """One change of one row.

    Attributes:
        op: `snapshot`, `insert`, `update` or `delete`.
        table: `schema.table`.
        key: the primary key's columns.
        row: all columns after the change, None when it is gone.
        position: sorts as the changes happened, and is unique.
        at: seconds since the epoch, when the server made it.
    """

    op: str
    table: str
    key: Row
    row: Row | None
    position: str
    at: int

    def body(self) -> bytes:
        """The change as JSON."""
        row = None if self.row is None else _plain(self.row)
        return orjson.dumps({**vars(self), "key": _plain(self.key), "row": row})

    def key_text(self) -> str:
        """The key as text: what is sharded by and, joined to the table's name, found by."""
        return f"{self.table}:" + ",".join(str(value) for value in _plain(self.key).values())


def position_of(file: str, offset: int, index: int = 0) -> str:
    """A text that sorts as the binlog does.

    Args:
        file: name of the binlog file, whose number is behind its last dot.
        offset: the end of the event in it.
        index: number of the change within the event, or of the key among those of a snapshot.
    """
    return f"{int(file.rpartition('.')[2]):010d}:{offset:012d}:{index:06d}"


def snapshot(table: str, key: Row, row: Row, *, file: str, offset: int) -> Change:
    """A row that was there.

    Rows have the number of their key and not of their turn: a snapshot that is taken again, of rows that have changed
    meanwhile, gives each the position it had, and none that of another.

    Args:
        table: `schema.table`.
        key: the primary key's columns.
        row: all columns.
        file: the binlog file at whose end the row was there.
        offset: the end in it.
    """
    digest = hashlib.blake2s(orjson.dumps([table, _plain(key)]), digest_size=8).digest()
    return Change("snapshot", table, key, row, position_of(file, offset, int.from_bytes(digest)), 0)


def changes(
    kind: str, table: str, keys: Sequence[str], rows: Iterable[Mapping[str, Row]], *, file: str, offset: int, at: int
) -> Iterator[Change]:
    """The changes of one binlog event.

    Args:
        kind: `insert`, `update` or `delete`.
        table: `schema.table`.
        keys: the columns of its primary key.
        rows: `values`, or `before_values` and `after_values`, of each row.
        file: the binlog file.
        offset: the end of the event in it.
        at: seconds since the epoch.
    """
    index = 0

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


def _plain(row: Row) -> dict[str, Any]:
    return {name: _value(value) for name, value in row.items()}


def _value(value: Any) -> Any:
    """A column's value as JSON has it: what JSON has no type for becomes the text the database would print."""
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return base64.b64encode(value).decode()
    if isinstance(value, decimal.Decimal):
        return str(value)
    if isinstance(value, dt.datetime):
        return value.isoformat(" ")
    if isinstance(value, dt.date):
        return value.isoformat()
    if isinstance(value, dt.timedelta):
        seconds = int(value.total_seconds())
        sign, seconds = ("-", -seconds) if seconds < 0 else ("", seconds)
        return f"{sign}{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    if isinstance(value, set | frozenset):
        return ",".join(sorted(value))
    if isinstance(value, dict):
        return {str(_value(name)): _value(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_value(part) for part in value]
    return value
