"""Tag expressions, `TagA || TagB`, and the hashes that the broker compares (broker.md §11.1).

The broker compares hashes only, so a hash collision passes. Every RocketMQ client compares the text again.
"""

from __future__ import annotations

from dataclasses import dataclass

from tianzhou.errors import FilterSyntaxError
from tianzhou.escaping import shown
from tianzhou.filter.text_cache import TextCache
from tianzhou.wire.hashing import tags_code

SEPARATOR = "||"


@dataclass(slots=True, frozen=True)
class TagFilter:
    """A parsed tag expression.

    Attributes:
        tags: the tags of the expression; empty selects every message.
        codes: hashes of the tags as the store compares them; None selects every message.
    """

    tags: frozenset[str]
    codes: frozenset[int] | None


ALL = TagFilter(frozenset(), None)


def parse_tags(expression: str | None) -> TagFilter:
    """Parse a tag expression; `*`, None and the empty text select all messages.

    Raises:
        FilterSyntaxError: the expression has separators but no tag between them.
    """
    if expression is None or expression in ("", "*"):
        return ALL
    return _parsed(expression)


def _parse(expression: str) -> TagFilter:
    tags = frozenset(part.strip() for part in expression.split(SEPARATOR)) - {""}
    if not tags:
        raise FilterSyntaxError(f"no tag in the expression {shown(expression)!r}; write TagA || TagB, or * for all")
    return TagFilter(tags, frozenset(map(tags_code, tags)))


_parsed = TextCache(_parse, 1024)
