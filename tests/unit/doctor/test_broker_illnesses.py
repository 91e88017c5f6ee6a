"""Servers that do not answer, are full, behind, off, or let messages pile up."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import NamedTuple

import pytest
from ill_clusters import Ahead, consume, finding, ill, named, names, report

from tianzhou.admin import Admin
from tianzhou.admin.cluster import BrokerStatus
from tianzhou.broker.handlers import runtime_info
from tianzhou.damaged_files import accept_lost_state
from tianzhou.doctor import diagnose
from tianzhou.doctor.chinese import finding_in_chinese
from tianzhou.doctor.illnesses import broker
from tianzhou.doctor.looks.cluster import level_delays_ms
from tianzhou.doctor.observations import BrokerSeen, ClusterSeen
from tianzhou.errors import BrokerError, TianzhouError
from tianzhou.model import Message, SendStatus, TransactionState
from tianzhou.model.send_limit import LimitScope, limit_of
from tianzhou.testing import AsyncCluster
from tianzhou.wire.codes import RequestCode
from tianzhou.wire.ha import encode_report

NOW_MS = 1_800_000_000_000


class Usage(NamedTuple):
    """The result of `shutil.disk_usage`."""

    total: int
    used: int
    free: int


def test_a_broker_that_does_not_answer() -> None:
    async def make(cluster: AsyncCluster) -> None:
        await cluster.create_topic("orders", 1)
        with cluster.brokers["broker-b"].faults.lose_requests(requests=[RequestCode.GET_BROKER_RUNTIME_INFO]):
            found = await report(cluster, "broker")
            one = next(one for one in found.findings if one.name == "broker-does-not-answer")
            assert "takes connections" in one.message
            assert "TLS" not in f"{one.message} {one.fix} {one.evidence}"
            # The others are still checked.
            assert "broker-does-not-answer" in (await report(cluster, "topic", "orders")).names
            assert "group-unknown" not in (await report(cluster, "group", "billing")).names

    ill(make, brokers=2)


def test_advice_on_a_broker_follows_from_what_was_observed() -> None:
    for error, name in (
        ("no reply from b:1 within 5000 ms; whether the request was carried out is unknown", "broker-does-not-answer"),
        ("cannot connect to b:1: Connection refused", "broker-not-reached"),
        ("connection to b:1 was lost", "broker-not-reached"),
    ):
        seen = ClusterSeen(NOW_MS, [], [BrokerSeen(BrokerStatus("c", "b", 0, "b:1", error=error))])
        assert [one.name for one in broker.findings(seen)] == [name]


def test_work_that_fails_and_writing_that_is_not_allowed() -> None:
    async def make(cluster: AsyncCluster) -> None:
        running = cluster.brokers["broker-a"].running
        troubles = running.troubles
        troubles.failed("a table of the test", OSError(28, "No space left on device"), cluster.now_ms, 0.0)
        async with cluster.admin() as admin:
            await admin.cluster.update_broker_config(running.address, {"brokerPermission": "0"})
        found = await names(cluster, "send")
        assert {"work-fails", "broker-not-writable", "broker-not-readable"} <= found
        one = await finding(cluster, "work-fails", "broker", "broker-a")
        assert "No space left" in one.evidence["why"]
        troubles.over("a table of the test")

    ill(make)


@pytest.mark.parametrize(("used", "name"), [(95, "disk-full"), (80, "disk-nearly-full"), (20, None)])
def test_disks(used: int, name: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    async def make(cluster: AsyncCluster) -> None:
        monkeypatch.setattr(runtime_info.shutil, "disk_usage", lambda _path: Usage(100, used, 100 - used))
        found = await names(cluster, "broker")
        monkeypatch.undo()
        assert (found & {"disk-full", "disk-nearly-full"}) == ({name} if name else set())

    assert shutil.disk_usage("/").total
    ill(make)


def test_transactions_that_nobody_decides() -> None:
    async def make(cluster: AsyncCluster) -> None:
        await cluster.create_topic("orders", 1)
        async with cluster.transaction_producer("shop") as producer:
            await producer.send_in_transaction(Message("orders", b"x"), lambda *_: TransactionState.UNKNOWN)
        assert "half-messages-pile-up" not in await names(cluster, "broker")
        await cluster.advance(minutes=15)
        assert "half-messages-pile-up" in await names(cluster, "broker")

    ill(make, settings={"transactionCheckInterval": 3_000_000, "transactionTimeOut": 3_000_000})


def test_transactions_that_are_decided() -> None:
    async def make(cluster: AsyncCluster) -> None:
        await cluster.create_topic("orders", 1)
        async with cluster.transaction_producer("shop") as producer:
            for _ in range(3):
                await producer.send_in_transaction(Message("orders", b"x"), lambda *_: TransactionState.COMMIT)
        await cluster.advance(minutes=20)
        assert "half-messages-pile-up" not in await names(cluster, "broker")

    ill(make)


def test_a_broker_whose_clock_is_off() -> None:
    async def make(cluster: AsyncCluster) -> None:
        one = cluster.brokers["broker-a"]
        await one.stop()
        one._clock = Ahead(cluster.client_options()["clock"])
        await one.start()
        found = await finding(cluster, "broker-clock-off", "broker")
        assert 3_598_000 <= found.evidence["ahead_ms"] <= 3_600_000

    ill(make)


def test_levels_of_delay() -> None:
    assert level_delays_ms("1s 5m 2h 1d") == [1_000, 300_000, 7_200_000, 86_400_000]
    assert level_delays_ms("1s soon") == []


def test_delayed_messages_that_are_not_delivered() -> None:
    async def make(cluster: AsyncCluster) -> None:
        await cluster.create_topic("orders", 1)
        await cluster.send("orders", "x", delay_level=3)
        assert "delayed-messages-late" not in await names(cluster, "broker")
        await cluster.advance(minutes=5)
        assert "delayed-messages-late" not in await names(cluster, "broker")

    ill(make)


def test_a_disk_without_space_refuses_sends_and_delayed_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    async def make(cluster: AsyncCluster) -> None:
        await cluster.create_topic("orders", 1)
        await cluster.send("orders", "later", delay_level=9)
        monkeypatch.setattr(shutil, "disk_usage", lambda _path: Usage(100, 99, 1))
        await cluster.advance(minutes=10)  # the store checks, and the message of five minutes is due
        with pytest.raises(TianzhouError):
            await cluster.send("orders", "x")
        found = await names(cluster, "broker")
        one = await finding(cluster, "delayed-messages-late", "broker")
        monkeypatch.undo()
        assert {"disk-full", "sends-failed"} <= found
        assert (one.evidence["level"], one.evidence["waiting"]) == (9, 1)
        assert one.evidence["late_ms"] >= 240_000

    ill(make, settings={"cleanResourceInterval": 10_000})


def test_a_log_with_a_flipped_bit(tmp_path: Path) -> None:
    async def make(cluster: AsyncCluster) -> None:
        await cluster.create_topic("orders", 1)
        for number in range(3):
            await cluster.send("orders", f"message {number} of three")
        one = cluster.brokers["broker-a"]
        await one.stop()
        (file,) = (path for path in tmp_path.rglob("commitlog/*") if path.is_file())
        data = bytearray(file.read_bytes())
        data[data.index(b"message 1 of three")] ^= 1
        file.write_bytes(data)
        await one.start()
        consumer = cluster.push_consumer("billing")
        consumer.subscribe("orders", handler=consume)
        await consumer.start()
        await cluster.advance(seconds=10)
        found = await finding(cluster, "log-damaged", "broker")
        assert found.evidence == {"damagedLogStretches": 1}

    ill(make, folder=tmp_path)


def test_a_broker_that_has_lost_its_topics(tmp_path: Path) -> None:
    async def make(cluster: AsyncCluster) -> None:
        await cluster.create_topic("orders", 1)
        await cluster.send("orders", "a message")
        one = cluster.brokers["broker-a"]
        await one.stop()
        (file,) = tmp_path.rglob("config/topics.json")
        file.write_bytes(bytes(100))
        file.with_name("topics.json.bak").unlink(missing_ok=True)
        accept_lost_state(file.parent)
        await one.start()
        lost = await finding(cluster, "state-rebuilt", "broker")
        assert lost.evidence == {"rebuiltState": "topics.json"}
        saved = await finding(cluster, "state-file-damaged", "broker")
        assert str(saved.evidence["damagedStateFiles"]).startswith("topics.json.damaged-")

    ill(make, folder=tmp_path)


def test_a_broker_that_does_not_take_messages_yet() -> None:
    async def make(cluster: AsyncCluster) -> None:
        await cluster.create_topic("orders", 1)
        with pytest.raises(TianzhouError):
            await cluster.send("orders", "too early")
        assert "broker-waits-to-accept" in await names(cluster, "send", "orders")

    ill(make, settings={"startAcceptSendRequestTimeStamp": 4_102_444_800_000})


def test_a_slave_that_acknowledges_late_makes_sends_slow() -> None:
    async def make(cluster: AsyncCluster) -> None:
        await cluster.create_topic("orders", 1)
        running = cluster.brokers["broker-a"].running
        host, _, port = running.replication.ha_address.rpartition(":")
        _, slave = await asyncio.open_connection(host, int(port))
        slave.write(encode_report(running.store.end_offset))
        await cluster.wait_until(lambda: running.replication.status().in_sync_slave_nums, "it has reported")
        result = await cluster.send("orders", "x")
        assert result.status is SendStatus.FLUSH_SLAVE_TIMEOUT
        await cluster.advance(seconds=75)  # the figures of a minute are computed at its end
        slave.close()
        one = await finding(cluster, "sends-slow", "broker")
        assert one.evidence["putLatency99_ms"] >= 900

    ill(make, settings={"brokerRole": "SYNC_MASTER", "slaveTimeout": 1_000})


def test_limits_that_are_reached() -> None:
    async def make(cluster: AsyncCluster) -> None:
        with pytest.raises(TianzhouError):
            await cluster.create_topic("wide", 9)
        one = await finding(cluster, "limits-reached", "broker")
        assert one.evidence["refused"].keys() == {"maxQueuesPerTopic"}

    ill(make, settings={"maxQueuesPerTopic": 8})


def test_a_limit_of_senders_that_refuses() -> None:
    async def make(cluster: AsyncCluster) -> None:
        async with cluster.admin() as admin:
            await admin.send_limits.set(limit_of(LimitScope.TOPIC, "orders", 0.01, 1))
        async with cluster.producer("shop") as producer:
            await producer.send(Message("orders", b"x"))
            assert "sends-limited" not in await names(cluster, "broker")
            with pytest.raises(BrokerError, match=r"topic orders is limited to 0\.01 messages/s"):
                await producer.send(Message("orders", b"x"))
        one = await finding(cluster, "sends-limited", "broker")
        assert "topic orders (0.01 messages/s (burst 1))" in one.message
        assert one.message != finding_in_chinese(one).message
        assert "topic orders" in finding_in_chinese(one).message
        await cluster.advance(seconds=61)
        assert "sends-limited" not in await names(cluster, "broker")

    ill(make)


def test_a_table_that_cannot_be_written(tmp_path: Path) -> None:
    async def make(cluster: AsyncCluster) -> None:
        folder = tmp_path / "broker-a" / "store" / "config"
        folder.write_text("a file is in the way\n")
        with pytest.raises(BrokerError, match="cannot be written"):
            await cluster.create_topic("orders", 1)
        one = await finding(cluster, "work-fails", "broker")
        folder.unlink()
        assert "config" in one.evidence["why"]

    ill(make, folder=tmp_path)


def test_a_name_server_elsewhere_leads_to_an_address_that_is_only_local(monkeypatch: pytest.MonkeyPatch) -> None:
    named(monkeypatch, "namesrv.example")

    async def make(cluster: AsyncCluster) -> None:
        assert (await finding(cluster, "address-only-local", "broker")).severity == "note"
        port = cluster.namesrv_addr.rpartition(":")[2]
        async with Admin(f"namesrv.example:{port}", clock=cluster.client_options()["clock"]) as admin:
            found = await diagnose(admin, "broker")
        assert [(one.name, one.severity) for one in found.findings] == [("address-only-local", "error")]

    ill(make)
