"""Servers that do not answer, are full, behind, off, or let messages pile up."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest
from ill_clusters import Ahead, finding, ill, names, report

from tianzhou.admin.cluster import BrokerStatus
from tianzhou.admin.replicas import Lag
from tianzhou.broker.handlers import runtime_info
from tianzhou.doctor.illnesses import broker
from tianzhou.doctor.looks.cluster import level_delays_ms
from tianzhou.doctor.observations import BrokerSeen, ClusterSeen, DelayedSeen, NameServerSeen
from tianzhou.model import BrokerData, ClusterInfo, Message, TransactionState
from tianzhou.testing import AsyncCluster
from tianzhou.wire.bodies.replication import HaClient, HaStatus
from tianzhou.wire.codes import RequestCode

NOW_MS = 1_800_000_000_000


class Usage(NamedTuple):
    """What `shutil.disk_usage` says."""

    total: int
    used: int
    free: int


def test_a_broker_that_does_not_answer() -> None:
    async def make(cluster: AsyncCluster) -> None:
        await cluster.create_topic("orders", 1)
        with cluster.brokers["broker-b"].faults.lose_requests(requests=[RequestCode.GET_BROKER_RUNTIME_INFO]):
            found = await report(cluster, "broker")
            assert "broker-does-not-answer" in found.names
            # The others are looked at all the same.
            assert "broker-does-not-answer" in (await report(cluster, "topic", "orders")).names
            assert "group-unknown" not in (await report(cluster, "group", "billing")).names

    ill(make, brokers=2)


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


def broker_seen(
    runtime: Mapping[str, str] | None = None, config: Mapping[str, str] | None = None, **fields: Any
) -> BrokerSeen:
    """A broker that says so of itself."""
    place = {key: fields.pop(key) for key in ("broker_id", "copies", "lag", "error") if key in fields}
    status = BrokerStatus("c", "broker-a", place.pop("broker_id", 0), "10.0.0.1:10911", dict(runtime or {}), **place)
    return BrokerSeen(status, config or {}, **fields)


@pytest.mark.parametrize(
    ("name", "seen"),
    [
        ("log-damaged", broker_seen({"damagedLogStretches": "2", "damagedLogStretchesPutRight": "1"})),
        ("slave-missing", broker_seen(config={"brokerRole": "SYNC_MASTER"}, copies=HaStatus())),
        ("slave-not-following", broker_seen(broker_id=1, copies=HaStatus(master=False))),
        (
            "slave-behind",
            broker_seen(
                broker_id=1,
                copies=HaStatus(master=False, ha_client_runtime_info=HaClient(master_addr="10.0.0.1:10912")),
                lag=Lag(10**9, 1000, 60.0),
            ),
        ),
        ("broker-clock-off", broker_seen(clock_ahead_ms=-9_000)),
        ("broker-waits-to-accept", broker_seen({"startAcceptSendRequestTimeStamp": str(NOW_MS + 60_000)})),
        ("broker-busy", broker_seen({"sendThreadPoolQueueHeadWaitTimeMills": "350"})),
        ("page-cache-busy", broker_seen({"pageCacheLockTimeMills": "1500"})),
        ("sends-failed", broker_seen({"putMessageFailedTimes": "4", "putMessageTimesTotal": "90"})),
        ("sends-slow", broker_seen({"putLatency99": "812.00"})),
        ("limits-reached", broker_seen({"refused_maxTopics": "3"})),
        ("delayed-messages-late", broker_seen(delayed=[DelayedSeen(3, 10, 120_000)])),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_a_broker_says_of_itself(name: str, seen: BrokerSeen) -> None:
    assert [one.name for one in broker.of_broker(seen, NOW_MS)] == [name]


def cluster_seen(*brokers: BrokerSeen, name_server: str = "10.0.0.9:9876") -> ClusterSeen:
    """A cluster of these brokers."""
    table: dict[str, BrokerData] = {}
    for one in brokers:
        data = table.setdefault(one.status.broker_name, BrokerData(one.status.broker_name, "c"))
        data.broker_addrs[one.status.broker_id] = one.status.address
    return ClusterSeen(NOW_MS, [NameServerSeen(name_server, ClusterInfo(table, {"c": list(table)}))], brokers)


def test_nobody_leads() -> None:
    slave = HaStatus(master=False, ha_client_runtime_info=HaClient(master_addr="10.0.0.1:10912"))
    alone = cluster_seen(broker_seen(broker_id=1, copies=slave))
    assert [one.name for one in broker.findings(alone)] == ["broker-without-master"]
    candidate = {"dLegerTerm": "7", "dLegerRole": "CANDIDATE", "dLegerSelfId": "n1", "dLegerLeaderId": ""}
    leaderless = cluster_seen(broker_seen(candidate, broker_id=1))
    assert [one.name for one in broker.findings(leaderless)] == ["group-without-leader"]


@pytest.mark.parametrize(("name_server", "severity"), [("10.0.0.9:9876", "error"), ("127.0.0.1:9876", "note")])
def test_an_address_that_means_another_machine_everywhere(name_server: str, severity: str) -> None:
    one = broker_seen()
    local = BrokerSeen(BrokerStatus("c", "broker-a", 0, "127.0.0.1:10911"), one.config)
    (found,) = broker.findings(cluster_seen(local, name_server=name_server))
    assert (found.name, found.severity) == ("address-only-local", severity)


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
