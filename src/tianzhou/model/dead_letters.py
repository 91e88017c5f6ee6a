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


def retry_topic_of(topic: str) -> str:
    """Return the retry topic of a group from the name of its dead-letter topic; empty for any other topic."""
    return names.retry_topic(topic.removeprefix(names.DLQ_PREFIX)) if topic.startswith(names.DLQ_PREFIX) else ""


def origin_id(message: MessageExt) -> str:
    """The id of a dead letter from before it was retried, else its own."""
    return next((message.properties[name] for name in ID_PROPERTIES if message.properties.get(name)), message.msg_id)


def resent(message: MessageExt, to: str | None = None, kind: str = KIND) -> Message:
    """Return the new message that a stored message is sent again as.

    Body, keys, tag, sharding key and the sender's properties are as they were. Properties of the system are left out:
    the count of retries, a delay that has passed, the unique key, so that the message gets a new id. Properties that
    begin with `origin_` have the place of the stored message and replace those of an earlier time.

    Args:
        message: the stored message.
        to: the topic; None for the retry topic of the dead letter's group, whose members alone get it.
        kind: value of `origin_kind`.

    Raises:
        ClientError: no topic is given, and the message is no dead letter or does not have its first topic.
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
