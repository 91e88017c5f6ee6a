"""How long a store takes to open, and until its index is whole, after each way to stop.

    .venv/bin/python benchmarks/restart.py [--gib 1]

The times are the duration of `MessageStore.open()` in a fresh process, the time until key queries find every message,
and the longest block of the loop meanwhile. The pages are in memory, as after the death of a process.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tianzhou.store import MessageStore, NewRecord, StoreSettings

TOPIC = "Restart"
QUEUES = 8
STOPS = {
    "clean": "stopped",
    "served": "killed in service",
    "power": "killed in service, and nothing believed that was not synced",
    "killed": "killed without ever having synced queues",
}
BODY = 1024
SERVED_S = 8
"""Seconds that a broker serves before it is killed."""


def settings_for(folder: str) -> StoreSettings:
    return StoreSettings(store_path_root_dir=folder, disk_max_used_space_ratio=99)


def fill(store: MessageStore, upto: int, until_s: float = math.inf) -> None:
    """Append and dispatch until the log ends at `upto`, or until a time of the monotonic clock."""
    content = os.urandom(BODY)
    number = 0
    while store.end_offset < upto and time.monotonic() < until_s:
        for _ in range(64):
            key = f"7F00000100000000{number:016X}"
            properties = f"UNIQ_KEY\x01{key}\x02WAIT\x01true\x02".encode()
            store.append(NewRecord(TOPIC, number % QUEUES, content, properties, uniq_key=key))
            number += 1


def build(folder: str, gib: float, how: str) -> None:
    """In a process of its own: fill a store, then stop it cleanly or wait to be killed."""
    store = MessageStore(settings_for(folder))

    async def serve() -> None:
        async with store:
            end = store.end_offset + int(gib * 2**30)
            while store.end_offset < end:
                fill(store, end, time.monotonic() + 0.01)
                await asyncio.sleep(0)
            print("full", flush=True)
            # A serving broker: a thousand messages a second until the end.
            while True:
                fill(store, store.end_offset + 10 * BODY)
                await asyncio.sleep(0.01)

    if how in {"served", "power"}:
        asyncio.run(serve())
        return
    store.open()
    fill(store, int(gib * 2**30))
    if how == "clean":
        store.close_now()
    print("full", flush=True)
    if how != "clean":
        time.sleep(3600)


async def open_store(folder: str) -> dict[str, Any]:
    """In a process of its own: open a store, and watch the loop until its index is whole."""
    began = time.perf_counter()
    store = MessageStore(settings_for(folder))
    report = store.open()
    found = {
        "seconds": round(time.perf_counter() - began, 3), "clean": report.clean, "records": report.records,
        "dispatched": report.dispatched, "bytes": report.end - report.read_from, "end": report.end,
        "index_bytes": report.end - report.indexed,
    }  # fmt: skip
    await store.start()
    catch_up = store._upkeep.catch_up
    delays = [0.0]
    while catch_up is not None and not catch_up.done:
        before = time.perf_counter()
        await asyncio.sleep(0.001)
        delays.append(time.perf_counter() - before - 0.001)
    return {
        **found,
        "index_seconds": round(time.perf_counter() - began, 3),
        "loop_p99_ms": round(1000 * sorted(delays)[int(len(delays) * 0.99)], 2),
        "loop_max_ms": round(1000 * max(delays), 2),
    }


def measure(gib: float) -> list[dict[str, Any]]:
    """Stop a store in each way and open it again."""
    results = []
    for how in STOPS:
        folder = tempfile.mkdtemp(prefix="restart-")
        try:
            command = [sys.executable, __file__, "--build", how, folder, "--gib", str(gib)]
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as builder:
                assert builder.stdout is not None
                assert builder.stdout.readline() == "full\n"
                if how in {"served", "power"}:
                    time.sleep(SERVED_S)
                if how != "clean":
                    builder.send_signal(signal.SIGKILL)
                builder.wait()
            if how == "power":
                Path(folder, "running.json").unlink()
            command = [sys.executable, __file__, "--open", folder]
            opened = subprocess.run(command, stdout=subprocess.PIPE, check=False)
            result = {"stop": how, "gib": gib, **json.loads(opened.stdout)}
            read_gib = result["bytes"] / 2**30
            result["seconds_per_gib_read"] = round(result["seconds"] / read_gib, 2) if read_gib else 0
            results.append(result)
            print(
                f"{how:8} {gib:5.1f} GiB: {result['seconds']:7.3f} s, {read_gib:6.3f} GiB and "
                f"{result['records']} records read, {result['dispatched']} dispatched; "
                f"index whole after {result['index_seconds']} s, loop held up {result['loop_p99_ms']} ms (p99), "
                f"{result['loop_max_ms']} ms at most",
                flush=True,
            )
        finally:
            shutil.rmtree(folder)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gib", type=float, default=1, help="size of the log")
    parser.add_argument("--build", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--open", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.build:
        how, folder = arguments.build
        build(folder, arguments.gib, how)
    elif arguments.open:
        print(json.dumps(asyncio.run(open_store(arguments.open))), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)  # skip all clean-up
    else:
        print(json.dumps(measure(arguments.gib), indent=1))


if __name__ == "__main__":
    main()
