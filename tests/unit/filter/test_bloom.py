"""Bloom filter bits contain every added value, with RocketMQ's size and number of hashes."""

import pytest

from tianzhou.errors import ConfigError
from tianzhou.filter import BloomData, BloomFilter
from tianzhou.filter.bloom import holds


def test_the_defaults_make_112_bits_and_three_hashes() -> None:
    bloom = BloomFilter(20, 32)
    assert (bloom.bits, bloom.hashes) == (112, 3)
    # From RocketMQ's library; all sizes and many texts are compared with it in tests/interop.
    assert bloom.data("cg#orders") == BloomData(112, (22, 11, 13))


def test_what_was_put_in_is_found() -> None:
    bloom = BloomFilter(20, 32)
    entries = [bloom.data(f"group{i}#T") for i in range(8)]
    bitmap = bloom.bitmap(entries[:4])
    assert len(bitmap) == 14
    assert all(holds(bitmap, entry) for entry in entries[:4])
    assert not all(holds(bitmap, entry) for entry in entries[4:])
    assert bloom.bitmap([]) == bytes(14)


def test_bits_of_a_filter_of_another_size_do_not_fit() -> None:
    bloom = BloomFilter(20, 32)
    assert bloom.fits(bloom.data("x"))
    assert not bloom.fits(BloomFilter(20, 64).data("x"))
    assert not bloom.fits(BloomData(112, (1, 2)))
    assert not bloom.fits(None)


@pytest.mark.parametrize(
    ("percent", "expected", "key"),
    [(0, 32, "maxErrorRateOfBloomFilter=0"), (100, 32, "from 1 to 99"), (20, 0, "expectConsumerNumUseFilter=0")],
)
def test_numbers_out_of_range(percent: int, expected: int, key: str) -> None:
    with pytest.raises(ConfigError, match=key):
        BloomFilter(percent, expected)
