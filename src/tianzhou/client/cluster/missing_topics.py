"""Saying once that a topic somebody consumes does not exist, and once that it does (client.md §3.5)."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from tianzhou.model import names

_log = logging.getLogger(__name__)


class MissingTopics:
    """The topics whose absence was told."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    def missing(self, topic: str, groups: Iterable[str], name_servers: Iterable[str]) -> None:
        """A name server knows no such topic.

        Args:
            topic: the topic.
            groups: the consumer groups here that subscribe to it.
            name_servers: who is asked.
        """
        waiting = sorted(groups)
        # Brokers make retry topics when they first hear of a group.
        if topic in self._told or not waiting or topic.startswith(names.RETRY_PREFIX):
            return
        self._told.add(topic)
        _log.warning(
            "topic %s does not exist, say name servers %s: group %s gets nothing of it until it is created",
            topic,
            ", ".join(name_servers),
            ", ".join(waiting),
        )

    def found(self, topic: str) -> None:
        """A name server knows the topic."""
        if topic in self._told:
            self._told.discard(topic)
            _log.info("topic %s exists now", topic)
