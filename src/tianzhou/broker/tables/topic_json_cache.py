"""Cache of encoded topics: a topic is encoded again only when it has changed.

Encoding a table of ten thousand topics takes a tenth of a second, and each new topic requires the encoded table for
files and name servers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Mapping
from typing import Final

from tianzhou.escaping import shown
from tianzhou.model import TopicConfig
from tianzhou.troubles import reason

TEXTS_PER_TURN: Final = 64
"""Maximum topics encoded per loop turn."""

_log = logging.getLogger(__name__)


class TopicJsonCache:
    """Encoded topics.

    Args:
        encode: encoder of a topic.

    Attributes:
        problems: topics that cannot be encoded, and the reasons.
    """

    def __init__(self, encode: Callable[[TopicConfig], bytes]) -> None:
        self._encode = encode
        self.problems: dict[str, str] = {}
        self._cached: dict[str, tuple[TopicConfig, bytes]] = {}

    def refresh(self, topics: Mapping[str, TopicConfig]) -> Generator[None, None, None]:
        """Encode new and changed topics; yield after `TEXTS_PER_TURN` topics."""
        cached = self._cached
        # A changed topic is always another object.
        due = [(name, config) for name, config in topics.items() if name not in cached or cached[name][0] is not config]
        for number, (name, config) in enumerate(due, 1):
            cached[name] = config, self._text(name, config)
            if number % TEXTS_PER_TURN == 0:
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
        """Return the encoded topics in order, without those in `problems`; encode missing ones now."""
        for _ in self.refresh(topics):
            pass
        if len(self._cached) > len(topics):
            self._cached = {name: self._cached[name] for name in topics}
            self.problems = {name: why for name, why in self.problems.items() if name in topics}
        return [text for name in topics if (text := self._cached[name][1])]

    def forget(self) -> None:
        """Drop the cache."""
        self._cached.clear()
