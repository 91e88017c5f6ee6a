"""Durations of puts: samples, classes, percentiles, the figures of request 28."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from broker_bench import Bench, OpenBench, Peer

from tianzhou.broker.stats.put_latency import PutLatency


def test_figures_are_those_of_the_last_whole_minute() -> None:
    times = PutLatency(0)
    for number in range(1, 1001):
        times.note(number / 100)
    assert (times.classes, times.percentile(0.99)) == ("null", 0.0), "no minute is over"
    times.tick(59_999, 5)
    assert times.classes == "null"
    times.tick(60_000, 2000)
    assert times.classes.startswith("[<=0ms]:198 [0~10ms]:1802 [10~50ms]:0 ")
    assert times.classes.endswith(" [10s~]:0 ")
    assert times.percentile(0.99) == 9.91
    assert times.percentile(0.999) == 10.0
    times.tick(120_000, 2000)
    assert times.percentile(0.99) == 0.0
    assert times.classes.startswith("[<=0ms]:0 [0~10ms]:0 ")
    assert times.longest_ms == 10.0


def test_every_time_has_its_class() -> None:
    for ms, name in (
        (0.9, "[<=0ms]"), (10.0, "[0~10ms]"), (11.0, "[10~50ms]"), (500, "[200~500ms]"), (1_500, "[1~2s]"),
        (9_999, "[5~10s]"), (10_001, "[10s~]"),
    ):  # fmt: skip
        times = PutLatency(0)
        times.note(ms)
        times.tick(60_000, 3)
        assert f"{name}:3 " in times.classes, ms


async def test_the_broker_shows_how_long_its_puts_took(bench: Bench, peer: Peer) -> None:

    async def figures() -> dict[str, str]:
        found: dict[str, str] = await peer.figures()
        return found

    # The first message creates the topic; later ones take the fast path.
    await peer.send("T")

    def slow(plain: Callable[..., Any]) -> Callable[..., Any]:
        def store(*records: Any, **more: Any) -> Any:
            bench.clock.advance(0.025)
            return plain(*records, **more)

        return store

    bench.store.execute = slow(bench.store.execute)  # type: ignore[method-assign]
    bench.store.append = slow(bench.store.append)  # type: ignore[method-assign]
    await peer.send("T")
    await asyncio.sleep(60)
    bench.stats.sample(bench.clock.now_ms())
    found = await figures()
    assert float(found["putLatency99"]) == 25.0
    assert float(found["putLatency999"]) == 25.0
    assert found["putMessageEntireTimeMax"] == "25"
    assert "[10~50ms]:2 " in found["putMessageDistributeTime"]


async def test_with_sync_flush_the_wait_for_the_disk_counts(broker: OpenBench) -> None:
    async with broker(store={"flush_disk_type": "SYNC_FLUSH"}) as bench:
        peer = bench.peer()
        for _ in range(3):
            await peer.send("T")
        await asyncio.sleep(60)
        bench.stats.sample(bench.clock.now_ms())
        found = await peer.figures()
        assert sum(int(one.rpartition(":")[2]) for one in found["putMessageDistributeTime"].split()) == 3
