"""Tag expressions: `TagA || TagB`, and the hashes the broker compares (broker.md §11.1).

The broker compares hashes only; a hash collision passes, and every RocketMQ client compares the text again.
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
        tags: the tags it names; empty selects every message.
        codes: their hashes as the store compares them; None selects every message.
    """

    tags: frozenset[str]
    codes: frozenset[int] | None


ALL = TagFilter(frozenset(), None)


def parse_tags(expression: str | None) -> TagFilter:
    """Read a tag expression; `*`, nothing and the empty text select all.

    Raises:
        FilterSyntaxError: it has separators but no tag between them.
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
