"""Order of topics: operators store it in the KV configuration, and replies send it to brokers and clients."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from tianzhou.clock import Clock
from tianzhou.escaping import shown
from tianzhou.model.names import ORDER_TOPIC_CONFIG
from tianzhou.namesrv.kv import KvConfig
from tianzhou.repeats import Repeats

_log = logging.getLogger(__name__)


class TopicOrder:
    """Order entries that fit into replies. Longer entries of a file are left out and logged once a minute.

    Args:
        kv: the KV configuration.
        clock: source of monotonic time.
    """

    def __init__(self, kv: KvConfig, clock: Clock) -> None:
        self._kv = kv
        self._clock = clock
        self._log_throttle = Repeats()

    def table(self) -> Mapping[str, str] | None:
        """Return the order of all topics; None when there is none or it is too large."""
        table = self._kv.short_namespace(ORDER_TOPIC_CONFIG)
        if table is None and self._kv.namespace(ORDER_TOPIC_CONFIG) is not None and self._is_due("table"):
            _log.warning("%s is larger than maxKvBytes; it is not sent to brokers", ORDER_TOPIC_CONFIG)
        return table

    def of(self, topic: str) -> str | None:
        """Return the order of a topic's queues; None when there is none or it is too long."""
        order = self._kv.short(ORDER_TOPIC_CONFIG, topic)
        if order is None and self._kv.get(ORDER_TOPIC_CONFIG, topic) is not None and self._is_due("topic"):
            _log.warning(
                "%s of topic %s is longer than maxKvValueBytes; its route goes without",
                ORDER_TOPIC_CONFIG, shown(topic),
            )  # fmt: skip
        return order

    def _is_due(self, about: str) -> bool:
        return self._log_throttle.due(about, self._clock.monotonic()) is not None
