"""What is deleted, when and why; when a disk counts as full (store.md §12, §2.7, §8.7)."""

from __future__ import annotations

import pytest

from tianzhou.store.retention import (
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
    """Segments last written so many hours ago, oldest first."""
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
        ((80, 1, 75, 0), 4, SpaceVerdict(), False, "E"),  # stops at the first that is young
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


def test_a_full_disk_is_told_with_path_use_limit_key_and_remedy() -> None:
    text = judge_space([use(93, "/data/commitlog", 1 << 30)], use(10), 0, RULES).full
    assert text is not None
    for part in ("/data/commitlog", "93.0% used", "71.7 MiB free", "diskSpaceWarningLevelRatio=90", "free space"):
        assert part in text


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
