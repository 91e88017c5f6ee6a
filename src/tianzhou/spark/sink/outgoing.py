"""A row on its way to a topic, and the error that names it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from tianzhou.client.staging import Origin
from tianzhou.errors import ClientError, TianzhouError
from tianzhou.model import Message, names
from tianzhou.model.timestamps import RAW_TIMES

STORED_BY: Final = frozenset({names.UNIQ_KEY, names.MSG_REGION})
"""Properties that no user sets: where one is, the properties are those of a message that was read."""


class RowNotSent(TianzhouError):
    """A row could not be made a message, or its message was not acknowledged.

    At least once, what went before it was sent; exactly once, nothing of the batch will be seen.
    """


@dataclass(slots=True)
class OutgoingMessage:
    """A message, and the queue a row wants it in."""

    message: Message
    queue_id: int | Origin | None


def message_of(
    topic: str,
    body: bytes,
    *,
    keys: str | Iterable[str] = "",
    tags: str | None = None,
    sharding_key: str | None = None,
    delay_level: int = 0,
    key: str | None = None,
    properties: Mapping[str, str],
) -> Message:
    """A row's message.

    Keys, tag and sharding key may be in the properties as well, where the source has them: what no column says is taken
    from there. Of a message that was read, all else that belongs to the system tells of its former life (its id, its
    delay, its transaction, who waited for a reply) and stays behind.

    Args:
        topic: where it goes.
        body: its payload.
        keys: the column's; empty for none.
        tags: the column's.
        sharding_key: the column's.
        delay_level: the column's; 0 for none.
        key: Kafka's column: the sharding key and the key, where nothing else says them.
        properties: the column's.

    Raises:
        ClientError: a property and a column contradict each other.
    """
    key_text = keys if isinstance(keys, str) else " ".join(keys)
    columns = {
        names.KEYS: ("keys", key_text),
        names.TAGS: ("tags", tags),
        names.SHARDING_KEY: ("shardingKey", sharding_key),
    }
    values = {}
    for name, (column, value) in columns.items():
        there = properties.get(name)
        if value and there and value.split() != there.split():
            raise ClientError(
                f"property {name}={there!r} and the column {column}={value!r} contradict each other; leave {name} out "
                "of the properties, as by map_filter, or the column out of the rows"
            )
        values[name] = value or there
    read = not STORED_BY.isdisjoint(properties)
    own = {
        name: value
        for name, value in properties.items()
        if name not in columns and not (read and (name in names.RESERVED or name in RAW_TIMES))
    }
    return Message(
        topic,
        body,
        tags=values[names.TAGS] or None,
        keys=values[names.KEYS] or key or "",
        properties=own,
        delay_level=delay_level,
        sharding_key=values[names.SHARDING_KEY] or key or None,
    )


def not_sent(index: int, partition: int, error: BaseException) -> RowNotSent:
    """The error for a row.

    Args:
        index: which row of the task, from 0.
        partition: the task's partition.
        error: why.
    """
    result = RowNotSent(f"row {index} of partition {partition}: {error}")
    result.__cause__ = error
    return result
