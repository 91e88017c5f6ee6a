"""Observation of this machine: limits, memory, the disk of a store, the interpreter, and files with secrets."""

from __future__ import annotations

import ctypes
import os
import re
import resource
import shutil
import socket
import stat
import sysconfig
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from statistics import median
from typing import Final

from tianzhou import _hot
from tianzhou.doctor.looks import container
from tianzhou.doctor.looks.container import text
from tianzhou.doctor.looks.interpreter import optimised
from tianzhou.doctor.observations import BrokerSeen, HostSeen, SecretFileSeen
from tianzhou.setting_files import decoded

_TIMEX_BYTES: Final = 512
"""Buffer size in bytes, larger than the kernel's `struct timex`."""
_TIME_ERROR: Final = 5
_SYNCS: Final = 9
_PAGE: Final = 4096
_MAX_SECRET_FILE_BYTES: Final = 1 << 20
"""Maximum number of bytes of a file that are searched for a secret."""
_SECRET: Final = re.compile(
    r"""(?mx)
    ^\s*(?:initAuthenticationUser|innerClientAuthenticationCredentials|tls\.(?:server|client)\.keyPassword)
    [ \t]*[=:][ \t]*\S
    | ^\s*socksProxyConfig[ \t]*[=:].*"password"\s*:\s*"[^"]
    | ^[^\#\n]*\bsecretKey["']?\s*:[ \t]*[^\s\#]
    | "password"\s*:\s*"[^"]
    """
)
"""Pattern of a secret in a file of settings, of accounts (plain_acl.yml) or of users (users.json)."""


def see_host(store: Path | None = None, root: Path = Path("/")) -> HostSeen:
    """Read the resources of this machine.

    Args:
        store: the broker's store folder.
        root: folder that contains `proc` and `sys`.
    """
    memory = _memory(root)
    filesystem, options, device = _mount(root, store)
    queue = _queue(device)
    usage = shutil.disk_usage(_existing(store)) if store is not None else None
    return HostSeen(
        open_files=_hard_limit(resource.RLIMIT_NOFILE),
        max_map_count=_number(root / "proc/sys/vm/max_map_count"),
        address_space=_hard_limit(resource.RLIMIT_AS),
        file_size=_hard_limit(resource.RLIMIT_FSIZE),
        listen_queue=_number(root / "proc/sys/net/core/somaxconn"),
        processors=container.processors(root),
        zone_reclaim=_number(root / "proc/sys/vm/zone_reclaim_mode"),
        clock_synchronised=_clock_synchronised(),
        swap_total=memory.get("SwapTotal"),
        swappiness=_number(root / "proc/sys/vm/swappiness"),
        huge_pages=_chosen(root / "sys/kernel/mm/transparent_hugepage/enabled"),
        memory_total=memory.get("MemTotal"),
        memory_limit=container.memory_limit(root),
        memory_available=memory.get("MemAvailable"),
        store="" if store is None else str(store),
        filesystem=filesystem,
        mount_options=options,
        disk_total=None if usage is None else usage.total,
        disk_free=None if usage is None else usage.free,
        scheduler="" if queue is None else _scheduler(queue),
        read_ahead_kb=None if queue is None else _number(queue / "read_ahead_kb"),
        rotational=None if queue is None or (turns := _number(queue / "rotational")) is None else bool(turns),
        sync_ms=None if store is None else _sync_ms(store),
        optimised=optimised(),
        debug_build=bool(sysconfig.get_config_var("Py_DEBUG")),
        hot_mode=_hot.MODE,
    )


def _hard_limit(kind: int) -> int | None:
    hard = resource.getrlimit(kind)[1]
    return None if hard == resource.RLIM_INFINITY else hard


def _clock_synchronised() -> bool | None:
    """Return whether the kernel reports a synchronised clock; None when the kernel cannot be asked."""
    try:
        # A zeroed `struct timex` reads the state and changes nothing.
        state = ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(_TIMEX_BYTES))
    except (OSError, AttributeError):
        return None
    return None if state < 0 else state != _TIME_ERROR


def _queue(device: Path | None) -> Path | None:
    """Return the folder of a block device's queue. A partition uses the queue of its disk."""
    if device is None or not device.exists():
        return None
    return next((queue for queue in (device / "queue", device.resolve().parent / "queue") if queue.exists()), None)


