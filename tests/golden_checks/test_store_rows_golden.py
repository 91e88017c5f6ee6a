"""Rows read directly from the files of Apache RocketMQ's stores, compared with the messages that Apache itself
delivered.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from golden_stores import CASES, check_body, manifest_of, queue_of, unpacked

pytest.importorskip("pyspark")

from tianzhou.model import MessageQueue
from tianzhou.spark.rows.schema import arrow_schema, columns_of, row_schema
from tianzhou.spark.source.offsets import Span
from tianzhou.spark.store.store_files import StoreFiles
from tianzhou.spark.store.store_rows import Wanted, read_all

GROWN = {"pop"}
"""Cases in which the broker continued to write after the queries."""


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[StoreFiles, dict[str, Any]]:
    return StoreFiles(unpacked(request.param, tmp_path)), manifest_of(request.param)


def rows_of(store: StoreFiles, queues: list[MessageQueue], **wanted: Any) -> list[dict[str, Any]]:
    schema = wanted.pop("schema", None) or row_schema(True, True)
    bounds = store.bounds(queues)
    spans = [Span(queue, *limits) for queue, limits in bounds.items() if limits.maximum > limits.minimum]
    batches = read_all(store, spans, Wanted(arrow_schema(schema), columns_of(schema), **wanted))
    return [row for batch in batches for row in batch.to_pylist()]


def test_bounds_are_what_apache_returned(case: tuple[StoreFiles, dict[str, Any]]) -> None:
    store, manifest = case
    for told in manifest["queues"]:
        queue = MessageQueue(told["topic"], "store", told["queueId"])
        assert queue in store.queues([told["topic"]])
        minimum, maximum = store.bounds([queue])[queue]
        assert minimum == told["minOffset"], queue
        assert maximum == told["maxOffset"] or (manifest["case"] in GROWN and maximum > told["maxOffset"]), queue


def test_every_message_is_a_row_as_apache_delivered_it(case: tuple[StoreFiles, dict[str, Any]]) -> None:
    store, manifest = case
    topics = {queue_of(message)[0] for message in manifest["messages"]}
    found = {}
    for row in rows_of(store, store.queues(topics), verify_crc=True):
        place = (row["topic"], row["queueId"], row["physicalOffset"])
        found.setdefault(place, []).append(row)
    count = 0
    for message in manifest["messages"]:
        rows = found[(*queue_of(message), message["commitLogOffset"])]
        inner = message.get("inner")
        assert len(rows) == len(inner or [message])
        for row, told in zip(rows, inner or [message], strict=True):
            count += 1
            check(row, message, told)
    assert manifest["case"] in GROWN or count == sum(map(len, found.values()))


def check(row: dict[str, Any], message: dict[str, Any], told: dict[str, Any]) -> None:
    if "pulledFromTopic" not in message:
        assert row["queueOffset"] == told["queueOffset"]
    assert row["brokerName"] is None
    assert dict(row["properties"]) == told["properties"]
    assert row["tags"] == told.get("tags", told["properties"].get("TAGS"))
    assert row["keys"] == told.get("keys", told["properties"].get("KEYS"))
    assert row["msgId"] == told["properties"].get("UNIQ_KEY", message["msgId"])
    check_body(row["body"], told)
    assert round(row["bornTimestamp"].timestamp() * 1000) == message["bornTimestamp"]
    assert round(row["storeTimestamp"].timestamp() * 1000) == message["storeTimestamp"]
    assert (row["bornHost"], row["storeHost"]) == (message["bornHost"], message["storeHost"])
    assert row["reconsumeTimes"] == message["reconsumeTimes"]


def test_times_lead_to_offsets(case: tuple[StoreFiles, dict[str, Any]]) -> None:
    store, manifest = case
    stored: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for message in manifest["messages"]:
        if "pulledFromTopic" not in message:
            stored.setdefault(queue_of(message), []).append((message["storeTimestamp"], message["queueOffset"]))
    for (topic, number), places in stored.items():
        queue = MessageQueue(topic, "store", number)
        limits = store.bounds([queue])[queue]
        for wanted in {places[0][0], places[-1][0], places[len(places) // 2][0] + 1, places[-1][0] + 1}:
            at_or_after = [offset for time, offset in sorted(places) if time >= wanted]
            found = store.offsets_by_time([queue], wanted)[queue]
            if at_or_after:
                assert found == min(at_or_after)
            elif manifest["case"] not in GROWN:
                assert found == limits.maximum


def test_keys_find_what_apache_found(case: tuple[StoreFiles, dict[str, Any]]) -> None:
    store, manifest = case
    for asked in manifest["queryByKey"]:
        if asked["begin"] != "0" or len(asked["physicalOffsets"]) >= int(asked["max"]):
            continue
        hits, indexed = store.lookup(asked["topic"], asked["key"])
        assert set(asked["physicalOffsets"]) <= {hit.offset for hit in hits}
        assert indexed > max((hit.offset for hit in hits), default=-1)
