"""The message of a row, and the error for a row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from tianzhou.client.staging import Origin
from tianzhou.errors import ClientError, TianzhouError
from tianzhou.model import Message, names
from tianzhou.model.timestamps import RAW_TIMES

STORED_BY: Final = frozenset({names.UNIQ_KEY, names.MSG_REGION})
"""Properties that only the system sets. A row with one of them has the properties of a message that was read."""


class RowNotSent(TianzhouError):
    """A row could not be made a message, or its message was not acknowledged.

    With at-least-once delivery the rows before it were sent. With exactly-once delivery no row of the batch becomes
    visible.
    """


@dataclass(slots=True)
class OutgoingMessage:
    """A message, and the queue for which a row asks."""

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
    """Return a row's message.

    Keys, tag and sharding key may also be in the properties, as in rows of the source. A value that no column has is
    taken from the properties. If the row is a message that was read, all other system properties describe the earlier
    message (its id, delay, transaction, reply client) and are left out.

    Args:
        topic: the target topic.
        body: the payload.
        keys: value of the column; empty for none.
        tags: value of the column.
        sharding_key: value of the column.
        delay_level: value of the column; 0 for none.
        key: value of Kafka's column: the sharding key and the keys, if no other column or property has them.
        properties: value of the column.

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
    """Return the error for a row.

    Args:
        index: number of the row in the task, from 0.
        partition: the task's partition.
        error: the cause.
    """
    result = RowNotSent(f"row {index} of partition {partition}: {error}")
    result.__cause__ = error
    return result
