"""A look at this machine: limits, memory, the disk of a store, the interpreter; and files with secrets."""

from __future__ import annotations

import re
import resource
import shutil
import socket
import stat
import sysconfig
from collections.abc import Iterable
from pathlib import Path

from tianzhou import _hot
from tianzhou.doctor.observations import BrokerSeen, HostSeen, SecretFileSeen


def see_host(store: Path | None = None, root: Path = Path("/")) -> HostSeen:
    """Read this machine.

    Args:
        store: the folder that a broker keeps its store in.
        root: where `proc` and `sys` are.
    """
    memory = _memory(root)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    config = sysconfig.get_config_vars()
    arguments = str(config.get("CONFIG_ARGS") or "")
    filesystem, options, device = _mount(root, store)
    queue = root / "sys" / "dev" / "block" / device / "queue" if device else None
    if queue is not None and not queue.exists():
        queue = queue.parent.parent / "queue"  # of the disk that the partition is on
    usage = shutil.disk_usage(_existing(store)) if store is not None else None
    return HostSeen(
        open_files=None if hard == resource.RLIM_INFINITY else hard,
        max_map_count=_number(root / "proc/sys/vm/max_map_count"),
        swap_total=memory.get("SwapTotal"),
        swappiness=_number(root / "proc/sys/vm/swappiness"),
        huge_pages=_chosen(root / "sys/kernel/mm/transparent_hugepage/enabled"),
        memory_total=memory.get("MemTotal"),
        memory_available=memory.get("MemAvailable"),
        store="" if store is None else str(store),
        filesystem=filesystem,
        mount_options=options,
        disk_total=None if usage is None else usage.total,
        disk_free=None if usage is None else usage.free,
        scheduler="" if queue is None else _chosen(queue / "scheduler"),
        read_ahead_kb=None if queue is None else _number(queue / "read_ahead_kb"),
        rotational=None if queue is None or (turns := _number(queue / "rotational")) is None else bool(turns),
        optimised="--enable-optimizations" in arguments if arguments else None,
        debug_build=bool(config.get("Py_DEBUG")),
        hot_mode=_hot.MODE,
    )


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _number(path: Path) -> int | None:
    text = _text(path).strip()
    return int(text) if text.isdigit() else None


def _chosen(path: Path) -> str:
    """The value in brackets of `always [madvise] never`; the text itself when it is one word."""
    text = _text(path).strip()
    found = re.search(r"\[([^\]]+)\]", text)
    return found[1] if found is not None else text if " " not in text else ""


def _memory(root: Path) -> dict[str, int]:
    found = re.findall(r"^(\w+):\s+(\d+) kB$", _text(root / "proc/meminfo"), re.MULTILINE)
    return {name: int(kilobytes) * 1024 for name, kilobytes in found}


def _existing(path: Path) -> Path:
    path = path.absolute()
    return next(one for one in (path, *path.parents) if one.exists())


def _mount(root: Path, store: Path | None) -> tuple[str, frozenset[str], str]:
    """File system, options and device number of the mount that a folder is on."""
    if store is None:
        return "", frozenset(), ""
    place = _existing(store).resolve()
    best: tuple[int, str, frozenset[str], str] = (-1, "", frozenset(), "")
    for line in _text(root / "proc/self/mountinfo").splitlines():
        left, _, right = line.partition(" - ")
        parts, kind = left.split(), right.split()
        if len(parts) < 6 or not kind:
            continue
        at = Path(parts[4].replace("\\040", " "))
        if place.is_relative_to(at) and len(at.parts) >= best[0]:
            best = len(at.parts), kind[0], frozenset(parts[5].split(",")), parts[2]
    return best[1:]


def see_secret_files(brokers: Iterable[BrokerSeen]) -> list[SecretFileSeen]:
    """Files with secrets of those brokers that run on this machine, and who may read them.

    What a broker elsewhere names is nobody's business here.
    """
    found: dict[str, SecretFileSeen] = {}
    for broker in brokers:
        if not _is_here(broker.status.address):
            continue
        for path in _secrets_of(broker):
            try:
                found[str(path)] = SecretFileSeen(str(path), stat.S_IMODE(path.stat().st_mode))
            except OSError:
                continue
    return list(found.values())


def _secrets_of(broker: BrokerSeen) -> list[Path]:
    """Where its settings, accounts and users may be (docs/howto/access-control.md)."""
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
