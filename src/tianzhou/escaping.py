"""Escaping of peers' text for logs and terminals: one line, without control characters, of limited length."""

from __future__ import annotations

import re
from typing import Final

MAX_SHOWN: Final = 256
"""Maximum number of characters of a peer's text that are shown."""
UNSAFE: Final = (
    r"[\x00-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff]"
)
"""Regular expression of characters that move the cursor, end the line, change the writing direction, or are half of a
surrogate pair."""
_UNSAFE: Final = re.compile(f"{UNSAFE}+")


def escaped(text: str, keep: str = "") -> str:
    """Escape characters that could move a cursor, end a line or hide text, in the form of Python's source code.

    Args:
        text: a peer's text.
        keep: characters to leave unchanged, such as a tab.
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
    """Return JSON text with the unsafe characters as JSON escapes. Its meaning is unchanged."""
    if text.isascii() and text.isprintable():
        return text
    return _UNSAFE.sub(lambda match: "".join(f"\\u{ord(one):04x}" for one in match[0]), text)


def shown(text: str, most: int = MAX_SHOWN) -> str:
    """Escape a text, and shorten it to a length that fits a log line.

    Args:
        text: a peer's text.
        most: maximum number of characters. The full length of a longer text is appended.
    """
    if len(text) <= most:
        return escaped(text)
    return f"{escaped(text[:most])}… ({len(text)} characters)"
