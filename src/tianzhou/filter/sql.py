"""SQL92 expressions over message properties, compiled to functions (broker.md §11.4 to §11.6).

The grammar, the rejected expressions and every result are those of RocketMQ 5.3.3. Generated expressions that run in
both prove it. One thing differs: nesting has a fixed limit (`parser.MAX_DEPTH`).

RocketMQ parses the longest expression at the beginning of the text and ignores the rest: `a = 1 b = 2` selects by `a`
alone. Expressions that work with RocketMQ have to work here, so this module accepts the rest as well.
`SqlFilter.ignored` is its position, for callers that warn about it or reject it.
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
        expression: the text of the expression.
        names: the properties that it reads.
        terms: number of properties and values that it compares, a measure of what one evaluation costs.
        ignored: position of the ignored text behind the expression; None without such a text.
        evaluate: returns true, false or None for NULL. Its argument is a function that returns a property by its name.
            It raises `IncomparableError` for values that cannot be compared.
    """

    expression: str
    names: frozenset[str]
    terms: int
    ignored: int | None
    evaluate: Condition = field(repr=False, compare=False)

    def matches(self, get: Lookup) -> bool:
        """Whether the filter selects a message: true does; false, NULL and values that cannot be compared do not.

        Args:
            get: returns a property of the message by its name, None when the message does not have it.
        """
        try:
            return self.evaluate(get) is True
        except IncomparableError:
            return False


def _compile(expression: str) -> SqlFilter | FilterSyntaxError:
    # Most brokers and clients never see an expression. They start sooner without the parser's modules.
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
"""Cache of compiled expressions and of the errors of others. Code that compiles in a thread adds its result here."""


def parse_sql(expression: str) -> SqlFilter:
    """Compile an expression.

    Raises:
        FilterSyntaxError: the text is no expression; the error names the position, the word and the expected words.
    """
    made = COMPILED(expression)
    if isinstance(made, FilterSyntaxError):
        raise made.with_traceback(None)
    return made


def check_whole(expression: str) -> SqlFilter:
    """Compile an expression, and reject text behind it.

    Raises:
        FilterSyntaxError: the expression cannot be compiled, or RocketMQ would ignore a part of it.
    """
    made = parse_sql(expression)
    if made.ignored is not None:
        raise FilterSyntaxError(
            f"the expression is complete before {expression[made.ignored :]!r}, which RocketMQ ignores;"
            " join conditions by AND or OR. It begins",
            made.ignored,
        )
    return made
