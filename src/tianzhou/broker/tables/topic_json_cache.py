"""Texts of single topics, kept as long as their topics do not change.

A table of ten thousand topics takes a tenth of a second to write out, and each new topic means that files and name
servers want it written out again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Mapping
from typing import Final

from tianzhou.escaping import shown
from tianzhou.model import TopicConfig
from tianzhou.troubles import reason

AT_ONCE: Final = 64
"""So many texts are made in one turn of the loop."""

_log = logging.getLogger(__name__)


class TopicTexts:
    """Texts by topic.

    Args:
        encode: makes the text of a topic.

    Attributes:
        problems: topics that have no text, and why; the others have theirs all the same.
    """

    def __init__(self, encode: Callable[[TopicConfig], bytes]) -> None:
        self._encode = encode
        self.problems: dict[str, str] = {}
        self._kept: dict[str, tuple[TopicConfig, bytes]] = {}

    def refresh(self, topics: Mapping[str, TopicConfig]) -> Generator[None, None, None]:
        """Make the texts that are missing or not true any more; others can be served whenever it yields."""
        kept = self._kept
        # A changed topic is another object, always.
        due = [(name, config) for name, config in topics.items() if name not in kept or kept[name][0] is not config]
        for number, (name, config) in enumerate(due, 1):
            kept[name] = config, self._text(name, config)
            if number % AT_ONCE == 0:
                yield

    def _text(self, name: str, config: TopicConfig) -> bytes:
        try:
            text = self._encode(config)
        except Exception as error:  # noqa: BLE001 - one topic must not keep all others from the disk
            self.problems[name] = reason(error)
            _log.error("topic %s cannot be written out: %s; the others are", shown(name), reason(error))
            return b""
        self.problems.pop(name, None)
        return text

    def all(self, topics: Mapping[str, TopicConfig]) -> list[bytes]:
        """The texts of all topics that have one, in their order; what `refresh` has not made is made now."""
        for _ in self.refresh(topics):
            pass
        if len(self._kept) > len(topics):
            self._kept = {name: self._kept[name] for name in topics}
            self.problems = {name: why for name, why in self.problems.items() if name in topics}
        return [text for name in topics if (text := self._kept[name][1])]

    def forget(self) -> None:
        """All texts have to be made anew."""
        self._kept.clear()
