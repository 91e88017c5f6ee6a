"""Findings computed from values: every possible observation, including ones that no test can cause.

The other files here cause each finding and check its name (docs/reference/findings.md, *How each finding is tested*).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from tianzhou.admin.cluster import BrokerStatus
from tianzhou.admin.replicas import Lag
from tianzhou.doctor.illnesses import access, broker, connect, group, host, spark, topic
from tianzhou.doctor.observations import (
    AddressSeen,
    BrokerSeen,
    ClusterSeen,
    DelayedSeen,
    Failure,
    GroupSeen,
    HostSeen,
    MemberSeen,
    NameServerSeen,
    PortKind,
    SecretFileSeen,
    SparkSeen,
    TopicSeen,
)
from tianzhou.model import BrokerData, ClusterInfo, QueueData, SubscriptionData, TopicConfig, TopicRoute
from tianzhou.wire.bodies.replication import HaClient, HaStatus

GIB = 1024**3
NOW_MS = 1_800_000_000_000
FOLLOWING = HaClient(master_addr="10.0.0.1:10912", last_read_timestamp=NOW_MS)


def broker_seen(
    runtime: Mapping[str, str] | None = None, config: Mapping[str, str] | None = None, **fields: Any
) -> BrokerSeen:
    """Return a broker with these reported values."""
    place = {key: fields.pop(key) for key in ("broker_id", "copies", "lag", "error") if key in fields}
    status = BrokerStatus("c", "broker-a", place.pop("broker_id", 0), "10.0.0.1:10911", dict(runtime or {}), **place)
    return BrokerSeen(status, config or {}, **fields)


@pytest.mark.parametrize(
    ("name", "seen"),
    [
        ("log-damaged", broker_seen({"damagedLogStretches": "2", "damagedLogStretchesPutRight": "1"})),
        ("state-rebuilt", broker_seen({"rebuiltState": "topics.json"})),
        ("state-file-damaged", broker_seen({"damagedStateFiles": "topics.json.damaged-20260101-000000"})),
        ("slave-missing", broker_seen(config={"brokerRole": "SYNC_MASTER"}, copies=HaStatus())),
        ("slave-not-following", broker_seen(broker_id=1, copies=HaStatus(master=False))),
        (
            "slave-not-following",
            broker_seen(
                broker_id=1,
                copies=HaStatus(master=False, ha_client_runtime_info=HaClient(master_addr="10.0.0.1:10912")),
            ),
        ),
        (
            "slave-behind",
            broker_seen(
                broker_id=1,
                copies=HaStatus(
                    master=False,
                    ha_client_runtime_info=FOLLOWING,
                ),
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
        ("sends-limited", broker_seen({"sendsLimitedBy": "topic orders (5 messages/s (burst 5)): 9 messages refused"})),
        ("delayed-messages-late", broker_seen(delayed=[DelayedSeen(3, 10, 120_000)])),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_a_broker_says_of_itself(name: str, seen: BrokerSeen) -> None:
    assert [one.name for one in broker.of_broker(seen, NOW_MS)] == [name]


def slave_seen(lag: Lag) -> BrokerSeen:
    """Return a slave that follows its master."""
    return broker_seen(broker_id=1, copies=HaStatus(master=False, ha_client_runtime_info=FOLLOWING), lag=lag)


@pytest.mark.parametrize(
    ("name", "ill", "well"),
    [
        ("slave-behind", slave_seen(Lag(64 << 20, None, None)), slave_seen(Lag((64 << 20) - 1, None, None))),
        ("slave-behind", slave_seen(Lag(70, 1, 10.0)), slave_seen(Lag(70, 1, 9.9))),
        ("broker-clock-off", broker_seen(clock_ahead_ms=5_001), broker_seen(clock_ahead_ms=5_000)),
        (
            "broker-waits-to-accept",
            broker_seen({"startAcceptSendRequestTimeStamp": str(NOW_MS + 1)}),
            broker_seen({"startAcceptSendRequestTimeStamp": str(NOW_MS)}),
        ),
        (
            "broker-busy",
            broker_seen({"sendThreadPoolQueueHeadWaitTimeMills": "200"}),
            broker_seen({"sendThreadPoolQueueHeadWaitTimeMills": "199"}),
        ),
        (
            "page-cache-busy",
            broker_seen({"pageCacheLockTimeMills": "1001"}),
            broker_seen({"pageCacheLockTimeMills": "1000"}),
        ),
        ("sends-slow", broker_seen({"putLatency99": "500.00"}), broker_seen({"putLatency99": "499.00"})),
        (
            "delayed-messages-late",
            broker_seen(delayed=[DelayedSeen(3, 10, 60_000)]),
            broker_seen(delayed=[DelayedSeen(3, 10, 59_999)]),
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_broker_is_ill_from_the_limit_on_and_well_before(name: str, ill: BrokerSeen, well: BrokerSeen) -> None:
    assert [one.name for one in broker.of_broker(ill, NOW_MS)] == [name]
    assert list(broker.of_broker(well, NOW_MS)) == []


def cluster_seen(*brokers: BrokerSeen, name_server: str = "10.0.0.9:9876") -> ClusterSeen:
    """Return a cluster of these brokers."""
    table: dict[str, BrokerData] = {}
    for one in brokers:
        data = table.setdefault(one.status.broker_name, BrokerData(one.status.broker_name, "c"))
        data.broker_addrs[one.status.broker_id] = one.status.address
    return ClusterSeen(NOW_MS, [NameServerSeen(name_server, ClusterInfo(table, {"c": list(table)}))], brokers)


def test_nobody_leads() -> None:
    slave = HaStatus(master=False, ha_client_runtime_info=FOLLOWING)
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


def test_routes_that_leave_something_out() -> None:
    config = TopicConfig("orders", 4, 4)
    route = TopicRoute([QueueData("broker-a", 4, 4, 6)], [BrokerData("broker-a", "c", {1: "10.0.0.1:10911"})])
    names_of_brokers = frozenset({"broker-a", "broker-b"})
    seen = TopicSeen("orders", {"n": route}, {"broker-a": config, "broker-b": config}, masters=names_of_brokers)
    assert [one.name for one in topic.findings(seen)] == ["broker-not-in-route", "topic-without-master"]


@pytest.mark.parametrize(("kind", "expression"), [("TAG", " || "), ("SQL92", "price >")])
def test_an_expression_that_cannot_be_read(kind: str, expression: str) -> None:
    data = SubscriptionData("orders", expression, expression_type=kind)
    topic = TopicSeen("orders", configs={"broker-a": TopicConfig("orders")})
    member = MemberSeen("m", {"broker-a": ["10.0.0.1:5000"]}, "JAVA", 479)
    seen = GroupSeen("billing", 0, members=[member], subscriptions={"orders": data}, topics={"orders": topic})
    assert [one.name for one in group.findings(seen)] == ["filter-unreadable"]


@pytest.mark.parametrize(
    ("seen", "name"),
    [
        (AddressSeen("10.9.9.9:10911", PortKind.BROKER, failure=Failure.NO_ROUTE), "host-unreachable"),
        (AddressSeen("10.0.0.1:10912", PortKind.BROKER, failure=Failure.SILENT), "ha-port"),
        (AddressSeen("10.0.0.1:80", PortKind.BROKER, PortKind.NOT_ROCKETMQ), "not-rocketmq"),
        (AddressSeen("10.0.0.1:10911", PortKind.BROKER, PortKind.BROKER, unsigned=True), None),
    ],
)
def test_what_connecting_shows(seen: AddressSeen, name: str | None) -> None:
    assert [one.name for one in connect.findings(seen, ["10.0.0.1:10911"])] == ([name] if name else [])


def listening(config: dict[str, str], seen: AddressSeen) -> ClusterSeen:
    status = BrokerStatus("c", "broker-a", 0, "10.0.0.1:10911")
    server = NameServerSeen("10.0.0.9:9876", ClusterInfo(), {"bindAddress": "0.0.0.0", "enableRemoteAdmin": "true"})
    return ClusterSeen(0, [server], [BrokerSeen(status, config, access=seen)])


def test_what_strangers_may_do() -> None:
    open_to_all = AddressSeen("10.0.0.1:10911", PortKind.BROKER, PortKind.BROKER, plain=True, unsigned=True)
    port = AddressSeen("10.0.0.9:9876", PortKind.NAME_SERVER, PortKind.NAME_SERVER, plain=True, unsigned=True)
    config = {"bindAddress": "0.0.0.0", "enableRemoteAdmin": "true", "replicationAllowedAddresses": ""}
    found = list(access.findings(listening(config, open_to_all), [port], [SecretFileSeen("/etc/plain_acl.yml", 0o644)]))
    names = [one.name for one in found]
    assert sorted(set(names)) == sorted(
        ["broker-open-to-all", "name-server-open-to-all", "remote-admin-open", "connections-not-encrypted",
         "replication-port-open", "secret-file-readable"]
    )  # fmt: skip
    assert "reset the offsets of any group" in next(one.message for one in found if one.name == "broker-open-to-all")
    assert "register a broker" in next(one.message for one in found if one.name == "name-server-open-to-all")


def test_what_strangers_may_not_do() -> None:
    closed = AddressSeen("10.0.0.1:10911", PortKind.BROKER, PortKind.BROKER, plain=False, unsigned=False)
    port = AddressSeen("127.0.0.1:9876", PortKind.NAME_SERVER, PortKind.NAME_SERVER, plain=True, unsigned=True)
    config = {"bindAddress": "0.0.0.0", "enableRemoteAdmin": "true", "replicationAllowedAddresses": "10.0.0.2"}
    assert list(access.findings(listening(config, closed), [port], [SecretFileSeen("/etc/plain_acl.yml", 0o600)])) == []
    local = {"bindAddress": "127.0.0.1", "enableRemoteAdmin": "true"}
    assert list(access.findings(listening(local, replace(closed, unsigned=True, plain=True)), [])) == []


def found(seen: HostSeen | SparkSeen) -> set[str]:
    family = host.findings(seen) if isinstance(seen, HostSeen) else spark.findings(seen)
    return {one.name for one in family}


@pytest.mark.parametrize(
    ("name", "seen"),
    [
        ("open-files-limit-low", HostSeen(open_files=1024)),
        ("max-map-count-low", HostSeen(max_map_count=65_530)),
        ("file-size-limited", HostSeen(file_size=1 << 20)),
        ("address-space-limited", HostSeen(address_space=1 << 36)),
        ("listen-queue-short", HostSeen(listen_queue=128)),
        ("processor-share-small", HostSeen(processors=0.5)),
        ("zone-reclaim", HostSeen(zone_reclaim=1)),
        ("clock-not-synchronised", HostSeen(clock_synchronised=False)),
        ("disk-syncs-slow", HostSeen(store="/s", sync_ms=30.0)),
        ("little-memory", HostSeen(memory_total=64 * GIB, memory_limit=GIB)),
        ("swap-eager", HostSeen(swap_total=GIB, swappiness=60)),
        ("transparent-huge-pages", HostSeen(huge_pages="always")),
        ("little-memory", HostSeen(memory_total=GIB)),
        ("read-ahead-high", HostSeen(store="/s", read_ahead_kb=4096)),
        ("io-scheduler", HostSeen(store="/s", scheduler="bfq")),
        ("little-disk-left", HostSeen(store="/s", disk_total=100, disk_free=20)),
        ("store-filesystem", HostSeen(store="/s", filesystem="nfs4")),
        ("store-in-memory", HostSeen(store="/s", filesystem="tmpfs")),
        ("store-read-only", HostSeen(store="/s", mount_options=frozenset({"ro"}))),
        ("interpreter-not-optimised", HostSeen(optimised=False)),
        ("interpreter-debug-build", HostSeen(debug_build=True, optimised=False)),
        ("pure-mode", HostSeen(hot_mode="pure")),
    ],
)
def test_what_a_machine_lacks(name: str, seen: HostSeen) -> None:
    assert found(seen) == {name}


def test_a_machine_that_is_well() -> None:
    assert found(HostSeen(open_files=655_350, max_map_count=655_360, swap_total=0, swappiness=60, huge_pages="never",
                          memory_total=16 * GIB, store="/s", filesystem="xfs", scheduler="none", read_ahead_kb=128,
                          disk_total=100, disk_free=60, sync_ms=2.0, processors=1.0, clock_synchronised=True,
                          zone_reclaim=0, listen_queue=4096, optimised=True)) == set()  # fmt: skip
