"""A producer and a consumer in one process, on the two operations of the core: append and read (docs/adr/0033)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

from tianzhou.records.codec import decode_records
from tianzhou.store import GetResult, MessageStore, NewRecord, PutStatus, ReadRequest, RecordBatch, StoreSettings
from tianzhou.wire.batch import encode_batch
from tianzhou.wire.hashing import tags_code

TOPIC, QUEUE = "orders", 0


async def produce(store: MessageStore, bodies: list[bytes], tag: str) -> None:
    """Append a message each, wait until they are safe, then append the same bodies as one batch."""
    properties = f"TAGS\x01{tag}\x02".encode()
    for body in bodies:
        result = store.append(NewRecord(TOPIC, QUEUE, body, properties, tags_code=tags_code(tag)))
        assert await store.settle(result) is PutStatus.PUT_OK
    members = encode_batch([(0, body, properties) for body in bodies])
    result = store.append(RecordBatch(NewRecord(TOPIC, QUEUE, b"", b""), members))
    assert await store.settle(result) is PutStatus.PUT_OK


async def consume(store: MessageStore, tag: str | None = None) -> AsyncIterator[tuple[int, bytes]]:
    """Yield queue offsets and bodies for ever, waiting for the queue to grow at its end."""
    codes = None if tag is None else frozenset({tags_code(tag)})
    request = ReadRequest(TOPIC, QUEUE, 0, 2, codes, goes_on=True)
    while True:
        found = store.read(request)
        found = found if isinstance(found, GetResult) else await found
        for record in decode_records(found.records):
            yield record.queue_offset, record.body
        if found.next_offset == request.offset:
            await store.arrived(TOPIC, QUEUE).reach(request.offset + 1)
        request.offset = found.next_offset


async def taken(messages: AsyncIterator[tuple[int, bytes]], count: int) -> list[tuple[int, bytes]]:
    """Return the first messages of a consumer."""
    return [await anext(messages) for _ in range(count)]


async def test_a_consumer_gets_what_a_producer_appends(tmp_path: Path) -> None:
    settings = StoreSettings(str(tmp_path), mapped_file_size_commit_log=1 << 16, flush_disk_type="SYNC_FLUSH")
    async with asyncio.timeout(60), MessageStore(settings) as store:
        everything = asyncio.ensure_future(taken(consume(store), 10))  # begins before there is a queue
        await asyncio.sleep(0)
        await produce(store, [b"a", b"b"], "paid")
        await produce(store, [b"c", b"d", b"e"], "sent")
        bodies = [b"a", b"b", b"a", b"b", b"c", b"d", b"e", b"c", b"d", b"e"]
        assert await everything == list(enumerate(bodies))
        assert await taken(consume(store, "sent"), 6) == list(enumerate(bodies))[4:]
