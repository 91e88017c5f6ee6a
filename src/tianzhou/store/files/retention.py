"""What of a store is to be deleted, when, and whether its disk is full (store.md §12, §2.7, §5.7, §8.7).

Decisions only: what disks and files are like comes in, what to do and why goes out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from tianzhou.store.settings import StoreSettings, parse_hours

MANUAL_RUNS: Final = 20
"""Runs that delete expired files at any hour after an operator's request."""
_MIN_FREE: Final = 1 << 20
_HOUR_MS: Final = 3_600_000
_REFILL: Final = 1.1
"""Times `enough_bytes` that have to be free before a disk that was full no longer counts as full."""


class Reason(Enum):
    """Why a commit-log segment goes."""

    EXPIRED = "older than fileReservedTime"
    SPACE = "the disk is nearly full (diskSpaceCleanForciblyRatio), not expired yet"


@dataclass(frozen=True, slots=True)
class DiskUse:
    """How full the file system of a directory is.

    Attributes:
        path: the directory.
        used: bytes in use.
        free: bytes this user can still write.
        total: bytes there are.
    """

    path: str
    used: int
    free: int
    total: int

    @property
    def ratio(self) -> float:
        """The used part of what can be used, 0 to 1."""
        return self.used / (self.used + self.free) if self.used + self.free else 1.0

    def __str__(self) -> str:
        return f"{self.path}: {self.ratio:.1%} used, {readable_size(self.free)} free"


@dataclass(frozen=True, slots=True)
class RetentionRules:
    """The settings that count, as they are now.

    Attributes:
        reserved_ms: how long a file is kept after it was last written.
        hours: local hours in which expired files are deleted.
        clean_ratio: above it expired files are deleted at any hour; a part of the disk, 0 to 1, as the others.
        force_ratio: above it files are deleted that are not expired, if `may_force`.
        full_ratio: above it nothing is stored any more.
        may_force: `cleanFileForciblyEnable`.
        batch: most segments of a run.
        replicas: stores that share the disk.
        share_ratio: with several, the part of its share above which a store deletes what is not expired.
        enough_bytes: with these bytes free, a disk is above neither `force_ratio` nor `full_ratio`; 0 for any number.
    """

    reserved_ms: int
    hours: frozenset[int]
    clean_ratio: float
    force_ratio: float
    full_ratio: float
    may_force: bool
    batch: int
    replicas: int
    share_ratio: float
    enough_bytes: int

    def short(self, use: DiskUse, ratio: float, factor: float = 1.0) -> bool:
        """Whether so little is left of a disk that a limit counts.

        Args:
            use: of the disk.
            ratio: the limit.
            factor: times `enough_bytes` are enough.
        """
        return use.ratio > ratio and not 0 < self.enough_bytes * factor <= use.free


def rules_of(settings: StoreSettings) -> RetentionRules:
    """The rules in force, with RocketMQ's bounds on the ratios."""
    return RetentionRules(
        settings.file_reserved_time * _HOUR_MS,
        parse_hours(settings.delete_when),
        _within(settings.disk_max_used_space_ratio, 10, 95),
        _within(settings.disk_space_clean_forcibly_ratio, 30, 85),
        _within(settings.disk_space_warning_level_ratio, 35, 90),
        settings.clean_file_forcibly_enable,
        max(settings.delete_file_batch_max, 1),
        settings.replicas_per_disk_partition,
        settings.logical_disk_space_clean_forcibly_threshold,
        settings.disk_space_enough_free_bytes,
    )


def _within(percent: int, least: int, most: int) -> float:
    return min(max(percent, least), most) / 100


@dataclass(frozen=True, slots=True)
class SpaceVerdict:
    """What the disks say.

    Attributes:
        full: why nothing may be stored, in words for producers; None when nothing is wrong there.
        keep_flag: neither full nor well below: a disk that was full still counts as full.
        force: delete what is not expired, too; says which disk, how full.
        clean: delete what is expired now, whatever the hour.
        avoided: directories that should get no new segments.
    """

    full: str | None = None
    keep_flag: bool = False
    force: str | None = None
    clean: bool = False
    avoided: frozenset[str] = frozenset()


