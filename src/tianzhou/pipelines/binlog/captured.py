"""Captured tables: a binlog's events as changes of their rows. Pure.

Each event either changes none of the tables, or becomes changes, or is rejected with an error.
"""

from __future__ import annotations

import contextlib
import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tianzhou.errors import TianzhouError
from tianzhou.pipelines.binlog import events as e
from tianzhou.pipelines.binlog.columns import Column, Decode, quoted
from tianzhou.pipelines.binlog.statements import StatementRefused, Table, Truncated, effect
from tianzhou.pipelines.binlog_changes import Change, changes, truncation

_PLAIN = re.compile(r"[a-z_][a-z0-9_]*", re.ASCII | re.IGNORECASE)
START_OVER = "start over with another checkpoint, whose snapshot makes the merged table equal again"
START_ANEW = "start over with another checkpoint, another topic and another merged table"


class ChangesLost(TianzhouError):
    """An event of the binlog cannot be followed. The text names table, position and reason."""


@dataclass(frozen=True)
class Captured:
    """A captured table.

    Attributes:
        schema: its schema.
        name: its name.
        columns: all columns, in order, including hidden ones.
        key: names of the primary key's columns.
    """

    schema: str
    name: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]

    @property
    def full_name(self) -> str:
        """Schema and name, as in a change."""
        return f"{self.schema}.{self.name}"

    @property
    def spark_schema(self) -> str:
        """The columns, as in an argument of `pipeline merge` or Spark."""
        return ", ".join(
            f"{column.name if _PLAIN.fullmatch(column.name) else quoted(column.name)} {column.spark}"
            for column in self.columns
        )


@dataclass(frozen=True)
class RowLayout:
    """A decoder of the row events of a table map.

    Attributes:
        table: the table.
        decoders: decoder of each column.
    """

    table: Captured
    decoders: tuple[Decode, ...]


def layout_of(table: Captured, logged: e.TableMap) -> RowLayout:
    """Return the layout for a table map.

    Raises:
        ValueError: the columns differ from the present columns of the table.
    """
    if logged.names is None:
        raise ValueError("the server did not log the columns' names; set binlog_row_metadata=FULL")
    now = tuple(column.name for column in table.columns)
    if logged.names != now:
        raise ValueError(
            f"the columns were {', '.join(logged.names)} and are {', '.join(now)} now: the table was changed"
        )
    if logged.key is not None and {now[place] for place in logged.key} != set(table.key):
        were = ", ".join(now[place] for place in logged.key)
        raise ValueError(f"the primary key was {were} and is {', '.join(table.key)} now: the table was changed")
    decoders = []
    for column, (code, metadata) in zip(table.columns, logged.types, strict=True):
        decoder = column.decoder(code, metadata)
        if decoder is None:
            raise ValueError(
                f"column {column.name} was logged as type {code} ({metadata.hex()}) and is {column.full_type} now: "
                "the table was changed, or keeps a format of an older server (ALTER TABLE … FORCE renews it)"
            )
        decoders.append(decoder)
    return RowLayout(table, tuple(decoders))


