"""The file of acknowledged messages. Pure.

Each line has a unique key and, if known, the place of the acknowledgement:

7F0000011BFFA16AF33A6A6C9F680000 broker-a 3 1071
"""

from __future__ import annotations

from collections.abc import Iterable

from tianzhou.bench.proof.comparison import MessagePlace
from tianzhou.errors import ConfigError
from tianzhou.escaping import shown

MOST_KEYS = 20_000_000
LONGEST_KEY = 255


def line_of(key: str, place: MessagePlace) -> str:
    """Return the line of an acknowledged message, with its line feed."""
    return f"{key} {place.broker} {place.queue_id} {place.offset}\n"


def read_lines(lines: Iterable[str], source: str) -> dict[str, MessagePlace | None]:
    """Return keys with the places of their acknowledgements. If a key occurs twice, its first place counts.

    Empty lines and lines that begin with `#` are skipped. So is a last line without a line feed, which its writer had
    not finished.

    Args:
        lines: lines with their line feeds.
        source: name of the file, for messages.

    Raises:
        ConfigError: a line is malformed, or there are more than 20 million.
    """
    found: dict[str, MessagePlace | None] = {}
    for number, line in enumerate(lines, 1):
        words = line.split()
        if not words or line.startswith("#") or not line.endswith("\n"):
            continue
        found.setdefault(words[0], _place(words, f"{source}, line {number}"))
        if len(found) > MOST_KEYS:
            raise ConfigError(f"{source}: has more than {MOST_KEYS} keys; prove them in parts")
    return found


def _place(words: list[str], where: str) -> MessagePlace | None:
    key, *rest = words
    if len(key) > LONGEST_KEY:
        raise ConfigError(f"{where}: a key of {len(key)} characters; unique keys have 32, and {LONGEST_KEY} at most")
    if not rest:
        return None
    if len(rest) != 3 or not all(text.isascii() and text.isdecimal() for text in rest[1:]):
        raise ConfigError(f"{where}: {shown(' '.join(words))}: write KEY, or KEY BROKER QUEUE OFFSET")
    return MessagePlace(rest[0], int(rest[1]), int(rest[2]))