def _scheduler(queue: Path) -> str:
    """Return the I/O scheduler.

    A volume of several disks (LVM, encrypted) uses that of its first disk with a scheduler.
    """
    below = sorted((queue.parent / "slaves").glob("*/queue"))
    names = [_chosen(one / "scheduler") for one in (queue, *below)]
    return next((name for name in names if name not in {"", "none"}), names[0])


def _sync_ms(store: Path) -> float | None:
    """Return the median time to sync one page in ms, measured in an unnamed temporary file."""
    try:
        with tempfile.TemporaryFile(dir=_existing(store), buffering=0) as file:
            times = []
            for _ in range(_SYNCS):
                file.write(bytes(_PAGE))
                began = time.perf_counter()
                os.fdatasync(file.fileno())
                times.append((time.perf_counter() - began) * 1000)
    except OSError:
        return None
    return median(times)


def _number(path: Path) -> int | None:
    found = text(path)
    return int(found) if found.isdigit() else None


def _chosen(path: Path) -> str:
    """Return the value in brackets of `always [madvise] never`, or the text itself when it is one word."""
    whole = text(path)
    found = re.search(r"\[([^\]]+)\]", whole)
    return found[1] if found is not None else whole if " " not in whole else ""


def _memory(root: Path) -> dict[str, int]:
    found = re.findall(r"^(\w+):\s+(\d+) kB$", text(root / "proc/meminfo"), re.MULTILINE)
    return {name: int(kilobytes) * 1024 for name, kilobytes in found}


def _existing(path: Path) -> Path:
    path = path.absolute()
    return next(one for one in (path, *path.parents) if one.exists())


def _mount(root: Path, store: Path | None) -> tuple[str, frozenset[str], Path | None]:
    """Return the file system and options of the mount that contains a folder, and its block device."""
    if store is None:
        return "", frozenset(), None
    place = _existing(store).resolve()
    best: tuple[int, str, frozenset[str], Path | None] = (-1, "", frozenset(), None)
    for line in text(root / "proc/self/mountinfo").splitlines():
        left, _, right = line.partition(" - ")
        parts, kind = left.split(), right.split()
        if len(parts) < 6 or not kind:
            continue
        at = Path(parts[4].replace("\\040", " "))
        if place.is_relative_to(at) and len(at.parts) >= best[0]:
            number, source = parts[2], kind[1] if len(kind) > 1 else ""
            device = root / "sys/dev/block" / number
            if number.startswith("0:") and source.startswith("/dev/"):
                # btrfs has device numbers that sysfs does not list
                device = root / "sys/class/block" / Path(source).name
            best = len(at.parts), kind[0], frozenset(parts[5].split(",")), device
    return best[1:]


def see_secret_files(brokers: Iterable[BrokerSeen]) -> list[SecretFileSeen]:
    """Return files with secrets of brokers that run on this machine, with their permission bits.

    A file counts only when it contains a secret. Files of brokers on other machines are not read.
    """
    found: dict[str, SecretFileSeen] = {}
    for broker in brokers:
        if not _is_here(broker.status.address):
            continue
        for path in _secrets_of(broker):
            try:
                mode = stat.S_IMODE(path.stat().st_mode)
                if _has_secret(path):
                    found[str(path)] = SecretFileSeen(str(path), mode)
            except OSError:
                continue
    return list(found.values())


def _has_secret(path: Path) -> bool:
    """Whether a file of settings, accounts or users contains a secret.

    Raises:
        OSError: the file cannot be read.
    """
    with path.open("rb") as file:
        text = decoded(file.read(_MAX_SECRET_FILE_BYTES))
    return _SECRET.search(text) is not None


def _secrets_of(broker: BrokerSeen) -> list[Path]:
    """Return the possible paths of a broker's settings, accounts and users (docs/howto/access-control.md)."""
    paths = []
    if config := broker.setting("brokerConfigPath"):
        paths += [Path(config), Path(config).with_name("plain_acl.yml"), Path(config).parent / "conf" / "plain_acl.yml"]
    if home := broker.setting("rocketmqHome"):
        paths.append(Path(home, "conf", "plain_acl.yml"))
    if root := broker.setting("storePathRootDir"):
        paths += [Path(root, "config", "users.json"), Path(root).with_name("plain_acl.yml")]
    return paths


def _is_here(address: str) -> bool:
    host = address.rpartition(":")[0].strip("[]")
    try:
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.bind((host, 0))
    except OSError:
        return False
    return True