def judge_space(log: Sequence[DiskUse], queues: DiskUse, log_bytes: int, rules: RetentionRules) -> SpaceVerdict:
    """What to do about the space that is left (store.md §12).

    Args:
        log: of each commit-log directory; the emptiest decides, since segments can go there.
        queues: of the directory of the consume queues.
        log_bytes: length of all commit-log segments.
        rules: the settings.
    """
    best = min(log, key=lambda use: (rules.short(use, rules.full_ratio), use.ratio))
    avoided = frozenset(use.path for use in log if rules.short(use, rules.force_ratio))
    for use in (best, queues):
        if rules.short(use, rules.full_ratio):
            return SpaceVerdict(_full(use, rules), force=str(use), clean=True, avoided=avoided)
    for use in (best, queues):
        if rules.short(use, rules.force_ratio):
            return SpaceVerdict(keep_flag=True, force=str(use), clean=True, avoided=avoided)
    still_full = any(rules.short(use, rules.force_ratio, _REFILL) for use in (best, queues))
    if rules.replicas > 1:
        share = log_bytes / max(best.total / rules.replicas, 1)
        text = f"{best.path}: the log takes {share:.1%} of its share of the disk"
        force = text if share > rules.share_ratio else None
        clean = force is not None or share > rules.clean_ratio
        return SpaceVerdict(keep_flag=still_full, force=force, clean=clean, avoided=avoided)
    clean = max(best.ratio, queues.ratio) > rules.clean_ratio
    return SpaceVerdict(keep_flag=still_full, clean=clean, avoided=avoided)


def _full(use: DiskUse, rules: RetentionRules) -> str:
    limit = f"the limit is diskSpaceWarningLevelRatio={round(rules.full_ratio * 100)}"
    again = f"below diskSpaceCleanForciblyRatio={round(rules.force_ratio * 100)}"
    if rules.enough_bytes:
        enough = readable_size(rules.enough_bytes)
        limit += f" with less than diskSpaceEnoughFreeBytes={rules.enough_bytes} ({enough}) free"
        again += f", or with {readable_size(int(rules.enough_bytes * _REFILL))} free"
    return (
        f"disk full: {use}, {limit}; free space (it is accepted again {again}), or keep messages for less than "
        f"fileReservedTime={rules.reserved_ms // _HOUR_MS} h; reading goes on"
    )


def has_room(uses: Iterable[DiskUse]) -> bool:
    """Whether a disk that refused a write can be tried again."""
    return all(use.free >= _MIN_FREE for use in uses)


@dataclass(frozen=True, slots=True)
class SegmentFacts:
    """A commit-log segment: its first offset, and when it was last written, ms."""

    start: int
    modified_ms: int


@dataclass(frozen=True, slots=True)
class Deletion:
    """A commit-log segment that is to go.

    Attributes:
        start: its first offset.
        modified_ms: when it was last written.
        reason: why it goes.
    """

    start: int
    modified_ms: int
    reason: Reason


def plan_log(
    segments: Sequence[SegmentFacts],
    size: int,
    needed_from: int,
    now_ms: int,
    hour: int,
    space: SpaceVerdict,
    rules: RetentionRules,
    *,
    manual: bool = False,
) -> list[Deletion]:
    """The segments to delete in one run, oldest first (store.md §2.7).

    Args:
        segments: the log's, oldest first, or as many of them as may go in one run and one more.
        size: bytes of each.
        needed_from: log offset from which everything is still needed: not on disk, or not in its queue yet.
        now_ms: wall-clock time.
        hour: the local hour.
        space: what the disks say.
        rules: the settings.
        manual: an operator requested it.
    """
    forced = space.force is not None and rules.may_force
    if not (forced or space.clean or manual or hour in rules.hours):
        return []
    plan: list[Deletion] = []
    for segment in segments[:-1]:
        expired = segment.modified_ms + rules.reserved_ms <= now_ms
        if len(plan) >= rules.batch or segment.start + size > needed_from or not (expired or forced):
            break
        plan.append(Deletion(segment.start, segment.modified_ms, Reason.EXPIRED if expired else Reason.SPACE))
    return plan


def expired_queue_segments(first_physicals: Sequence[int], smallest: int) -> int:
    """How many of a queue's segments, oldest first, may be deleted (store.md §2.7).

    A segment goes when the next one begins at or before what the log still has. The last one never goes, and so
    neither does the number of messages the queue has had.

    Args:
        first_physicals: log offset of each segment's first unit.
        smallest: the log's smallest offset.
    """
    count = 0
    while count + 1 < len(first_physicals) and first_physicals[count + 1] <= smallest:
        count += 1
    return count


def expired_index_files(ends: Sequence[int], smallest: int) -> int:
    """How many index files, oldest first, know only records that are gone; never all (store.md §8.7).

    Args:
        ends: log offset of each file's newest record.
        smallest: the log's smallest offset.
    """
    count = 0
    while count + 1 < len(ends) and ends[count] < smallest:
        count += 1
    return count


def readable_size(count: int) -> str:
    """A number of bytes for people."""
    value, units = float(count), ["B", "KiB", "MiB", "GiB", "TiB"]
    while value >= 1024 and len(units) > 1:
        value /= 1024
        units.pop(0)
    return f"{value:.0f} {units[0]}" if units[0] == "B" else f"{value:.1f} {units[0]}"
