"""Exports of Apache RocketMQ's stores, compared with the messages that Apache itself delivered from them."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from golden_stores import check_body, manifest_of, unpacked

from tianzhou.store.offline.check import check_store
from tianzhou.store.offline.import_export import Importer, Selection, rows, selected, visible_topics
from tianzhou.store.offline.scan import StoreScan

CASES = ("basic-clean-5", "basic-clean-4", "delay", "transaction", "retry-dlq", "order", "longtopic", "expired",
         "propcrc", "timer", "cqext", "lmq", "bcq", "basic-killed-5", "basic-killed-4")  # fmt: skip
BOOKKEEPING = {"__CRC32#", "INNER_MULTI_QUEUE_OFFSET"}


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, dict[str, Any]]:
    return unpacked(request.param, tmp_path), manifest_of(request.param)


def exported(folder: Path, topics: Iterable[str]) -> list[dict[str, Any]]:
    scan = StoreScan(folder)
    return [row for _, view in selected(scan, Selection(frozenset(topics))) for row in rows(view)]


def body_of(row: dict[str, Any]) -> bytes:
    return base64.b64decode(row["bodyBase64"]) if "bodyBase64" in row else row["body"].encode()


def test_an_export_has_what_apache_delivered(case: tuple[Path, dict[str, Any]]) -> None:
    folder, manifest = case
    delivered = [inner for message in manifest["messages"] for inner in message.get("inner", [message])]
    outer = {message["commitLogOffset"]: message for message in manifest["messages"]}
    topics = {message["topic"] for message in manifest["messages"]}
    found = [row for row in exported(folder, topics) if row["physicalOffset"] in outer]
    # Light queues deliver the same record once more.
    places = {(m.get("topic"), m.get("queueOffset"), m.get("commitLogOffset")) for m in delivered}
    assert len(found) == (len(places) if "inner" not in json.dumps(manifest["messages"]) else len(delivered))
    for row in found:
        message = outer[row["physicalOffset"]]
        for name in ("topic", "queueId", "bornTimestamp", "bornHost", "storeTimestamp", "reconsumeTimes"):
            assert row[name] == message[name], name
        if "inner" in message:
            continue
        for name in ("flag", "queueOffset", "properties"):
            assert row[name] == message[name], name
        check_body(body_of(row), message)


def test_an_import_of_the_export_is_the_same(case: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    folder, _ = case
    before = exported(folder, visible_topics(StoreScan(folder)))
    copy = tmp_path / "copy"
    with Importer(copy, 1 << 20) as importer:
        for row in before:
            importer.add(row)
    report = check_store(StoreScan(copy))
    assert (report.problems, report.records, report.units) == ([], len(before), len(before))
    after = exported(copy, visible_topics(StoreScan(copy)))
    assert [kept(row) for row in after] == [kept(row) for row in before]


def kept(row: dict[str, Any]) -> dict[str, Any]:
    """Return the fields that an import preserves."""
    place = ("queueOffset", "physicalOffset", "storeTimestamp", "storeHost", "preparedTransactionOffset")
    properties = {name: value for name, value in row["properties"].items() if name not in BOOKKEEPING}
    return {name: value for name, value in row.items() if name not in place} | {"properties": properties}


@pytest.mark.parametrize("name", ["basic-clean-5", "bcq", "longtopic", "propcrc"])
def test_tables_say_the_same_as_rows(name: str, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    from tianzhou.spark.store.store_tables import tables

    scan = StoreScan(unpacked(name, tmp_path))
    found = []
    for table in tables(selected(scan, Selection(visible_topics(scan)))):
        for row in table.to_pylist():
            row["properties"] = dict(row["properties"])
            row["bornTimestamp"] = round(row["bornTimestamp"].timestamp() * 1000)
            row["storeTimestamp"] = round(row["storeTimestamp"].timestamp() * 1000)
            found.append(row)
    expected = []
    for row in exported(tmp_path / "store", visible_topics(scan)):
        body = body_of(row)
        row.pop("bodyBase64", None)
        expected.append(row | {"body": body})

    def order(row: dict[str, Any]) -> tuple[Any, ...]:
        return row["topic"], row["queueId"], row["queueOffset"]

    assert sorted(found, key=order) == sorted(expected, key=order)
