"""Values in SQL92 filter expressions: Java's numbers, their parsers and their order (broker.md §11.6).

Properties are texts. An integer literal has 32 bits when it fits and 64 bits otherwise. The two types can be compared
with different texts. Here a 32-bit integer is `int`, and a 64-bit integer is `Long`.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable
from typing import Final, TypeAlias

INT_MAX: Final = (1 << 31) - 1
LONG_MAX: Final = (1 << 63) - 1
_MOST_DIGITS: Final = 19
_LONGEST: Final = 1024
"""Maximum number of characters of a text that is parsed as a number. A longer one would dominate the evaluation."""
_BMP_END: Final = "\uffff"

_DIGITS: Final = re.compile(r"[+-]?\d+")
_DECIMAL: Final = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?")
_HEXADECIMAL: Final = re.compile(
    r"([+-]?0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?", re.ASCII
)
_NAMED: Final = re.compile(r"([+-]?)(NaN|Infinity)")
_BLANKS: Final = "".join(map(chr, range(33)))


class IncomparableError(ValueError):
    """Two values cannot be compared: RocketMQ raises an error, and the message does not match."""


class Long(int):
    """An integer of 64 bits."""


Value: TypeAlias = str | int | Long | float | bool | None
"""Values of operands at evaluation; None is NULL."""
Lookup: TypeAlias = Callable[[str], str | None]
"""Function that returns a property of the message by its name, None when the message does not have it."""
Condition: TypeAlias = Callable[[Lookup], bool | None]
"""Function that returns true, false or None for NULL."""


def _whole_number(digits: int, most: int) -> Callable[[str], int]:
    """Return a parser of integers with the rules of Java's `valueOf`; it raises `IncomparableError` for other texts.

    Args:
        digits: a text of fewer ASCII digits, and nothing else, is always in range.
        most: the greatest value; the least value is `-most - 1`.
    """

    def parse(text: str) -> int:
        if len(text) < digits and text.isdigit() and text.isascii():
            return int(text)
        value = _parse_digits(text)
        if not -most - 1 <= value <= most:
            raise IncomparableError(text)
        return value

    return parse


def _parse_digits(text: str) -> int:
    # Java accepts decimal digits of every script that fit into 16 bits, and no space.
    if len(text) > _LONGEST or not _DIGITS.fullmatch(text) or (not text.isascii() and max(text) > _BMP_END):
        raise IncomparableError(text)
    if len(text) <= _MOST_DIGITS:
        return int(text)
    sign = -1 if text[0] == "-" else 1
    digits = text[1:] if text[0] in "+-" else text
    digits = "".join(str(unicodedata.decimal(digit)) for digit in digits).lstrip("0")
    if len(digits) > _MOST_DIGITS:
        raise IncomparableError(text)
    return sign * int(digits or "0")


def parse_double(text: str) -> float:
    """Return the double of a text, parsed as Java's `Double.valueOf` does.

    Raises:
        IncomparableError: the text is no number.
    """
    text = text.strip(_BLANKS)
    if len(text) > _LONGEST:
        raise IncomparableError(text)
    if found := _DECIMAL.fullmatch(text):
        return float(found[1])
    if found := _NAMED.fullmatch(text):
        value = math.nan if found[2] == "NaN" else math.inf
        return -value if found[1] == "-" else value
    if found := _HEXADECIMAL.fullmatch(text):
        try:
            return float.fromhex(found[1])
        except OverflowError:
            return -math.inf if text[0] == "-" else math.inf
    raise IncomparableError(text)


def parse_boolean(text: str) -> bool:
    """Whether a text is `true` in any case; every other text is false."""
    return len(text) == len("true") and text.lower() == "true"


parse_int: Final = _whole_number(10, INT_MAX)
parse_long: Final = _whole_number(_MOST_DIGITS, LONG_MAX)
PARSERS: Final[dict[type, Callable[[str], int | float | bool]]] = {
    int: parse_int,
    Long: parse_long,
    float: parse_double,
    bool: parse_boolean,
}
"""Parsers of texts, by the type of the value that the text is compared with."""


def compare_doubles(left: float, right: float) -> int:
    """Compare two doubles in Java's order: NaN above all numbers and equal to itself, -0.0 below 0.0."""
    if left < right:
        return -1
    if left > right:
        return 1
    return _rank(left) - _rank(right)


def _rank(value: float) -> int:
    if value != value:
        return 2
    return 1 if value or math.copysign(1.0, value) > 0 else 0


def compare(left: Value, right: Value) -> int:
    """Return the order of two values that are not NULL: negative, zero or positive.

    A text is parsed as the type of the other value. A boolean is below every value that is no boolean.

    Raises:
        IncomparableError: a text cannot be parsed as the other type, or a boolean is on the left of a text.
    """
    kind, other = type(left), type(right)
    if kind is other:
        if kind is float:
            return compare_doubles(left, right)  # type: ignore[arg-type]
        return (left > right) - (left < right)  # type: ignore[operator]
    if kind is str:
        return compare(PARSERS[other](left), _plain(right))  # type: ignore[arg-type]
    if other is str:
        if kind is bool:
            raise IncomparableError(right)
        return compare(_plain(left), PARSERS[kind](right))  # type: ignore[arg-type]
    if kind is bool or other is bool:
        return -1
    if kind is float or other is float:
        return compare_doubles(float(left), float(right))  # type: ignore[arg-type]
    return (left > right) - (left < right)  # type: ignore[operator]


def _plain(value: Value) -> Value:
    return int(value) if type(value) is Long else value
