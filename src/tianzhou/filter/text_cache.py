"""A cache of values computed from texts that peers send, bounded in entries and in characters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Generic, TypeVar

T = TypeVar("T")

CHARACTERS: Final = 2 << 20
"""Default maximum number of characters of all cached texts together. The values take some twenty times the memory."""


class TextCache(Generic[T]):
    """A function of a text that caches its latest results.

    Args:
        make: the function; its exceptions are not cached.
        most: maximum number of cached texts.
        characters: maximum number of characters of all cached texts together; a longer text is not cached.

    Attributes:
        make: the function without the cache.
        held: number of characters of the cached texts.
    """

    __slots__ = ("_characters", "_made", "_most", "held", "make")

    def __init__(self, make: Callable[[str], T], most: int, characters: int = CHARACTERS) -> None:
        self.make = make
        self._most = most
        self._characters = characters
        self._made: dict[str, T] = {}
        self.held = 0

    def __len__(self) -> int:
        return len(self._made)

    def __call__(self, text: str) -> T:
        """Return the function's value for a text."""
        found = self._made.get(text)
        return self.remember(text, self.make(text)) if found is None else found

    def __contains__(self, text: str) -> bool:
        return text in self._made

    def remember(self, text: str, made: T) -> T:
        """Cache a text's value that other code computed, and return it. Evict the oldest texts above the bounds."""
        if len(text) <= self._characters and text not in self._made:
            self._made[text] = made
            self.held += len(text)
            while self.held > self._characters or len(self._made) > self._most:
                oldest = next(iter(self._made))
                del self._made[oldest]
                self.held -= len(oldest)
        return made
