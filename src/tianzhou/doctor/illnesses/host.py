"""Requirements on a machine for a broker in production: limits, memory, disk, interpreter."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tianzhou.doctor.findings import Finding, Illness, Severity
from tianzhou.doctor.observations import HostSeen

LEAST_FILES: Final = 65_536
LEAST_MAPS: Final = 262_144
MOST_SWAPPINESS: Final = 10
LEAST_ADDRESSES: Final = 1 << 40
LEAST_FILE: Final = 1 << 30
"""Size of a log file in bytes; the file is mapped as a whole."""
LEAST_LISTEN_QUEUE: Final = 1_024
LEAST_PROCESSORS: Final = 1.0
SLOW_SYNC_MS: Final = 20.0
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
FILE_SIZE = Illness(
    "file-size-limited",
    Severity.error,
    "A file of this user may have no more than {limit} bytes, and one of the log has {least}.",
    "Set LimitFSIZE=infinity in the service's unit, or a hard fsize limit in /etc/security/limits.conf.",
)
ADDRESSES = Illness(
    "address-space-limited",
    Severity.warning,
    "A process of this user may have no more than {limit} bytes of addresses, and files of the store are mapped whole.",
    "Set LimitAS=infinity in the service's unit, or a hard as limit in /etc/security/limits.conf.",
)
LISTEN_QUEUE = Illness(
    "listen-queue-short",
    Severity.warning,
    "No more than {limit} connections may wait until a server takes them (net.core.somaxconn): of many that come at "
    "once some are dropped and try again a second later.",
    "Set it: sysctl -w net.core.somaxconn=4096, and in /etc/sysctl.d",
)
PROCESSORS = Illness(
    "processor-share-small",
    Severity.warning,
    "A process here may use {processors} of a processor, and a broker needs a whole one.",
    "Raise the quota of the container (--cpus) or unit (CPUQuota): a processor for each broker, half of one beside.",
)
ZONE_RECLAIM = Illness(
    "zone-reclaim",
    Severity.warning,
    "The system frees its page cache before it takes memory of another node (vm.zone_reclaim_mode={mode}): consumers "
    "are then served by the disk.",
    "Set it: sysctl -w vm.zone_reclaim_mode=0, and in /etc/sysctl.d",
)
CLOCK = Illness(
    "clock-not-synchronised",
    Severity.warning,
    "The clock of this machine is not synchronised, as its kernel says: times of messages, delays and retention go by "
    "it.",
    "Have it take the time from the network (NTP): timedatectl set-ntp true, or chrony; a container has its host's "
    "clock.",
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
    "The machine or its container has {total} GiB of memory: little is left for the page cache, from which consumers "
    "are served.",
    "Give a broker 8 GiB or more; tianzhou plan brokers says how much a load needs: tianzhou plan brokers --rate 10000",
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
SYNC = Illness(
    "disk-syncs-slow",
    Severity.warning,
    "A sync takes {took} ms on the disk of {store}: with SYNC_FLUSH each send waits for one.",
    "See what else uses the disk (iostat -x 1); give the log a disk of its own, an SSD or one with a protected cache.",
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
    FILES, FILE_SIZE, ADDRESSES, LISTEN_QUEUE, PROCESSORS, MAPS, SWAP, ZONE_RECLAIM, HUGE_PAGES, MEMORY, CLOCK,
    READ_AHEAD, SCHEDULER, SYNC, DISK, FILESYSTEM, VOLATILE, READ_ONLY, NOT_OPTIMISED, DEBUG, PURE,
)  # fmt: skip


def findings(seen: HostSeen) -> Iterator[Finding]:
    """Yield the shortcomings of this machine."""
    if seen.open_files is not None and seen.open_files < LEAST_FILES:
        yield FILES.found("host", {"RLIMIT_NOFILE": seen.open_files}, limit=seen.open_files)
    if seen.file_size is not None and seen.file_size < LEAST_FILE:
        yield FILE_SIZE.found("host", {"RLIMIT_FSIZE": seen.file_size}, limit=seen.file_size, least=LEAST_FILE)
    if seen.address_space is not None and seen.address_space < LEAST_ADDRESSES:
        yield ADDRESSES.found("host", {"RLIMIT_AS": seen.address_space}, limit=seen.address_space)
    if seen.listen_queue is not None and seen.listen_queue < LEAST_LISTEN_QUEUE:
        yield LISTEN_QUEUE.found("host", {"net.core.somaxconn": seen.listen_queue}, limit=seen.listen_queue)
    if seen.processors is not None and seen.processors < LEAST_PROCESSORS:
        yield PROCESSORS.found("host", {"processors": seen.processors}, processors=f"{seen.processors:.2g}")
    yield from _kernel(seen)
    if seen.clock_synchronised is False:
        yield CLOCK.found("host", {"adjtimex": "TIME_ERROR"})
    if seen.store:
        yield from _store(seen)
    if seen.debug_build:
        yield DEBUG.found("host", {"Py_DEBUG": True})
    elif seen.optimised is False:
        yield NOT_OPTIMISED.found("host", {"--enable-optimizations": False})
    if seen.hot_mode != "compiled":
        yield PURE.found("host", {"mode": seen.hot_mode})


def _kernel(seen: HostSeen) -> Iterator[Finding]:
    if seen.max_map_count is not None and seen.max_map_count < LEAST_MAPS:
        yield MAPS.found("host", {"vm.max_map_count": seen.max_map_count}, limit=seen.max_map_count)
    if seen.swap_total and seen.swappiness is not None and seen.swappiness > MOST_SWAPPINESS:
        evidence = {"vm.swappiness": seen.swappiness, "swap_bytes": seen.swap_total}
        yield SWAP.found("host", evidence, swappiness=seen.swappiness)
    if seen.huge_pages == "always":
        yield HUGE_PAGES.found("host", {"transparent_hugepage": "always"})
    if seen.zone_reclaim:
        yield ZONE_RECLAIM.found("host", {"vm.zone_reclaim_mode": seen.zone_reclaim}, mode=seen.zone_reclaim)
    memory = {"total": seen.memory_total, "limit": seen.memory_limit, "available": seen.memory_available}
    least = min((one for one in (seen.memory_total, seen.memory_limit) if one is not None), default=LEAST_MEMORY)
    if least < LEAST_MEMORY:
        yield MEMORY.found("host", memory, total=f"{least / 1024**3:.1f}")


def _store(seen: HostSeen) -> Iterator[Finding]:
    subject, store = f"folder {seen.store}", {"store": seen.store}
    if seen.read_ahead_kb is not None and seen.read_ahead_kb > MOST_READ_AHEAD_KB:
        evidence = {"read_ahead_kb": seen.read_ahead_kb}
        yield READ_AHEAD.found(subject, evidence, kilobytes=seen.read_ahead_kb, **store)
    if seen.scheduler and seen.scheduler not in GOOD_SCHEDULERS:
        yield SCHEDULER.found(subject, {"scheduler": seen.scheduler}, scheduler=seen.scheduler, **store)
    if seen.sync_ms is not None and seen.sync_ms >= SLOW_SYNC_MS:
        yield SYNC.found(subject, {"sync_ms": round(seen.sync_ms, 2)}, took=f"{seen.sync_ms:.3g}", **store)
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
