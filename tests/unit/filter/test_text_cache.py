"""Caches of values parsed from peers' texts are bounded in number and size."""

from __future__ import annotations

import pytest

from tianzhou.errors import FilterSyntaxError
from tianzhou.filter.text_cache import TextCache


def test_a_text_is_made_once() -> None:
    made: list[str] = []

    def make(text: str) -> int:
        made.append(text)
        return len(text)

    cache = TextCache(make, 8)
    assert [cache("a"), cache("a"), cache("bb"), cache("a")] == [1, 1, 2, 1]
    assert made == ["a", "bb"]


def test_the_oldest_of_too_many_goes() -> None:
    made: list[str] = []
    cache = TextCache(lambda text: made.append(text) or text, 3)
    for text in "abcda":
        assert cache(text) == text
    assert made == ["a", "b", "c", "d", "a"]
    assert len(cache) == 3


def test_long_texts_take_the_place_of_many_short_ones() -> None:
    cache = TextCache(str.upper, 1000, 100)
    for number in range(40):
        cache(f"{number:05}")
    assert (len(cache), cache.held) == (20, 100)
    cache("x" * 98)
    assert (len(cache), cache.held) == (1, 98)
    assert cache("y" * 101) == "Y" * 101
    assert (len(cache), cache.held) == (1, 98)


def test_what_is_refused_is_not_remembered() -> None:
    def refuse(text: str) -> str:
        raise FilterSyntaxError("no", 0)

    cache = TextCache(refuse, 3)
    for _ in range(2):
        with pytest.raises(FilterSyntaxError):
            cache("a")
    assert (len(cache), cache.held) == (0, 0)
