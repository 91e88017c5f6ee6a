"""Messages of a store as Arrow tables. The only Python step per message reads its header."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import numpy as np

from tianzhou.errors import BodiesTooLarge
from tianzhou.model import MessageQueue
from tianzhou.records.walk import LogEntry
from tianzhou.spark.rows import arrays
from tianzhou.spark.rows.arrays import pa
from tianzhou.spark.rows.columns import BODIES_LIMIT, Records
from tianzhou.store.offline.import_export import KEPT_FLAGS

_BYTES: Final = 32 << 20
_TIME: Final[Any] = pa.timestamp("us", "UTC")
SCHEMA: Final[Any] = pa.schema(
    [
        ("topic", pa.string()),
        ("queueId", pa.int32()),
        ("queueOffset", pa.int64()),
        ("physicalOffset", pa.int64()),
        ("flag", pa.int32()),
        ("sysFlag", pa.int32()),
        ("bornTimestamp", _TIME),
        ("bornHost", pa.string()),
        ("storeTimestamp", _TIME),
        ("storeHost", pa.string()),
        ("reconsumeTimes", pa.int32()),
        ("preparedTransactionOffset", pa.int64()),
        ("properties", pa.map_(pa.string(), pa.string())),
        ("body", pa.binary()),
    ]
)
"""The columns of an export."""


def tables(records: Iterable[tuple[LogEntry, memoryview]]) -> Iterator[Any]:
    """Return records as tables of about 32 MiB, each sorted by queue.

    Args:
        records: records in the order of the log.

    Raises:
        CorruptRecord: a body cannot be unpacked.
    """
    waiting: dict[tuple[str, int], list[memoryview]] = {}
    size = 0
    for entry, view in records:
        waiting.setdefault((entry.topic, entry.queue_id), []).append(view)
        size += len(view)
        if size >= _BYTES:
            yield from _tables(waiting)
            waiting, size = {}, 0
    if waiting:
        yield from _tables(waiting)


def _tables(waiting: dict[tuple[str, int], list[memoryview]]) -> Iterator[Any]:
    """Yield one table, or several when unpacked bodies are too large for one."""
    batches: list[Any] = []
    size = 0
    for (topic, queue_id), views in sorted(waiting.items()):
        for batch in _batches(Records(b"".join(views), MessageQueue(topic, "", queue_id))):
            batches.append(batch)
            size += batch.nbytes
            if size > BODIES_LIMIT:
                yield pa.Table.from_batches(batches, SCHEMA)
                batches, size = [], 0
    if batches:
        yield pa.Table.from_batches(batches, SCHEMA)


def _batches(records: Records) -> Iterator[Any]:
    try:
        batch = _batch(records, records.queue.topic, records.queue.queue_id)
    except BodiesTooLarge:
        for half in records.halves():
            yield from _batches(half)
    else:
        yield batch


def _batch(records: Records, topic: str, queue_id: int) -> Any:
    count = len(records)
    kinds = {field.name: field.type for field in SCHEMA}
    fixed = {
        "queueOffset": "queue_offset",
        "physicalOffset": "physical_offset",
        "flag": "flag",
        "reconsumeTimes": "reconsume_times",
        "preparedTransactionOffset": "prepared_transaction_offset",
    }
    columns = {name: arrays.integers(records.fixed(field), kinds[name]) for name, field in fixed.items()}
    columns |= {
        "topic": arrays.repeated(topic.encode(), count, pa.string()),
        "queueId": arrays.integers(np.full(count, queue_id, np.int32), pa.int32()),
        "sysFlag": arrays.integers(records.fixed("sys_flag") & np.int32(KEPT_FLAGS), pa.int32()),
        "bornTimestamp": records.born_times(),
        "bornHost": records.born_hosts(),
        "storeTimestamp": records.store_times(),
        "storeHost": records.store_hosts(),
        "properties": records.properties(kinds["properties"]),
        "body": records.bodies,
    }
    return pa.RecordBatch.from_arrays([columns[name] for name in SCHEMA.names], schema=SCHEMA)
