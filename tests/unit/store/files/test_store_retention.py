"""Deletion of segments: which, when and why; conditions of a full disk (store.md §12, §2.7, §8.7)."""

from __future__ import annotations

import pytest

from tianzhou.store.files.retention import (
    Deletion,
    DiskUse,
    Reason,
    RetentionRules,
    SegmentFacts,
    SpaceVerdict,
    expired_index_files,
    expired_queue_segments,
    has_room,
    judge_space,
    plan_log,
    rules_of,
)
from tianzhou.store.settings import StoreSettings

HOUR = 3_600_000
NOW = 1_700_000_000_000
SIZE = 1000
EVERYTHING = 1 << 60
RULES = rules_of(StoreSettings())
FORCED = SpaceVerdict(force="/log: 86.0% used", clean=True)
CLEAN = SpaceVerdict(clean=True)


def rules(**keys: object) -> RetentionRules:
    return rules_of(StoreSettings(**keys))  # type: ignore[arg-type]


def aged(*hours: float, first: int = 0) -> list[SegmentFacts]:
    """Return segments last written so many hours ago, oldest first."""
    return [SegmentFacts(first + n * SIZE, NOW - int(h * HOUR)) for n, h in enumerate(hours)]


def use(percent: float, path: str = "/log", total: int = 1 << 40) -> DiskUse:
    used = int(total * percent / 100)
    return DiskUse(path, used, total - used, total)


@pytest.mark.parametrize(
    ("hours", "hour", "space", "manual", "reasons"),
    [
        ((80, 75, 73, 1, 0), 4, SpaceVerdict(), False, "EEE"),  # the hour of deleteWhen
        ((80, 75, 73, 1, 0), 5, SpaceVerdict(), False, ""),  # any other
        ((80, 75, 73, 1, 0), 5, CLEAN, False, "EEE"),  # above diskMaxUsedSpaceRatio
        ((80, 75, 73, 1, 0), 5, SpaceVerdict(), True, "EEE"),  # asked for
        ((80, 75, 73, 1, 0), 5, FORCED, False, "EEES"),  # above diskSpaceCleanForciblyRatio: all but the last
        ((80, 1, 75, 0), 4, SpaceVerdict(), False, "E"),  # stops at the first young one
        ((72, 0), 4, SpaceVerdict(), False, "E"),  # exactly fileReservedTime
        ((71.99, 0), 4, SpaceVerdict(), False, ""),
        ((100, 99, 98), 4, SpaceVerdict(), False, "EE"),  # never the last
        ((100,), 4, FORCED, True, ""),
        ((), 4, FORCED, True, ""),
        ((100,) * 14, 4, SpaceVerdict(), False, "E" * 10),  # deleteFileBatchMax
    ],
)
def test_the_plan_for_the_log(
    hours: tuple[float, ...], hour: int, space: SpaceVerdict, manual: bool, reasons: str
) -> None:
    plan = plan_log(aged(*hours), SIZE, EVERYTHING, NOW, hour, space, RULES, manual=manual)
    assert "".join({Reason.EXPIRED: "E", Reason.SPACE: "S"}[one.reason] for one in plan) == reasons
    assert [one.start for one in plan] == [n * SIZE for n in range(len(reasons))]


def test_serve_never_deletes_what_is_not_expired() -> None:
    kept = rules(clean_file_forcibly_enable=False)
    facts = aged(80, 1, 0)
    assert plan_log(facts, SIZE, EVERYTHING, NOW, 5, FORCED, kept) == [Deletion(0, NOW - 80 * HOUR, Reason.EXPIRED)]


def test_what_is_not_on_disk_or_in_its_queue_stays() -> None:
    facts = aged(100, 100, 100, 100)
    assert [d.start for d in plan_log(facts, SIZE, 2 * SIZE, NOW, 4, FORCED, RULES)] == [0, SIZE]
    assert plan_log(facts, SIZE, SIZE - 1, NOW, 4, FORCED, RULES) == []


