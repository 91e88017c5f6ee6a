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
_UNSAFE: Final = re.compile(f"{UNSAFE}+")


def escaped(text: str, keep: str = "") -> str:
    """Escape characters that could move a cursor, break a line or hide text, as Python's source does.

    Args:
        text: a peer's text.
        keep: characters to leave as they are, such as a tab.
    """
    if text.isascii() and text.isprintable():  # ten times faster than the search
        return text

    def escape(match: re.Match[str]) -> str:
        run = match[0]
        if any(character in run for character in keep):
            return "".join(one if one in keep else _python_escape(one) for one in run)
        return _python_escape(run)

    return _UNSAFE.sub(escape, text)


def _python_escape(run: str) -> str:
    return run.encode("unicode_escape").decode("ascii")


def escaped_json(text: str) -> str:
    """JSON text with the same characters as JSON escapes; it means the same."""
    if text.isascii() and text.isprintable():
        return text
    return _UNSAFE.sub(lambda match: "".join(f"\\u{ord(one):04x}" for one in match[0]), text)


def shown(text: str, most: int = MAX_SHOWN) -> str:
    """`escaped`, cut to a length that fits a line of a log.

    Args:
        text: a peer's text.
        most: maximum characters; the length of a longer text is appended.
    """
    if len(text) <= most:
        return escaped(text)
    return f"{escaped(text[:most])}… ({len(text)} characters)"
