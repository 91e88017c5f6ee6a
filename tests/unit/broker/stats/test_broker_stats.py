"""Figures over a minute, an hour and a day, and their names and keys."""

from __future__ import annotations

import asyncio

import pytest
from broker_bench import Bench, OpenBench, Peer

from tianzhou.broker.stats.stats import BrokerStats
from tianzhou.broker.stats.stats_windows import Window, Windows
from tianzhou.model import SubscriptionGroupConfig
from tianzhou.wire.bodies.tables import BROKER_STATS, StatsSample

SECOND, MINUTE, HOUR = 1000, 60_000, 3_600_000


def test_a_window_is_the_difference_of_its_ends() -> None:
    window = Window(10 * SECOND, 7)
    assert window.figures() == StatsSample(0, 0.0, 0.0)
    window.sample(100_000, 4, 2)
    assert window.figures() == StatsSample(4, 0.4, 2.0)
    window.sample(110_000, 10, 3)
    assert window.figures() == StatsSample(10, 0.5, 10 / 3)


def test_a_full_window_forgets_its_oldest_sample() -> None:
    window = Window(10 * SECOND, 7)
    for step in range(1, 20):
        window.sample(step * 10 * SECOND, step * 100, step)
    assert window.figures() == StatsSample(600, 10.0, 100.0)


def test_what_stands_still_costs_nothing_and_starts_again_with_a_fresh_window() -> None:
    window = Window(10 * SECOND, 7)
    for step in range(1, 100):
        window.sample(step * 10 * SECOND, 5, 5)
    assert window.figures() == StatsSample(0, 0.0, 0.0)
    window.sample(1000 * SECOND, 25, 15)
    assert window.figures() == StatsSample(20, 2.0, 2.0)


def test_minute_hour_and_day() -> None:
    stats = BrokerStats(0)
    for tick in range(1, 6 * 3 + 1):
        stats.put("T").add(0, 2, 20)
        stats.sample(tick * 10 * SECOND)
    figures = stats.view("TOPIC_PUT_NUMS", "T")
    assert figures is not None
    # From the first minute on, the hour and the day contain all figures so far.
    assert (figures.stats_minute.sum, figures.stats_hour.sum, figures.stats_day.sum) == (12, 36, 36)
    for tick in range(6 * 3 + 1, 6 * 60 * 2 + 1):
        stats.put("T").add(0, 2, 20)
        stats.sample(tick * 10 * SECOND)
    figures = stats.view("TOPIC_PUT_NUMS", "T")
    assert figures is not None
    assert figures.stats_minute == StatsSample(12, 0.2, 2.0)
    assert figures.stats_hour.tps == pytest.approx(0.2)
    assert 720 <= figures.stats_hour.sum <= 840
    assert figures.stats_day.sum == 1440
    assert stats.view("TOPIC_PUT_NUMS", "unknown") is None


def test_batches_count_as_one_call() -> None:
    stats = BrokerStats(0)
    stats.put("T").add(1, 5, 500)
    stats.put("T").add(1, 1, 100)
    found = {(name, key): (value, times) for name, key, value, times in stats.items()}
    assert found["TOPIC_PUT_NUMS", "T"] == (6, 2)
    assert found["TOPIC_PUT_SIZE", "T"] == (600, 2)
    assert found["QUEUE_PUT_NUMS", "T@1"] == (6, 6)
    assert ("QUEUE_PUT_NUMS", "T@0") not in found
    assert found["BROKER_PUT_NUMS", "DefaultCluster"] == (6, 0)


def test_what_consumers_send_back_is_none_of_the_producers_messages() -> None:
    stats = BrokerStats(0, "C")
    stats.is_system = lambda name: name.startswith("SCHEDULE")
    stats.put("T").add(0, 3, 300)
    stats.sent_back("T", "G", "SCHEDULE_TOPIC_XXXX", 2, 120, dead=False)
    stats.sent_back("T", "G", "%DLQ%G", 0, 110, dead=True)
    found = {(name, key): value for name, key, value, _ in stats.items()}
    assert found["SNDBCK_PUT_NUMS", "T@G"] == 2
    assert found["SNDBCK2DLQ_TIMES", "null@T@G@SEND_BACK_TO_DLQ"] == 1
    assert found["TOPIC_PUT_NUMS", "SCHEDULE_TOPIC_XXXX"] == 1
    assert found["BROKER_PUT_NUMS", "C"] == 3
    assert found["BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC", "C"] == 3


def test_what_groups_get() -> None:
    stats = BrokerStats(0, "C")
    stats.is_system = lambda name: name == "SYS"
    stats.got("T", "G").add(0, 10, 1000)
    stats.got("T", "G").add_cold(0, 10, 1000, 7)
    stats.got("T", "G").add(1, 2, 200)
    stats.got("SYS", "G").add(0, 4, 400)
    found = {(name, key): (value, times) for name, key, value, times in stats.items()}
    assert found["GROUP_GET_NUMS", "T@G"] == (12, 2)
    assert found["GROUP_GET_SIZE", "T@G"] == (1200, 2)
    assert found["GROUP_GET_LATENCY", "0@T@G"] == (7, 1)
    assert found["QUEUE_GET_NUMS", "T@1@G"] == (2, 1)
    assert found["GROUP_GET_FROM_DISK_NUMS", "T@G"] == (10, 2)
    assert found["BROKER_GET_FROM_DISK_SIZE", "C"] == (1000, 0)
    assert found["BROKER_GET_NUMS", "C"] == (16, 0)
    assert found["BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC", "C"] == (12, 0)
    stats.by_queue = False
    found = {(name, key): (value, times) for name, key, value, times in stats.items()}
    assert found["GROUP_GET_LATENCY", "T@G"] == (7, 2)
    assert not [name for name, _ in found if name.startswith("QUEUE")]


