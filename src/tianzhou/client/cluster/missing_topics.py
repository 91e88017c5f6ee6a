"""One log line for a subscribed topic that does not exist, and one when it does (client.md §3.5)."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from tianzhou.model import names

_log = logging.getLogger(__name__)


class MissingTopics:
    """Logs the absence of topics, once for each."""

    def __init__(self) -> None:
        self._logged: set[str] = set()

    def missing(self, topic: str, groups: Iterable[str], name_servers: Iterable[str]) -> None:
        """A name server knows no such topic.

        Args:
            topic: the topic.
            groups: the consumer groups here that subscribe to it.
            name_servers: their addresses.
        """
        waiting = sorted(groups)
        # Brokers make retry topics when they first hear of a group.
        if topic in self._logged or not waiting or topic.startswith(names.RETRY_PREFIX):
            return
        self._logged.add(topic)
        _log.warning(
            "topic %s does not exist, say name servers %s: group %s gets nothing of it until it is created",
            topic,
            ", ".join(name_servers),
            ", ".join(waiting),
        )

    def found(self, topic: str) -> None:
        """A name server knows the topic."""
        if topic in self._logged:
            self._logged.discard(topic)
            _log.info("topic %s exists now", topic)
