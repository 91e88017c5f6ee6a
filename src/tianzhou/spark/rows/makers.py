"""Makers of the columns of the row schema."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

import numpy as np

from tianzhou.model import names
from tianzhou.spark.rows import arrays
from tianzhou.spark.rows.arrays import Array, DataType, pa

if TYPE_CHECKING:
    from tianzhou.spark.rows.columns import Records

Maker = Callable[["Records", DataType], Array]


def _body(records: Records, kind: DataType) -> Array:
    bodies = records.bodies
    return arrays.text(bodies) if pa.types.is_string(kind) else bodies


def _broker_name(records: Records, kind: DataType) -> Array:
    name = records.queue.broker_name
    # The name is empty for a store, whose files do not contain the broker's name.
    return arrays.repeated(name.encode(), len(records), kind) if name else pa.nulls(len(records), kind)


def _queue_id(records: Records, kind: DataType) -> Array:
    return arrays.integers(np.full(len(records), records.queue.queue_id, np.int32), kind)


def _key(records: Records, kind: DataType) -> Array:
    """Return Kafka's key: the sharding key, or the message's keys if it has none.

    Messages with the same sharding key are in one queue, as are Kafka's messages with the same key.
    """
    both = arrays.function("coalesce")(records.pairs.column(names.SHARDING_KEY), records.pairs.column(names.KEYS))
    return both.cast(kind)


def _headers(records: Records, kind: DataType) -> Array:
    pairs = records.properties(pa.map_(pa.string(), pa.string()))
    shape = kind.value_type
    made = pa.StructArray.from_arrays(
        [pairs.keys.cast(shape.field(0).type), pairs.items.cast(shape.field(1).type)], fields=list(shape)
    )
    return pa.ListArray.from_arrays(pairs.offsets, made, type=kind)


STORED: Final = 1
"""Kafka's `timestampType` of a time that the broker set."""


def _fixed(name: str) -> Maker:
    return lambda records, kind: arrays.integers(records.fixed(name), kind)


MAKERS: Final[Mapping[str, Maker]] = {
    "topic": lambda records, kind: arrays.repeated(records.queue.topic.encode(), len(records), kind),
    "brokerName": _broker_name,
    "queueId": _queue_id,
    "queueOffset": _fixed("queue_offset"),
    "msgId": lambda records, kind: records.message_ids(),
    "tags": lambda records, kind: records.pairs.column(names.TAGS),
    "keys": lambda records, kind: records.pairs.column(names.KEYS),
    "body": _body,
    "properties": lambda records, kind: records.properties(kind),
    "bornTimestamp": lambda records, kind: records.born_times(),
    "storeTimestamp": lambda records, kind: records.store_times(),
    "bornHost": lambda records, kind: records.born_hosts(),
    "storeHost": lambda records, kind: records.store_hosts(),
    "reconsumeTimes": _fixed("reconsume_times"),
    "sysFlag": _fixed("sys_flag"),
    "physicalOffset": _fixed("physical_offset"),
    "key": _key,
    "timestampType": lambda records, kind: arrays.integers(np.full(len(records), STORED, np.int32), kind),
    "headers": _headers,
}
"""The maker of each column of the row schema."""
