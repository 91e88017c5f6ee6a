#!/usr/bin/env python3
"""How fast Spark reads topics: from the broker, from its files, as a stream; beside Spark's own source for Kafka.

    .venv/bin/python benchmarks/spark.py --rounds 3 --json spark.json

Both sides have the same messages of 1 KiB in as many queues, a broker of their own and a Spark session of their own
(local[2]), both ready and warm all the time; in each round they are measured in turn, line by line, and what is printed
is the median over the rounds. Kafka 4.1.0 comes from Maven, and PySpark 3.5.3, the newest whose Kafka source is all
there, from pip, both into the tests' cache; without them, or with `--only tianzhou`, our side is measured alone, and it
says so. Everything is timed from naming the source to the last row; beside that stand the same query without any rows,
and the rows a second without the time that takes. Five rounds of two million messages take about twenty
minutes.

lines:
  live-noop            all sixteen columns from the broker, thrown away
  store-noop           all columns from the store's files
  store-noop-common    as before, the seven columns that Kafka's source has, too: topic, queue, offset, time, keys, body
                       and a flag
  store-offsets        as before, with .schema("queueOffset LONG")
  store-parquet        all columns from the store's files into Parquet (snappy)
  store-parquet-common as before, the seven columns
  live-parquet         all columns from the broker into Parquet (snappy)
  live-parquet-common  as before, the seven columns, beside the same figures of Kafka's side, which has no others
  latency              micro-batches of 200 messages/s into noop: their time, and from a message's arrival until its
                       batch is done
  latency-equal        as before, with what our session sets for checkpoints on a local disk set for Kafka's side too
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sides import CannotRunError
from spark_kafka import KAFKA
from spark_sides import BODY, QUEUES, Figures, Kafka, Side, Tianzhou
from tables import write_json
from toolchain import ToolchainMissingError


@dataclass(frozen=True)
class Line:
    """What is measured.

    Attributes:
        measure: what the session is told to do (`spark_session.MEASURES`).
        given: with what.
        sides: who can do it.
        figures: what is shown of it: name, unit, and what is wanted of us as (`>=` or `<=`, value), None for nothing.
        ratio: the figure that is compared, and what is wanted of our share of Kafka's.
        beside: the line that lends its figures for the side that has none of its own.
    """

    measure: str
    given: Mapping[str, Any]
    sides: tuple[str, ...]
    figures: tuple[tuple[str, str, tuple[str, float] | None], ...]
    ratio: tuple[str, str, float] | None = None
    beside: str = ""


BOTH, OURS = ("tianzhou", "kafka"), ("tianzhou",)


def _rows(measure: str, source: str, wanted: float, ratio: float | None = None, schema: str | None = None) -> Line:
    figures = (
        ("krows_per_s", "1000 rows/s", (">=", wanted)),
        ("running_krows_per_s", "1000 rows/s, running", None),
        ("start_s", "s, query without rows", None),
        ("session_cpu_us", "µs CPU per row, session", None),
        *([("broker_cpu_us", "µs CPU per row, broker", None)] if source == "live" else []),
    )
    given = {"source": source} | ({} if schema is None else {"schema": schema})
    share = None if ratio is None else ("krows_per_s", ">=", ratio)
    return Line(measure, given, BOTH if ratio is not None else OURS, figures, share)


COMMON = "topic STRING, queueId INT, queueOffset LONG, storeTimestamp TIMESTAMP, keys STRING, body BINARY, sysFlag INT"
LATENCY = (
    ("batch_ms", "ms, micro-batch, p50", ("<=", 70.0)),
    ("done_ms", "ms, arrival to done, p50", ("<=", 110.0)),
    ("done_p99_ms", "ms, arrival to done, p99", None),
    ("session_cpu_ms_per_batch", "ms CPU per micro-batch", None),
)
LINES = {
    "live-noop": _rows("noop", "live", 300, 1.1),
    "store-noop": _rows("noop", "store", 900),
    "store-noop-common": _rows("noop", "store", 900, schema=COMMON),
    "store-offsets": _rows("noop", "store", 1500, schema="queueOffset LONG"),
    "store-parquet": _rows("parquet", "store", 250),
    "store-parquet-common": _rows("parquet", "store", 250, schema=COMMON),
    "live-parquet": _rows("parquet", "live", 200, 1.2),
    "live-parquet-common": replace(
        _rows("parquet", "live", 200, 1.2, schema=COMMON), sides=OURS, beside="live-parquet"
    ),
    "latency": Line("latency", {}, BOTH, LATENCY, ("batch_ms", "<=", 0.3)),
    "latency-equal": Line(
        "latency",
        {"our_checkpoints": True},
        ("kafka",),
        tuple((name, unit, None) for name, unit, _ in LATENCY),
        beside="latency",
    ),
}


# --- all of it


class Run:
    """Both sides, measured in turn.

    Args:
        arguments: those of the command line.
        work: scratch folder.

    Attributes:
        rounds: figures of each round, by side and line.
        problems: what was not measured, and why, by side or `side line`.
    """

    def __init__(self, arguments: argparse.Namespace, work: Path) -> None:
        self._arguments = arguments
        self._wanted = [name for name in LINES if name in arguments.lines]
        self._sides: dict[str, Side] = {}
        self._work = work
        self.rounds: dict[str, dict[str, list[Figures]]] = {}
        self.problems: dict[str, str] = {}
        self.versions: dict[str, str] = {}

    def _lines(self, side: str) -> list[str]:
        return [name for name in self._wanted if side in LINES[name].sides]

    def _say(self, text: str) -> None:
        print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)

    def go(self) -> None:
        """Start the sides, measure, stop them."""
        try:
            for name, kind in (("tianzhou", Tianzhou), ("kafka", Kafka)):
                if self._arguments.only in (None, name) and self._lines(name):
                    self._begin(kind(name, self._work / name, self._arguments.rows))
            subprocess.run(["sync"], check=False)
            for number in range(self._arguments.rounds):
                for name in self._wanted:
                    for side in list(self._sides):
                        if name in self._lines(side):
                            self._measure(side, name)
                self._say(f"round {number + 1} of {self._arguments.rounds} is done")
        finally:
            for side in self._sides.values():
                side.stop()

    def _begin(self, side: Side) -> None:
        self._say(f"{side.name}: {self._arguments.rows} messages, a broker and a session")
        try:
            side.start()
            self.versions[side.name] = side.version
            self._say(f"{side.name}: Spark {side.version} is there, and gets warm")
            side.warm([(LINES[name].measure, LINES[name].given) for name in self._lines(side.name)])
        except (CannotRunError, ToolchainMissingError, RuntimeError, OSError, subprocess.SubprocessError) as error:
            self._problem(side.name, error)
            side.stop()
            return
        self._sides[side.name] = side
        self.rounds[side.name] = {}

    def _measure(self, side: str, name: str) -> None:
        key = f"{side} {name}"
        if key in self.problems:
            return
        try:
            figures = self._sides[side].line(LINES[name].measure, LINES[name].given)
        except (CannotRunError, RuntimeError, OSError) as error:
            self._problem(key, error)
            return
        self.rounds[side].setdefault(name, []).append(figures)
        first = LINES[name].figures[0]
        self._say(f"{side} {name}: {figures[first[0]]:.1f} {first[1]}")

    def _problem(self, what: str, error: Exception) -> None:
        self.problems[what] = str(error)
        self._say(f"{what}: not measured: {error}")

    def medians(self) -> dict[str, dict[str, Figures]]:
        """Median of each figure over the rounds, by line and side; lines that failed in a round have none."""
        found: dict[str, dict[str, Figures]] = {}
        for side, lines in self.rounds.items():
            for name, rounds in lines.items():
                if f"{side} {name}" not in self.problems:
                    found.setdefault(name, {})[side] = {
                        key: statistics.median(figures[key] for figures in rounds) for key in rounds[0]
                    }
        return found


def met(value: float, wanted: tuple[str, float]) -> bool:
    """Whether a figure is what is wanted."""
    return value >= wanted[1] if wanted[0] == ">=" else value <= wanted[1]


def judged(value: float, wanted: tuple[str, float] | None) -> str:
    """What is wanted of a figure, and whether it is reached."""
    return "" if wanted is None else f"{wanted[0]} {wanted[1]:g} {'yes' if met(value, wanted) else 'NO'}"


def ratios(line: Line, ours: Figures, theirs: Figures) -> dict[str, tuple[float, tuple[str, float] | None]]:
    """Our share of Kafka's figures, and what is wanted of it."""
    found: dict[str, tuple[float, tuple[str, float] | None]] = {}
    for name, _, _ in line.figures:
        wanted = line.ratio[1:] if line.ratio is not None and line.ratio[0] == name else None
        if name in ours and theirs.get(name):
            found[name] = ours[name] / theirs[name], wanted
    return found


