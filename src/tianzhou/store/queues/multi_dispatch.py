"""Multi-dispatch: one record with units in further queues, among them light ones (`%LMQ%…`, store.md §7).

Pure: the queues that a record names, and the property with its offsets in them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tianzhou.model import names
from tianzhou.model.name_rules import folder_name_problem
from tianzhou.wire.properties import decode_properties, encode_properties, get_property

PREFIX: Final = names.LMQ_PREFIX
SEPARATOR: Final = ","
QUEUE_ID: Final = 0
"""The number of every light queue."""
_NAMED: Final = names.INNER_MULTI_DISPATCH.encode()


def is_light(topic: str) -> bool:
    """Whether a topic name is that of a light queue."""
    return topic.startswith(PREFIX)


def dispatched_queues(topic: str, queue_id: int, properties: bytes) -> list[tuple[str, int]]:
    """Return name and number of the further queues of a record of `topic`; each once.

    Records of retry, schedule and system topics have none until they are delivered.

    Args:
        topic: as stored.
        queue_id: queue id of the record; ordinary names use it too.
        properties: the property string.
    """
    if _NAMED not in properties or _stays(topic):
        return []
    text = get_property(properties, names.INNER_MULTI_DISPATCH) or ""
    found = [(name, QUEUE_ID if is_light(name) else queue_id) for name in text.split(SEPARATOR) if name]
    return [place for place in dict.fromkeys(found) if place != (topic, queue_id)]


def _stays(topic: str) -> bool:
    return topic.startswith((names.RETRY_PREFIX, names.SYSTEM_PREFIX)) or topic in {
        names.SCHEDULE_TOPIC,
        names.HALF_TOPIC,
        names.OP_HALF_TOPIC,
    }


def with_offsets(topic: str, queue_id: int, properties: bytes, offset_of: Callable[[str, int], int]) -> bytes:
    """Return the property string with `INNER_MULTI_QUEUE_OFFSET`: an offset for every listed name, in their order.

    Args:
        topic: topic of the record; a list may name it, too.
        queue_id: queue id of the record.
        properties: the property string, with `INNER_MULTI_DISPATCH`.
        offset_of: returns the record's offset in a queue, by name and number.
    """
    pairs = decode_properties(properties)
    listed = pairs[names.INNER_MULTI_DISPATCH].split(SEPARATOR)
    offsets = [str(offset_of(name, QUEUE_ID if is_light(name) else queue_id)) if name else "" for name in listed]
    pairs[names.INNER_MULTI_QUEUE_OFFSET] = SEPARATOR.join(offsets)
    return encode_properties(pairs)


def stored_places(topic: str, queue_id: int, properties: bytes) -> list[tuple[str, int, int]]:
    """Return name, number and offset of a stored record's further queues; empty when the lists disagree."""
    if _NAMED not in properties or _stays(topic):
        return []
    listed = (get_property(properties, names.INNER_MULTI_DISPATCH) or "").split(SEPARATOR)
    offsets = (get_property(properties, names.INNER_MULTI_QUEUE_OFFSET) or "").split(SEPARATOR)
    if len(listed) != len(offsets):
        return []
    found: dict[tuple[str, int], int] = {}
    for name, offset in zip(listed, offsets, strict=True):
        place = (name, QUEUE_ID if is_light(name) else queue_id)
        if folder_name_problem(name) is None and offset.isascii() and offset.isdigit() and place != (topic, queue_id):
            found.setdefault(place, int(offset))
    return [(name, number, offset) for (name, number), offset in found.items()]


def offset_in(light: str, properties: bytes) -> int | None:
    """Return the offset of a stored record in a light queue; None when its properties have none.

    Args:
        light: the name of the light queue.
        properties: the property string of the record.
    """
    listed = (get_property(properties, names.INNER_MULTI_DISPATCH) or "").split(SEPARATOR)
    offsets = (get_property(properties, names.INNER_MULTI_QUEUE_OFFSET) or "").split(SEPARATOR)
    if len(listed) != len(offsets) or light not in listed:
        return None
    text = offsets[listed.index(light)]
    return int(text) if text.isascii() and text.isdigit() else None
