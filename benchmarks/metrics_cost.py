#!/usr/bin/env python3
"""Cost of a broker's metrics: processor time per message at 8 x 32, with and without a scrape every second.

    .venv/bin/python benchmarks/metrics_cost.py               # 60 rounds of sends and of pulls, some minutes
    .venv/bin/python benchmarks/metrics_cost.py --rounds 10

Two servers run at the same time and are loaded in turns, first one and then the other, each first in every other round,
so that a busy machine is as busy for both. Before that both are idle, which shows the cost of metrics per second: the
page, and the measurement of the loop's lag. An ordinary message executes no metrics code. The table shows processor
time of both when idle in ms per second, then in µs per message, for the cheapest tenth of the rounds and for the
median. Target: ratios of at most 1.01.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

from sides import build, end_processes

WITHOUT, WITH = "without", "with"
LOAD = ["-c", "8", "-w", "32", "-W", "0"]
MODES = {"put": ["-m", "put"], "pull": ["-m", "pull", "-n", "32"]}


def serve(folder: Path, *options: str) -> tuple[subprocess.Popen[bytes], dict[str, str]]:
    """Return a started server and the contents of its ready line."""
    command = [
        sys.executable,
        "-m",
        "tianzhou",
        "serve",
        "--data",
        str(folder),
        "--namesrv-port",
        "0",
        "--broker-port",
        "0",
    ]
    # Other load on the machine must not fail a round.
    command += ["--set", "brokerFastFailureEnable=false"]
    process = subprocess.Popen([*command, "-o", "json", *options], stdout=subprocess.PIPE)
    assert process.stdout is not None
    return process, json.loads(process.stdout.readline())


def processor_s(pid: int) -> float:
    """Return the processor time of all threads of a process in seconds, with a resolution of 1 ns."""
    tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(task.read_text(encoding="ascii").split()[0]) for task in tasks) / 1e9


class Scraper(threading.Thread):
    """Reads a page every second until it is stopped."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self._url = url
        self.over = threading.Event()
        self.pages = 0

    def run(self) -> None:
        while not self.over.wait(1.0):
            with urllib.request.urlopen(self._url, timeout=30) as page:
                page.read()
                self.pages += 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--secs", type=int, default=1, help="of each load")
    parser.add_argument("--idle-secs", type=int, default=30)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as text:
        work = Path(text)
        loadgen = build("loadgen", work)
        plain, about_plain = serve(work / WITHOUT)
        shown, about_shown = serve(
            work / WITH, "--set", "metricsExporterType=PROM", "--set", "metricsPromExporterPort=0"
        )
        scraper = Scraper(about_shown["metrics"])
        scraper.start()
        servers = {WITHOUT: (plain, about_plain), WITH: (shown, about_shown)}
        costs: dict[tuple[str, str], list[float]] = {}
        try:
            time.sleep(5)
            before = {name: processor_s(process.pid) for name, (process, _) in servers.items()}
            time.sleep(arguments.idle_secs)
            for name, (process, _) in servers.items():
                ms = (processor_s(process.pid) - before[name]) * 1e3 / arguments.idle_secs
                print(f"idle, {name}: {ms:.2f} ms of a processor a second", flush=True)
            for number in range(arguments.rounds):
                order = [WITHOUT, WITH] if number % 2 else [WITH, WITHOUT]
                for mode, options in MODES.items():
                    for name in order:
                        process, about = servers[name]
                        port = about["broker"].rpartition(":")[2]
                        began = processor_s(process.pid)
                        done = subprocess.run(
                            [str(loadgen), "-p", port, *LOAD, "-t", str(arguments.secs), *options],
                            capture_output=True, check=True, timeout=120,
                        )  # fmt: skip
                        used = processor_s(process.pid) - began
                        costs.setdefault((mode, name), []).append(used * 1e6 / json.loads(done.stdout)["done"])
        finally:
            scraper.over.set()
            scraper.join()
            end_processes([plain, shown])
        for mode in MODES:
            # Disturbances only add time, so the quick rounds show the cost of the message itself.
            (low, middle), (low_with, middle_with) = (
                statistics.quantiles(costs[mode, name], n=10)[:5:4] for name in (WITHOUT, WITH)
            )
            print(
                f"{mode}: {low:.3f} µs without, {low_with:.3f} µs with, quotient {low_with / low:.4f} of the rounds "
                f"that cost least; medians {middle:.3f} and {middle_with:.3f} µs, quotient "
                f"{middle_with / middle:.4f}; {arguments.rounds} rounds"
            )
        print(f"{scraper.pages} pages read")


if __name__ == "__main__":
    main()
