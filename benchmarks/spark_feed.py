"""Messages for `spark.py`: a filled store, and the same messages in a Parquet file.

Bodies are orders as JSON: repeating names, unique numbers, 1 KiB each.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tianzhou.embedded import SEGMENT_BYTES
from tianzhou.store import MessageStore, NewRecord, StoreSettings
from tianzhou.wire.hashing import tags_code

TAGS = ("created", "paid", "shipped", "returned")
CODES = {tag: tags_code(tag) for tag in TAGS}
ITEMS = 4096
AT_ONCE = 50_000


class Orders:
    """Bodies of a fixed length; the same number gives the same body.

    Args:
        body: bytes of each.
    """

    def __init__(self, body: int) -> None:
        chance = random.Random(4)
        numbers = ((chance.getrandbits(32), chance.randint(1, 9), chance.randint(10_000, 99_999)) for _ in range(ITEMS))
        items = [f'{{"sku":"{sku:08X}","quantity":{quantity},"price":{price}}}' for sku, quantity, price in numbers]
        self._items = ",".join(items).encode()
        self._step = len(items[0]) + 1
        self._body = body
        frame = self._framed(0, b"")
        self._most = (body - len(frame)) // self._step
        if self._most < 1:
            raise SystemExit(f"body of {body} bytes: expected at least {len(frame) + self._step}")
        self._note = b"." * (body - len(frame) - self._most * self._step + 1)

    def _framed(self, number: int, items: bytes, note: bytes = b"") -> bytes:
        customer = number * 2_654_435_761 & 0xFFFFFFFF
        return b'{"order":"%012d","customer":"%08x","items":[%b],"note":"%b"}' % (number, customer, items, note)

    def __call__(self, number: int) -> bytes:
        """Return the body of a number."""
        at = number * 7919 % (ITEMS - self._most) * self._step
        return self._framed(number, self._items[at : at + self._most * self._step - 1], self._note)


def messages(rows: int, body: int) -> Iterator[tuple[int, str, str, bytes]]:
    """Yield number, unique key, tag and body of each message."""
    orders = Orders(body)
    for number in range(rows):
        yield number, f"7F0000010000000000000000{number:08X}", TAGS[number % len(TAGS)], orders(number)


def fill(data: Path, topic: str, rows: int, queues: int, body: int) -> None:
    """Create the store for `tianzhou serve --data`, filled with `rows` messages of a topic."""
    settings = StoreSettings(
        store_path_root_dir=str(data / "store"),
        store_path_commit_log=str(data / "store" / "commitlog"),
        mapped_file_size_commit_log=SEGMENT_BYTES,
        disk_max_used_space_ratio=99,
    )
    store = MessageStore(settings)
    store.open()
    try:
        for number, key, tag, content in messages(rows, body):
            order = f"{number:012d}"
            pairs = ("KEYS", order), ("UNIQ_KEY", key), ("CLUSTER", "DefaultCluster"), ("WAIT", "true"), ("TAGS", tag)
            properties = "".join(f"{name}\x01{value}\x02" for name, value in pairs)
            store.append(
                NewRecord(
                    topic,
                    number % queues,
                    content,
                    properties.encode(),
                    born_timestamp=time.time_ns() // 1_000_000,
                    tags_code=CODES[tag],
                    keys=order,
                    uniq_key=key,
                )
            )
    finally:
        store.close_now()


def as_parquet(path: Path, rows: int, queues: int, body: int) -> None:
    """Write the same messages as Parquet for Kafka's side: key, value and partition."""
    import pyarrow as pa
    from pyarrow import parquet

    schema: Any = pa.schema([("key", pa.string()), ("value", pa.binary()), ("partition", pa.int32())])
    with parquet.ParquetWriter(path, schema, compression="snappy") as writer:
        keys: list[str] = []
        values: list[bytes] = []
        for number, key, _, content in messages(rows, body):
            keys.append(key)
            values.append(content)
            if len(keys) == AT_ONCE or number == rows - 1:
                partitions = [(number - len(keys) + 1 + step) % queues for step in range(len(keys))]
                writer.write_table(pa.table([keys, values, pa.array(partitions, pa.int32())], schema=schema))
                keys, values = [], []
