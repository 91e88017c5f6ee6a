"""How long a store takes to open, and until its index is whole, after each way to stop.

    python benchmarks/restart.py [--gib 1] [--body 1024] [--dir FOLDER] [--stop served …]

The times are those of `MessageStore.open()` in a fresh process, and from then on until key queries know everything,
with what the loop was held up at most meanwhile. The pages are in memory, as after the death of a process.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1] / "src"
sys.path.insert(0, str(SOURCE))

from tianzhou.store import MessageStore, NewRecord, StoreSettings  # noqa: E402 - run from a checkout

TOPIC = "Restart"
QUEUES = 8
STOPS = {
    "clean": "stopped",
    "served": "killed in service",
    "power": "killed in service, and nothing believed that was not synced",
    "killed": "killed without ever having synced queues",
    "rebuilt": "as killed, queues and index gone",
}


def settings_for(folder: str) -> StoreSettings:
    return StoreSettings(store_path_root_dir=folder, disk_max_used_space_ratio=99)


def fill(store: MessageStore, upto: int, body: int, clock: float | None = None) -> int:
    """Append until the log ends at `upto`; dispatches as it goes."""
    content = os.urandom(body)
    number = 0
    while store.end_offset < upto and (clock is None or time.monotonic() < clock):
        for _ in range(64):
            key = f"7F00000100000000{number:016X}"
            properties = f"UNIQ_KEY\x01{key}\x02WAIT\x01true\x02".encode()
            store.append(NewRecord(TOPIC, number % QUEUES, content, properties, uniq_key=key))
            number += 1
    return number


def build(folder: str, gib: float, body: int, how: str) -> None:
    """In a process of its own: fill a store, then stop it cleanly or wait to be killed."""
    store = MessageStore(settings_for(folder))

    async def serve() -> None:
        async with store:
            end = store.end_offset + int(gib * 2**30)
            while store.end_offset < end:
                fill(store, end, body, time.monotonic() + 0.01)
                await asyncio.sleep(0)
            print("full", flush=True)
            # A broker in service: a thousand messages a second until the end.
            while True:
                fill(store, store.end_offset + 10 * body, body)
                await asyncio.sleep(0.01)

    if how in {"served", "power"}:
        asyncio.run(serve())
        return
    store.open()
    fill(store, int(gib * 2**30), body)
    if how == "clean":
        store.close_now()
    print("full", flush=True)
    if how != "clean":
        time.sleep(3600)


OPENER = """
import asyncio, json, os, sys, time
from tianzhou.store import MessageStore, StoreSettings

async def main():
    began = time.perf_counter()
    store = MessageStore(StoreSettings(store_path_root_dir=sys.argv[1], disk_max_used_space_ratio=99))
    report = store.open()
    result = {
        "seconds": round(time.perf_counter() - began, 3), "clean": report.clean, "records": report.records,
        "dispatched": report.dispatched, "bytes": report.end - report.read_from, "end": report.end,
        "index_bytes": report.end - report.indexed,
    }
    await store.start()
    catch_up = store._upkeep.catch_up
    delays = [0.0]
    while catch_up is not None and not catch_up.done:
        before = time.perf_counter()
        await asyncio.sleep(0.001)
        delays.append(time.perf_counter() - before - 0.001)
    result["index_seconds"] = round(time.perf_counter() - began, 3)
    result["loop_p99_ms"] = round(1000 * sorted(delays)[int(len(delays) * 0.99)], 2)
    result["loop_max_ms"] = round(1000 * max(delays), 2)
    print(json.dumps(result), flush=True)
    os.kill(os.getpid(), 9)

asyncio.run(main())
"""


def opened(folder: str) -> dict[str, object]:
    """Open the store in a fresh process and give what it says."""
    out = subprocess.run(
        [sys.executable, "-c", OPENER, folder],
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        stdout=subprocess.PIPE,
        check=False,
        text=True,
    ).stdout
    result: dict[str, object] = json.loads(out)
    return result


def measure(where: str | None, gib: float, body: int, stops: list[str]) -> list[dict[str, object]]:
    results = []
    for how in stops:
        folder = tempfile.mkdtemp(prefix="restart-", dir=where)
        try:
            kind = "killed" if how == "rebuilt" else how
            command = [sys.executable, __file__, "--build", kind, "--dir", folder]
            command += ["--gib", str(gib), "--body", str(body)]
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as builder:
                assert builder.stdout is not None
                assert builder.stdout.readline() == "full\n"
                if how in {"served", "power"}:
                    time.sleep(8)
                if how != "clean":
                    builder.send_signal(signal.SIGKILL)
                builder.wait()
            if how == "rebuilt":
                shutil.rmtree(Path(folder, "consumequeue"))
                shutil.rmtree(Path(folder, "index"))
            if how == "power":
                Path(folder, "running.json").unlink()
            result = {"stop": how, "gib": gib, **opened(folder)}
            gone_through = int(str(result["bytes"])) / 2**30
            result["seconds_per_gib_read"] = (
                round(float(str(result["seconds"])) / gone_through, 2) if gone_through else 0
            )
            results.append(result)
            print(
                f"{how:8} {gib:5.1f} GiB: {result['seconds']:7.3f} s, {gone_through:6.3f} GiB and "
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
    parser.add_argument("--body", type=int, default=1024, help="bytes of a body")
    parser.add_argument("--dir", help="where the stores go; the system's temporary folder by default")
    parser.add_argument(
        "--stop",
        action="append",
        choices=STOPS,
        help="; ".join(f"{name}: {what}" for name, what in STOPS.items()),
    )
    parser.add_argument("--build", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.build:
        build(arguments.dir, arguments.gib, arguments.body, arguments.build)
        return
    print(json.dumps(measure(arguments.dir, arguments.gib, arguments.body, arguments.stop or list(STOPS)), indent=1))


if __name__ == "__main__":
    main()