def compared(medians: Mapping[str, Mapping[str, Figures]], name: str) -> tuple[Figures, Figures]:
    """Our figures and Kafka's that stand side by side in a line; one of a line with another's of our own or theirs."""
    other = medians.get(LINES[name].beside, {})
    ours, theirs = (medians[name].get(side) or other.get(side, {}) for side in BOTH)
    return ours, theirs


def table(medians: Mapping[str, Mapping[str, Figures]]) -> str:
    """The medians as text, one figure a line."""
    rows = [f"{'line':20} {'figure':26} {'Tianzhou':>9} {'wanted':12} {'Kafka':>9} {'ratio':>7} wanted"]
    for name in medians:
        line = LINES[name]
        ours, theirs = compared(medians, name)
        shares = ratios(line, ours, theirs)
        for key, unit, wanted in line.figures:
            mine = f"{ours[key]:9.1f} {judged(ours[key], wanted):12}" if key in ours else f"{'-':>9} {'':12}"
            other = f"{theirs[key]:9.1f}" if key in theirs else f"{'-':>9}"
            share = f"{shares[key][0]:6.2f}x {judged(*shares[key])}" if key in shares else ""
            rows.append(f"{name:20} {unit:26} {mine} {other} {share}".rstrip())
    return "\n".join(rows)


