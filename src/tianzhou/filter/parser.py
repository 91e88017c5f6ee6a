"""Parser of SQL92 filter expressions (broker.md §11.5)."""

from __future__ import annotations

from typing import Final

from tianzhou.errors import FilterSyntaxError
from tianzhou.filter.lexer import END, FLOAT, INTEGER, NAME, STRING, Word, Words, unquoted
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
    described,
    is_condition,
)
from tianzhou.filter.values import INT_MAX, LONG_MAX, Long, Value, compare
from tianzhou.limits import FILTER_TERMS

MAX_DEPTH: Final = 100
"""Maximum number of nested parentheses, NOT and signs, and of chained comparisons like `a = b = c`. In RocketMQ the
thread's stack is the limit, at some thousands."""

_SEARCHES: Final = ("CONTAINS", "STARTSWITH", "ENDSWITH")
_ORDERS: Final = ("<", "<=", ">", ">=")
_LINKS: Final = frozenset((*_SEARCHES, *_ORDERS, "=", "<>", "IS", "IN", "NOT", "BETWEEN"))
_CONSTANTS: Final[dict[str, Value]] = {"TRUE": True, "FALSE": False, "NULL": None}
_A_VALUE: Final = "a property, a value, NOT or ("


def parse(expression: str) -> tuple[Operand, int]:
    """Parse an expression.

    Args:
        expression: the text.

    Returns:
        The condition, and the position behind it. Further text may follow there, see `tianzhou.filter.sql`.

    Raises:
        FilterSyntaxError: the text is no expression; the error names the position, the word and the expected words.
    """
    parser = _Parser(Words(expression))
    begin = parser.words.next.position
    condition = parser.condition(parser.disjunction(), begin)
    rest = parser.words.next
    return condition, len(expression) if rest.kind == END else rest.position


