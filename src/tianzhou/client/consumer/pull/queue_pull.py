"""The arguments of one pull from a queue (client.md §19)."""

from __future__ import annotations

import msgspec

from tianzhou.model import MessageQueue


class QueuePull(msgspec.Struct, frozen=True):
    """A pull for `QueueReader.pull_raw`; the fields are the arguments of `QueueReader.pull`."""

    queue: MessageQueue
    offset: int
    max_messages: int = 32
    tags: str | None = "*"
    sql: str | None = None
    suspend_ms: int = 0
    timeout_ms: int | None = None
    max_bytes: int | None = None
    broker_id: int = 0