def test_changed_settings_change_the_plan() -> None:
    facts = aged(30, 3, 0)
    assert plan_log(facts, SIZE, EVERYTHING, NOW, 4, SpaceVerdict(), RULES) == []
    day = rules(file_reserved_time=24)
    assert len(plan_log(facts, SIZE, EVERYTHING, NOW, 4, SpaceVerdict(), day)) == 1
    noon = rules(file_reserved_time=24, delete_when="04;12")
    assert len(plan_log(facts, SIZE, EVERYTHING, NOW, 12, SpaceVerdict(), noon)) == 1
    one = rules(file_reserved_time=1, delete_file_batch_max=1)
    assert len(plan_log(facts, SIZE, EVERYTHING, NOW, 4, SpaceVerdict(), one)) == 1


@pytest.mark.parametrize(
    ("log", "queues", "full", "keep", "force", "clean"),
    [
        ((50,), 50, False, False, False, False),
        ((75,), 75, False, False, False, False),
        ((76,), 50, False, False, False, True),
        ((50,), 76, False, False, False, True),
        ((85,), 50, False, False, False, True),
        ((86,), 50, False, True, True, True),
        ((50,), 86, False, True, True, True),
        ((90,), 50, False, True, True, True),
        ((90.5,), 50, True, False, True, True),
        ((50,), 91, True, False, True, True),
        ((95, 50), 50, False, False, False, False),  # new segments go to the emptier disk
        ((95, 91), 50, True, False, True, True),
        ((86,), 91, True, False, True, True),  # one nearly full disk does not hide the other
    ],
)
def test_the_space_that_is_left(
    log: tuple[float, ...], queues: float, full: bool, keep: bool, force: bool, clean: bool
) -> None:
    verdict = judge_space([use(p, f"/log{n}") for n, p in enumerate(log)], use(queues, "/queues"), 0, RULES)
    assert (verdict.full is not None, verdict.keep_flag, verdict.force is not None, verdict.clean) == (
        full,
        keep,
        force,
        clean,
    )
    assert verdict.avoided == {f"/log{n}" for n, p in enumerate(log) if p > 85}


def test_a_full_disk_is_reported_with_path_use_limit_key_and_remedy() -> None:
    text = judge_space([use(93, "/data/commitlog", 1 << 30)], use(10), 0, RULES).full
    assert text is not None
    for part in ("/data/commitlog", "93.0% used", "71.7 MiB free", "diskSpaceWarningLevelRatio=90", "free space"):
        assert part in text


GIB = 1 << 30


def disk(free_gib: float, total_gib: float = 1000, path: str = "/log") -> DiskUse:
    free = int(free_gib * GIB)
    return DiskUse(path, int(total_gib * GIB) - free, free, int(total_gib * GIB))


@pytest.mark.parametrize(
    ("log", "queues", "full", "keep", "force"),
    [
        (disk(20), disk(20), False, False, False),  # 98 % used
        (disk(5.6), disk(5.6), False, False, False),
        (disk(5.4), disk(5.4), False, True, False),  # a full disk stays full up to here
        (disk(5), disk(5), False, True, False),
        (disk(4.99), disk(4.99), True, False, True),
        (disk(20), disk(4.99, path="/queues"), True, False, True),
        (disk(4, 30), disk(4, 30), False, True, True),  # 86.7 %
        (disk(4, 20), disk(4, 20), False, False, False),  # 80 %
        (disk(3, 30), disk(3, 30), False, True, True),  # 90 %
        (disk(2.9, 30), disk(2.9, 30), True, False, True),
        (disk(0.41, 4), disk(0.41, 4), False, True, True),  # a disk that never has so much free has RocketMQ's limits
        (disk(0.3, 4), disk(0.3, 4), True, False, True),
    ],
)
def test_a_number_of_free_bytes_may_be_enough_whatever_the_ratio(
    log: DiskUse, queues: DiskUse, full: bool, keep: bool, force: bool
) -> None:
    enough = rules(disk_space_enough_free_bytes=5 * GIB)
    verdict = judge_space([log], queues, 0, enough)
    assert (verdict.full is not None, verdict.keep_flag, verdict.force is not None) == (full, keep, force)
    assert verdict.clean == (max(log.ratio, queues.ratio) > 0.75), "what is expired goes as ever"
    if full:
        text = str(verdict.full)
        for part in ("diskSpaceWarningLevelRatio=90", "diskSpaceEnoughFreeBytes=5368709120 (5.0 GiB)", "5.5 GiB free"):
            assert part in text


