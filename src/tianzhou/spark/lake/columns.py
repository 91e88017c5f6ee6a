"""Rules for the columns of rows and of tables. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyarrow import types

from tianzhou.errors import ConfigError
from tianzhou.spark.lake.options import PartitionColumn


def nullable(field: Any) -> Any:
    """Return a field that is nullable at every depth. Keys of maps are not changed."""
    return field.with_type(_nullable_type(field.type)).with_nullable(True)


def _nullable_type(kind: Any) -> Any:
    if types.is_struct(kind):
        return pa.struct([nullable(field) for field in kind])
    if types.is_map(kind):
        return pa.map_(_nullable_type(kind.key_type), nullable(kind.item_field))
    if types.is_list(kind) or types.is_large_list(kind):
        return pa.list_(nullable(kind.value_field))
    return kind


def has_local_times_in_map(kind: Any, inside: bool = False) -> bool:
    """Whether a type has timestamps without a zone inside a map."""
    if types.is_timestamp(kind):
        return inside and kind.tz is None
    inside = inside or types.is_map(kind)
    return any(has_local_times_in_map(kind.field(index).type, inside) for index in range(kind.num_fields))


@dataclass(frozen=True, slots=True)
class Match:
    """The columns of rows matched with those of a table.

    Attributes:
        names: the table's name of each column of the rows that the table has.
        new: columns of the rows that the table lacks.
    """

    names: Mapping[str, str]
    new: Sequence[str]


def match(rows: pa.Schema, table: pa.Schema, name: str, *, case_sensitive: bool) -> Match:
    """Match the columns of rows with those of a table.

    Args:
        rows: schema of the rows.
        table: schema of the table.
        name: the table, for messages.
        case_sensitive: whether names that differ in case are different columns.

    Raises:
        ConfigError: a column has another type, two columns have the same name, or a NOT NULL column is missing.
    """
    by_key = unambiguous(table.names, name, case_sensitive=case_sensitive)
    by_row = unambiguous(rows.names, "the rows", case_sensitive=case_sensitive)
    for key, column in by_row.items():
        if key in by_key:
            kind, there = rows.field(column).type, table.field(by_key[key]).type
            if not fits(kind, there):
                raise ConfigError(f"column {column} is {kind} in the rows and {there} in {name}; cast it")
    for key, column in by_key.items():
        if not table.field(column).nullable and key not in by_row:
            raise ConfigError(f"the rows lack column {column}, which is NOT NULL in {name}; add it")
    return Match(
        {column: by_key[key] for key, column in by_row.items() if key in by_key},
        [column for key, column in by_row.items() if key not in by_key],
    )


def unambiguous(names: Iterable[str], owner: str, *, case_sensitive: bool) -> dict[str, str]:
    """Return the names by the key under which they are compared.

    Raises:
        ConfigError: two names have the same key.
    """
    found: dict[str, str] = {}
    for name in names:
        key = name if case_sensitive else name.lower()
        if key in found:
            raise ConfigError(
                f"{owner}: columns {found[key]} and {name} are the same name; rename one of them, or compare with case "
                "(spark.sql.caseSensitive=true, in sessions of your own also the option caseSensitive=true)"
            )
        found[key] = name
    return found


def fits(rows: Any, table: Any) -> bool:
    """Whether every value of one type is a value of another type.

    Formats name the parts of lists and maps differently, and Iceberg has no integers of 8 and 16 bits.
    """
    if types.is_map(rows) and types.is_map(table):
        return fits(rows.key_type, table.key_type) and fits(rows.item_type, table.item_type)
    if types.is_struct(rows) and types.is_struct(table):
        return [field.name for field in rows] == [field.name for field in table] and all(
            fits(field.type, counterpart.type) for field, counterpart in zip(rows, table, strict=True)
        )
    if all(types.is_list(kind) or types.is_large_list(kind) for kind in (rows, table)):
        return fits(rows.value_type, table.value_type)
    if types.is_int32(table) and (types.is_int8(rows) or types.is_int16(rows)):
        return True
    small = {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}
    return bool(small.get(rows, rows) == small.get(table, table))


def missing(new: Sequence[str], table: pa.Schema, name: str) -> ConfigError:
    """Return the error for columns that a table lacks."""
    return ConfigError(
        f"{name} has no column {', '.join(new)}; it has {', '.join(table.names)}. "
        "Leave it out, or set mergeSchema=true to add it"
    )


def agreed(
    wanted: Sequence[PartitionColumn], there: Sequence[PartitionColumn], rows: pa.Schema, name: str, *, own: bool
) -> list[PartitionColumn]:
    """Return the partition columns of a table, named as the rows name them.

    Args:
        wanted: the option `partitionBy`; empty when it is not given.
        there: the partition columns of the table.
        rows: schema of the rows, under the table's names.
        name: the table, for messages.
        own: whether files lack the partition columns.

    Raises:
        ConfigError: the option differs from the table, or the rows cannot be divided so; names the column.
    """
    if wanted and [str(part).lower() for part in wanted] != [str(part).lower() for part in there]:
        how = f"partitioned by {listed(there)}" if there else "not partitioned"
        raise ConfigError(
            f"partitionBy={listed(wanted)}: {name} is {how}; leave partitionBy out, or write into another table"
        )
    for part in there:
        _check_part(part, rows, name)
    if own and there and {part.column for part in there} >= set(rows.names):
        raise ConfigError(f"{name} is partitioned by all of its columns; leave at least one to be in the files")
    return list(there)


def _check_part(part: PartitionColumn, rows: pa.Schema, name: str) -> None:
    if part.column not in rows.names:
        raise ConfigError(
            f"{name} is partitioned by {part}, and the rows have no column {part.column}; they have "
            f"{', '.join(rows.names)}"
        )
    kind: Any = rows.field(part.column).type
    if part.transform is None:
        text = types.is_string(kind) or types.is_large_string(kind)
        fit = text or types.is_integer(kind) or types.is_boolean(kind) or types.is_date32(kind)
        wanted = "texts, whole numbers, booleans and dates; for times Iceberg has day() and hour()"
    else:
        fit = types.is_timestamp(kind) or (types.is_date32(kind) and part.transform != "hour")
        wanted = "timestamps" if part.transform == "hour" else "timestamps and dates"
    if not fit:
        raise ConfigError(f"{name} is partitioned by {part}, and column {part.column} is {kind}; expected {wanted}")


def resolved(parts: Iterable[PartitionColumn], names: Iterable[str], *, case_sensitive: bool) -> list[PartitionColumn]:
    """Return parts of `partitionBy` under the names of a schema. Unknown names are not changed."""
    keys = unambiguous(names, "the rows", case_sensitive=case_sensitive)
    return [
        PartitionColumn(keys.get(part.column if case_sensitive else part.column.lower(), part.column), part.transform)
        for part in parts
    ]


def listed(parts: Iterable[PartitionColumn]) -> str:
    """Return parts in the form of the option `partitionBy`."""
    return ", ".join(map(str, parts))


def chosen(wanted: Iterable[str], there: Sequence[str]) -> dict[str, str]:
    """Return the table's name of each wanted column that the table has. An exact name precedes one in other case."""
    lower = {name.lower(): name for name in there}
    found = {name: name if name in there else lower.get(name.lower()) for name in wanted}
    return {name: own for name, own in found.items() if own is not None}


def shaped(batch: pa.RecordBatch, wanted: pa.Schema, names: Mapping[str, str]) -> pa.RecordBatch:
    """Return a batch under wanted names and types. Columns that it lacks are null.

    Args:
        batch: the rows.
        wanted: names and types.
        names: column of the batch for each wanted name, see `chosen`.
    """
    arrays = [
        batch.column(names[field.name]).cast(field.type)
        if names.get(field.name) in batch.schema.names
        else pa.nulls(batch.num_rows, field.type)
        for field in wanted
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=wanted)
