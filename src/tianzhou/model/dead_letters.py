"""Dead letters: what they were before a group gave up on them, and what they are sent again as (broker.md §8)."""

from __future__ import annotations

from collections.abc import Mapping

from tianzhou.errors import ClientError
from tianzhou.model import names
from tianzhou.model.message import Message, MessageExt

KIND = "dead-letter"
TOPIC_PROPERTIES = (names.DLQ_ORIGIN_TOPIC, names.RETRY_TOPIC)
"""Properties with the topic of before; the first that is set counts."""
ID_PROPERTIES = (names.DLQ_ORIGIN_MESSAGE_ID, names.ORIGIN_MESSAGE_ID)
"""Properties with the id of before, likewise."""
REASONS = ("reason", "exception", "error")
"""The properties looked at for why a message failed; the first that is set counts."""
ORIGIN_PREFIX = "origin_"
ORIGIN_KIND, ORIGIN_TOPIC, ORIGIN_ID, ORIGIN_PLACE = (
    f"{ORIGIN_PREFIX}{name}" for name in ("kind", "topic", "id", "place")
)
"""Properties of what was sent again: why, and where it comes from; the place is `broker:queue@offset`."""


def origin_topic(properties: Mapping[str, str]) -> str:
    """The topic a dead letter was first sent to; empty when it does not say."""
    return next((properties[name] for name in TOPIC_PROPERTIES if properties.get(name)), "")


def origin_id(message: MessageExt) -> str:
    """The id of a dead letter from before it was retried, else its own."""
    return next((message.properties[name] for name in ID_PROPERTIES if message.properties.get(name)), message.msg_id)


def resent(message: MessageExt, to: str | None = None, kind: str = KIND) -> Message:
    """The new message that a stored one is sent again as.

    Body, keys, tag, sharding key and the sender's properties are as they were. What the system added is left out: the
    count of retries, a delay that has passed, the unique key, so that it gets a new id. Where it comes from is in
    properties that begin with `origin_`, those of an earlier time give way.

    Args:
        message: the stored one.
        to: the topic; None for that of before.
        kind: for `origin_kind`.

    Raises:
        ClientError: no topic is given, and the message does not say where it was.
    """
    topic = to or origin_topic(message.properties)
    if not topic:
        raise ClientError(
            f"dead letter {message.msg_id} does not say which topic it was sent to; say where it is to go"
        )
    own = {name: value for name, value in message.user_properties.items() if not name.startswith(ORIGIN_PREFIX)}
    place = f"{message.broker_name}:{message.queue_id}@{message.queue_offset}"
    origin = {
        ORIGIN_KIND: kind,
        ORIGIN_TOPIC: message.topic,
        ORIGIN_ID: message.msg_id,
        ORIGIN_PLACE: place,
    }
    return Message(
        topic,
        message.body,
        tags=message.tags,
        keys=message.keys,
        flag=message.flag,
        properties=own | origin,
        sharding_key=message.properties.get(names.SHARDING_KEY),
    )
