"""Text of strangers as it may stand in a log or on a terminal: on one line, without control characters, not endless."""

from __future__ import annotations

import re
from typing import Final

MOST_SHOWN: Final = 256
"""Longest text of a stranger that is shown whole, in characters."""
UNSAFE: Final = (
    r"[\x00-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff]"
)
"""Matches what moves the cursor, breaks the line, turns the direction of writing, or is half a character."""
_UNSAFE: Final = re.compile(UNSAFE)


def escaped(text: str, keep: str = "") -> str:
    """The text with what could move a cursor, break a line or hide written as in Python's source.

    Args:
        text: a stranger's words.
        keep: characters that are harmless where it is shown, such as a tab.
    """
    return _UNSAFE.sub(
        lambda match: match[0] if match[0] in keep else match[0].encode("unicode_escape").decode("ascii"), text
    )


def escaped_json(text: str) -> str:
    """A JSON text with the same characters written as JSON escapes them; it means the same."""
    return _UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def shown(text: str, most: int = MOST_SHOWN) -> str:
    """`escaped`, cut to a length that fits a line of a log.

    Args:
        text: a stranger's words.
        most: characters of it that are shown; the rest is counted.
    """
    if len(text) <= most:
        return escaped(text)
    return f"{escaped(text[:most])}… ({len(text)} characters)"
