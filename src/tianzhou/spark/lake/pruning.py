"""Which files a query's conditions leave out, by what all rows of a file have in common. Pure.

Spark evaluates every condition again behind the source, so a file that is in doubt stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime
from enum import Enum
from typing import Any, Final

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

Condition = tuple[str, Filter]
"""A condition, and the column of the wanted schema that it is about."""

_PLAIN: Final = (bool, int, str, date, datetime)
_OF_VALUES: Final = (
    *(EqualTo, EqualNullSafe, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual),
    *(StringStartsWith, StringEndsWith, StringContains),
)


class _Doubt(Enum):
    DOUBT = "whether a condition holds is not known here"


DOUBT: Final = _Doubt.DOUBT
Truth = bool | _Doubt | None
"""What a condition is of a value; None is the null of SQL, which selects no row."""


def conditions_of(filters: Iterable[Filter], columns: Sequence[str]) -> list[Condition]:
    """The conditions that are about one column each.

    Args:
        filters: as Spark hands them on, to hold together; names may be in any case, as in the query.
        columns: of the wanted schema.
    """
    found = []
    for condition in filters:
        names = _attribute(condition)
        if len(names) != 1:
            continue
        alike = [column for column in columns if column.lower() == names[0].lower()]
        if names[0] in alike:
            found.append((names[0], condition))
        elif len(alike) == 1:
            found.append((alike[0], condition))
    return found


def may_hold(values: Mapping[str, Any], conditions: Iterable[Condition]) -> bool:
    """Whether a file can have a row that all conditions select.

    Args:
        values: columns of which all rows of the file have the same value.
        conditions: those about other columns leave no file out.
    """
    return all(
        truth(condition, values[column]) in (True, DOUBT) for column, condition in conditions if column in values
    )


def truth(condition: Filter, value: Any) -> Truth:
    """What a condition is when its column has a value, as Spark has it."""
    match condition:
        case Not():
            inner = truth(condition.child, value)
            return not inner if isinstance(inner, bool) else inner
        case IsNull():
            return value is None
        case IsNotNull():
            return value is not None
        case EqualNullSafe() if value is None or condition.value is None:
            return value is condition.value
        case In():
            return _among(value, condition.value)
    if not isinstance(condition, _OF_VALUES):
        return DOUBT
    if value is None or condition.value is None:
        return None
    return _compared(condition, value, condition.value) if alike(value, condition.value) else DOUBT


def alike(one: Any, other: Any) -> bool:
    """Whether two values are of one type, in which Python's order is Spark's."""
    if type(one) is not type(other) or not isinstance(one, _PLAIN):
        return False
    return not isinstance(one, datetime) or (one.tzinfo is None) == (other.tzinfo is None)


def _attribute(condition: Filter) -> tuple[str, ...]:
    while isinstance(condition, Not):
        condition = condition.child
    found: tuple[str, ...] = getattr(condition, "attribute", ())
    return found


def _among(value: Any, wanted: Sequence[Any]) -> Truth:
    if value is None:
        return None
    known = [one for one in wanted if one is not None]
    if not all(alike(value, one) for one in known):
        return DOUBT
    return value in known or (None if len(known) < len(wanted) else False)


def _compared(condition: Filter, value: Any, wanted: Any) -> Truth:
    match condition:
        case EqualTo() | EqualNullSafe():
            return bool(value == wanted)
        case GreaterThan():
            return bool(value > wanted)
        case GreaterThanOrEqual():
            return bool(value >= wanted)
        case LessThan():
            return bool(value < wanted)
        case LessThanOrEqual():
            return bool(value <= wanted)
    if isinstance(value, str):
        match condition:
            case StringStartsWith():
                return value.startswith(wanted)
            case StringEndsWith():
                return value.endswith(wanted)
            case StringContains():
                return wanted in value
    return DOUBT
