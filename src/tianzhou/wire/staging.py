"""A unit of staged messages: the body of a stage request, and of its record in the log (docs/adr/0006).

Entries one behind the other: queue id, flag, sysFlag, three lengths, then topic, properties and body. No count, no
frame; the body of a message is as it is to be stored, so compressed already when its sysFlag says so.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import Final, NamedTuple

from tianzhou.errors import ProtocolError
from tianzhou.records.checksum import Octets

_HEAD: Final = Struct(">iiiiHH")  # queueId, flag, sysFlag, bodyLength, topicLength, propertiesLength
OVERHEAD: Final = _HEAD.size
"""Bytes of an entry besides its topic, properties and body."""


class StagedMessage(NamedTuple):
    """A message, and the queue it goes to.

    Attributes:
        topic: where it goes, as the servers know it.
        queue_id: where in it.
        flag: the user's flag.
        sys_flag: bits of wire.md §4.4.
        properties: the property string, with its unique key.
        body: as it is stored.
    """

    topic: str
    queue_id: int
    flag: int
    sys_flag: int
    properties: bytes
    body: bytes

    @property
    def size(self) -> int:
        """Bytes it takes in a unit."""
        return OVERHEAD + len(self.topic.encode()) + len(self.properties) + len(self.body)


def encode_unit(messages: Iterable[StagedMessage]) -> bytes:
    """The unit that holds the messages, in their order."""
    parts: list[bytes] = []
    for topic, queue_id, flag, sys_flag, properties, body in messages:
        name = topic.encode()
        parts += (_HEAD.pack(queue_id, flag, sys_flag, len(body), len(name), len(properties)), name, properties, body)
    return b"".join(parts)


def decode_unit(unit: Octets) -> list[StagedMessage]:
    """The messages a unit holds.

    Raises:
        ProtocolError: an entry does not fit; the text names its number and offset.
    """
    data = bytes(unit)
    end = len(data)
    messages: list[StagedMessage] = []
    topics: dict[bytes, str] = {}
    at = 0
    while at < end:
        if end - at < OVERHEAD:
            raise ProtocolError(
                f"staged message {len(messages)} at byte {at}: {end - at} bytes are left, it needs at least {OVERHEAD}"
            )
        queue_id, flag, sys_flag, body_size, topic_size, properties_size = _HEAD.unpack_from(data, at)
        properties_at = at + OVERHEAD + topic_size
        body_at = properties_at + properties_size
        following = body_at + body_size
        if body_size < 0 or following > end:
            raise ProtocolError(
                f"staged message {len(messages)} at byte {at}: topic of {topic_size}, properties of {properties_size} "
                f"and body of {body_size} bytes exceed the {end - at - OVERHEAD} bytes left"
            )
        name = data[at + OVERHEAD : properties_at]
        topic = topics.get(name)
        if topic is None:
            topic = topics[name] = name.decode("utf-8", "replace")
        messages.append(
            StagedMessage(topic, queue_id, flag, sys_flag, data[properties_at:body_at], data[body_at:following])
        )
        at = following
    return messages
