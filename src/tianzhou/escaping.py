"""Escaping of peers' text for logs and terminals: on one line, without control characters, not endless."""

from __future__ import annotations

import re
from typing import Final

MAX_SHOWN: Final = 256
"""Maximum characters of a peer's text that are shown."""
UNSAFE: Final = (
    r"[\x00-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff]"
)
"""Regular expression of characters that move the cursor, break the line, turn the writing direction, or are halves."""
_UNSAFE: Final = re.compile(UNSAFE)


def escaped(text: str, keep: str = "") -> str:
    """Escape characters that could move a cursor, break a line or hide text, as Python's source does.

    Args:
        text: a peer's text.
        keep: characters to leave as they are, such as a tab.
    """
    return _UNSAFE.sub(
        lambda match: match[0] if match[0] in keep else match[0].encode("unicode_escape").decode("ascii"), text
    )


def escaped_json(text: str) -> str:
    """JSON text with the same characters as JSON escapes; it means the same."""
    return _UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def shown(text: str, most: int = MAX_SHOWN) -> str:
    """`escaped`, cut to a length that fits a line of a log.

    Args:
        text: a peer's text.
        most: maximum characters; the length of a longer text is appended.
    """
    if len(text) <= most:
        return escaped(text)
    return f"{escaped(text[:most])}… ({len(text)} characters)"
