"""Nodes of an SQL92 filter expression's syntax tree (broker.md §11.5, §11.6)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

from tianzhou.filter.values import Value


@dataclass(slots=True, frozen=True)
class Property:
    """A property of the message."""

    name: str


@dataclass(slots=True, frozen=True)
class Literal:
    """A value written in the expression."""

    value: Value


@dataclass(slots=True, frozen=True)
class Negative:
    """A minus sign before an operand. Its value is NULL unless the operand is a number."""

    operand: Operand


@dataclass(slots=True, frozen=True)
class Order:
    """`<`, `<=`, `>` or `>=`."""

    sign: str
    left: Operand
    right: Operand


@dataclass(slots=True, frozen=True)
class Equal:
    """`=`, and IS NULL as an `= NULL`."""

    left: Operand
    right: Operand


@dataclass(slots=True, frozen=True)
class Search:
    """CONTAINS, STARTSWITH, ENDSWITH and their NOT forms."""

    how: str
    negated: bool
    operand: Operand
    text: str


@dataclass(slots=True, frozen=True)
class OneOf:
    """IN and NOT IN."""

    name: str
    negated: bool
    texts: frozenset[str]


@dataclass(slots=True, frozen=True)
class Truth:
    """A property as a condition: false for every text, NULL when it is absent."""

    name: str


@dataclass(slots=True, frozen=True)
class Not:
    """NOT."""

    operand: Operand


@dataclass(slots=True, frozen=True)
class All:
    """AND of two or more conditions."""

    operands: tuple[Operand, ...]


@dataclass(slots=True, frozen=True)
class Any:
    """OR of two or more conditions."""

    operands: tuple[Operand, ...]


Operand: TypeAlias = Property | Literal | Negative | Order | Equal | Search | OneOf | Truth | Not | All | Any

_CONDITIONS: Final = (Order, Equal, Search, OneOf, Truth, Not, All, Any)


def is_condition(operand: Operand) -> bool:
    """Whether an operand is true, false or NULL by its form: a condition, or one of the words TRUE, FALSE and NULL."""
    if isinstance(operand, Literal):
        return operand.value is None or isinstance(operand.value, bool)
    return isinstance(operand, _CONDITIONS)


def described(operand: Operand) -> str:
    """Return the description of an operand for an error text."""
    match operand:
        case Literal(None):
            return "NULL"
        case Literal(bool(value)):
            return str(value).upper()
        case Literal(str(text)):
            quoted = text.replace("'", "''")
            return f"the string '{quoted}'"
        case Literal(value):
            return f"the number {value}"
        case Property(name):
            return f"the property {name}"
        case Negative():
            return "a negated value"
        case _:
            return "a condition"
