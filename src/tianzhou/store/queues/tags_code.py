"""The tags code of a queue's unit: the hash of the record's tag, or its due time (store.md §5.3)."""

from __future__ import annotations

from tianzhou.model import names
from tianzhou.wire.hashing import tags_code
from tianzhou.wire.properties import get_property


def queue_tags_code(topic: str, properties: bytes, store_timestamp: int, delays: tuple[int, ...]) -> int:
    """Return the tags code of a record's queue unit (store.md §5.3).

    Args:
        topic: as stored.
        properties: the property string.
        store_timestamp: ms.
        delays: ms of each delay level, level 1 first.
    """
    if topic == names.SCHEDULE_TOPIC:
        when = deliver_time(properties, store_timestamp, delays)
        if when is not None:
            return when
    return tags_code(get_property(properties, names.TAGS))


def deliver_time(properties: bytes, store_timestamp: int, delays: tuple[int, ...]) -> int | None:
    """Return when a message of the schedule topic is due, ms; None without a delay level."""
    text = get_property(properties, names.DELAY)
    if text is None or not text.isascii() or not text.isdigit():
        return None
    level = min(int(text), len(delays))
    if level <= 0:
        return None
    return store_timestamp + delays[level - 1]
