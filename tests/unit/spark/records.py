"""Records of one queue, as brokers store them."""

from __future__ import annotations

from typing import Any

from tianzhou.model import MessageQueue
from tianzhou.records.codec import Record

QUEUE = MessageQueue("orders", "broker-a", 3)


def record(offset: int = 0, body: bytes = b"x", properties: bytes = b"TAGS\x01A\x02", **changes: Any) -> Record:
    values: dict[str, Any] = {
        "topic": QUEUE.topic,
        "queue_id": QUEUE.queue_id,
        "queue_offset": offset,
        "physical_offset": 1000 + offset,
        "flag": 0,
        "sys_flag": 0,
        "born_timestamp": 1_700_000_000_123,
        "born_host": bytes([10, 0, 0, 1]),
        "born_port": 5000,
        "store_timestamp": 1_700_000_000_456,
        "store_host": bytes([127, 0, 0, 1]),
        "store_port": 10911,
        "reconsume_times": 0,
        "prepared_transaction_offset": 0,
        "body": body,
        "properties": properties,
    }
    return Record(**{**values, **changes})
