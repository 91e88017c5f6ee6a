"""The properties of a message as sent: its own, and those for its fields (client.md §5.6, §13.4)."""

from __future__ import annotations

from tianzhou.client.validation import check_attributes
from tianzhou.model import Message, MessageExt, names
from tianzhou.wire.templates import plain_properties_json, properties_json

_OF_ONE_DELIVERY = (
    names.TRAN_MSG,
    names.RECONSUME_TIME,
    names.MAX_RECONSUME_TIMES,
    names.MIN_OFFSET,
    names.MAX_OFFSET,
    names.CONSUME_START_TIME,
)


def message_properties(message: Message, unique_key: str, namespace: str | None = None) -> dict[str, str]:
    """Return all properties of a message: its own, and those for its fields."""
    result = dict(message.properties)
    result[names.UNIQ_KEY] = unique_key
    if namespace:
        result[names.INSTANCE_ID] = namespace
    if message.tags:
        result[names.TAGS] = message.tags
    if message.keys and (keys := message.key_text()):
        result[names.KEYS] = keys
    if message.delay_level:
        result[names.DELAY] = str(message.delay_level)
    if message.sharding_key:
        result[names.SHARDING_KEY] = message.sharding_key
    if not message.wait_store_ok:
        result[names.WAIT] = "false"
    return result


def retry_properties(message: MessageExt, delay_level: int) -> dict[str, str]:
    """Return the properties of a delivered message for its group's retry topic (client.md §13.4)."""
    result = dict(message.properties)
    for name in _OF_ONE_DELIVERY:
        result.pop(name, None)
    result.setdefault(names.ORIGIN_MESSAGE_ID, message.msg_id)
    result.setdefault(names.RETRY_TOPIC, message.topic)
    result[names.DELAY] = str(delay_level)
    return result


def is_plain(message: Message) -> bool:
    """Whether a message has no properties besides tag and keys."""
    return not (message.properties or message.delay_level or message.sharding_key) and message.wait_store_ok


def quick_properties(message: Message, unique_key: str) -> str | None:
    """Return the property string, as JSON text, of a message that may go to any queue.

    Args:
        message: the message, without a sharding key.
        unique_key: its unique key.

    Returns:
        None for a message with properties that change how it is sent.

    Raises:
        ClientError: a property, tag or key cannot be sent.
    """
    plain = is_plain(message)
    if not plain and not names.SPECIAL.isdisjoint(message.properties):
        return None
    check_attributes(message)
    return (
        plain_properties_json(unique_key, message)
        if plain
        else properties_json(message_properties(message, unique_key))
    )
