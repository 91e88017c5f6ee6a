"""Retention rules: the files to delete, and whether the disk is full (store.md §12, §2.7, §5.7, §8.7).

Decisions only: the arguments describe disks and files, and the results are deletions with their reasons.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from tianzhou.store.settings import StoreSettings, parse_hours

MANUAL_RUNS: Final = 20
"""Number of runs that delete expired files at any hour after an operator's request."""
_MIN_FREE: Final = 1 << 20
_HOUR_MS: Final = 3_600_000
_REFILL: Final = 1.1
"""Factor of `enough_bytes` that must be free before a disk that was full no longer counts as full."""


class Reason(Enum):
    """The reason for the deletion of a commit-log segment."""

    EXPIRED = "older than fileReservedTime"
    SPACE = "the disk is nearly full (diskSpaceCleanForciblyRatio), not expired yet"


@dataclass(frozen=True, slots=True)
class DiskUse:
    """The use of a directory's file system.

    Attributes:
        path: the directory.
        used: bytes in use.
        free: bytes that this user can still write.
        total: size in bytes.
    """

    path: str
    used: int
    free: int
    total: int

    @property
    def ratio(self) -> float:
        """Used share of the usable space, 0 to 1."""
        return self.used / (self.used + self.free) if self.used + self.free else 1.0

    def __str__(self) -> str:
        return f"{self.path}: {self.ratio:.1%} used, {readable_size(self.free)} free"


@dataclass(frozen=True, slots=True)
class RetentionRules:
    """The present settings of retention.

    Attributes:
        reserved_ms: retention time of a file after its last write.
        hours: local hours in which expired files are deleted.
        clean_ratio: used share of a disk, 0 to 1, above which expired files are deleted at any hour.
        force_ratio: used share above which files are deleted before they expire, if `may_force`.
        full_ratio: used share above which the store refuses messages.
        may_force: `cleanFileForciblyEnable`.
        batch: maximum number of segments per run.
        replicas: number of stores that share the disk.
        share_ratio: with several stores, part of its share above which a store deletes files before they expire.
        enough_bytes: free bytes with which a disk is above neither `force_ratio` nor `full_ratio`; 0 disables this.
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
        """Whether a disk is above a limit and has too few free bytes.

        Args:
            use: use of the disk.
            ratio: the limit.
            factor: factor of `enough_bytes`.
        """
        return use.ratio > ratio and not 0 < self.enough_bytes * factor <= use.free


def rules_of(settings: StoreSettings) -> RetentionRules:
    """Return the rules in force, with RocketMQ's bounds on the ratios."""
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
    """The consequences of the disks' use.

    Attributes:
        full: why the store refuses messages, as text for producers; None when it does not.
        keep_flag: whether the use is in between, so that a disk that was full still counts as full.
        force: the disk and its use, when files must be deleted before they expire; else None.
        clean: whether expired files must be deleted now, at any hour.
        avoided: directories that should get no new segments.
    """

    full: str | None = None
    keep_flag: bool = False
    force: str | None = None
    clean: bool = False
    avoided: frozenset[str] = frozenset()


def judge_space(log: Sequence[DiskUse], queues: DiskUse, log_bytes: int, rules: RetentionRules) -> SpaceVerdict:
    """Return the consequences of the free space (store.md §12).

    Args:
        log: disk use of each commit-log directory; the emptiest decides, because it can take new segments.
        queues: disk use of the directory of the consume queues.
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
    """Whether a disk that refused a write has room for a retry."""
    return all(use.free >= _MIN_FREE for use in uses)


@dataclass(frozen=True, slots=True)
class SegmentFacts:
    """A commit-log segment: its first offset, and the time of its last write, ms."""

    start: int
    modified_ms: int


@dataclass(frozen=True, slots=True)
class Deletion:
    """A commit-log segment to delete.

    Attributes:
        start: its first offset.
        modified_ms: time of its last write.
        reason: why it is deleted.
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
    """Return the segments to delete in one run, oldest first (store.md §2.7).

    Args:
        segments: the log's, oldest first, or at least one more than a run may delete.
        size: bytes of each.
        needed_from: first log offset still needed: its record is not on disk, or not in its queue yet.
        now_ms: wall-clock time.
        hour: the local hour.
        space: consequences of the disks' use.
        rules: the settings.
        manual: whether an operator requested the run.
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
    """Return how many of a queue's segments, oldest first, may be deleted (store.md §2.7).

    A segment may be deleted when the next one begins at or before the log's smallest offset. The last one is never
    deleted, because it has the number of the queue's messages.

    Args:
        first_physicals: log offset of each segment's first unit.
        smallest: the log's smallest offset.
    """
    count = 0
    while count + 1 < len(first_physicals) and first_physicals[count + 1] <= smallest:
        count += 1
    return count


def expired_index_files(ends: Sequence[int], smallest: int) -> int:
    """Return how many index files, oldest first, have only records that are deleted; never all (store.md §8.7).

    Args:
        ends: log offset of each file's newest record.
        smallest: the log's smallest offset.
    """
    count = 0
    while count + 1 < len(ends) and ends[count] < smallest:
        count += 1
    return count


def readable_size(count: int) -> str:
    """Return a number of bytes in a form for people."""
    value, units = float(count), ["B", "KiB", "MiB", "GiB", "TiB"]
    while value >= 1024 and len(units) > 1:
        value /= 1024
        units.pop(0)
    return f"{value:.0f} {units[0]}" if units[0] == "B" else f"{value:.1f} {units[0]}"