@dataclass
class BinlogDecoder:
    """Decoder of a binlog: turns events into changes, in order.

    Args:
        tables: the captured tables by schema and name.
        any_case: whether the server folds names of tables to lower case.
    """

    tables: Mapping[Table, Captured]
    any_case: bool = False
    _layouts: dict[int, RowLayout | None] = field(default_factory=dict)
    _rows_before: bool = False
    _place: tuple[str, int] = ("", 0)
    _index: int = 0

    def changes(self, event: e.BinlogEvent, file: str, end: int) -> Iterator[Change]:
        """Yield the changes of an event.

        Args:
            event: the event.
            file: the binlog's file.
            end: the offset after the event.

        Raises:
            ChangesLost: the event cannot be followed.
        """
        if (file, end) != self._place:
            self._place, self._index = (file, end), 0
        kind = event.kind
        if kind == e.TABLE_MAP:
            self._add(e.table_map_of(event.body))
        elif kind in e.ROWS:
            yield from self._rows(event)
        elif kind in (e.QUERY, e.QUERY_COMPRESSED):
            yield from self._statement(event)
        elif kind == e.TRANSACTION_PAYLOAD:
            with self._naming(None):
                inner_events = list(e.payload_of(event.body))
            for inner in inner_events:
                yield from self.changes(inner, file, end)
        elif kind in (e.FORMAT, e.ROTATE):
            self._layouts.clear()
        elif kind == e.XA_PREPARE and not self._rows_before:
            pass
        elif kind not in e.WITHOUT_ROWS and not event.flags & e.IGNORABLE:
            raise self._lost(None, _REASONS.get(kind, f"the event has the type {kind}, which is not known"))
        if kind in e.GROUP_BEGINS or kind == e.XID:
            self._rows_before = False

    def _lost(self, table: Captured | None, reason: object, remedy: str = START_OVER) -> ChangesLost:
        name = table.full_name if table else ", ".join(table.full_name for table in self.tables.values())
        file, end = self._place
        return ChangesLost(f"{name}: the binlog cannot be followed at {file}:{end}: {reason}; {remedy}")

    @contextlib.contextmanager
    def _naming(self, table: Captured | None, remedy: str = START_OVER) -> Iterator[None]:
        """Add table and position to errors of the block."""
        try:
            yield
        except (ValueError, IndexError, KeyError, struct.error) as error:
            raise self._lost(table, error, remedy) from error

    def _add(self, logged: e.TableMap) -> None:
        table = self.tables.get((logged.schema, logged.name))
        with self._naming(table, START_ANEW):
            self._layouts[logged.id] = layout_of(table, logged) if table else None

    def _rows(self, event: e.BinlogEvent) -> Iterator[Change]:
        table_id = int.from_bytes(event.body[:6], "little")
        if table_id not in self._layouts:
            if table_id == _NO_TABLE:  # This number ends a statement that has changed no row.
                return
            raise self._lost(None, f"rows of a table with the number {table_id} came before its columns")
        layout = self._layouts[table_id]
        if layout is None:
            return
        self._rows_before = True
        table = layout.table
        with self._naming(table):
            rows = e.rows_of(event)
            if not rows.is_whole:
                raise ValueError("rows lack columns; set binlog_row_image=FULL in the server and in every session")
            file, end = self._place
            for change in changes(
                rows.kind,
                table.full_name,
                table.key,
                row_values(layout, rows),
                file=file,
                offset=end,
                at=event.at,
                first=self._index,
            ):
                self._index += 1
                yield change

    def _statement(self, event: e.BinlogEvent) -> Iterator[Change]:
        with self._naming(None):
            schema, text = e.query_of(event)
        found = effect(text, schema, self.tables, rows_before=self._rows_before, any_case=self.any_case)
        if isinstance(found, StatementRefused):
            shown = " ".join(text.split())[:200]
            table = self.tables.get(found.table) if found.table else None
            raise self._lost(table, f"{found.reason}: {shown}", START_ANEW if table else START_OVER)
        if isinstance(found, Truncated):
            self._index += 1
            name = self.tables[found.table].full_name
            yield truncation(name, file=self._place[0], offset=self._place[1], index=self._index, at=event.at)
        if text[:6].upper() in ("BEGIN", "COMMIT"):
            self._rows_before = False


_NO_TABLE = 0xFFFFFF
_REASONS = {
    e.PARTIAL_UPDATE: "the update has parts of JSON documents only; set binlog_row_value_options=''",
    e.INCIDENT: "the server says that it lost events",
    e.XA_PREPARE: "an XA transaction is prepared, whose end is not followed",
    18: "LOAD DATA is logged as a statement, and not as the rows it changed",
}


def row_values(layout: RowLayout, rows: e.RowsEvent) -> Iterator[dict[str, dict[str, Any]]]:
    """Yield the rows of an event: `values`, or `before_values` and `after_values`.

    Raises:
        ValueError: a value cannot be decoded; names the column.
    """
    columns = layout.table.columns
    if rows.columns != len(columns):
        raise ValueError(f"rows have {rows.columns} columns and the table {len(columns)}")
    data, at = rows.rows, 0
    size = (len(columns) + 7) // 8

    def one() -> dict[str, Any]:
        nonlocal at
        nulls, at = int.from_bytes(data[at : at + size], "little"), at + size
        values: dict[str, Any] = {}
        for place, (column, decode) in enumerate(zip(columns, layout.decoders, strict=True)):
            if nulls >> place & 1:
                values[column.name] = None
                continue
            try:
                values[column.name], at = decode(data, at)
            except (ValueError, IndexError, struct.error) as error:
                raise ValueError(f"column {column.name}: {error}") from error
            if at > len(data):
                raise ValueError(f"column {column.name}: the row is cut off")
        return values

    while at < len(data):
        yield {"before_values": one(), "after_values": one()} if rows.kind == e.UPDATE else {"values": one()}
