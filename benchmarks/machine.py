"""The description of the machine for a benchmark's reader: model, disk speed and memory speed.

    .venv/bin/python benchmarks/machine.py

The disk is that of temporary files; TMPDIR names another one, for all benchmarks.
"""

from __future__ import annotations

import datetime as dt
import json
import mmap
import os
import platform
import shutil
import statistics
import subprocess
import tempfile
import time
from importlib import metadata
from pathlib import Path

MIB = 1 << 20
PAGE = 4096


def describe(folder: Path) -> dict[str, str]:
    """Return the machine's model and software versions.

    Args:
        folder: folder of the stores; the description names its file system.
    """
    memory = int(_field("/proc/meminfo", "MemTotal", "0").split()[0]) / MIB
    return {
        "date": dt.datetime.now(dt.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "CPU": f"{_field('/proc/cpuinfo', 'model name', 'unknown')}, {os.cpu_count()} cores seen",
        "memory": f"{memory:.1f} GiB",
        "kernel": f"{platform.system()} {platform.release()}",
        "store on": f"{_file_system(folder)}, {_read_ahead(folder)}",
        "Java": _first_line(["java", "-version"]),
        "Python": f"{platform.python_implementation()} {platform.python_version()}, "
        + ", ".join(_version(name) for name in ("uvloop", "isal", "msgspec")),
        "load when it began": ", ".join(f"{load:.2f}" for load in os.getloadavg()),
    }


class Stolen:
    """Processor time that a virtual machine's host did not give to it."""

    def __init__(self) -> None:
        self._all = self._stolen = 0
        self._last = _processor_times()

    def skip(self) -> None:
        """Leave out the time since the last `count`."""
        self._last = _processor_times()

    def count(self) -> None:
        """Count the time since the last `count` or `skip`."""
        now = _processor_times()
        self._all += now[0] - self._last[0]
        self._stolen += now[1] - self._last[1]
        self._last = now

    def __str__(self) -> str:
        return f"{self._stolen / max(1, self._all):.0%}"


def _processor_times() -> tuple[int, int]:
    """Return all processor time since boot, and the stolen part of it, in kernel ticks."""
    times = [int(ticks) for ticks in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return sum(times), times[-1]


def _read_ahead(folder: Path) -> str:
    device = folder.stat().st_dev
    setting = Path(f"/sys/class/bdi/{os.major(device)}:{os.minor(device)}/read_ahead_kb")
    return f"reads ahead {setting.read_text().strip()} KiB" if setting.is_file() else "reads ahead as it likes"


def _field(path: str, name: str, otherwise: str) -> str:
    for line in Path(path).read_text().splitlines():
        if line.split(":")[0].strip() == name:
            return line.split(":", 1)[1].strip()
    return otherwise


def _first_line(command: list[str]) -> str:
    if shutil.which(command[0]) is None:
        return "not installed"
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    lines = [line for line in (run.stderr + run.stdout).splitlines() if not line.startswith("Picked up")]
    return lines[0].strip() if lines else "says nothing"


def _version(package: str) -> str:
    try:
        return f"{package} {metadata.version(package)}"
    except metadata.PackageNotFoundError:
        return f"no {package}"


def _file_system(folder: Path) -> str:
    place = str(folder.resolve())
    best = ("", "unknown", "", "")
    for line in Path("/proc/mounts").read_text().splitlines():
        device, mount, kind, options = line.split()[:4]
        inside = place == mount or place.startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= len(best[0]):
            best = (mount, kind, device, options)
    free = shutil.disk_usage(folder).free / (1 << 30)
    return f"{best[1]} on {best[2]} ({best[3]}), {free:.0f} GiB free"


def touch_memory(folder: Path, mib: int = 512) -> str:
    """Touch every page of a fresh sparse file through a map, MiB by MiB, like a growing log; return a description.

    Measure twice: with the kernel's default, which reads ahead of each missing page (`read_ahead_kb` of the disk, zeros
    for a sparse file), and page by page (MADV_RANDOM), like Tianzhou's broker. The longest step is in the p99 of every
    broker that maps its log.
    """
    ways = {"by itself": mmap.MADV_NORMAL, "page by page": mmap.MADV_RANDOM}
    texts = []
    for way, advice in ways.items():
        steps = _touch(folder, mib, advice)
        texts.append(
            f"{way} {sum(steps) * 1024 / mib:.2f} s per GiB, a MiB {statistics.median(steps) * 1e3:.2f} ms (median), "
            f"{max(steps) * 1e3:.1f} ms (longest)"
        )
    return "; ".join(texts)


def _touch(folder: Path, mib: int, advice: int) -> list[float]:
    steps = []
    one_per_page = bytes(b"\x01" * (MIB // PAGE))
    with tempfile.TemporaryFile(dir=folder) as file:
        file.truncate(mib * MIB)
        with mmap.mmap(file.fileno(), mib * MIB) as memory:
            memory.madvise(advice)
            for start in range(0, mib * MIB, MIB):
                began = time.perf_counter()
                memory[start : start + MIB : PAGE] = one_per_page
                steps.append(time.perf_counter() - began)
    return steps


def disk_limit(folder: Path, seconds: float = 10, syncs: int = 500) -> dict[str, float]:
    """Measure the disk for a single writer: MB/s written and synced, and the sync time of a small append.

    Args:
        folder: folder of the test file, which is removed afterwards.
        seconds: duration of the sequential write, with a sync every 64 MiB.
        syncs: number of appends of 4 KiB with a sync each.
    """
    piece = os.urandom(MIB)
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        written, began = 0, time.perf_counter()
        while time.perf_counter() - began < seconds:
            for _ in range(64):
                written += os.write(file.fileno(), piece)
            os.fdatasync(file.fileno())
        rate = written / (time.perf_counter() - began) / 1e6
    times = []
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        for _ in range(syncs):
            began = time.perf_counter()
            os.write(file.fileno(), piece[:PAGE])
            os.fdatasync(file.fileno())
            times.append(time.perf_counter() - began)
    times.sort()
    return {
        "disk_mb_per_s": round(rate, 1),
        "sync_p50_us": round(times[len(times) // 2] * 1e6, 1),
        "sync_p99_us": round(times[len(times) * 99 // 100] * 1e6, 1),
    }


def in_words(disk: dict[str, float]) -> str:
    """Return the disk figures as text for the machine's description."""
    return (
        f"{disk['disk_mb_per_s']:.0f} MB/s written and synced; 4 KiB appended and synced in "
        f"{disk['sync_p50_us']:.0f} µs (p50), {disk['sync_p99_us']:.0f} µs (p99)"
    )


def main() -> None:
    """Measure and print."""
    folder = Path(tempfile.gettempdir())
    measured = {"fresh memory": touch_memory(folder), "disk": in_words(disk_limit(folder))}
    print(json.dumps(describe(folder) | measured, indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main()
