"""A broker's metrics page after messages, groups, transactions and errors (broker.md §24)."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import Any

import pytest
from broker_bench import Bench, OpenBench, Peer
from transaction_talk import COMMIT, ROLLBACK, end, prepare

from tianzhou.broker.metrics.lag import ConsumerLag
from tianzhou.broker.metrics.readiness import Facts, judge
from tianzhou.broker.metrics.request_times import RequestTimes
from tianzhou.broker.metrics.state import silent_s
from tianzhou.broker.metrics.traffic import Traffic
from tianzhou.cli.gc_freeze import FrozenObjects
from tianzhou.metrics.exposition import pieces
from tianzhou.metrics.families import Family, Histogram, Steps
from tianzhou.wire.bodies.replication import HaClient
from tianzhou.wire.codes import RequestCode

Samples = dict[tuple[str, ...], Any]


def samples(steps: Steps) -> dict[str, Samples]:
    return {one.name: dict(one.samples) for one in steps if one is not None}


def traffic(bench: Bench) -> Traffic:
    return Traffic(bench.stats, bench.tables.topics, 1_000)


async def lags(bench: Bench) -> dict[str, Samples]:
    lag = ConsumerLag(bench.tables, bench.store, bench.clock, 1_000)
    return {one.name: dict(one.samples) async for one in lag.families()}


async def test_messages_are_counted_by_topic_and_type(bench: Bench, peer: Peer) -> None:
    await peer.create_topic("T")
    await peer.create_topic("F", attributes="+message.type=FIFO")
    for _ in range(3):
        await peer.send("T")
    await peer.send("F")
    await peer.send("T", properties={"DELAY": "1", "UNIQ_KEY": "D"})
    await end(peer, await prepare(peer, "U"), COMMIT)
    await end(peer, await prepare(peer, "V"), ROLLBACK)
    found = samples(traffic(bench).incoming())
    assert found["rocketmq_messages_in_total"] == {
        ("T", "normal", "false"): 3, ("T", "delay", "false"): 1, ("T", "transaction", "false"): 2,
        ("F", "fifo", "false"): 1,
    }  # fmt: skip
    assert all(size > 100 for size in found["rocketmq_throughput_in_total"].values())
    assert found["rocketmq_message_size"]["T", "normal"].counts[0] == 3
    ends = samples(traffic(bench).endings())
    assert ends["rocketmq_commit_messages_total"] == {("T",): 1}
    assert ends["rocketmq_rollback_messages_total"] == {("T",): 1}
    assert ends["rocketmq_finish_message_latency"]["T", "commit"].count == 1


async def test_what_is_delivered_late_is_not_counted_again(bench: Bench, peer: Peer) -> None:
    await peer.create_topic("T")
    await peer.send("T", properties={"DELAY": "1", "UNIQ_KEY": "D"})
    bench.stats.delivered(1, "T", 0, 200)
    found = samples(traffic(bench).incoming())["rocketmq_messages_in_total"]
    assert found == {("T", "delay", "false"): 1}


async def test_messages_out_and_lag(bench: Bench, peer: Peer) -> None:
    await peer.create_topic("T")
    await peer.create_group("G")
    for _ in range(5):
        await peer.send("T")
        await asyncio.sleep(1)
    await peer.pull("T", 0, max_msg_nums=3, suspend_timeout_millis=0)
    out = samples(traffic(bench).outgoing())
    assert out["rocketmq_messages_out_total"] == {("T", "G", "false", "false"): 3}
    bench.tables.offsets.commit("G", "T", 0, 2, bench.clock.now_ms())
    now = await lags(bench)
    key = "G", "T", "false", "false"
    assert now["rocketmq_consumer_lag_messages"][key] == 3
    assert now["rocketmq_consumer_inflight_messages"][key] == 1
    assert now["rocketmq_consumer_ready_messages"][key] == 2
    # The third message was stored three seconds ago, the fourth two.
    assert now["rocketmq_consumer_lag_latency"][key] == pytest.approx(3_000, abs=50)
    assert now["rocketmq_consumer_queueing_latency"][key] == pytest.approx(2_000, abs=50)
    bench.tables.offsets.commit("G", "T", 0, 5, bench.clock.now_ms())
    now = await lags(bench)
    assert now["rocketmq_consumer_lag_messages"][key] == now["rocketmq_consumer_lag_latency"][key] == 0


async def test_a_group_that_stands_still_costs_no_look_up_twice(bench: Bench, peer: Peer) -> None:
    await peer.create_topic("T")
    await peer.create_group("G")
    await peer.send("T")
    bench.tables.offsets.commit("G", "T", 0, 0, bench.clock.now_ms())
    lag = ConsumerLag(bench.tables, bench.store, bench.clock, 1_000)
    looked = []
    find = bench.store.find
    bench.store.find = lambda steps: looked.append(steps) or find(steps)  # type: ignore[assignment, func-returns-value]
    for _ in range(3):
        _ = [one async for one in lag.families()]
    assert len(looked) == 1


async def test_dead_letters(bench: Bench, peer: Peer) -> None:
    bench.stats.sent_back("T", "G", "%DLQ%G", 0, 100, dead=True)
    dead = samples(traffic(bench).endings())["rocketmq_send_to_dlq_messages_total"]
    assert dead == {("G", "T", "false"): 1}
    assert samples(traffic(bench).incoming())["rocketmq_messages_in_total"] == {}


async def test_requests_are_timed_by_code_and_answer(bench: Bench, peer: Peer) -> None:
    times = RequestTimes(bench.clock.monotonic)
    bench.parts.router.observed(times.observe)
    bench.stats.put_latency.listener = times.note_send
    await peer.create_topic("T")
    await peer.ask(RequestCode.GET_CONSUME_STATS, consumer_group="nobody")
    await peer.ask(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, topic="nothing", queue_id=0, timestamp=0)
    for _ in range(4):
        await peer.send("T")
    for _ in range(3):
        assert (await peer.pull("T", 0, suspend_timeout_millis=0)).code == 0
    found = samples(times.steps(sends=4, pulls=3))
    counts = {(key[1], key[2]): one.count for key, one in found["rocketmq_rpc_latency"].items()}
    assert counts["send_message", "success"] == 4
    assert counts["pull_message", "success"] == 3
    assert counts["update_and_create_topic", "success"] == 1
    assert sum(count for (name, _), count in counts.items() if name == "search_offset_by_timestamp") == 1
    assert found["rocketmq_topic_create_execution_time"]["success", "false"].count == 1


async def test_requests_that_end_with_their_connection_leave_nothing_behind(bench: Bench, peer: Peer) -> None:
    bench.parts.router.observed(RequestTimes(bench.clock.monotonic).observe)
    for _ in range(3):
        peer.post(RequestCode.GET_BROKER_RUNTIME_INFO)
    peer.connection.abort()
    await asyncio.sleep(1)


async def test_the_page_of_a_broker_reads_as_prometheus_reads_it(broker: OpenBench) -> None:
    parser = pytest.importorskip("prometheus_client.parser")
    async with broker(metrics_exporter_type="PROM", metrics_prom_exporter_port=0, metrics_label="region:eu") as bench:
        peer = bench.peer()
        await peer.heartbeat("c", "T", producer="P")
        await peer.create_topic("T")
        await peer.send("T")
        metrics = bench.parts.metrics
        metrics.observe({})
        await metrics.start(None)
        try:
            assert metrics.exporter is not None
            families = await metrics.exporter.collector.families()
            text = b"".join(pieces(families, metrics.exporter.collector.common)).decode()
        finally:
            await metrics.close()
    found = {one.name: one for one in parser.text_string_to_metric_families(text)}
    (in_,) = found["rocketmq_messages_in"].samples
    assert in_.labels == {
        "cluster": "DefaultCluster", "node_type": "broker", "node_id": "broker-a", "region": "eu", "topic": "T",
        "message_type": "normal", "is_system": "false",
    }  # fmt: skip
    assert found["rocketmq_consumer_connections"].samples[0].labels["consume_mode"] == "push"
    assert found["tianzhou_metrics_failed_sources"].samples[0].value == 0
    assert {"rocketmq_storage_size", "rocketmq_topic_number", "tianzhou_loop_lag_seconds"} <= found.keys()


@pytest.mark.parametrize(
    ("client", "grouped", "seconds"),
    [
        (HaClient(last_read_timestamp=7_000, master_addr="m:1"), False, 3),
        (HaClient(master_addr="m:1"), False, -1),
        (HaClient(master_addr="m:1"), True, 0),
        (HaClient(), True, -1),
    ],
)
def test_how_long_a_master_is_silent(client: HaClient, grouped: bool, seconds: float) -> None:
    assert silent_s(client, 10_000, grouped=grouped) == seconds


READY = Facts(
    serving=True, registered=True, name_servers=True, refusal=None, permission=6, master=True
)  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, ""),
        ({"serving": False}, "does not serve"),
        ({"registered": False}, "no name server"),
        ({"registered": False, "name_servers": False}, ""),
        ({"refusal": "the disk is full"}, "the disk is full"),
        ({"refusal": "it is a slave", "master": False}, ""),
        ({"permission": 4}, "brokerPermission=4"),
        ({"permission": 4, "master": False}, ""),
        ({"permission": 2}, "brokerPermission=2"),
    ],
)
def test_readiness(changes: dict[str, Any], reason: str) -> None:
    found = judge(replace(READY, **changes))
    assert found.ready == (not reason)
    assert reason in " ".join(found.reasons)


async def test_a_thousand_topics_by_a_thousand_groups_are_collected_in_slices(bench: Bench) -> None:
    """No slice takes long in processor time, and series above the limit are counted."""
    stats, slices = bench.stats, []
    stats.bounds.settings = replace(bench.settings, max_figures=2_000_000)
    for topic in range(1_000):
        stats.put(f"topic-{topic}").add(0, 1, 100)
    for topic in range(1_000):
        for group in range(60):
            stats.got(f"topic-{topic}", f"group-{group}").add(0, 1, 100)
    with FrozenObjects():  # as in a server's process
        one = Traffic(stats, bench.tables.topics, 50_000)
        families: list[Family] = []
        for steps in (one.incoming(), one.outgoing()):
            began = time.thread_time()
            for step in steps:
                slices.append(time.thread_time() - began)
                families += [] if step is None else [step]
                began = time.thread_time()
        began = time.thread_time()
        size = 0
        for piece in pieces(families, {"cluster": "c"}):
            slices.append(time.thread_time() - began)
            size += len(piece)
            began = time.thread_time()
    out = next(family for family in families if family.name == "rocketmq_messages_out_total")
    assert (len(out.samples), out.left_out) == (50_000, 10_000)
    assert size > 5_000_000
    # The first slice of a table copies it, which is the slowest step.
    assert max(slices) < 0.05
    assert isinstance(dict(families[2].samples)["topic-1", "normal"], Histogram)
