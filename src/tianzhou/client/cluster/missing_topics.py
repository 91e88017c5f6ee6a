"""Log lines about subscribed topics: one when a topic does not exist, and one when it is created (client.md §3.5)."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from tianzhou.model import names

_log = logging.getLogger(__name__)


class MissingTopics:
    """Logger of missing topics; it logs each topic once."""

    def __init__(self) -> None:
        self._logged: set[str] = set()

    def missing(self, topic: str, groups: Iterable[str], name_servers: Iterable[str]) -> None:
        """Log that the name servers do not know a topic.

        Args:
            topic: the topic.
            groups: consumer groups of this client that subscribe to it.
            name_servers: their addresses.
        """
        waiting = sorted(groups)
        # Brokers create retry topics at a group's first heartbeat.
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
        """Log that a missing topic exists now."""
        if topic in self._logged:
            self._logged.discard(topic)
            _log.info("topic %s exists now", topic)
