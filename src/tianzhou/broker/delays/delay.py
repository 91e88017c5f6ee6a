"""Ledger of delay levels: due times of delayed messages, and the delivery position of each level (broker.md §12).

This module does no I/O; `tianzhou.broker.delays.delay_scheduler` delivers the messages.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import Any

from tianzhou.model import DataVersion, names
from tianzhou.wire.bodies.topics import DATA_VERSION

NO_TIMERS = "this version delivers no messages at arbitrary times (timers); use a delay level"
"""Remark for senders of messages with a `TIMER_` property."""


class DelayLedger:
    """Delivery positions of the delay levels.

    Args:
        levels_ms: delay of each level; level 1 is the first.
        version_step: number of deliveries between two versions of the table.
    """

    def __init__(self, levels_ms: tuple[int, ...], version_step: int = 200) -> None:
        self.levels_ms = levels_ms
        self.version = DataVersion()
        self._version_step = version_step
        self._updates = 0
        self._offsets: dict[int, int] = {}
        self._safe: dict[int, int] = {}

    @property
    def levels(self) -> range:
        """Delay levels, from 1."""
        return range(1, len(self.levels_ms) + 1)

    def capped(self, level: int) -> int:
        """Return the level for a requested one; a level above the highest counts as the highest."""
        return min(level, len(self.levels_ms))

    def due_ms(self, level: int, stored_ms: int, now_ms: int) -> int:
        """Return the time to deliver a message of the level that was stored at `stored_ms`.

        A message with a future store time was stored before the clock stepped back. It is due now, because the clock
        may never reach that time.
        """
        delay = self.levels_ms[level - 1]
        due = stored_ms + delay
        return now_ms if due > now_ms + delay else due

    def offset(self, level: int) -> int:
        """Return the queue offset of the level's next message."""
        return self._offsets.get(level, 0)

    def advance(self, level: int, offset: int, now_ms: int) -> None:
        """Note that the level is delivered up to `offset`."""
        self._offsets[level] = offset
        self._updates += 1
        if self._updates % self._version_step == 0:
            self.version = self.version.next(now_ms)

    def fit(self, level: int, minimum: int, maximum: int) -> int:
        """Clamp the level's position to the queue's bounds, and return it."""
        offset = min(max(self.offset(level), minimum), maximum)
        if offset != self.offset(level):
            self._offsets[level] = offset
        return offset

    def offsets(self) -> dict[int, int]:
        """Return a copy of the positions of all levels."""
        return dict(self._offsets)

    def settled(self, offsets: Mapping[int, int]) -> None:
        """Note that the messages delivered before these positions are flushed."""
        self._safe = dict(offsets)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON value for request 45."""
        return self._json(self._offsets)

    def to_file(self) -> dict[str, Any]:
        """Return the JSON value for delayOffset.json (store.md §15.6), with flushed positions only."""
        return self._json(self._safe)

    def _json(self, offsets: Mapping[int, int]) -> dict[str, Any]:
        return {"dataVersion": DATA_VERSION.encode(self.version), "offsetTable": dict(sorted(offsets.items()))}

    def merge(self, value: dict[str, Any]) -> None:
        """Merge another broker's answer (45): the larger position of each level counts."""
        for level, offset in (value.get("offsetTable") or {}).items():
            if int(offset) > self._offsets.get(int(level), -1):
                self._offsets[int(level)] = int(offset)
        self._safe = dict(self._offsets)

    def load(self, value: dict[str, Any]) -> None:
        """Load the content of delayOffset.json."""
        version = DATA_VERSION.decode(value.get("dataVersion") or {})
        table = value.get("offsetTable") or {}
        self._offsets = {int(level): int(offset) for level, offset in table.items()}
        self.version = version
        self._safe = dict(self._offsets)


def wanted_level(properties: Mapping[str, str]) -> int:
    """Return the delay level that a message requests, 0 for none.

    Raises:
        ValueError: `DELAY` is not an integer.
    """
    text = properties.get(names.DELAY)
    return int(text) if text else 0


def waiting_room(level: int) -> tuple[str, int]:
    """Return topic and queue in which messages of a level wait (store.md §18)."""
    return names.SCHEDULE_TOPIC, level - 1


def put_off(properties: MutableMapping[str, str], level: int, topic: str, queue_id: int) -> tuple[str, int]:
    """Add the properties of a delayed message; return topic and queue in which it waits."""
    properties[names.DELAY] = str(level)
    properties[names.REAL_TOPIC] = topic
    properties[names.REAL_QID] = str(queue_id)
    return waiting_room(level)
