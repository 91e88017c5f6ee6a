"""Topics whose messages do not arrive, and refused sends."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ill_clusters import Ahead, consume, finding, ill, names, report

from tianzhou.admin import Admin
from tianzhou.client import Producer, PushConsumer
from tianzhou.client.cluster import rpc
from tianzhou.doctor import diagnose
from tianzhou.model import Message
from tianzhou.namesrv.server import NameServer
from tianzhou.namesrv.settings import NamesrvSettings
from tianzhou.remoting.tls import TlsSettings
from tianzhou.testing import AsyncCluster
from tianzhou.testing.brokers import ClusterBroker
from tianzhou.wire.codes import RequestCode

NO_AUTO_CREATE = {"autoCreateTopicEnable": False}


def test_a_topic_that_does_not_exist() -> None:
    async def refused(cluster: AsyncCluster) -> None:
        assert await names(cluster, "topic", "nix") == {"topic-missing"}
        one = await finding(cluster, "topic-missing", "send", "nix")
        assert "tianzhou topic create nix" in one.fix

    async def made(cluster: AsyncCluster) -> None:
        found = await report(cluster, "topic", "nix")
        assert (found.names, found.healthy) == (["topic-unknown"], True)

    ill(refused, settings=NO_AUTO_CREATE)
    ill(made)


def test_permissions_and_numbers_of_queues() -> None:
    async def make(cluster: AsyncCluster) -> None:
        first, second = (broker.address for broker in cluster.brokers.values())
        async with cluster.admin() as admin:
            await admin.topics.create("unread", perm=2, broker_addr=first)
            await admin.topics.create("unwritten", perm=4, broker_addr=first)
            await admin.topics.create("uneven", write_queue_nums=2, read_queue_nums=2, broker_addr=first)
            await admin.topics.create("uneven", write_queue_nums=8, read_queue_nums=4, broker_addr=second)
        assert await names(cluster, "topic", "unread") == {"topic-not-readable", "topic-not-on-all-brokers"}
        assert await names(cluster, "topic", "unwritten") == {"topic-not-writable", "topic-not-on-all-brokers"}
        assert await names(cluster, "topic", "uneven") == {"queue-numbers-differ", "more-queues-written-than-read"}

    ill(make, brokers=2)


def test_write_permission_that_was_wiped() -> None:
    async def make(cluster: AsyncCluster) -> None:
        await cluster.create_topic("orders", 4)
        async with cluster.admin() as admin:
            await admin.cluster.wipe_write_perm("broker-a")
        one = await finding(cluster, "write-permission-wiped", "send", "orders")
        assert one.evidence == {"broker-a": {"perm": 6, "perm_in_route": 4}}

    ill(make)


def test_topics_that_name_servers_do_not_lead_to() -> None:
    async def make(cluster: AsyncCluster) -> None:
        await cluster.create_topic("orders", 4)
        async with cluster.admin() as admin:
            code = RequestCode.DELETE_TOPIC_IN_NAMESRV
            fields = {"topic": "orders", "cluster_name": "DefaultCluster"}
            await rpc.call(admin.instance.remoting, cluster.namesrv_addr, code, **fields)
        assert await names(cluster, "topic", "orders") == {"topic-without-route"}

    ill(make)


def test_name_servers_that_know_different_things(tmp_path: Path) -> None:
    async def make(cluster: AsyncCluster) -> None:
        await cluster.create_topic("orders", 4)
        clock = cluster.client_options()["clock"]
        settings = replace(
            NamesrvSettings(),
            bind_address="127.0.0.1",
            listen_port=0,
            kv_config_path=str(tmp_path / "kvConfig.json"),
            config_store_path=str(tmp_path / "namesrv.properties"),
        )
        async with NameServer(settings, clock=clock, tls=TlsSettings(server_mode="disabled")) as other:
            both = [cluster.namesrv_addr, f"127.0.0.1:{other.port}"]
            async with Admin(both, clock=clock) as admin:
                found = await diagnose(admin, "topic", "orders")
                assert "routes-differ" in found.names
                assert "name-servers-disagree" in (await diagnose(admin, "broker")).names
            async with Admin(both[1], clock=clock) as admin:
                assert (await diagnose(admin, "broker")).names == ["no-broker"]
                assert "no-broker-takes-messages" in (await diagnose(admin, "send")).names
        async with Admin(both, clock=clock) as admin:
            found = await diagnose(admin, "broker")
            assert "name-server-does-not-answer" in found.names
            assert found.could_look

    ill(make)


def test_a_broker_that_one_name_server_does_not_lead_to(tmp_path: Path) -> None:
    async def make(cluster: AsyncCluster) -> None:
        await cluster.create_topic("orders", 4)
        clock = cluster.client_options()["clock"]
        settings = replace(
            NamesrvSettings(),
            bind_address="127.0.0.1",
            listen_port=0,
            kv_config_path=str(tmp_path / "kvConfig.json"),
            config_store_path=str(tmp_path / "namesrv.properties"),
        )
        async with NameServer(settings, clock=clock, tls=TlsSettings(server_mode="disabled")) as other:
            # This broker has the address of only one of the two name servers.
            alone = ClusterBroker("broker-z", tmp_path / "z", f"127.0.0.1:{other.port}", clock, {})
            await alone.start()
            both = [cluster.namesrv_addr, f"127.0.0.1:{other.port}"]
            async with Admin(both[1], clock=clock) as admin:
                await admin.topics.create("orders", broker_addr=alone.address)
            async with Admin(both, clock=clock) as admin:
                found = await diagnose(admin, "topic", "orders")
            await alone.stop()
        assert {"broker-not-in-route", "routes-differ"} <= set(found.names)
        one = next(one for one in found.findings if one.name == "broker-not-in-route")
        assert one.evidence == {"route": ["broker-a"], "brokers": ["broker-z"]}

    ill(make)


def test_a_producer_whose_clock_is_ahead() -> None:
    async def make(cluster: AsyncCluster) -> None:
        await cluster.create_topic("orders", 1)
        options = cluster.client_options()
        async with Producer("ahead", **{**options, "clock": Ahead(options["clock"])}) as producer:
            await producer.send(Message("orders", b"x"))
        one = await finding(cluster, "producer-clock-off", "topic", "orders")
        assert one.evidence["born_after_stored_ms"] >= 3_590_000

    ill(make)


def test_a_consumer_whose_clock_is_ahead() -> None:
    async def make(cluster: AsyncCluster) -> None:
        await cluster.create_topic("orders", 1)
        options = cluster.client_options()
        consumer = PushConsumer("billing", **{**options, "clock": Ahead(options["clock"])})
        consumer.subscribe("orders", handler=consume)
        await consumer.start()
        await cluster.advance(seconds=5)
        assert "client-clock-off" in await names(cluster, "group", "billing")
        await consumer.stop()

    ill(make)


def test_messages_that_are_too_large_and_transactions_that_are_rejected() -> None:
    async def make(cluster: AsyncCluster) -> None:
        await cluster.create_topic("orders", 1)
        assert "message-too-large" not in await names(cluster, "send", "orders", size=1000)
        assert {"message-too-large", "transactions-rejected"} <= await names(cluster, "send", "orders", size=1001)

    ill(make, settings={"maxMessageSize": 1000, "rejectTransactionMessage": True})
