"""Capacity planning: cases computed by hand, and monotonicity of the results."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tianzhou.bench.capacity import DEFAULT_RATES, MAPS_ALLOWED, Load, Mode, plan
from tianzhou.errors import ConfigError


def test_a_group_for_a_hundred_thousand_messages_a_second() -> None:
    found = plan(Load(rate=100_000, size_bytes=1000, retention_hours=72, copies=3, node_rate=30_000, headroom=0.5))
    # 100 000 / (30 000 x 0.5) = 6.67
    assert (found.sets, found.nodes, found.bound_by) == (7, 21, "rate")
    # 100 000 / 7 x 72 x 3600 = 3 702 857 142.9
    assert found.messages == 3_702_857_143
    # 1000 + 241 + 48 in the log, 20 in the queue, 20 in the index
    assert found.log_bytes == 3_702_857_143 * 1289
    assert found.disk_bytes_of_all == 3_702_857_143 * 1329 * 21
    assert found.disk_bytes == pytest.approx(3_702_857_143 * 1329 / 0.75, abs=2)
    # 14 285.7 messages a second arrive, and go to two members and one consumer group
    assert found.network_in_bytes_s == 18_414_286
    assert found.network_out_bytes_s == pytest.approx(3 * 18_414_286, abs=3)
    assert found.write_bytes_s == 18_985_715
    # 4 772 982 857 327 / 1 GiB = 4445.1, and the segment being written
    assert found.segments == 4447
    # 300 000 messages need 12 343 files and one more for each of 64 queues; 20 million keys need 186
    assert found.files == 4447 + 12_343 + 64 + 186
    # ten minutes of the log are 40 % of the memory, and the process wants 1 GiB
    assert found.memory_bytes == pytest.approx(100_000 / 7 * 600 * 1289 / 0.4 + (1 << 30), abs=2)


def test_one_broker_without_copies() -> None:
    found = plan(Load(rate=1000, size_bytes=759, retention_hours=1, copies=1, mode=Mode.ASYNC_FLUSH, groups=0, keys=0))
    assert (found.sets, found.nodes) == (1, 1)
    assert found.log_bytes == 3_600_000 * 1000
    assert found.network_out_bytes_s == 0
    assert any("one copy" in text for text in found.warnings)
    assert any("one broker takes all" in text for text in found.warnings)


def test_the_average_decides_about_disks_and_the_peak_about_brokers() -> None:
    steady = plan(Load(rate=50_000, node_rate=10_000))
    quiet = plan(Load(rate=50_000, average_rate=5_000, node_rate=10_000))
    assert quiet.sets == steady.sets
    assert quiet.disk_bytes == pytest.approx(steady.disk_bytes / 10, rel=1e-6)


def test_a_slow_disk_or_network_decides_where_it_is_the_least() -> None:
    load = Load(rate=10_000, size_bytes=10_000, copies=3, node_rate=100_000, headroom=0)
    # 10 000 x (10 000 + 241 + 48 + 20 + 20) bytes are 103.3 MB/s
    assert plan(replace(load, disk_mb_s=50)).sets == 3
    assert plan(replace(load, disk_mb_s=50)).bound_by == "disk"
    # 102.9 MB/s to two members and one group
    assert plan(replace(load, network_mb_s=100)).sets == 4
    assert plan(replace(load, network_mb_s=100)).bound_by == "network"


def test_larger_bodies_than_measured_are_taken_to_cost_by_the_byte() -> None:
    rate, source = DEFAULT_RATES[Mode.SYNC_FLUSH]
    found = plan(Load(rate=1, size_bytes=4096, mode=Mode.SYNC_FLUSH))
    assert found.node_rate == rate / 4
    assert found.node_rate_source == source
    assert plan(Load(rate=1, size_bytes=100, mode=Mode.SYNC_FLUSH)).node_rate == rate


def test_the_reserve_for_one_that_is_away_is_asked_for() -> None:
    tight = plan(Load(rate=29_000, node_rate=10_000, headroom=0))
    assert tight.sets == 3
    assert any("--headroom to 34 %" in text for text in tight.warnings)
    ample = plan(Load(rate=29_000, node_rate=10_000, headroom=0.34))
    assert not any("--headroom" in text for text in ample.warnings)


@pytest.mark.parametrize(
    ("load", "words"),
    [
        (Load(rate=1, copies=2), "has no majority"),
        (Load(rate=1, copies=4), "bears no more failures than one of 3"),
        (Load(rate=1, copies=2, mode=Mode.ASYNC_FLUSH), "power failure"),
        (Load(rate=1), "an assumption, not measured"),
    ],
)
def test_what_the_planner_should_know_is_said(load: Load, words: str) -> None:
    assert any(words in text for text in plan(load).warnings)


def test_more_files_than_the_kernel_maps_are_named_with_the_setting() -> None:
    found = plan(Load(rate=60_000, node_rate=100_000, headroom=0, retention_hours=168))
    assert found.files > MAPS_ALLOWED
    assert any("vm.max_map_count" in text for text in found.warnings)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"rate": 0}, "rate=0"),
        ({"rate": float("nan")}, "rate=nan"),
        ({"rate": 1, "size_bytes": 5_000_000}, "size_bytes=5e\\+06"),
        ({"rate": 1, "headroom": 1}, "headroom=1"),
        ({"rate": 1, "average_rate": 2}, "swap them"),
        ({"rate": 1, "copies": 0}, "copies=0"),
    ],
)
def test_what_cannot_be_is_refused_by_name(wrong: dict[str, float], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Load(**wrong)  # type: ignore[arg-type]


def test_more_brokers_than_anybody_has_are_refused() -> None:
    with pytest.raises(ConfigError, match="check the figures"):
        plan(Load(rate=1e9, node_rate=1))


LOADS = st.builds(
    Load,
    rate=st.floats(1, 1e6),
    size_bytes=st.integers(1, 1_000_000),
    retention_hours=st.floats(0.1, 1000),
    copies=st.integers(1, 5),
    mode=st.sampled_from(Mode),
    node_rate=st.floats(1_000, 1e5),
    headroom=st.floats(0, 0.9),
    disk_mb_s=st.sampled_from([0.0, 500.0, 3000.0]),
    groups=st.integers(0, 5),
)
MORE = st.floats(1, 3)


def nodes(load: Load) -> float:
    try:
        return plan(load).nodes
    except ConfigError:
        return float("inf")


@given(LOADS, MORE)
def test_more_load_never_needs_less(load: Load, more: float) -> None:
    assert nodes(replace(load, rate=load.rate * more)) >= nodes(load)
    assert nodes(replace(load, size_bytes=min(int(load.size_bytes * more), 4_000_000))) >= nodes(load)
    assert nodes(replace(load, copies=load.copies + 1)) > nodes(load) or nodes(load) == float("inf")
    assert nodes(replace(load, node_rate=load.node_rate * more)) <= nodes(load)
    assert nodes(replace(load, headroom=load.headroom / more)) <= nodes(load)


@given(LOADS, MORE)
def test_longer_retention_needs_more_disk_and_nothing_else(load: Load, more: float) -> None:
    if nodes(load) == float("inf"):
        return
    before, after = plan(load), plan(replace(load, retention_hours=load.retention_hours * more))
    assert after.disk_bytes >= before.disk_bytes
    assert after.files >= before.files
    assert (after.nodes, after.memory_bytes) == (before.nodes, before.memory_bytes)


@given(LOADS)
def test_brokers_bear_the_peak_with_what_is_left_free(load: Load) -> None:
    if nodes(load) == float("inf"):
        return
    found = plan(load)
    assert load.rate / found.sets <= found.node_rate * (1 - load.headroom) * (1 + 1e-6)
    assert found.nodes == found.sets * load.copies
    assert found.disk_bytes * found.nodes >= found.disk_bytes_of_all
