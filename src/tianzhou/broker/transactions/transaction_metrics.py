"""Numbers of waiting half messages by topic, in the file `config/transactionMetrics` (store.md §15.8).

A RocketMQ broker counts up and down from the file's numbers. Here the ledger of transactions counts the half messages
in the log, and the file's times and version continue.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tianzhou.model import DataVersion
from tianzhou.wire.bodies.topics import DATA_VERSION


@dataclass(slots=True)
class Gauge:
    """Number of a topic's waiting half messages.

    Attributes:
        count: number of waiting half messages.
        changed_ms: time of the last change.
    """

    count: int
    changed_ms: int


class TransactionMetrics:
    """Content of the file.

    Args:
        now_ms: stamp of the first version.
    """

    def __init__(self, now_ms: int = 0) -> None:
        self.version = DataVersion(0, now_ms)
        self.gauges: dict[str, Gauge] = {}

    def update(self, counts: Mapping[str, int], is_there: Callable[[str], bool], now_ms: int) -> bool:
        """Set the present numbers; return whether a number changed.

        Args:
            counts: waiting half messages by topic.
            is_there: whether a topic exists; a deleted topic is dropped once no half message waits.
            now_ms: the time.
        """
        changed = False
        for topic in {*counts, *self.gauges}:
            count, gauge = counts.get(topic, 0), self.gauges.get(topic)
            if not count and not is_there(topic):
                if gauge is None:
                    continue
                del self.gauges[topic]
            elif gauge is None or gauge.count != count:
                self.gauges[topic] = Gauge(count, now_ms)
            else:
                continue
            changed = True
        if changed:
            self.version = self.version.next(now_ms)
        return changed

    def to_json(self) -> dict[str, Any]:
        """Return the file's value."""
        return {
            "dataVersion": DATA_VERSION.encode(self.version),
            "transactionCount": {
                topic: {"count": gauge.count, "timeStamp": gauge.changed_ms} for topic, gauge in self.gauges.items()
            },
        }

    def load(self, value: Mapping[str, Any]) -> None:
        """Load the file's value.

        Raises:
            ValueError: the value has another form.
        """
        try:
            gauges = {
                str(topic): Gauge(int(one["count"]), int(one["timeStamp"]))
                for topic, one in (value.get("transactionCount") or {}).items()
            }
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError(f"transactionMetrics: no table of counts ({error!r})") from error
        self.version = DATA_VERSION.decode(value.get("dataVersion") or {})
        self.gauges = gauges
