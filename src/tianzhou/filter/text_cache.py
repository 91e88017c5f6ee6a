"""Values made of texts that peers send, remembered for a while: bounded in number, and in characters of the texts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Generic, TypeVar

T = TypeVar("T")

CHARACTERS: Final = 2 << 20
"""Of all texts together; what is made of them takes some twenty times the memory."""


class TextCache(Generic[T]):
    """A function of a text that remembers what it made of the latest ones.

    Args:
        make: the function; what it raises is not remembered.
        most: texts that are remembered at most.
        characters: how long they are at most together; one that is longer is not remembered.

    Attributes:
        make: the function itself.
        held: characters of those that are remembered.
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
        """The function's value for a text."""
        found = self._made.get(text)
        return self.remember(text, self.make(text)) if found is None else found

    def __contains__(self, text: str) -> bool:
        return text in self._made

    def remember(self, text: str, made: T) -> T:
        """Take over what was made of a text elsewhere."""
        if len(text) <= self._characters and text not in self._made:
            self._made[text] = made
            self.held += len(text)
            while self.held > self._characters or len(self._made) > self._most:
                oldest = next(iter(self._made))
                del self._made[oldest]
                self.held -= len(oldest)
        return made
