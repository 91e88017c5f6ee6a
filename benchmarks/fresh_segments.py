"""Appending into segments that are ever new, beside appending into pages that are there already.

    python benchmarks/fresh_segments.py [--mib 512] [--segment-mib 64] [--body 1024] [--rounds 3]

The target is 0.6 times the speed (a log that grows must not wait for the kernel to find pages).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from tianzhou.store import MessageStore, NewRecord, StoreSettings

QUEUES = 8


def settings_for(folder: str, segment: int) -> StoreSettings:
    return StoreSettings(store_path_root_dir=folder, mapped_file_size_commit_log=segment, disk_max_used_space_ratio=99)


async def append(store: MessageStore, upto: int, content: bytes) -> tuple[int, float, float]:
    """Append as a busy broker does, in turns of the loop: messages, seconds, the longest turn's seconds."""
    count = 0
    longest = 0.0
    began = time.perf_counter()
    while store.end_offset < upto:
        turn = time.perf_counter()
        for _ in range(100):
            key = f"7F00000100000000{count:016X}"
            properties = f"UNIQ_KEY\x01{key}\x02WAIT\x01true\x02".encode()
            store.append(NewRecord("T", count % QUEUES, content, properties, uniq_key=key))
            count += 1
        longest = max(longest, time.perf_counter() - turn)
        await asyncio.sleep(0)
    return count, time.perf_counter() - began, longest


async def fresh(folder: str, total: int, segment: int, content: bytes) -> tuple[int, float, float]:
    async with MessageStore(settings_for(folder, segment)) as store:
        return await append(store, total, content)


async def warm(folder: str, total: int, content: bytes) -> tuple[int, float, float]:
    # One segment that is as long as all that is written, its pages in memory before the first record.
    async with MessageStore(settings_for(folder, total + (1 << 20))) as store:
        store.append(NewRecord("T", 0, content, b""))
        log = store._log
        segment = log.files.segments[0]
        segment.reserve_range(0, segment.size)
        log.prepared(segment, segment.size)
        return await append(store, total, content)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=512, help="how much is written in each round")
    parser.add_argument("--segment-mib", type=int, default=64, help="size of the fresh segments")
    parser.add_argument("--body", type=int, default=1024, help="bytes of a body")
    parser.add_argument("--rounds", type=int, default=3, help="how often; the median counts")
    parser.add_argument("--dir", help="where the stores go; the system's temporary folder by default")
    arguments = parser.parse_args()
    content = os.urandom(arguments.body)
    speeds: dict[str, list[float]] = {"warm": [], "fresh": []}
    for _ in range(arguments.rounds):
        for kind, rates in speeds.items():
            with tempfile.TemporaryDirectory(prefix="fresh-", dir=arguments.dir) as folder:
                total = arguments.mib << 20
                run = (
                    warm(folder, total, content)
                    if kind == "warm"
                    else fresh(folder, total, arguments.segment_mib << 20, content)
                )
                count, took, longest = asyncio.run(run)
            rates.append(count / took)
            print(f"{kind:5} {count / took:9.0f} messages/s, longest turn of 100: {longest * 1e3:.1f} ms", flush=True)
    ratio = statistics.median(speeds["fresh"]) / statistics.median(speeds["warm"])
    print(
        json.dumps(
            {"fresh_to_warm": round(ratio, 3), "target": 0.6, **{k: [round(r) for r in v] for k, v in speeds.items()}}
        )
    )


if __name__ == "__main__":
    main()
