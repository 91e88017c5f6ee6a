"""Bodies and keys of the messages that are sent. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from enum import StrEnum

from tianzhou.errors import ConfigError

LETTERS = bytes(range(ord("A"), ord("Z") + 1))
_TO_LETTERS = bytes(LETTERS[value % len(LETTERS)] for value in range(256))
ROUND_ROBIN_KEYS = 10_000
"""Number of different keys, used round-robin."""
DUE_PROPERTY = "BENCH_DUE"
"""Property of stamped messages: the run's mark and the monotonic time in ns at which the message was due."""
MARK_LENGTH = 8


class Keys(StrEnum):
    """The kind of keys that messages have."""

    none = "none"
    round_robin = "round-robin"
    random = "random"


def bodies_of_lines(data: bytes, source: str) -> list[bytes]:
    """Return the lines of a file, each as a body. Empty lines are left out.

    Args:
        data: content of the file.
        source: name of the file, for messages.

    Raises:
        ConfigError: the file has no line.
    """
    lines = [line for line in data.splitlines() if line]
    if not lines:
        raise ConfigError(f"--payload-file {source}: holds no line; each line is the body of a message")
    return lines


def letters(size: int, random_bytes: Callable[[int], bytes]) -> bytes:
    """Return a body of random letters."""
    return random_bytes(size).translate(_TO_LETTERS)


def half_random(size: int, ratio: float, pool: int, random_bytes: Callable[[int], bytes]) -> list[bytes]:
    """Return bodies that begin with random bytes and end with zeros. The ratio determines how far they compress.

    Args:
        size: size of each body in bytes.
        ratio: part of each body that is random, 0 to 1.
        pool: number of bodies.
        random_bytes: source of random bytes.
    """
    chance = round(size * ratio)
    return [random_bytes(chance) + bytes(size - chance) for _ in range(pool)]


def key_source(keys: Keys, share: int, random_bytes: Callable[[int], bytes]) -> Iterator[str] | None:
    """Return an iterator over the keys of messages, None for messages without keys.

    Args:
        keys: the kind of keys.
        share: number of the sending process. All processes have the same keys, and start at different ones.
        random_bytes: source of random bytes.
    """
    if keys is Keys.none:
        return None
    if keys is Keys.random:
        return (random_bytes(8).hex() for _ in itertools.repeat(None))
    names = [f"key-{number:05d}" for number in range(ROUND_ROBIN_KEYS)]
    start = share * 1_009 % ROUND_ROBIN_KEYS
    return itertools.cycle(names[start:] + names[:start])
