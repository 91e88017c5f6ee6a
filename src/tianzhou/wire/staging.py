"""Codec of units of staged messages: bodies of stage requests, and of their records in the log (docs/adr/0006).

A unit has consecutive entries: queue id, flag, sysFlag, three lengths, then topic, properties and body. It has no count
and no frame. The body of a message is in its stored form, so it is compressed when its sysFlag has the compressed bit.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import Final, NamedTuple

from tianzhou.errors import ProtocolError
from tianzhou.records.checksum import Octets

_HEAD: Final = Struct(">iiiiHH")  # queueId, flag, sysFlag, bodyLength, topicLength, propertiesLength
OVERHEAD: Final = _HEAD.size
"""Bytes of an entry without its topic, properties and body."""


class StagedMessage(NamedTuple):
    """A message and its target queue.

    Attributes:
        topic: target topic, by the servers' name.
        queue_id: target queue.
        flag: the user's flag.
        sys_flag: bits of wire.md §4.4.
        properties: the property string, with its unique key.
        body: the body as stored.
    """

    topic: str
    queue_id: int
    flag: int
    sys_flag: int
    properties: bytes
    body: bytes

    @property
    def size(self) -> int:
        """Bytes of the message in a unit."""
        return OVERHEAD + len(self.topic.encode()) + len(self.properties) + len(self.body)


def encode_unit(messages: Iterable[StagedMessage]) -> bytes:
    """Encode messages as a unit, in their order."""
    parts: list[bytes] = []
    for topic, queue_id, flag, sys_flag, properties, body in messages:
        name = topic.encode()
        parts += (_HEAD.pack(queue_id, flag, sys_flag, len(body), len(name), len(properties)), name, properties, body)
    return b"".join(parts)


def decode_unit(unit: Octets) -> list[StagedMessage]:
    """Decode the messages of a unit.

    Raises:
        ProtocolError: an entry does not fit; the error names its number and offset.
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
