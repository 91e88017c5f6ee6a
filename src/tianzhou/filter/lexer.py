"""Words of an SQL92 filter expression (broker.md §11.4).

Words are read one by one as the parser asks for them: what follows a complete expression is never looked at, and
may be anything (see `tianzhou.filter.sql`).
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from tianzhou.errors import FilterSyntaxError

KEYWORDS: Final = frozenset(
    ("AND", "OR", "NOT", "BETWEEN", "IN", "IS", "NULL", "TRUE", "FALSE", "CONTAINS", "STARTSWITH", "ENDSWITH")
)
NAME, INTEGER, FLOAT, STRING, END = "name", "integer", "float", "string", "end"
"""Kinds of words besides keywords and symbols, whose kind is their own text."""

# A line comment needs its line end: without one, `--` is two minus signs, as in RocketMQ. `0` takes no further digit.
_WORD: Final = re.compile(
    r"""
    (?P<blank>   [ \t\n\r\f]+ | --[^\n\r]*[\n\r] | /\*[^*]*\*(?:\*|[^*/][^*]*\*)*/ )
  | (?P<float>   [0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)? | \.[0-9]+(?:[eE][+-]?[0-9]+)? | [0-9]+[eE][+-]?[0-9]+ )
  | (?P<integer> 0 | [1-9][0-9]*[lL]? )
  | (?P<name>    [a-zA-Z_$][a-zA-Z0-9_$]* )
  | (?P<string>  '(?:''|[^'])*' )
  | (?P<symbol>  <> | <= | >= | [<>=(),+-] )
    """,
    re.VERBOSE,
)


class Word(NamedTuple):
    """One word.

    Attributes:
        kind: a keyword in capitals, a symbol, or one of the constants above.
        text: as it stands in the expression.
        position: index of its first character.
    """

    kind: str
    text: str
    position: int

    def __str__(self) -> str:
        return "the expression ends" if self.kind == END else f"{self.text} stands"


class Words:
    """The words of an expression, with one of them in view.

    Args:
        expression: the text.

    Raises:
        FilterSyntaxError: by every method, when the next characters form no word.
    """

    __slots__ = ("_at", "_text", "next")

    def __init__(self, expression: str) -> None:
        self._text = expression
        self._at = 0
        self.next = self._read()

    def take(self) -> Word:
        """The word in view; the one behind it comes into view."""
        word = self.next
        self.next = self._read()
        return word

    def take_if(self, kind: str) -> bool:
        """Take the word in view if it is of this kind; whether it was."""
        if self.next.kind != kind:
            return False
        self.next = self._read()
        return True

    def expect(self, kind: str, expected: str) -> Word:
        """Take the word in view, which has to be of this kind.

        Args:
            kind: see `Word`.
            expected: the same in the words of an error text.
        """
        if self.next.kind != kind:
            raise self.unexpected(expected)
        return self.take()

    def unexpected(self, expected: str) -> FilterSyntaxError:
        """The error for a word in view that cannot stand here."""
        return FilterSyntaxError(f"expected {expected}, but {self.next}", self.next.position)

    def _read(self) -> Word:
        text, at = self._text, self._at
        while at < len(text):
            found = _WORD.match(text, at)
            if found is None:
                raise FilterSyntaxError(_no_word(text, at), at)
            begin, at = at, found.end()
            kind = found.lastgroup
            if kind == "blank":
                continue
            self._at = at
            word = found.group()
            if kind == "symbol":
                return Word(word, word, begin)
            if kind == "name" and word.upper() in KEYWORDS:
                return Word(word.upper(), word, begin)
            return Word(str(kind), word, begin)
        self._at = at
        return Word(END, "", at)


def unquoted(text: str) -> str:
    """Text of a quoted string."""
    return text[1:-1].replace("''", "'")


def _no_word(text: str, at: int) -> str:
    if text[at] == "'":
        return "the string has no closing quote: it begins"
    if text.startswith("/*", at):
        return "the comment has no end: it begins"
    if text[at] == '"':
        return "strings stand in single quotes, but there is a double one"
    return f"no word begins with {text[at]!r}, which stands"
