"""How long a store takes to open: after a clean stop, after kill -9 in service, and with nothing checkpointed.

    python benchmarks/restart.py [--gib 1] [--body 1024] [--dir FOLDER]

The time is that of `MessageStore.open()` in a fresh process; the pages are in memory, as after the death of a process.
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
STOPS = ("clean", "served", "killed", "rebuilt")


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

    if how == "served":
        asyncio.run(serve())
        return
    store.open()
    fill(store, int(gib * 2**30), body)
    if how == "clean":
        store.close_now()
    print("full", flush=True)
    if how != "clean":
        time.sleep(3600)


def opened(folder: str) -> dict[str, object]:
    """Open the store in a fresh process and give what it says."""
    code = (
        "import json, sys, time; from tianzhou.store import MessageStore, StoreSettings; began = time.perf_counter();"
        "s = MessageStore(StoreSettings(store_path_root_dir=sys.argv[1], disk_max_used_space_ratio=99)); r = s.open();"
        "took = time.perf_counter() - began;"
        "print(json.dumps({'seconds': round(took, 3), 'clean': r.clean, 'records': r.records,"
        " 'dispatched': r.dispatched, 'bytes': r.end - r.read_from, 'end': r.end}), flush=True);"
        "import os; os.kill(os.getpid(), 9)"
    )
    out = subprocess.run(
        [sys.executable, "-c", code, folder],
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
                if how == "served":
                    time.sleep(8)
                if how != "clean":
                    builder.send_signal(signal.SIGKILL)
                builder.wait()
            if how == "rebuilt":
                shutil.rmtree(Path(folder, "consumequeue"))
                shutil.rmtree(Path(folder, "index"))
            result = {"stop": how, "gib": gib, **opened(folder)}
            gone_through = int(str(result["bytes"])) / 2**30
            result["seconds_per_gib_read"] = (
                round(float(str(result["seconds"])) / gone_through, 2) if gone_through else 0
            )
            results.append(result)
            print(
                f"{how:8} {gib:5.1f} GiB: {result['seconds']:7.3f} s, {gone_through:6.3f} GiB and "
                f"{result['records']} records read, {result['dispatched']} dispatched",
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
        help="served: killed in service; killed: nothing checkpointed; rebuilt: queues and index gone, too",
    )
    parser.add_argument("--build", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.build:
        build(arguments.dir, arguments.gib, arguments.body, arguments.build)
        return
    print(json.dumps(measure(arguments.dir, arguments.gib, arguments.body, arguments.stop or list(STOPS)), indent=1))


if __name__ == "__main__":
    main()
