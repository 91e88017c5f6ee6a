"""Lexer of SQL92 filter expressions: reads their words (broker.md §11.4).

The lexer reads a word only when the parser asks for it. It never reads the text behind a complete expression, so that
text may be anything (see `tianzhou.filter.sql`).
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from tianzhou.errors import FilterSyntaxError

KEYWORDS: Final = frozenset(
    ("AND", "OR", "NOT", "BETWEEN", "IN", "IS", "NULL", "TRUE", "FALSE", "CONTAINS", "STARTSWITH", "ENDSWITH")
)
NAME, INTEGER, FLOAT, STRING, END = "name", "integer", "float", "string", "end"
"""Kinds of words besides keywords and symbols. The kind of a keyword or symbol is its own text."""

# A line comment needs its line end: without one, `--` is two minus signs, as in RocketMQ. No digit may follow a `0`.
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
    """A word of an expression.

    Attributes:
        kind: a keyword in capitals, a symbol, or one of the constants above.
        text: the word as written in the expression.
        position: index of its first character.
    """

    kind: str
    text: str
    position: int

    def __str__(self) -> str:
        return "the expression ends" if self.kind == END else f"{self.text} stands"


class Words:
    """The words of an expression; `next` is the current word.

    Args:
        expression: the text.

    Raises:
        FilterSyntaxError: raised by every method when the next characters form no word.
    """

    __slots__ = ("_at", "_text", "next")

    def __init__(self, expression: str) -> None:
        self._text = expression
        self._at = 0
        self.next = self._read()

    def take(self) -> Word:
        """Return the current word and read the next one."""
        word = self.next
        self.next = self._read()
        return word

    def take_if(self, kind: str) -> bool:
        """Read the next word if the current one is of this kind, and return whether it was."""
        if self.next.kind != kind:
            return False
        self.next = self._read()
        return True

    def expect(self, kind: str, expected: str) -> Word:
        """Return the current word and read the next one.

        Args:
            kind: see `Word`.
            expected: the kind as an error text names it.

        Raises:
            FilterSyntaxError: the current word is of another kind.
        """
        if self.next.kind != kind:
            raise self.unexpected(expected)
        return self.take()

    def unexpected(self, expected: str) -> FilterSyntaxError:
        """Return the error for a current word that is not allowed here."""
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
    """Return the text of a quoted string."""
    return text[1:-1].replace("''", "'")


def _no_word(text: str, at: int) -> str:
    if text[at] == "'":
        return "the string has no closing quote: it begins"
    if text.startswith("/*", at):
        return "the comment has no end: it begins"
    if text[at] == '"':
        return "strings stand in single quotes, but there is a double one"
    return f"no word begins with {text[at]!r}, which stands"