def report(run: Run, arguments: argparse.Namespace) -> dict[str, Any]:
    """Everything as JSON."""
    medians = run.medians()
    verdicts: dict[str, bool] = {}
    for name in medians:
        line = LINES[name]
        ours, theirs = compared(medians, name)
        verdicts |= {f"{name}.{key}": met(ours[key], want) for key, _, want in line.figures if want and key in ours}
        shares = ratios(line, ours, theirs).items()
        verdicts |= {f"{name}.{key}.ratio": met(share, want) for key, (share, want) in shares if want}
    return {
        "rows": arguments.rows,
        "queues": QUEUES,
        "body": BODY,
        "cores": os.cpu_count(),
        "spark": run.versions,
        "kafka": KAFKA,
        "medians": medians,
        "rounds": run.rounds,
        "met": verdicts,
        "not_measured": run.problems,
    }


def names(text: str) -> list[str]:
    """The lines of `--lines`."""
    chosen = [name.strip() for name in text.split(",")]
    unknown = [name for name in chosen if name not in LINES]
    if unknown:
        raise argparse.ArgumentTypeError(f"no line {', '.join(unknown)}; there are {', '.join(LINES)}")
    return chosen


def positive(text: str) -> int:
    """A whole number from 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text}: expected a whole number from 1")
    return int(text)


def main() -> None:
    """Parse arguments, run, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=positive, default=3_000_000, help="messages in the topic (3000000)")
    parser.add_argument("--rounds", type=positive, default=5, help="how often each line is measured (5)")
    parser.add_argument("--lines", type=names, default=list(LINES), help="comma list of the lines below; all")
    parser.add_argument("--only", choices=BOTH, help="one side alone")
    parser.add_argument("--json", type=Path, help="write all figures here")
    arguments = parser.parse_args()
    # An end from outside ends the servers and sessions as well.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with tempfile.TemporaryDirectory(prefix="spark-benchmark-") as scratch:
        run = Run(arguments, Path(scratch))
        run.go()
    print(table(run.medians()))
    for what, why in run.problems.items():
        print(f"not measured: {what}: {why}")
    write_json(arguments.json, report(run, arguments))
    if run.problems:
        sys.exit(1)


if __name__ == "__main__":
    main()
