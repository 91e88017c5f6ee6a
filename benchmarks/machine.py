"""What a benchmark's reader has to know of the machine: what it is, and what its disk and its memory can do.

.venv/bin/python benchmarks/machine.py [--dir FOLDER]
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import mmap
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from importlib import metadata
from pathlib import Path

MIB = 1 << 20
PAGE = 4096


def describe(folder: Path) -> dict[str, str]:
    """Name the machine and what runs on it.

    Args:
        folder: where the stores will be; its file system is named.
    """
    memory = int(_field("/proc/meminfo", "MemTotal", "0").split()[0]) / MIB
    return {
        "date": dt.datetime.now(dt.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "CPU": f"{_field('/proc/cpuinfo', 'model name', 'unknown')}, {os.cpu_count()} cores seen",
        "memory": f"{memory:.1f} GiB",
        "kernel": f"{platform.system()} {platform.release()}",
        "store on": _file_system(folder),
        "Java": _first_line(["java", "-version"]),
        "Python": f"{platform.python_implementation()} {platform.python_version()}, "
        + ", ".join(_version(name) for name in ("uvloop", "isal", "msgspec")),
        "load when it began": ", ".join(f"{load:.2f}" for load in os.getloadavg()),
    }


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


def touch_memory(folder: Path, mib: int = 512) -> dict[str, float]:
    """Touch every page of a fresh sparse file through a map, as a log that grows does, MiB by MiB.

    On a virtual machine memory that the host has to provide anew can cost ten times as much as memory that was in
    use before, and stops a core meanwhile: the p99 of every broker has it in it.
    """
    steps = []
    one_per_page = bytes(b"\x01" * (MIB // PAGE))
    with tempfile.TemporaryFile(dir=folder) as file:
        file.truncate(mib * MIB)
        with mmap.mmap(file.fileno(), mib * MIB) as memory:
            for start in range(0, mib * MIB, MIB):
                began = time.perf_counter()
                memory[start : start + MIB : PAGE] = one_per_page
                steps.append(time.perf_counter() - began)
    return {
        "touched_mib": mib,
        "touch_s_per_gib": round(sum(steps) * 1024 / mib, 3),
        "touch_median_ms_per_mib": round(statistics.median(steps) * 1e3, 3),
        "touch_longest_ms_per_mib": round(max(steps) * 1e3, 3),
    }


def disk_limit(folder: Path, seconds: float = 10, syncs: int = 500) -> dict[str, float]:
    """Find what the disk gives to a single writer: MB/s written and synced, and the time of a small append's sync.

    Args:
        folder: where to write; what is written is removed again.
        seconds: how long to write in one go, a sync every 64 MiB.
        syncs: how many appends of 4 KiB with a sync each.
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


def in_words(touched: dict[str, float], disk: dict[str, float]) -> dict[str, str]:
    """What was measured of memory and disk, as lines of the machine's description."""
    return {
        "fresh memory": f"{touched['touch_s_per_gib']:.2f} s per GiB touched through a map of a new file; a MiB takes "
        f"{touched['touch_median_ms_per_mib']:.2f} ms (median), {touched['touch_longest_ms_per_mib']:.1f} ms (longest)",
        "disk": f"{disk['disk_mb_per_s']:.0f} MB/s written and synced; 4 KiB appended and synced in "
        f"{disk['sync_p50_us']:.0f} µs (p50), {disk['sync_p99_us']:.0f} µs (p99)",
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dir", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--mib", type=int, default=512, help="how much fresh memory to touch")
    parser.add_argument("--seconds", type=float, default=10, help="how long to write to the disk")
    arguments = parser.parse_args()
    touched = touch_memory(arguments.dir, arguments.mib)
    disk = disk_limit(arguments.dir, arguments.seconds)
    json.dump({**describe(arguments.dir), **in_words(touched, disk)}, sys.stdout, indent=1, ensure_ascii=False)
    print()


if __name__ == "__main__":
    main()
