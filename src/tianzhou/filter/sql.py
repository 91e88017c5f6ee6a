"""SQL92 expressions over message properties, compiled to functions (broker.md §11.4 to §11.6).

The grammar, what is refused and every outcome are those of RocketMQ 5.3.3, proved by running both over generated
expressions. One thing differs: nesting has a limit that is stated (`parser.MAX_DEPTH`).

One thing is the same although it need not be: RocketMQ reads the longest expression at the beginning of the text and
ignores what follows, so that `a = 1 b = 2` selects by `a` alone. Expressions that work with RocketMQ have to work
here, so the rest is accepted; `SqlFilter.ignored` is where it begins, for those who can warn or refuse.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from tianzhou.errors import FilterSyntaxError
from tianzhou.filter.text_cache import TextCache
from tianzhou.filter.values import Condition, IncomparableError, Lookup

SQL92 = "SQL92"


@dataclass(slots=True, frozen=True)
class SqlFilter:
    """A compiled expression.

    Attributes:
        expression: its text.
        names: the properties it looks at.
        terms: how many properties and values it compares, which is what an evaluation may cost.
        ignored: position of the text behind the expression, which counts for nothing; None when there is none.
        evaluate: true, false or None for NULL, given a function that gives properties by name; raises
            `IncomparableError` where values cannot be compared.
    """

    expression: str
    names: frozenset[str]
    terms: int
    ignored: int | None
    evaluate: Condition = field(repr=False, compare=False)

    def matches(self, get: Lookup) -> bool:
        """Whether a message is selected: only what is true is; NULL and values that cannot be compared are not.

        Args:
            get: gives a property of the message by its name, None when the message does not have it.
        """
        try:
            return self.evaluate(get) is True
        except IncomparableError:
            return False


def _compile(expression: str) -> SqlFilter | FilterSyntaxError:
    # Most brokers and clients never see an expression, and start sooner without what reads them.
    from tianzhou.filter.evaluation import compile_condition, names_in, terms_in
    from tianzhou.filter.parser import parse

    try:
        condition, end = parse(expression)
        made = compile_condition(condition)
    except RecursionError:
        return FilterSyntaxError("nested deeper than can be evaluated", len(expression))
    except FilterSyntaxError as error:
        return error.with_traceback(None)
    rest = end if end < len(expression) else None
    return SqlFilter(expression, names_in(condition), terms_in(condition), rest, made)


COMPILED: Final = TextCache(_compile, 512)
"""Expressions that were compiled, or what is wrong with them; who has one compiled in a thread gives it here."""


def parse_sql(expression: str) -> SqlFilter:
    """Compile an expression.

    Raises:
        FilterSyntaxError: it cannot be; the text says where, what stood there and what was expected.
    """
    made = COMPILED(expression)
    if isinstance(made, FilterSyntaxError):
        raise made.with_traceback(None)
    return made


def check_whole(expression: str) -> SqlFilter:
    """Compile an expression that nothing may follow.

    Raises:
        FilterSyntaxError: it cannot be compiled, or a part of it would be ignored.
    """
    made = parse_sql(expression)
    if made.ignored is not None:
        raise FilterSyntaxError(
            f"the expression is complete before {expression[made.ignored :]!r}, which RocketMQ ignores;"
            " join conditions by AND or OR. It begins",
            made.ignored,
        )
    return made
