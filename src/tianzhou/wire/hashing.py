"""Java's string hash, which both sides of the wire must agree on (store.md §0.2, §8.2).

The string hash is a polynomial in 31 over UTF-16 units. A loop over 32 characters takes Python a microsecond. Folding
neighbouring units of one big integer, level by level, needs only a handful of operations.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

_MASK32: Final = 0xFFFFFFFF
_SIGN: Final = 0x80000000
_POWERS: Final = tuple(pow(31, n, 1 << 32) for n in range(256))

# Folding lanes: every second 8-, 16-, 32- and 64-bit lane of a 256-bit number.
_BYTES: Final = int("00ff" * 16, 16)
_UNITS: Final = int("0000ffff" * 8, 16)
_PAIRS: Final = int("00000000ffffffff" * 4, 16)
_QUADS: Final = int(("0" * 16 + "f" * 16) * 2, 16)
_P16: Final = _POWERS[16]
_P32: Final = _POWERS[32]


def _fold_bytes(data: bytes) -> int:
    """Return the polynomial in 31 of at most 32 bytes; only the low 32 bits of the result are valid."""
    x = int.from_bytes(data, "big")
    x -= (x >> 8 & _BYTES) * ((1 << 8) - 31)
    x -= (x >> 16 & _UNITS) * ((1 << 16) - 31**2)
    x -= (x >> 32 & _PAIRS) * ((1 << 32) - 31**4)
    x -= (x >> 64 & _QUADS) * ((1 << 64) - 31**8 % (1 << 32))
    return (x >> 128) * _P16 + x


def _fold_units(data: bytes) -> int:
    """Return the polynomial in 31 of at most 16 UTF-16 units, big-endian; only the low 32 bits are valid."""
    x = int.from_bytes(data, "big")
    x -= (x >> 16 & _UNITS) * ((1 << 16) - 31)
    x -= (x >> 32 & _PAIRS) * ((1 << 32) - 31**2)
    x -= (x >> 64 & _QUADS) * ((1 << 64) - 31**4)
    return (x >> 128) * _POWERS[8] + x


def _unsigned_hash(text: str) -> int:
    if text.isascii():
        data = text.encode()
        size = len(data)
        if size <= 32:
            return _fold_bytes(data) & _MASK32
        start = size & 31
        h = _fold_bytes(data[:start])
        for i in range(start, size, 32):
            h = (h * _P32 + _fold_bytes(data[i : i + 32])) & _MASK32
        return h
    data = text.encode("utf-16-be", "surrogatepass")
    size = len(data)
    start = size & 31
    h = _fold_units(data[:start]) & _MASK32
    for i in range(start, size, 32):
        h = (h * _P16 + _fold_units(data[i : i + 32])) & _MASK32
    return h


def java_hash(text: str) -> int:
    """Return Java's `String.hashCode`, h = 31·h + unit over UTF-16 units, as signed 32 bits (store.md §0.2)."""
    h = _unsigned_hash(text)
    return h - (h & _SIGN) * 2


@lru_cache(maxsize=512)
def tags_code(tag: str | None) -> int:
    """Return the code of a tag in queue units and subscriptions; 0 without a tag (wire.md §5, store.md §5.3)."""
    return java_hash(tag) if tag else 0


_MOST_REMEMBERED: Final = 512
"""Maximum length of a key whose hash is cached, in characters."""


@lru_cache(maxsize=1024)
def _topic_hash(topic: str) -> int:
    return _unsigned_hash(topic + "#")


@lru_cache(maxsize=2048)
def _head_hash(topic: str, head: str) -> int:
    # The result is times 31³, so that the caller only adds the hash of the last three characters.
    if head.isascii() and len(head) < 32:
        return (_topic_hash(topic) * _POWERS[len(head)] + _fold_bytes(head.encode())) * 29791 & _MASK32
    return _unsigned_hash(f"{topic}#{head}") * 29791 & _MASK32


_tail_hash: Final = lru_cache(maxsize=8192)(_unsigned_hash)


def index_hash(topic: str, key: str) -> int:
    """Return the hash of an index entry: |hash("topic#key")|, 0 where the absolute value overflows (store.md §8.2).

    Unique keys of one producer differ only in their last characters during a millisecond, so the hashes of head and
    tail are cached separately.
    """
    tail = key[-3:]
    if len(tail) < 3 or not tail.isascii() or len(key) > _MOST_REMEMBERED:
        h = _unsigned_hash(f"{topic}#{key}")
    else:
        h = (_head_hash(topic, key[:-3]) + _tail_hash(tail)) & _MASK32
    return h if h < _SIGN else -h & (_SIGN - 1)
