"""Rows read from the folder of Apache's running broker equal the messages that the broker delivers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from apache import ApacheBroker, ApacheNamesrv
from toolchain import ToolchainMissingError

from tianzhou.admin import Admin
from tianzhou.client.consumer.pull.pull_consumer import PullConsumer
from tianzhou.client.producer.producer import Producer
from tianzhou.model import Message, MessageExt
from tianzhou.spark.rows.schema import arrow_schema, columns_of, row_schema
from tianzhou.spark.source.offsets import Span
from tianzhou.spark.store.store_files import StoreFiles
from tianzhou.spark.store.store_rows import Wanted, read_all

SMALL = {
    "mappedFileSizeCommitLog": 262_144,
    "mappedFileSizeConsumeQueue": 2000,
    "maxHashSlotNum": 1000,
    "maxIndexNum": 4000,
}


ON_DELIVERY = ("MIN_OFFSET", "MAX_OFFSET")
"""Properties that are added on delivery, and not stored."""


@pytest.fixture(params=["5.3.3", "4.9.7"])
def apache(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, ApacheBroker]]:
    try:
        with (
            ApacheNamesrv(version=request.param) as namesrv,
            ApacheBroker(namesrv.address, store_dir=tmp_path / "store", conf=SMALL, version=request.param) as broker,
        ):
            yield namesrv.address, broker
    except ToolchainMissingError as error:
        pytest.skip(str(error))


async def fill(address: str, topic: str, first: int, count: int) -> None:
    async with Producer("rows", address) as producer:
        for at in range(first, first + count, 50):
            await asyncio.gather(
                *(
                    producer.send(
                        Message(topic, b"%d " % n * (1 + n % 700), tags=f"tag{n % 3}", keys=[f"key{n}", "all"])
                    )
                    for n in range(at, at + 50)
                )
            )


async def delivered(address: str, topic: str) -> list[MessageExt]:
    found = []
    async with PullConsumer("rows", address, auto_commit=False) as consumer:
        for queue in await consumer.queues(topic):
            at, end = await consumer.min_offset(queue), await consumer.max_offset(queue)
            while at < end:
                result = await consumer.pull(queue, at)
                found += result.messages
                at = result.next_offset
    return found


def rows_of(folder: Path, topic: str, **wanted: object) -> list[dict]:
    store, schema = StoreFiles(folder, broker_name="broker-a"), row_schema(True, True)
    spans = [Span(queue, *limits) for queue, limits in store.bounds(store.queues([topic])).items()]
    batches = read_all(store, spans, Wanted(arrow_schema(schema), columns_of(schema), verify_crc=True, **wanted))
    return [row for batch in batches for row in batch.to_pylist()]


def told(row: dict) -> tuple:
    return (
        (row["brokerName"], row["topic"], row["queueId"], row["queueOffset"], row["physicalOffset"]),
        (row["msgId"], row["tags"], row["keys"], row["body"], dict(row["properties"]), row["sysFlag"] & ~1),
        (row["bornHost"], row["storeHost"], row["reconsumeTimes"]),
        (round(row["bornTimestamp"].timestamp() * 1000), round(row["storeTimestamp"].timestamp() * 1000)),
    )


def said(message: MessageExt) -> tuple:
    place = (message.broker_name, message.topic, message.queue_id, message.queue_offset, message.commitlog_offset)
    properties = {name: value for name, value in message.properties.items() if name not in ON_DELIVERY}
    content = (message.msg_id, message.tags or None, properties.get("KEYS"), message.body)
    return (
        place,
        (*content, properties, message.sys_flag & ~1),
        (message.born_host, message.store_host, message.reconsume_times),
        (message.born_timestamp, message.store_timestamp),
    )


@pytest.mark.slow
def test_rows_are_what_the_running_broker_delivers(apache: tuple[str, ApacheBroker]) -> None:
    address, broker = apache
    folder = Path(broker.store_dir)

    async def all_of_it() -> None:
        async with Admin(address) as admin:
            await admin.topics.create("Rows", read_queue_nums=3, write_queue_nums=3)
        for first in (0, 500):
            await fill(address, "Rows", first, 500)
            messages = await delivered(address, "Rows")
            assert len(messages) == first + 500
            rows = rows_of(folder, "Rows")
            assert sorted(map(told, rows), key=lambda row: row[0]) == sorted(
                map(said, messages), key=lambda row: row[0]
            )
        assert {row["tags"] for row in rows_of(folder, "Rows", tags="tag1")} == {"tag1"}
        [row] = rows_of(folder, "Rows", key="key77")
        assert row["body"].startswith(b"77 ")

    asyncio.run(all_of_it())
    broker.kill()
    # A copy of a killed broker's files has all messages, dispatched or not.
    assert len(rows_of(folder, "Rows")) == 1000