def test_figures_of_what_was_deleted_are_gone() -> None:
    stats = BrokerStats(0)
    stats.put("T").add(0, 1, 1)
    stats.put("U").add(0, 1, 1)
    stats.got("T", "G").add(0, 1, 1)
    stats.got("U", "G").add(0, 1, 1)
    stats.sent_back("U", "G", "%DLQ%G", 0, 1, dead=True)
    stats.sample(10 * SECOND)
    stats.forget_topic("T")
    names = {key for _, key, _, _ in stats.items()}
    assert not [key for key in names if "T" in key.split("@")]
    assert stats.view("GROUP_GET_NUMS", "T@G") is None
    stats.forget_group("G")
    assert stats.view("GROUP_GET_NUMS", "U@G") is None
    assert stats.view("SNDBCK_PUT_NUMS", "U@G") is None
    assert stats.view("TOPIC_PUT_NUMS", "U") is not None


def test_totals_of_the_mornings() -> None:
    stats = BrokerStats(0)
    stats.put("T").add(0, 3, 30)
    stats.sample(10 * SECOND, day=1)
    assert stats.mornings == (0, 0, 0, 0)
    stats.got("T", "G").add(0, 2, 20)
    stats.sample(20 * SECOND, day=2)
    assert stats.mornings == (0, 3, 0, 2)
    stats.put("T").add(0, 1, 10)
    stats.sample(30 * SECOND, day=3)
    assert stats.mornings == (3, 4, 2, 2)


async def test_figures_on_request(bench: Bench, peer: Peer) -> None:
    bench.tables.groups.put(SubscriptionGroupConfig("G"), 1)
    for _ in range(4):
        await peer.send("T")
    await peer.pull("T")
    reply = await peer.ask(315, stats_name="TOPIC_PUT_NUMS", stats_key="T")
    assert BROKER_STATS.loads(reply.body).stats_minute.sum == 0
    await asyncio.sleep(10)
    bench.stats.sample(bench.clock.now_ms())
    for name, key, total in (
        ("TOPIC_PUT_NUMS", "T", 4),
        ("GROUP_GET_NUMS", "T@G", 4),
        ("BROKER_PUT_NUMS", "DefaultCluster", 4),
        ("QUEUE_GET_NUMS", "T@0@G", 4),
        ("TOPIC_PUT_LATENCY", "0@T", 0),
    ):
        reply = await peer.ask(315, stats_name=name, stats_key=key)
        assert (name, BROKER_STATS.loads(reply.body).stats_minute.sum) == (name, total)
    size = BROKER_STATS.loads((await peer.ask(315, stats_name="TOPIC_PUT_SIZE", stats_key="T")).body)
    assert size.stats_minute.sum == bench.store.end_offset
    missing = await peer.ask(315, stats_name="TOPIC_PUT_NUMS", stats_key="nope")
    assert (missing.code, missing.remark) == (1, "The stats <TOPIC_PUT_NUMS> <nope> not exist")
    figures = await peer.figures()
    assert figures["putMessageSizeTotal"] == str(bench.store.end_offset)


async def test_sync_flush_counts_how_long_senders_waited(broker: OpenBench) -> None:
    async with broker(store={"flush_disk_type": "SYNC_FLUSH"}) as bench:
        await bench.peer().send("T")
        await bench.peer().send("T")
        waits = bench.stats.put("T").waits
        assert len(waits) >= 1
        assert all(wait >= 0 for wait in waits)


# --- many queues ---------------------------------------------------------------------------------------------


def test_queues_that_stand_still_are_no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    stats = BrokerStats(0)
    for topic in range(100):
        for queue_id in range(10):
            stats.put(f"T{topic}").add(queue_id, 1, 100)
            stats.got(f"T{topic}", "G").add(queue_id, 1, 100)
    samples = 0
    real = Windows.sample

    def counted(windows: Windows, *args: int, **kwargs: bool) -> None:
        nonlocal samples
        samples += 1
        real(windows, *args, **kwargs)

    monkeypatch.setattr(Windows, "sample", counted)
    costs = []
    for tick in range(1, 200):
        before = samples
        stats.put("T7").add(3, 1, 100)
        stats.sample(tick * 10 * SECOND)
        costs.append(samples - before)
    assert costs[0] > 5_000
    assert sorted(costs)[len(costs) // 2] < 50
    # A queue with puts is visible as before, and an idle one is still known.
    moving, still = stats.view("QUEUE_PUT_NUMS", "T7@3"), stats.view("QUEUE_PUT_NUMS", "T8@3")
    assert moving is not None
    assert still is not None
    assert moving.stats_minute.sum == 6
    assert (still.stats_minute.sum, still.stats_day.sum) == (0, 1)
    stats.put("T8").add(3, 1, 100)
    stats.sample(200 * 10 * SECOND)
    again = stats.view("QUEUE_PUT_NUMS", "T8@3")
    assert again is not None
    assert again.stats_minute.sum == 1


def test_many_figures_are_sampled_in_pieces() -> None:
    stats = BrokerStats(0)
    for topic in range(200):
        stats.put(f"T{topic}").add(0, 1, 100)
    pieces = sum(1 for _ in stats.sampling(10 * SECOND))
    assert pieces >= 4
    figure = stats.view("TOPIC_PUT_NUMS", "T199")
    assert figure is not None
    assert figure.stats_minute.sum == 1
