"""The file `config/transactionMetrics`: pending half messages, by topic (store.md §15.8)."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from broker_bench import Bench, Peer

from tianzhou.broker.state_files import StateFiles
from tianzhou.broker.transactions.transaction_metrics import TransactionMetrics
from tianzhou.model import TopicConfig
from tianzhou.wire.fields import read_reply
from tianzhou.wire.ids import parse_offset_msg_id
from tianzhou.wire.json_dialect import dumps, loads

WRITTEN_BY_APACHE = (
    b'{"dataVersion":{"counter":3,"stateVersion":0,"timestamp":1700000000000},'
    b'"transactionCount":{"T":{"count":2,"timeStamp":1700000001000}}}'
)


def there(_: str) -> bool:
    return True


def test_changes_are_noted_with_their_time() -> None:
    metrics = TransactionMetrics(5)
    assert not metrics.update({}, there, 10)
    assert metrics.update({"T": 2, "U": 0}, there, 20)
    assert not metrics.update({"T": 2, "U": 0}, there, 30)
    assert metrics.update({"T": 1, "U": 0}, there, 40)
    assert {topic: (one.count, one.changed_ms) for topic, one in metrics.gauges.items()} == {"T": (1, 40), "U": (0, 20)}
    assert (metrics.version.counter, metrics.version.timestamp) == (2, 40)


def test_topics_that_are_gone_are_left_out_once_nothing_waits() -> None:
    metrics = TransactionMetrics()
    metrics.update({"T": 1}, there, 1)
    gone: Callable[[str], bool] = lambda _: False  # noqa: E731
    assert not metrics.update({"T": 1}, gone, 2)
    assert metrics.update({"T": 0}, gone, 3)
    assert metrics.gauges == {}
    assert not metrics.update({"T": 0}, gone, 4)


def test_the_file_is_rocketmqs_and_comes_back_as_left() -> None:
    metrics = TransactionMetrics()
    metrics.load(loads(WRITTEN_BY_APACHE))
    assert dumps(metrics.to_json()) == WRITTEN_BY_APACHE
    # The contents of the log count, not those of the file.
    assert metrics.update({"U": 1}, there, 1_700_000_002_000)
    assert {topic: one.count for topic, one in metrics.gauges.items()} == {"T": 0, "U": 1}
    assert metrics.version.counter == 4


@pytest.mark.parametrize("value", [[], {"transactionCount": {"T": 1}}, {"transactionCount": {"T": {"count": 1}}}, 7])
def test_what_is_no_such_file_is_an_error(value: Any) -> None:
    with pytest.raises(ValueError, match="transactionMetrics: no table of counts"):
        TransactionMetrics().load(value)


async def prepare(peer: Peer, key: str, topic: str) -> dict[str, Any]:
    properties = {"TRAN_MSG": "true", "PGROUP": "P", "UNIQ_KEY": key}
    reply = await peer.send(topic, b"b", properties=properties, sys_flag=4)
    told = read_reply(310, reply)
    return {
        "producer_group": "P", "tran_state_table_offset": told.queue_offset, "msg_id": key, "transaction_id": key,
        "commit_log_offset": parse_offset_msg_id(told.msg_id)[2], "from_transaction_check": False,
    }  # fmt: skip


async def test_the_file_follows_prepared_committed_and_rolled_back_messages(
    bench: Bench, peer: Peer, tmp_path: Path
) -> None:
    config = tmp_path / "config"
    files = StateFiles(bench.tables, config)
    files.load()
    for topic in ("T", "U"):
        bench.tables.topics.put(TopicConfig(topic, 1, 1), 1)
    sent = [await prepare(peer, f"K{number}", "T") for number in range(3)]
    await prepare(peer, "K3", "U")
    assert bench.tables.transactions.counts == {"T": 3, "U": 1}
    assert (await peer.ask(37, **sent[0], commit_or_rollback=8)).code == 0
    assert (await peer.ask(37, **sent[1], commit_or_rollback=12)).code == 0
    files.write_metrics(bench.clock.now_ms())
    files.close()
    counted = json.loads((config / "transactionMetrics").read_bytes())
    assert {topic: one["count"] for topic, one in counted["transactionCount"].items()} == {"T": 1, "U": 1}
    assert counted["transactionCount"]["T"]["timeStamp"] == bench.clock.now_ms()
    # A broker that starts with this file continues from its version, with the counts of its own log.
    bench.tables.transaction_metrics.gauges.clear()
    again = StateFiles(bench.tables, config)
    again.load()
    assert bench.tables.transaction_metrics.version.counter == counted["dataVersion"]["counter"]
    again.close()


@pytest.mark.parametrize("text", [b"{nonsense", b"[1,2]"])
async def test_a_damaged_file_keeps_no_broker_from_starting(
    bench: Bench, tmp_path: Path, text: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    config = tmp_path / "config"
    config.mkdir()
    (config / "transactionMetrics").write_bytes(text)
    files = StateFiles(bench.tables, config)
    with caplog.at_level(logging.WARNING):
        files.load()
    assert "its counts start again" in caplog.text
    files.close()
    assert json.loads((config / "transactionMetrics").read_bytes())["transactionCount"] == {}
