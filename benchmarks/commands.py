#!/usr/bin/env python3
"""Processor time of terminal commands: user and system time of the process, median of ten."""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys

from tianzhou.testing import Cluster

COMMANDS = (
    "--help",
    "topic list --help",
    "topic list",
    "topic describe orders",
    "group lag billing",
    "broker list",
    "cluster list",
    "dlq count",
)


def cpu_s(command: list[str], environment: dict[str, str]) -> float:
    """Return user and system time of a process in seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Measure and print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10, help="Runs of each command, after one that is not counted.")
    runs = parser.parse_args().runs
    program = [sys.executable, "-m", "tianzhou.cli.main"]
    with Cluster(virtual=False) as cluster, cluster.admin() as admin:
        cluster.create_topic("orders", 4)
        admin.groups.create("billing")
        admin.groups.reset("billing", "orders", to_earliest=True)
        environment = {**os.environ, "TIANZHOU_NAMESRV": cluster.namesrv_addr}
        # An installed package has its byte code. Without it a command takes twice as long.
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        lines = {"`python -c pass`": [sys.executable, "-c", "pass"]}
        lines |= {f"`tianzhou {words}`": [*program, *words.split()] for words in COMMANDS}
        found: dict[str, list[float]] = {name: [] for name in lines}
        for run in range(runs + 1):
            for name, command in lines.items():
                took = cpu_s(command, environment)
                if run:
                    found[name].append(took)
    print("| command | median, s | least | most |\n|---|---|---|---|")
    for name, each in found.items():
        print(f"| {name} | {statistics.median(each):.3f} | {min(each):.3f} | {max(each):.3f} |")
    print(f"\nload of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")


if __name__ == "__main__":
    main()