def test_segments_go_to_a_disk_that_has_enough_bytes_free() -> None:
    enough = rules(disk_space_enough_free_bytes=5 * GIB)
    verdict = judge_space([disk(20, path="/large"), disk(1, 8, path="/small")], disk(20), 0, enough)
    assert (verdict.full, verdict.avoided) == (None, frozenset({"/small"}))


@pytest.mark.parametrize("percent", [70, 80, 85, 86, 90, 91, 99])
def test_without_that_setting_rocketmqs_limits_count_however_much_is_free(percent: float) -> None:
    assert StoreSettings().disk_space_enough_free_bytes == 0
    verdict = judge_space([use(percent, total=1 << 60)], use(percent, total=1 << 60), 0, RULES)
    assert (verdict.full is not None, verdict.force is not None) == (percent > 90, percent > 85)
    assert "diskSpaceEnoughFreeBytes" not in str(verdict.full)


def test_a_negative_number_of_free_bytes_is_refused() -> None:
    with pytest.raises(ValueError, match="diskSpaceEnoughFreeBytes=-1"):
        StoreSettings(disk_space_enough_free_bytes=-1)


def test_ratios_have_rocketmqs_bounds() -> None:
    wild = rules(disk_max_used_space_ratio=99, disk_space_clean_forcibly_ratio=99, disk_space_warning_level_ratio=99)
    assert (wild.clean_ratio, wild.force_ratio, wild.full_ratio) == (0.95, 0.85, 0.90)
    low = rules(disk_max_used_space_ratio=1, disk_space_clean_forcibly_ratio=1, disk_space_warning_level_ratio=1)
    assert (low.clean_ratio, low.force_ratio, low.full_ratio) == (0.10, 0.30, 0.35)


def test_stores_that_share_a_disk_count_their_own_share() -> None:
    shared = rules(replicas_per_disk_partition=4)
    total = 1 << 40
    assert judge_space([use(84, total=total)], use(84), total // 10, shared) == SpaceVerdict()
    assert judge_space([use(50, total=total)], use(50), int(total / 4 * 0.78), shared).clean
    forced = judge_space([use(50, total=total)], use(50), int(total / 4 * 0.81), shared)
    assert forced.force is not None
    assert forced.full is None


def test_a_disk_that_refused_is_tried_again_when_there_is_room() -> None:
    assert has_room([use(50)])
    assert not has_room([use(50), DiskUse("/x", 100, 4096, 5000)])
    assert DiskUse("/empty", 0, 0, 0).ratio == 1.0


@pytest.mark.parametrize(
    ("firsts", "smallest", "count"),
    [
        ([0], 500, 0),  # never the last
        ([0, 100, 200], 0, 0),
        ([0, 100, 200], 99, 0),
        ([0, 100, 200], 100, 1),
        ([0, 100, 200], 150, 1),
        ([0, 100, 200], 200, 2),
        ([0, 100, 200], 10_000, 2),
        ([], 5, 0),
    ],
)
def test_queue_files_go_when_the_next_one_begins_before_the_log(firsts: list[int], smallest: int, count: int) -> None:
    assert expired_queue_segments(firsts, smallest) == count


@pytest.mark.parametrize(
    ("ends", "smallest", "count"),
    [([], 10, 0), ([5], 10, 0), ([5, 20], 10, 1), ([5, 20], 5, 0), ([5, 8, 9], 10, 2), ([20, 5, 30], 10, 0)],
)
def test_index_files_go_when_all_their_records_have(ends: list[int], smallest: int, count: int) -> None:
    assert expired_index_files(ends, smallest) == count


@pytest.mark.parametrize("text", ["24", "-1", "four", "04,05"])
def test_an_hour_that_is_none_is_refused_with_its_key(text: str) -> None:
    with pytest.raises(ValueError, match=f"deleteWhen={text}"):
        StoreSettings(delete_when=text)
