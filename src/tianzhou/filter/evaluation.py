"""SQL92 filter expressions as functions (broker.md §11.6).

Logic is three-valued: true, false and None for NULL. An operand that cannot be compared raises `IncomparableError`,
which ends the whole evaluation. Operands are evaluated from left to right, and only as far as needed, so that results
and errors agree with RocketMQ's.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

from tianzhou.filter.syntax import (
    All,
    Any,
    Equal,
    Literal,
    Negative,
    Not,
    OneOf,
    Operand,
    Order,
    Property,
    Search,
    Truth,
)
from tianzhou.filter.values import PARSERS, Condition, Long, Lookup, Value, compare, compare_doubles, parse_double

_Evaluation: TypeAlias = Callable[[Lookup], Value]

_TESTS: Final[dict[str, Callable[[int], bool]]] = {
    "<": lambda order: order < 0,
    "<=": lambda order: order <= 0,
    ">": lambda order: order > 0,
    ">=": lambda order: order >= 0,
}
_WHOLE: Final[dict[str, Callable[[int, int], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_MIRRORED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


def compile_condition(operand: Operand) -> Condition:
    """Return a function that decides whether a message fulfils a condition.

    Args:
        operand: the condition, from the parser.
    """
    match operand:
        case Literal(bool() | None as value):
            return lambda get: value
        case Truth(name):
            return lambda get: None if get(name) is None else False
        case Not(inner):
            return _not(compile_condition(inner))
        case All():
            return _all([compile_condition(one) for one in _flat(operand)])
        case Any():
            return _any([compile_condition(one) for one in _flat(operand)])
        case OneOf(name, negated, texts):
            return _one_of(name, negated, texts)
        case Search(how, negated, inner, text):
            return _search(how, negated, _evaluation(inner), text)
        case Order(sign, left, right):
            return _order(sign, left, right)
        case Equal(left, right):
            return _equal(left, right)
    raise TypeError(f"{operand!r} is no condition")  # pragma: no cover - the parser makes none


def _flat(group: All | Any) -> list[Operand]:
    """Return the operands, with nested groups of the same kind flattened; this saves calls and changes no result."""
    found: list[Operand] = []
    for operand in group.operands:
        if isinstance(operand, All | Any) and type(operand) is type(group):
            found += _flat(operand)
        else:
            found.append(operand)
    return found


def _evaluation(operand: Operand) -> _Evaluation:
    match operand:
        case Property(name):
            return lambda get: get(name)
        case Literal(value):
            return lambda get: value
        case Negative(inner):
            return _negative(_evaluation(inner))
    return compile_condition(operand)


def _negative(inner: _Evaluation) -> _Evaluation:
    def negative(get: Lookup) -> Value:
        value = inner(get)
        match value:
            case bool() | str() | None:
                return None
            case Long():
                return Long(-value)
            case _:
                return -value

    return negative


def _not(inner: Condition) -> Condition:
    def negation(get: Lookup) -> bool | None:
        value = inner(get)
        return None if value is None else not value

    return negation


def _all(conditions: list[Condition]) -> Condition:
    def conjunction(get: Lookup) -> bool | None:
        outcome: bool | None = True
        for condition in conditions:
            value = condition(get)
            if value is None:
                outcome = None
            elif not value:
                return False
        return outcome

    return conjunction


def _any(conditions: list[Condition]) -> Condition:
    def disjunction(get: Lookup) -> bool | None:
        outcome: bool | None = False
        for condition in conditions:
            value = condition(get)
            if value:
                return True
            if value is None:
                outcome = None
        return outcome

    return disjunction


def _one_of(name: str, negated: bool, texts: frozenset[str]) -> Condition:
    def membership(get: Lookup) -> bool | None:
        text = get(name)
        return None if text is None else (text in texts) is not negated

    return membership


def _search(how: str, negated: bool, inner: _Evaluation, wanted: str) -> Condition:
    def search(get: Lookup) -> bool:
        # An empty search text or a missing text is false for the NOT forms, too.
        if not wanted:
            return False
        text = inner(get)
        if not isinstance(text, str):
            return False
        if how == "CONTAINS":
            found = wanted in text
        elif how == "STARTSWITH":
            found = text.startswith(wanted)
        else:
            found = text.endswith(wanted)
        return found is not negated

    return search


def _order(sign: str, left: Operand, right: Operand) -> Condition:
    match left, right:
        case Property(name), Literal(value):
            return _property_order(name, sign, value)
        case Literal(value), Property(name):
            return _property_order(name, _MIRRORED[sign], value)
    first, second, test = _evaluation(left), _evaluation(right), _TESTS[sign]

    def order(get: Lookup) -> bool | None:
        one = first(get)
        if one is None:
            return None
        other = second(get)
        if other is None:
            return None
        if isinstance(one, str) and isinstance(other, str):
            return test(compare_doubles(parse_double(one), parse_double(other)))
        return test(compare(one, other))

    return order


def _property_order(name: str, sign: str, limit: Value) -> Condition:
    parse, test, whole = PARSERS[type(limit)], _TESTS[sign], _WHOLE[sign]
    assert isinstance(limit, int | float)
    if isinstance(limit, float):
        # Python's operators do not fit, because NaN is above all numbers here.
        def order_double(get: Lookup) -> bool | None:
            text = get(name)
            return None if text is None else test(compare_doubles(parse(text), limit))

        return order_double
    bound = int(limit)

    def order_whole(get: Lookup) -> bool | None:
        text = get(name)
        return None if text is None else whole(int(parse(text)), bound)

    return order_whole


def _equal(left: Operand, right: Operand) -> Condition:
    match left, right:
        case operand, Literal(None):
            present = _evaluation(operand)
            return lambda get: present(get) is None
        case Property(name), Literal(value):
            return _property_equal(name, value)
    first, second = _evaluation(left), _evaluation(right)

    def equality(get: Lookup) -> bool | None:
        one, other = first(get), second(get)
        if one is None:
            return True if other is None else None
        if other is None:
            return False
        return compare(one, other) == 0

    return equality


def _property_equal(name: str, value: Value) -> Condition:
    if isinstance(value, str):

        def equal_text(get: Lookup) -> bool | None:
            text = get(name)
            return None if text is None else text == value

        return equal_text
    parse = PARSERS[type(value)]

    def equal_value(get: Lookup) -> bool | None:
        text = get(name)
        return None if text is None else parse(text) == value

    return equal_value


def names_in(operand: Operand) -> frozenset[str]:
    """Return the names of the properties that a condition reads."""
    return frozenset(term.name for term in _terms(operand) if isinstance(term, Property | Truth | OneOf))


def terms_in(operand: Operand) -> int:
    """Return the number of properties and values that a condition compares."""
    return sum(1 for _ in _terms(operand))


def _terms(operand: Operand) -> Iterator[Operand]:
    match operand:
        case Negative(inner) | Not(inner) | Search(_, _, inner, _):
            yield from _terms(inner)
        case Order(_, left, right) | Equal(left, right):
            yield from _terms(left)
            yield from _terms(right)
        case All(operands) | Any(operands):
            for one in operands:
                yield from _terms(one)
        case _:
            yield operand
