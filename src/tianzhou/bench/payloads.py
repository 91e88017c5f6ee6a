"""Bodies and keys of the messages that are sent. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from enum import StrEnum

from tianzhou.errors import ConfigError

LETTERS = bytes(range(ord("A"), ord("Z") + 1))
_TO_LETTERS = bytes(LETTERS[value % len(LETTERS)] for value in range(256))
ROUND_ROBIN_KEYS = 10_000
"""Number of different keys, used in turn."""
DUE_PROPERTY = "BENCH_DUE"
"""Of messages whose way is timed: the run's mark and the monotonic nanoseconds at which it was due."""
MARK_LENGTH = 8


class Keys(StrEnum):
    """What keys messages have."""

    none = "none"
    round_robin = "round-robin"
    random = "random"


def bodies_of_lines(data: bytes, source: str) -> list[bytes]:
    """The lines of a file, each one a body; empty ones are left out.

    Args:
        data: what the file holds.
        source: its name, for messages.

    Raises:
        ConfigError: there is no line.
    """
    lines = [line for line in data.splitlines() if line]
    if not lines:
        raise ConfigError(f"--payload-file {source}: holds no line; each line is the body of a message")
    return lines


def letters(size: int, random_bytes: Callable[[int], bytes]) -> bytes:
    """A body of random letters."""
    return random_bytes(size).translate(_TO_LETTERS)


def half_random(size: int, ratio: float, pool: int, random_bytes: Callable[[int], bytes]) -> list[bytes]:
    """Bodies that begin with random bytes and go on with zeros, as compressible as the ratio says.

    Args:
        size: bytes of each.
        ratio: how much of each is random, 0 to 1.
        pool: how many there are.
        random_bytes: the source of chance.
    """
    chance = round(size * ratio)
    return [random_bytes(chance) + bytes(size - chance) for _ in range(pool)]


def key_source(keys: Keys, share: int, random_bytes: Callable[[int], bytes]) -> Iterator[str] | None:
    """The keys of messages one after the other, None when they have none.

    Args:
        keys: which.
        share: which of the sending processes asks; all have the same keys, and begin at different ones.
        random_bytes: the source of chance.
    """
    if keys is Keys.none:
        return None
    if keys is Keys.random:
        return (random_bytes(8).hex() for _ in itertools.repeat(None))
    names = [f"key-{number:05d}" for number in range(ROUND_ROBIN_KEYS)]
    start = share * 1_009 % ROUND_ROBIN_KEYS
    return itertools.cycle(names[start:] + names[:start])
