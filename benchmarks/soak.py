"""A broker under half its maximum load for a while: constant memory, no lost message, constant latency.

    .venv/bin/python benchmarks/soak.py [--minutes 20] [--json soak.json]

One `tianzhou serve` process, and a producer and a consumer of `tianzhou bench` in a process each. The load is half of
the maximum rate, which is measured in a few seconds at full speed. Every acknowledged message must be consumed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from pathlib import Path
from typing import Any

from sides import anon_mb

from tianzhou.bench.local_server import LocalServer
from tianzhou.bench.runner import Run
from tianzhou.bench.series import Second
from tianzhou.bench.spec import BenchKind, BenchRole, LoadSpec

TOPICS = ("Soak",)
PROBE_S = 5.0
SAMPLE_S = 10


def sample(pid: int, run: Run, second: int) -> dict[str, Any]:
    """Return the sample of a second: memory of the broker, messages so far, and latency in that second."""
    sent, received = run.series[BenchRole.send], run.series[BenchRole.receive]
    latency = (sent.at(second) or Second(second, warm_up=False)).latency_ms or {}
    return {
        "second": second + 1,
        "anon_mib": round(anon_mb(pid), 1),
        "sent": sent.seen,
        "not_consumed": sent.seen - received.seen,
        "failed": sum(sent.errors.values()),
        "p50_ms": latency.get("p50"),
        "p99_ms": latency.get("p99"),
    }


async def soak(minutes: float) -> dict[str, Any]:
    """Start the broker, measure its maximum rate, and load it with half of that."""
    samples: list[dict[str, Any]] = []
    async with LocalServer(None, "ASYNC_FLUSH") as server:

        def every_second(run: Run, second: int) -> None:
            if (second + 1) % SAMPLE_S == 0:
                samples.append(sample(server.pid, run, second))
                print("  ".join(f"{name} {value}" for name, value in samples[-1].items()), flush=True)

        probe = Run(
            LoadSpec(BenchKind.produce, TOPICS, seconds=PROBE_S).checked(), None, lambda run, second: None, print
        )
        await probe.measure(server.namesrv, server)
        rate = probe.figures()["send"]["messages_per_second"] / 2
        print(f"{rate:.0f} messages/s for {minutes} minutes", flush=True)
        run = Run(
            LoadSpec(BenchKind.mixed, TOPICS, rate=rate, seconds=60 * minutes).checked(), None, every_second, print
        )
        await run.measure(server.namesrv, server)
    memory = [one["anon_mib"] for one in samples]
    third = max(len(memory) // 3, 1)
    sent, received = run.series[BenchRole.send], run.series[BenchRole.receive]
    return {
        "rate": round(rate),
        "minutes": minutes,
        "sent": sent.seen,
        "failed": sum(sent.errors.values()),
        "lost": max(sent.seen - received.seen, 0),
        "anon_mib": {"first_third": max(memory[:third]), "last_third": max(memory[-third:])} if memory else {},
        "notes": run.notes,
        "samples": samples,
    }


def main() -> None:
    """Parse arguments, run, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--json", type=Path, help="write the figures here")
    arguments = parser.parse_args()
    report = asyncio.run(soak(arguments.minutes))
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print(json.dumps({name: value for name, value in report.items() if name != "samples"}, indent=1))


if __name__ == "__main__":
    main()
