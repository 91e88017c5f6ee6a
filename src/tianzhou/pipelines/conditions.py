"""Conditions of `--where` that need no Spark: plain comparisons of columns with the same meaning as in Spark's SQL.

All other conditions are left to Spark, because their meaning might differ. Supported are `=`, `<>`, `IN` and `IS NULL`
of texts and `=`, `<>`, `<`, `<=`, `>`, `>=` of whole numbers, joined by AND, OR and parentheses.

This module also parses the tags of `pipeline rates --tags`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from operator import ge, gt, le, lt
from typing import Any, Final

from tianzhou.errors import ConfigError, FilterSyntaxError
from tianzhou.filter.parser import parse
from tianzhou.filter.syntax import All, Equal, Literal, Not, OneOf, Operand, Order, Property
from tianzhou.filter.syntax import Any as Either

Columns = Mapping[str, type]
"""Type of each column, `str` or `int`, by name."""
Verdict = Callable[[Mapping[str, Any]], bool | None]
"""Whether a row fulfils a condition; None if the result is SQL's NULL."""

_ORDERS: Final[Mapping[str, Callable[[int, int], bool]]] = {"<": lt, "<=": le, ">": gt, ">=": ge}
# Spark parses escapes, quotes inside texts, other kinds of quotes, and a NOT before a comparison differently.
_OTHERWISE: Final = re.compile(r"""''|["`\\]|\bNOT\b(?!\s+(?:IN|NULL)\b)""", re.IGNORECASE)
_INTEGERS: Final = 1 << 31
TAG_SEPARATOR: Final = "||"
ALL_TAGS: Final = "*"


def outcome_tags(text: str, good: str) -> tuple[str, ...]:
    """Return the tags of `--tags` in their order. Repeated tags are returned once.

    Args:
        text: tags separated by `||`, as in a subscription.
        good: the tag that means success.

    Raises:
        ConfigError: a tag is empty or `*`, or `good` is not among the tags.
    """
    tags = tuple(dict.fromkeys(part.strip() for part in text.split(TAG_SEPARATOR)))
    if "" in tags or ALL_TAGS in tags:
        raise ConfigError(f"--tags {text}: expected names of tags, such as paid||failed")
    check_good(tags, good)
    return tags


def check_good(tags: Collection[str], good: str) -> None:
    """Check that the tag for success is among the tags.

    Raises:
        ConfigError: it is not.
    """
    if good not in tags:
        raise ConfigError(
            f"--good {good}: is none of --tags {TAG_SEPARATOR.join(tags)}; name the tag that means success"
        )


class _OnlySpark(Exception):
    """The condition has a form that only Spark supports."""


def condition_of(text: str, columns: Columns) -> Callable[[Mapping[str, Any]], bool] | None:
    """Return a function that evaluates a condition of SQL on a row; None if only Spark supports the condition.

    Args:
        text: the condition, as in `reason = 'Timeout' AND reconsumeTimes > 3`.
        columns: the columns of the rows. The condition may have their names in any case, as in Spark.
    """
    if _OTHERWISE.search(text):
        return None
    try:
        operand, end = parse(text)
        if text[end:].strip():
            return None
        verdict = _verdict(operand, {name.lower(): (name, kind) for name, kind in columns.items()})
    except (FilterSyntaxError, _OnlySpark):
        return None
    return lambda row: verdict(row) is True


def _verdict(operand: Operand, columns: Mapping[str, tuple[str, type]]) -> Verdict:
    if isinstance(operand, All | Either):
        return _joined([_verdict(one, columns) for one in operand.operands], isinstance(operand, Either))
    if isinstance(operand, Not):
        inner = _verdict(operand.operand, columns)
        return lambda row: None if (found := inner(row)) is None else not found
    if isinstance(operand, OneOf):
        name, _ = _column(operand.name, str, columns)
        texts, negated = operand.texts, operand.negated
        return lambda row: None if row[name] is None else (row[name] in texts) is not negated
    if isinstance(operand, Equal | Order) and isinstance(operand.left, Property) and isinstance(operand.right, Literal):
        return _comparison(operand, operand.left.name, operand.right.value, columns)
    raise _OnlySpark


def _comparison(
    operand: Equal | Order, property_name: str, value: Any, columns: Mapping[str, tuple[str, type]]
) -> Verdict:
    if isinstance(operand, Equal) and value is None:
        name, _ = _column(property_name, None, columns)
        return lambda row: row[name] is None
    if isinstance(value, bool) or not isinstance(value, str | int) or (isinstance(value, int) and value >= _INTEGERS):
        raise _OnlySpark
    kind = str if isinstance(value, str) else int
    name, _ = _column(property_name, kind, columns)
    if isinstance(operand, Equal):
        return lambda row: None if row[name] is None else row[name] == value
    if kind is not int:
        raise _OnlySpark
    compare = _ORDERS[operand.sign]
    return lambda row: None if row[name] is None else compare(row[name], int(value))


def _column(name: str, kind: type | None, columns: Mapping[str, tuple[str, type]]) -> tuple[str, type]:
    found = columns.get(name.lower())
    if found is None or (kind is not None and found[1] is not kind):
        raise _OnlySpark
    return found


def _joined(verdicts: list[Verdict], either: bool) -> Verdict:
    """Return the AND, or with `either` the OR, of verdicts, including NULLs."""

    def joined(row: Mapping[str, Any]) -> bool | None:
        found = [verdict(row) for verdict in verdicts]
        if either in found:
            return either
        return None if None in found else not either

    return joined
