"""Delay levels: configuration, the file of their positions, safety after a power failure, no early delivery."""

from __future__ import annotations

import asyncio
import tarfile
from pathlib import Path

import pytest
from broker_bench import Bench, OpenBench
from hypothesis import given
from hypothesis import strategies as st

from property_examples import costly
from tianzhou.broker.delays.delay import DelayLedger
from tianzhou.store.files.config_file import JsonFile
from tianzhou.testing.clock import VirtualClock, run
from tianzhou.wire.json_dialect import dumps_pretty
from tianzhou.wire.properties import decode_properties

GOLDEN = Path(__file__).resolve().parents[3] / "golden" / "store"
SCHEDULE = "SCHEDULE_TOPIC_XXXX"


@given(st.integers(0, 1 << 41), st.integers(0, 1 << 41), st.integers(1, 3))
def test_nothing_is_due_early_unless_the_clock_went_back(stored: int, now: int, level: int) -> None:
    delay = (1_000, 60_000, 7_200_000)[level - 1]
    due = DelayLedger((1_000, 60_000, 7_200_000)).due_ms(level, stored, now)
    assert due == stored + delay if stored <= now else due in (now, stored + delay)
    assert due <= now + delay


def test_the_file_has_apaches_bytes(tmp_path: Path) -> None:
    with tarfile.open(GOLDEN / "delay.tar.xz") as archive:
        archive.extractall(tmp_path)
    file = tmp_path / "store" / "config" / "delayOffset.json"
    ledger = DelayLedger((1_000,) * 18)
    ledger.load(JsonFile(file).load())
    assert {level: ledger.offset(level) for level in (1, 2, 3, 4, 18)} == {1: 9, 2: 6, 3: 3, 4: 0, 18: 0}
    assert dumps_pretty(ledger.to_file()) == file.read_bytes()


def test_the_file_says_what_the_disk_has() -> None:
    ledger = DelayLedger((1_000, 2_000))
    ledger.load({"offsetTable": {1: 3}})
    ledger.advance(1, 9, 0)
    ledger.advance(2, 4, 0)
    assert (ledger.to_json()["offsetTable"], ledger.to_file()["offsetTable"]) == ({1: 9, 2: 4}, {1: 3})
    ledger.settled(ledger.offsets())
    assert ledger.to_file() == ledger.to_json()


@pytest.mark.parametrize(
    ("levels", "asked", "capped", "delay_ms"),
    [
        ("2s", "1", 1, 2_000),
        ("2s", "18", 1, 2_000),
        ("1s 3m 20m", "2", 2, 180_000),
        ("1s 3m 20m", "3", 3, 1_200_000),
        ("1s 3m 20m 1d", "3", 3, 1_200_000),
        ("1s 3m 20m", "2147483647", 3, 1_200_000),
        (" ".join(f"{n}s" for n in range(1, 31)), "30", 30, 30_000),
    ],
)
async def test_configured_levels(broker: OpenBench, levels: str, asked: str, capped: int, delay_ms: int) -> None:
    async with broker(store={"message_delay_level": levels}) as bench:
        bench.deliver_delayed()
        reply = await bench.peer().send("T", properties={"UNIQ_KEY": "U", "DELAY": asked})
        assert reply.code == 0
        (waiting,) = bench.records(SCHEDULE, capped - 1)
        assert decode_properties(waiting.properties)["DELAY"] == str(capped)
        await asyncio.sleep(delay_ms / 1000 + 0.1)
        (delivered,) = bench.records("T")
        assert 0 <= delivered.store_timestamp - waiting.store_timestamp - delay_ms <= 100


@costly(0.15)
@given(st.lists(st.tuples(st.integers(1, 3), st.sampled_from((0, 1, 700, 1_500, 30_000))), max_size=25))
def test_each_comes_once_in_its_time(tmp_path_factory: pytest.TempPathFactory, sends: list[tuple[int, int]]) -> None:
    delays_ms, clock = (1_000, 10_000, 60_000), VirtualClock()

    async def body() -> None:
        store = {"message_delay_level": "1s 10s 1m"}
        async with Bench(tmp_path_factory.mktemp("delays"), clock, {}, store) as bench:
            bench.deliver_delayed()
            peer = bench.peer()
            for number, (level, pause_ms) in enumerate(sends):
                reply = await peer.send("T", properties={"UNIQ_KEY": str(number), "DELAY": str(level)})
                assert reply.code == 0
                await asyncio.sleep(pause_ms / 1000)
            await asyncio.sleep(62)
            stored = {}
            for queue_id in range(3):
                for record in bench.records(SCHEDULE, queue_id):
                    stored[decode_properties(record.properties)["UNIQ_KEY"]] = record.store_timestamp
            came = [(decode_properties(record.properties), record.store_timestamp) for record in bench.records("T")]
            assert sorted(int(properties["UNIQ_KEY"]) for properties, _ in came) == [*range(len(sends))]
            for properties, at in came:
                late = at - stored[properties["UNIQ_KEY"]] - delays_ms[int(properties["DELAY"]) - 1]
                assert 0 <= late <= 100

    run(body(), clock)
