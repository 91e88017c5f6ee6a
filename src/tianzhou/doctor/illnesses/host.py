"""What a machine should be like for a broker in production: limits, memory, disk, interpreter."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tianzhou.doctor.findings import Finding, Illness, Severity
from tianzhou.doctor.observations import HostSeen

LEAST_FILES: Final = 65_536
LEAST_MAPS: Final = 262_144
MOST_SWAPPINESS: Final = 10
LEAST_MEMORY: Final = 2 * 1024**3
MOST_READ_AHEAD_KB: Final = 128
DISK_RATIO: Final = 0.75
"""Default of `diskMaxUsedSpaceRatio`."""
REMOTE_FILESYSTEMS: Final = frozenset({"nfs", "nfs4", "cifs", "smb3", "9p", "fuse", "fuse.sshfs", "overlay", "aufs"})
VOLATILE_FILESYSTEMS: Final = frozenset({"tmpfs", "ramfs"})
GOOD_SCHEDULERS: Final = frozenset({"none", "mq-deadline", "noop", "deadline", "kyber"})

FILES = Illness(
    "open-files-limit-low",
    Severity.warning,
    "This user may have {limit} files open, and every connection and file of the store is one.",
    "Set LimitNOFILE=655350 in the service's unit, or a hard nofile limit in /etc/security/limits.conf.",
)
MAPS = Illness(
    "max-map-count-low",
    Severity.warning,
    "A process may have {limit} mappings (vm.max_map_count), and every file of the store is one.",
    "Set it: sysctl -w vm.max_map_count=655360, and in /etc/sysctl.d",
)
SWAP = Illness(
    "swap-eager",
    Severity.warning,
    "The system swaps eagerly (vm.swappiness={swappiness}): what a broker needs at once may lie on the disk.",
    "Set it: sysctl -w vm.swappiness=1, or have no swap.",
)
HUGE_PAGES = Illness(
    "transparent-huge-pages",
    Severity.warning,
    "Transparent huge pages are always on: the system holds processes up while it puts pages together.",
    "Set it: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
)
MEMORY = Illness(
    "little-memory",
    Severity.warning,
    "The machine has {total} GiB of memory: little is left for the page cache, from which consumers are served.",
    "Give a broker 8 GiB or more; tianzhou plan says how much a load needs: tianzhou plan --rate 10000",
)
READ_AHEAD = Illness(
    "read-ahead-high",
    Severity.warning,
    "The disk of {store} reads {kilobytes} KiB ahead of each read: look-ups and cold reads take memory from newer "
    "messages.",
    "Set it: echo 128 > /sys/block/DEVICE/queue/read_ahead_kb",
)
SCHEDULER = Illness(
    "io-scheduler",
    Severity.warning,
    "The disk of {store} is served by scheduler {scheduler}, which delays syncs behind reads of others.",
    "Set it: echo mq-deadline > /sys/block/DEVICE/queue/scheduler (none for NVMe)",
)
DISK = Illness(
    "little-disk-left",
    Severity.warning,
    "The disk of {store} is {ratio:.0%} full: from 75% on messages are deleted before their time, from 90% on sends "
    "are refused.",
    "Make room, or give the store a disk of its own (storePathRootDir, serve --data).",
)
FILESYSTEM = Illness(
    "store-filesystem",
    Severity.warning,
    "{store} lies on {filesystem}, for which syncs and mapped files are slow or not safe.",
    "Put the store on a local ext4 or xfs.",
)
VOLATILE = Illness(
    "store-in-memory",
    Severity.error,
    "{store} lies in memory ({filesystem}): everything is gone after a restart of the machine.",
    "Put the store on a disk: tianzhou serve --data FOLDER",
)
READ_ONLY = Illness(
    "store-read-only",
    Severity.error,
    "{store} lies on a file system that is mounted read-only.",
    "Look at the system's log for errors of the disk, and mount it again.",
)
NOT_OPTIMISED = Illness(
    "interpreter-not-optimised",
    Severity.note,
    "The Python interpreter was built without profile-guided optimisation; one that was is 10 to 30% faster.",
    "Use the system's or python.org's interpreter, or build it with --enable-optimizations.",
)
DEBUG = Illness(
    "interpreter-debug-build",
    Severity.warning,
    "The Python interpreter is a debug build, several times slower than another.",
    "Use one that was built without --with-pydebug.",
)
PURE = Illness(
    "pure-mode",
    Severity.warning,
    "The hot functions run in Python: a broker takes a fraction of what the compiled ones let it take.",
    "Install gcc and python3-dev and install again: pip install --force-reinstall --no-deps tianzhou (TIANZHOU_PURE "
    "has to be unset).",
)

ILLNESSES: Final = (
    FILES, MAPS, SWAP, HUGE_PAGES, MEMORY, READ_AHEAD, SCHEDULER, DISK, FILESYSTEM, VOLATILE, READ_ONLY,
    NOT_OPTIMISED, DEBUG, PURE,
)  # fmt: skip


def findings(seen: HostSeen) -> Iterator[Finding]:
    """What this machine lacks."""
    if seen.open_files is not None and seen.open_files < LEAST_FILES:
        yield FILES.found("host", {"RLIMIT_NOFILE": seen.open_files}, limit=seen.open_files)
    if seen.max_map_count is not None and seen.max_map_count < LEAST_MAPS:
        yield MAPS.found("host", {"vm.max_map_count": seen.max_map_count}, limit=seen.max_map_count)
    if seen.swap_total and seen.swappiness is not None and seen.swappiness > MOST_SWAPPINESS:
        evidence = {"vm.swappiness": seen.swappiness, "swap_bytes": seen.swap_total}
        yield SWAP.found("host", evidence, swappiness=seen.swappiness)
    if seen.huge_pages == "always":
        yield HUGE_PAGES.found("host", {"transparent_hugepage": "always"})
    if seen.memory_total is not None and seen.memory_total < LEAST_MEMORY:
        total = f"{seen.memory_total / 1024**3:.1f}"
        yield MEMORY.found("host", {"total": seen.memory_total, "available": seen.memory_available}, total=total)
    if seen.store:
        yield from _store(seen)
    if seen.debug_build:
        yield DEBUG.found("host", {"Py_DEBUG": True})
    elif seen.optimised is False:
        yield NOT_OPTIMISED.found("host", {"--enable-optimizations": False})
    if seen.hot_mode != "compiled":
        yield PURE.found("host", {"mode": seen.hot_mode})


def _store(seen: HostSeen) -> Iterator[Finding]:
    subject, store = f"folder {seen.store}", {"store": seen.store}
    if seen.read_ahead_kb is not None and seen.read_ahead_kb > MOST_READ_AHEAD_KB:
        evidence = {"read_ahead_kb": seen.read_ahead_kb}
        yield READ_AHEAD.found(subject, evidence, kilobytes=seen.read_ahead_kb, **store)
    if seen.scheduler and seen.scheduler not in GOOD_SCHEDULERS:
        yield SCHEDULER.found(subject, {"scheduler": seen.scheduler}, scheduler=seen.scheduler, **store)
    if seen.disk_total and seen.disk_free is not None:
        ratio = 1 - seen.disk_free / seen.disk_total
        if ratio >= DISK_RATIO:
            yield DISK.found(subject, {"total": seen.disk_total, "free": seen.disk_free}, ratio=ratio, **store)
    if "ro" in seen.mount_options:
        yield READ_ONLY.found(subject, {"mounted": "ro"}, **store)
    lies_on = {"filesystem": seen.filesystem}
    if seen.filesystem in VOLATILE_FILESYSTEMS:
        yield VOLATILE.found(subject, lies_on, filesystem=seen.filesystem, **store)
    elif seen.filesystem in REMOTE_FILESYSTEMS:
        yield FILESYSTEM.found(subject, lies_on, filesystem=seen.filesystem, **store)
