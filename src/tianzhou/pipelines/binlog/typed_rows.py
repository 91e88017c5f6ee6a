"""Changes in messages as rows of Spark types. Each value fits its type without loss, or the query fails.

Spark reads a value that does not fit as null, truncates digits and wraps numbers. So every value is compared with its
text in the change.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql import types as t

from tianzhou.errors import TianzhouError

CHANGE: Final = "op STRING, table STRING, key STRING, row STRING, position STRING"
TRUNCATE: Final = "truncate"
_INTEGERS: Final = (t.ByteType, t.ShortType, t.IntegerType, t.LongType)
_RAISED: Final = re.compile(r"\[USER_RAISED_EXCEPTION\] (.*?) SQLSTATE", re.DOTALL)
_TAIL: Final = r"\.?0+$"
_SHOWN_CHARACTERS: Final = 100


class ChangeRefused(TianzhouError):
    """A change does not fit the table. The error contains table, position, key and reason."""


def typed_rows(rows: DataFrame, table: str, schema: t.StructType, *, whole: bool = True) -> DataFrame:
    """Return the changes of a table as its rows, with the additional columns `_key`, `_position`, `_deleted` and `_op`.

    Args:
        rows: messages with `body`.
        table: `schema.table`; changes of other tables are left out.
        schema: the columns.
        whole: whether the schema must contain all columns of a change.
    """
    change = f.from_json(f.col("body").cast("string"), CHANGE)
    parsed = rows.select(change.alias("change"), f.col("body").cast("string").alias("body")).select(
        "body",
        "change.*",
        f.from_json("change.row", schema).alias("values"),
        f.from_json("change.row", "MAP<STRING, STRING>").alias("texts"),
    )
    fault = f.coalesce(_no_change(), f.when(f.col("table") == table, _misfit(schema, whole=whole)))
    checked = f.when(fault.isNotNull(), f.raise_error(fault)).otherwise(f.col("table"))
    return parsed.where(checked == table).select(
        f.when(f.col("op") == TRUNCATE, f.lit("")).otherwise(f.col("key")).alias("_key"),
        f.col("position").alias("_position"),
        f.col("op").isin("delete", TRUNCATE).alias("_deleted"),
        (f.col("op") == TRUNCATE).alias("_truncates"),
        "values.*",
    )


@contextmanager
def naming_faults() -> Iterator[None]:
    """Raise an error of `typed_rows` in the query as `ChangeRefused`.

    Raises:
        ChangeRefused: a change does not fit.
    """
    try:
        yield
    except Exception as error:
        found = _RAISED.search(str(error))
        if found is None:
            raise
        raise ChangeRefused(" ".join(found[1].split())) from None


def _no_change() -> Column:
    """Return why a message is not a change; null if it is one."""
    broken = f.col("op").isNull() | f.col("table").isNull() | f.col("position").isNull()
    shown = f.substring(f.col("body"), 1, _SHOWN_CHARACTERS)
    return f.when(
        broken, f.concat(f.lit("a message is no change of a table: "), f.coalesce(shown, f.lit("it has no body")))
    )


def _misfit(columns: t.StructType, *, whole: bool) -> Column:
    """Return why a change does not fit the columns; null if it does."""
    names = f.array(*[f.lit(name) for name in columns.names])
    there = f.map_keys("texts")
    problems = [
        _named(f.array_except(names, there), "lacks the columns %s of the schema"),
        *([_named(f.array_except(there, names), "has the columns %s, which the schema lacks")] if whole else []),
        *[_unlike(field) for field in columns.fields],
    ]
    rows = f.col("op").isin("delete", TRUNCATE)
    unreadable = f.when(f.col("texts").isNull(), f.lit("has no row"))
    reason = f.coalesce(unreadable, *problems)
    keyless = f.when((f.col("op") != TRUNCATE) & f.col("key").isNull(), f.lit("has no key"))
    reason = f.coalesce(keyless, f.when(~rows, reason))
    return f.concat(
        f.col("table"),
        f.lit(": the change at "),
        f.col("position"),
        f.lit(" of the row "),
        f.coalesce("key", f.lit("?")),
        f.lit(" "),
        reason,
    )


def _named(names: Column, text: str) -> Column:
    before, after = text.split("%s")
    return f.when(f.size(names) > 0, f.concat(f.lit(before), f.array_join(names, ", "), f.lit(after)))


def _unlike(field: t.StructField) -> Column:
    """Return the fault of a column whose value differs from the text of the change; null when both are equal."""
    raw, value = f.col("texts")[field.name], f.col("values")[field.name]
    same = f.coalesce(_same(raw, value, field.dataType), f.lit(False))
    shown = f.concat(
        f.lit(f"has a value of {field.name} that is no {field.dataType.simpleString().upper()}: "),
        f.substring(raw, 1, _SHOWN_CHARACTERS),
    )
    return f.when(raw.isNotNull() & ~same, shown)


def _same(raw: Column, value: Column, kind: t.DataType) -> Column:
    """Whether a value equals its text in the change."""
    text = value.cast("string")
    if isinstance(kind, t.BinaryType):
        return f.regexp_replace(f.base64(value), r"\s", "") == raw
    if isinstance(kind, t.DecimalType):
        # The cast rounds a number with more digits after the point.
        return value.isNotNull() & (f.length(f.regexp_extract(_without_zeros(raw), r"\.(\d+)$", 1)) <= kind.scale)
    if isinstance(kind, t.FloatType | t.DoubleType):
        return text.try_cast("double") == raw.try_cast("double")
    if isinstance(kind, t.TimestampType):
        return raw.endswith("Z") & value.isNotNull()
    if isinstance(kind, t.TimestampNTZType):
        return _without_zeros(text) == _without_zeros(raw)
    if isinstance(kind, (*_INTEGERS, t.DateType, t.StringType)):
        return text == raw
    return value.isNotNull()


def _without_zeros(text: Column) -> Column:
    """Return a number or a time without trailing zeros of its fraction."""
    return f.when(text.contains("."), f.regexp_replace(text, _TAIL, "")).otherwise(text)
