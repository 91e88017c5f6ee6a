"""Conditions of a query on partition columns, as expressions of PyArrow and of pyiceberg. Pure.

Spark evaluates all conditions again, so a condition that has no exact counterpart may be left out.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types
from pyspark.sql import datasource as spark

Maker = Callable[[Any, Any], Any]
"""Makes an expression of a column and a value."""
ARROW: Final[Mapping[type, Maker]] = {
    spark.EqualTo: operator.eq,
    spark.EqualNullSafe: operator.eq,
    spark.GreaterThan: operator.gt,
    spark.GreaterThanOrEqual: operator.ge,
    spark.LessThan: operator.lt,
    spark.LessThanOrEqual: operator.le,
    spark.In: lambda column, values: column.isin(values),
    spark.IsNull: lambda column, _: column.is_null(),
    spark.IsNotNull: lambda column, _: column.is_valid(),
    spark.StringStartsWith: pc.starts_with,
    spark.Not: lambda inner, _: ~inner,
}


def expressions(
    conditions: Iterable[spark.Filter],
    columns: Mapping[str, Any],
    reference: Callable[[str], Any],
    by: Mapping[type, Maker],
) -> list[Any]:
    """Translate the conditions on partition columns.

    Args:
        conditions: conditions as Spark passes them on; names may be in any case.
        columns: Arrow type of each partition column.
        reference: returns the expression of a column.
        by: makers of expressions.
    """
    lower: dict[str, list[str]] = {}
    for name in columns:
        lower.setdefault(name.lower(), []).append(name)

    def translated(condition: spark.Filter) -> Any:
        if isinstance(condition, spark.Not):
            inner = translated(condition.child)
            return None if inner is None else by[spark.Not](inner, None)
        names: tuple[str, ...] = getattr(condition, "attribute", ())
        found = lower.get(names[0].lower(), []) if len(names) == 1 else []
        if len(found) != 1 or type(condition) not in by:
            return None
        value: Any = getattr(condition, "value", None)
        kind = columns[found[0]]
        if isinstance(condition, spark.In):
            value = [one for one in value if one is not None]
            exact = all(_of_type(one, kind) for one in value)
        else:
            exact = isinstance(condition, spark.IsNull | spark.IsNotNull) or _of_type(value, kind)
        return by[type(condition)](reference(found[0]), value) if exact else None

    return [made for condition in conditions if (made := translated(condition)) is not None]


def _of_type(value: Any, kind: Any) -> bool:
    """Whether a value and a column are compared in Python's order as Spark compares them."""
    match value:
        case bool():
            return bool(types.is_boolean(kind))
        case int():
            return bool(types.is_integer(kind))
        case str():
            return kind in (pa.string(), pa.large_string())
        case datetime():
            return bool(types.is_timestamp(kind)) and (value.tzinfo is None) == (kind.tz is None)
        case date():
            return bool(types.is_date32(kind))
    return False
