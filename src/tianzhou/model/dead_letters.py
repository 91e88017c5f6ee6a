"""Dead letters: their properties from before the first retry, and the messages that resend them (broker.md §8)."""

from __future__ import annotations

from collections.abc import Mapping

from tianzhou.errors import ClientError
from tianzhou.model import names
from tianzhou.model.message import Message, MessageExt

KIND = "dead-letter"
TOPIC_PROPERTIES = (names.DLQ_ORIGIN_TOPIC, names.RETRY_TOPIC)
"""Properties that may hold the original topic; the first one that is set counts."""
ID_PROPERTIES = (names.DLQ_ORIGIN_MESSAGE_ID, names.ORIGIN_MESSAGE_ID)
"""Properties that may hold the original message id; the first one that is set counts."""
REASONS = ("reason", "exception", "error")
"""Properties that may hold the reason of the failure; the first one that is set counts."""
ORIGIN_PREFIX = "origin_"
ORIGIN_KIND, ORIGIN_TOPIC, ORIGIN_ID, ORIGIN_PLACE = (
    f"{ORIGIN_PREFIX}{name}" for name in ("kind", "topic", "id", "place")
)
"""Properties of a resent message: the reason for the resend, and its origin; the place is `broker:queue@offset`."""


def origin_topic(properties: Mapping[str, str]) -> str:
    """Return the topic that a dead letter was first sent to; empty when its properties do not name it."""
    return next((properties[name] for name in TOPIC_PROPERTIES if properties.get(name)), "")


def retry_topic_of(topic: str) -> str:
    """Return the retry topic of a group from the name of its dead-letter topic; empty for any other topic."""
    return names.retry_topic(topic.removeprefix(names.DLQ_PREFIX)) if topic.startswith(names.DLQ_PREFIX) else ""


def origin_id(message: MessageExt) -> str:
    """Return the id that a dead letter had before its first retry; without one, its present id."""
    return next((message.properties[name] for name in ID_PROPERTIES if message.properties.get(name)), message.msg_id)


def resent(message: MessageExt, to: str | None = None, kind: str = KIND) -> Message:
    """Return the new message with which a stored message is sent again.

    Body, keys, tag, sharding key and the sender's properties stay the same. The new message lacks system properties
    such as the retry count, a past delay and the unique key, so it gets a new id. Properties that begin with `origin_`
    name the place of the stored message. They replace those of an earlier resend.

    Args:
        message: the stored message.
        to: the topic; None for the retry topic of the dead letter's group, so that only the group's members get it.
        kind: value of `origin_kind`.

    Raises:
        ClientError: `to` is None, and the message is no dead letter or does not have its original topic.
    """
    retry: dict[str, str] = {}
    if to is None:
        to = retry_topic_of(message.topic)
        retry = {names.RETRY_TOPIC: origin_topic(message.properties)}
        if not to or not retry[names.RETRY_TOPIC]:
            raise ClientError(
                f"message {message.msg_id} of {message.topic} does not have the topic that it was first sent to; name "
                "the topic that it shall go to"
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
        to,
        message.body,
        tags=message.tags,
        keys=message.keys,
        flag=message.flag,
        properties=own | origin | retry,
        sharding_key=message.properties.get(names.SHARDING_KEY),
    )