class _Parser:
    def __init__(self, words: Words) -> None:
        self.words = words
        self._depth = 0
        self._links = 0
        self._terms = 0

    def disjunction(self) -> Operand:
        """Parse conditions joined by OR, each of them conditions joined by AND, or a single operand."""
        words = self.words
        some: list[Operand] = []
        while True:
            begin = words.next.position
            operand = self._equality()
            if words.next.kind == "AND":
                every = [self.condition(operand, begin)]
                while words.take_if("AND"):
                    begin = words.next.position
                    every.append(self.condition(self._equality(), begin))
                operand = All(tuple(every))
            if not some and words.next.kind != "OR":
                return operand
            some.append(self.condition(operand, begin))
            if not words.take_if("OR"):
                return Any(tuple(some))

    def condition(self, operand: Operand, position: int) -> Operand:
        """Return an operand as a condition: a property becomes `Truth`, a value is an error."""
        if isinstance(operand, Property):
            return Truth(operand.name)
        if not is_condition(operand):
            raise FilterSyntaxError(f"expected a condition, but {described(operand)} is none: it stands", position)
        return operand

    def _equality(self) -> Operand:
        words = self.words
        left_at = words.next.position
        left = first = self._comparison()
        while True:
            if left is not first:
                self._link()
            if words.next.kind in ("=", "<>"):
                sign = words.take()
                right_at = words.next.position
                right = self._comparison()
                _check_equality(left, left_at, right, right_at)
                left = Equal(left, right)
                if sign.kind == "<>":
                    left = Not(left)
            elif words.take_if("IS"):
                negated = words.take_if("NOT")
                words.expect("NULL", "NULL" if negated else "NULL or NOT NULL")
                left = Equal(left, Literal(None))
                if negated:
                    left = Not(left)
            else:
                return left

    def _comparison(self) -> Operand:
        words = self.words
        left_at = words.next.position
        left = first = self._unary()
        while True:
            if left is not first:
                self._link()
            kind = words.next.kind
            if kind in _ORDERS:
                words.take()
                _check_order(left, left_at)
                right_at = words.next.position
                right = self._unary()
                _check_order(right, right_at)
                left = Order(kind, left, right)
                continue
            negated = words.take_if("NOT")
            kind = words.next.kind
            if kind in _SEARCHES:
                words.take()
                left = Search(kind, negated, left, self._string(kind))
            elif kind == "BETWEEN":
                left = self._between(words.take(), negated, left, left_at)
            elif kind == "IN":
                left = self._one_of(words.take(), negated, left, left_at)
            elif negated:
                raise words.unexpected("BETWEEN, IN, CONTAINS, STARTSWITH or ENDSWITH after NOT")
            else:
                return left

    def _link(self) -> None:
        """Count a chained comparison, and raise an error above `MAX_DEPTH`."""
        words = self.words
        if words.next.kind in _LINKS:
            self._links += 1
            if self._links > MAX_DEPTH:
                raise FilterSyntaxError(f"more than {MAX_DEPTH} comparisons of comparisons", words.next.position)

    def _between(self, word: Word, negated: bool, value: Operand, value_at: int) -> Operand:
        words = self.words
        _check_order(value, value_at)
        low_at = words.next.position
        low = self._unary()
        _check_order(low, low_at)
        words.expect("AND", f"AND between the two limits of {word.text}")
        high_at = words.next.position
        high = self._unary()
        _check_order(high, high_at)
        if negated:
            return Any((Order("<", value, low), Order(">", value, high)))
        if isinstance(low, Literal) and isinstance(high, Literal) and compare(high.value, low.value) < 0:
            raise FilterSyntaxError(
                f"{word.text} needs the smaller limit first, but {low.value} is greater than {high.value}: it stands",
                low_at,
            )
        return All((Order(">=", value, low), Order("<=", value, high)))

    def _one_of(self, word: Word, negated: bool, operand: Operand, position: int) -> Operand:
        words = self.words
        if not isinstance(operand, Property):
            raise FilterSyntaxError(
                f"expected a property before {word.text}, but there is {described(operand)}", position
            )
        words.expect("(", f"( after {word.text}")
        texts = {self._string(f"{word.text} (")}
        while words.take_if(","):
            texts.add(self._string(","))
        words.expect(")", ", or )")
        return OneOf(operand.name, negated, frozenset(texts))

    def _string(self, behind: str) -> str:
        return unquoted(self.words.expect(STRING, f"a string in single quotes after {behind}").text)

    def _unary(self) -> Operand:
        words = self.words
        kind = words.next.kind
        if kind not in ("+", "-", "NOT", "("):
            return self._primary()
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise FilterSyntaxError(f"nested deeper than {MAX_DEPTH} levels", words.next.position)
        words.take()
        begin = words.next.position
        if kind == "(":
            operand = self.disjunction()
            words.expect(")", "an operator or )")
        else:
            operand = self._unary()
            if kind == "-":
                operand = Negative(operand)
            elif kind == "NOT":
                operand = Not(self.condition(operand, begin))
        self._depth -= 1
        return operand

    def _primary(self) -> Operand:
        words = self.words
        kind = words.next.kind
        self._terms += 1
        if self._terms > FILTER_TERMS.default:
            raise FilterSyntaxError(
                f"more than {FILTER_TERMS.default} properties and values are compared; use IN (...) for many texts, or"
                " fewer conditions. The next one stands",
                words.next.position,
            )
        if kind == NAME:
            return Property(words.take().text)
        if kind == STRING:
            return Literal(unquoted(words.take().text))
        if kind == INTEGER:
            return Literal(_integer(words.take()))
        if kind == FLOAT:
            return Literal(_float(words.take()))
        if kind in _CONSTANTS:
            words.take()
            return Literal(_CONSTANTS[kind])
        raise words.unexpected(_A_VALUE)


def _integer(word: Word) -> int:
    text = word.text.rstrip("lL")
    if len(text) > len(str(LONG_MAX)) or int(text) > LONG_MAX:
        raise FilterSyntaxError(f"the number {word.text} is greater than {LONG_MAX}: it stands", word.position)
    value = int(text)
    return value if value <= INT_MAX else Long(value)


def _float(word: Word) -> float:
    value = float(word.text)
    if not value:
        raise FilterSyntaxError(
            f"{word.text} is zero, which RocketMQ knows only without point and exponent; write 0. It stands",
            word.position,
        )
    if value == float("inf"):
        raise FilterSyntaxError(f"the number {word.text} is greater than a double can be: it stands", word.position)
    return value


def _check_order(operand: Operand, position: int) -> None:
    if isinstance(operand, Literal):
        orderly = not is_condition(operand) and not isinstance(operand.value, str)
    else:
        orderly = not is_condition(operand)
    if not orderly:
        raise FilterSyntaxError(
            f"only numbers and properties have an order, and {described(operand)} is neither: it stands", position
        )


def _check_equality(left: Operand, left_at: int, right: Operand, right_at: int) -> None:
    for operand, position in ((left, left_at), (right, right_at)):
        if isinstance(operand, Literal) and operand.value is None:
            raise FilterSyntaxError("nothing equals NULL; write IS NULL or IS NOT NULL. It stands", position)
    if isinstance(left, Literal) and isinstance(right, Literal) and is_condition(left) and not is_condition(right):
        raise FilterSyntaxError(f"{described(left)} cannot be compared with {described(right)}, which stands", right_at)
