"""RocketMQ's bloom filter: the bits that mark a consumer group in a queue unit's bitmap (broker.md §11.3)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from tianzhou.errors import ConfigError

_MASK32: Final = (1 << 32) - 1
_MASK64: Final = (1 << 64) - 1
_C1: Final = 0x87C37B91114253D5
_C2: Final = 0x4CF5AD432745937F


@dataclass(slots=True, frozen=True)
class BloomData:
    """Bit positions of one group and topic.

    Attributes:
        bit_num: number of bits of the whole bitmap.
        bit_pos: positions of the bits that are set.
    """

    bit_num: int
    bit_pos: tuple[int, ...]


class BloomFilter:
    """A bloom filter: computes the bit positions of texts, with a bounded rate of false positives.

    Args:
        error_percent: maximum percentage of false positives (`maxErrorRateOfBloomFilter`).
        expected: expected number of entries (`expectConsumerNumUseFilter`).

    Attributes:
        hashes: bits per entry.
        bits: bits of the map, a multiple of 8.

    Raises:
        ConfigError: a number is out of its range.
    """

    def __init__(self, error_percent: int, expected: int) -> None:
        if not 1 <= error_percent < 100:
            raise ConfigError(f"maxErrorRateOfBloomFilter={error_percent}: expected a percentage from 1 to 99")
        if expected < 1:
            raise ConfigError(f"expectConsumerNumUseFilter={expected}: expected 1 or more")
        rate = error_percent / 100.0
        self.hashes = math.ceil(math.log(rate) / math.log(0.5))
        bits = math.ceil(expected * (math.log(1 / rate) / math.log(2)) * (math.log(math.e) / math.log(2)))
        self.bits = -(-bits // 8) * 8

    def data(self, text: str) -> BloomData:
        """Return the bit positions of a text; the text of a group and a topic is `group#topic`."""
        hashed = _murmur3_64(text.encode("utf-8", "replace"))
        low, high = hashed & _MASK32, hashed >> 32
        positions = []
        for i in range(1, self.hashes + 1):
            # Java's 32-bit arithmetic; a negative sum is made positive by flipping its bits.
            combined = low + i * high & _MASK32
            positions.append((combined if combined >> 31 == 0 else combined ^ _MASK32) % self.bits)
        return BloomData(self.bits, tuple(positions))

    def fits(self, data: BloomData | None) -> bool:
        """Whether bit positions come from a filter with the same number of bits and hashes."""
        return data is not None and data.bit_num == self.bits and len(data.bit_pos) == self.hashes

    def bitmap(self, entries: Iterable[BloomData]) -> bytes:
        """Return a bitmap with the bits of all entries set."""
        made = bytearray(self.bits // 8)
        for entry in entries:
            for position in entry.bit_pos:
                made[position >> 3] |= 1 << (position & 7)
        return bytes(made)


def holds(bitmap: bytes, data: BloomData) -> bool:
    """Whether a bitmap has all bits of an entry set, so that it probably contains the entry."""
    return all(bitmap[position >> 3] >> (position & 7) & 1 for position in data.bit_pos)


def _murmur3_64(data: bytes) -> int:
    """Return the first 64 bits of MurmurHash3 x64 128 with seed 0."""
    first = second = 0
    whole = len(data) & ~15
    for at in range(0, whole, 16):
        first ^= _mix_first(int.from_bytes(data[at : at + 8], "little"))
        first = (_rotate(first, 27) + second) * 5 + 0x52DCE729 & _MASK64
        second ^= _mix_second(int.from_bytes(data[at + 8 : at + 16], "little"))
        second = (_rotate(second, 31) + first) * 5 + 0x38495AB5 & _MASK64
    second ^= _mix_second(int.from_bytes(data[whole + 8 :], "little"))
    first ^= _mix_first(int.from_bytes(data[whole : whole + 8], "little"))
    first ^= len(data)
    second ^= len(data)
    first = first + second & _MASK64
    second = second + first & _MASK64
    return _finish(first) + _finish(second) & _MASK64


def _mix_first(lane: int) -> int:
    return _rotate(lane * _C1 & _MASK64, 31) * _C2 & _MASK64


def _mix_second(lane: int) -> int:
    return _rotate(lane * _C2 & _MASK64, 33) * _C1 & _MASK64


def _rotate(value: int, by: int) -> int:
    return (value << by | value >> 64 - by) & _MASK64


def _finish(value: int) -> int:
    value = (value ^ value >> 33) * 0xFF51AFD7ED558CCD & _MASK64
    value = (value ^ value >> 33) * 0xC4CEB9FE1A85EC53 & _MASK64
    return value ^ value >> 33
