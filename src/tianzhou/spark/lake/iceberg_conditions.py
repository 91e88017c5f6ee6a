"""A query's conditions as pyiceberg has them, so that it leaves out files of other partitions."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date, datetime
from functools import reduce
from typing import Any, Final

from pyiceberg import expressions
from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression, Not
from pyiceberg.table import Table
from pyiceberg.types import (
    BooleanType,
    DateType,
    IntegerType,
    LongType,
    PrimitiveType,
    StringType,
    TimestampType,
    TimestamptzType,
)
from pyspark.sql import datasource as spark

from tianzhou.spark.lake.pruning import Condition

_KINDS: Final[dict[type, tuple[type[PrimitiveType], ...]]] = {
    bool: (BooleanType,),
    int: (IntegerType, LongType),
    str: (StringType,),
    date: (DateType,),
}
"""Which columns' values are of a Python type; others are compared in another way than Iceberg does."""
_MADE: Final[Any] = expressions
"""Without types: mypy takes the arguments of pyiceberg's classes from pydantic's fields, which are others."""
_COMPARED: Final = {
    spark.EqualTo: _MADE.EqualTo,
    spark.EqualNullSafe: _MADE.EqualTo,
    spark.GreaterThan: _MADE.GreaterThan,
    spark.GreaterThanOrEqual: _MADE.GreaterThanOrEqual,
    spark.LessThan: _MADE.LessThan,
    spark.LessThanOrEqual: _MADE.LessThanOrEqual,
    spark.StringStartsWith: _MADE.StartsWith,
}


def row_filter(conditions: Iterable[Condition], table: Table) -> BooleanExpression:
    """What of conditions is about columns that a table is, or was, partitioned by.

    Every part is exactly the condition where its column is not null; of nulls Iceberg keeps more.

    Args:
        conditions: to hold together.
        table: the table.
    """
    schema = table.schema()
    sources = {field.source_id for spec in table.specs().values() for field in spec.fields}
    kinds = {field.name: field.field_type for field in schema.fields if field.field_id in sources}
    found = [
        expression
        for column, condition in conditions
        if column in kinds and (expression := _expression(column, condition, kinds[column])) is not None
    ]
    return reduce(And, found, AlwaysTrue())  # type: ignore[arg-type]


def _expression(column: str, condition: spark.Filter, kind: Any) -> Any:
    """A condition as an expression; None when there is none, or it would select something else."""
    match condition:
        case spark.Not():
            inner = _expression(column, condition.child, kind)
            return None if inner is None else Not(inner)
        case spark.IsNull():
            return _MADE.IsNull(column)
        case spark.IsNotNull():
            return _MADE.NotNull(column)
        case spark.In():
            values = [value for value in condition.value if value is not None]
            return _MADE.In(column, values) if all(_of_kind(value, kind) for value in values) else None
    made = _COMPARED.get(type(condition))
    value = getattr(condition, "value", None)
    return made(column, value) if made is not None and _of_kind(value, kind) else None


def _of_kind(value: object, kind: Any) -> bool:
    if isinstance(value, datetime):
        return isinstance(kind, TimestampType if value.tzinfo is None else TimestamptzType)
    return isinstance(kind, _KINDS.get(type(value), ()))
