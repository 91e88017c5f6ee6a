"""Texts of single topics, kept as long as their topics do not change.

A table of ten thousand topics takes a tenth of a second to write out, and each new topic means that files and name
servers want it written out again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from tianzhou.model import TopicConfig

AT_ONCE: Final = 64
"""So many texts are made in one turn of the loop."""


class TopicTexts:
    """Texts by topic.

    Args:
        encode: makes the text of a topic.
    """

    def __init__(self, encode: Callable[[TopicConfig], bytes]) -> None:
        self._encode = encode
        self._kept: dict[str, tuple[TopicConfig, bytes]] = {}

    def refresh(self, topics: Mapping[str, TopicConfig]) -> Iterator[None]:
        """Make the texts that are missing or not true any more; others can be served whenever it yields."""
        kept = self._kept
        # A changed topic is another object, always.
        due = [(name, config) for name, config in topics.items() if name not in kept or kept[name][0] is not config]
        for number, (name, config) in enumerate(due, 1):
            kept[name] = config, self._encode(config)
            if number % AT_ONCE == 0:
                yield

    def all(self, topics: Mapping[str, TopicConfig]) -> list[bytes]:
        """The texts of all topics, in their order; what `refresh` has not made is made now."""
        for _ in self.refresh(topics):
            pass
        if len(self._kept) > len(topics):
            self._kept = {name: self._kept[name] for name in topics}
        return [self._kept[name][1] for name in topics]

    def forget(self) -> None:
        """All texts have to be made anew."""
        self._kept.clear()
