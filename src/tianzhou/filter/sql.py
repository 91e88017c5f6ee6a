"""SQL92 expressions over message properties, compiled to functions (broker.md §11.4 to §11.6).

The grammar, what is refused and every outcome are those of RocketMQ 5.3.3, proved by running both over generated
expressions. One thing differs: nesting has a limit that is stated (`parser.MAX_DEPTH`).

One thing is the same although it need not be: RocketMQ reads the longest expression at the beginning of the text and
ignores what follows, so that `a = 1 b = 2` selects by `a` alone. Expressions that work with RocketMQ have to work
here, so the rest is accepted; `SqlFilter.ignored` tells where it begins, for those who can warn or refuse.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

from tianzhou.errors import FilterSyntaxError
from tianzhou.filter.evaluation import Condition, IncomparableError, Lookup, compile_condition, names_in
from tianzhou.filter.parser import parse

SQL92 = "SQL92"


@dataclass(slots=True, frozen=True)
class SqlFilter:
    """A compiled expression.

    Attributes:
        expression: its text.
        names: the properties it looks at.
        ignored: position of the text behind the expression, which counts for nothing; None when there is none.
        evaluate: true, false or None for NULL, given a function that gives properties by name; raises
            `IncomparableError` where values cannot be compared.
    """

    expression: str
    names: frozenset[str]
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


@lru_cache(maxsize=512)
def parse_sql(expression: str) -> SqlFilter:
    """Compile an expression.

    Raises:
        FilterSyntaxError: it cannot be; the text says where, what stood there and what was expected.
    """
    try:
        condition, end = parse(expression)
        made = compile_condition(condition)
    except RecursionError:
        raise FilterSyntaxError("nested deeper than can be evaluated", len(expression)) from None
    return SqlFilter(expression, names_in(condition), end if end < len(expression) else None, made)


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
