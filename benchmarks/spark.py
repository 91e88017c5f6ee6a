#!/usr/bin/env python3
"""Speed of Spark's reads of topics: from the broker, from its files, and as a stream; compared with Spark's own source
for Kafka.

    .venv/bin/python benchmarks/spark.py --rounds 3 --json spark.json

Both sides have the same messages of 1 KiB in as many queues, a broker and a Spark session (local[2]) each, all of them
started and warm during the whole run. Settings are made equal: Kafka's session gets every setting of ours (heap,
collector, checkpoints, Parquet) by the names of its Spark version, except for settings of Python workers. Kafka's
source gets `fetch.max.wait.ms=20`, because its brokers otherwise hold a fetch for half a second. Each round measures
the sides in turn, line by line, in alternating order. The report has the median over the rounds.

Kafka 4.1.0 comes from Maven, and PySpark 3.5.3, the newest version with a complete Kafka source, from pip, both into
the tests' cache. Without them, or with `--only tianzhou`, only our side is measured, and the report names the reason.
The time of a line is from the creation of the source to the last row. The report also has the time of the same query
without rows, and the rows a second without that time. Three rounds of two million messages take about half an hour.

lines: SOURCE-SINK reads the default columns (nine of ours; Kafka's source has seven);
SOURCE-SINK-common reads the seven columns that both have: topic, queue, offset, time, keys, body and a number;
SOURCE-SINK-all reads our sixteen columns, compared with Kafka's seven
  live-noop            from the broker, discarded
  live-parquet         from the broker into Parquet (snappy)
  store-noop           from the store's files, discarded; only ours, like all following lines but latency
  store-offsets        like store-noop, with .schema("queueOffset LONG")
  store-parquet        from the store's files into Parquet (snappy)
  floor-noop           one prepared batch repeated and discarded: the lower bound of any source in Python
  latency              micro-batches of 200 messages/s into noop: their duration, their processor time, and the
                       time from a message's arrival until its batch is done
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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sides import CannotRunError
from spark_kafka import KAFKA
from spark_session import ALL, COMMON, DEFAULT, FETCH_WAIT, OFFSETS
from spark_sides import BODY, QUEUES, Figures, Kafka, Side, Tianzhou
from tables import write_json
from toolchain import ToolchainMissingError

Wanted = tuple[str, float] | None
"""Target of a figure: `>=` or `<=`, and a value; None for no target."""


@dataclass(frozen=True)
class Figure:
    """A figure of a line.

    Attributes:
        name: name in the session's answer.
        unit: unit for the reader.
        wanted: target of our figure.
        share: target of the ratio of our figure to Kafka's.
    """

    name: str
    unit: str
    wanted: Wanted = None
    share: Wanted = None


@dataclass(frozen=True)
class Line:
    """A line to measure.

    Attributes:
        measure: command to the session (`spark_session.MEASURES`).
        given: arguments of the command.
        sides: sides that support it.
        figures: its figures; the first one is printed during the run.
    """

    measure: str
    given: Mapping[str, Any]
    sides: tuple[str, ...]
    figures: tuple[Figure, ...]


BOTH, OURS = ("tianzhou", "kafka"), ("tianzhou",)


def _least(value: float | None) -> Wanted:
    return None if value is None else (">=", value)


def _rows(measure: str, source: str, columns: str, wanted: float | None, share: float | None = None) -> Line:
    figures = (
        Figure("krows_per_s", "1000 rows/s", _least(wanted), _least(share)),
        Figure("running_krows_per_s", "1000 rows/s, running"),
        Figure("start_s", "s, query without rows"),
        Figure("session_cpu_us", "µs CPU per row, session"),
        *([Figure("broker_cpu_us", "µs CPU per row, broker")] if source == "live" else []),
    )
    return Line(measure, {"source": source, "columns": columns}, BOTH if source == "live" else OURS, figures)


def _latency(columns: str) -> Line:
    figures = (
        Figure("batch_ms", "ms, micro-batch, p50", ("<=", 70.0), ("<=", 0.8)),
        Figure("done_ms", "ms, arrival to done, p50", ("<=", 110.0)),
        Figure("done_p99_ms", "ms, arrival to done, p99"),
        Figure("session_cpu_ms_per_batch", "ms CPU per micro-batch", None, ("<=", 1.0)),
    )
    return Line("latency", {"columns": columns}, BOTH, figures)


LINES = {
    "live-noop": _rows("noop", "live", DEFAULT, 300, 1.5),
    "live-noop-common": _rows("noop", "live", COMMON, 300, 1.5),
    "live-noop-all": _rows("noop", "live", ALL, 300, 1.0),
    "live-parquet": _rows("parquet", "live", DEFAULT, 200, 1.4),
    "live-parquet-common": _rows("parquet", "live", COMMON, 200, 1.4),
    "live-parquet-all": _rows("parquet", "live", ALL, 200, 1.0),
    "store-noop": _rows("noop", "store", DEFAULT, 900),
    "store-noop-common": _rows("noop", "store", COMMON, 900),
    "store-noop-all": _rows("noop", "store", ALL, 900),
    "store-offsets": _rows("noop", "store", OFFSETS, 1500),
    "store-parquet": _rows("parquet", "store", DEFAULT, 250),
    "store-parquet-common": _rows("parquet", "store", COMMON, 250),
    "store-parquet-all": _rows("parquet", "store", ALL, 250),
    "floor-noop": _rows("noop", "floor", DEFAULT, None),
    "latency": _latency(DEFAULT),
    "latency-common": _latency(COMMON),
}


def order(sides: Sequence[str], number: int) -> list[str]:
    """Return the sides in the order of a round, counted from 0; every second round reverses it."""
    return list(sides) if number % 2 == 0 else list(reversed(sides))


# --- the whole run


class Run:
    """Both sides, measured in turn.

    Args:
        arguments: options of the command line.
        work: scratch folder.

    Attributes:
        rounds: figures of each round, by side and line.
        problems: reason for each missing measurement, by side or `side line`.
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
        """Start the sides, measure, and stop them."""
        try:
            for name, kind in (("tianzhou", Tianzhou), ("kafka", Kafka)):
                if self._arguments.only in (None, name) and self._lines(name):
                    self._begin(kind(name, self._work / name, self._arguments.rows))
            subprocess.run(["sync"], check=False)
            for number in range(self._arguments.rounds):
                for name in self._wanted:
                    for side in order(list(self._sides), number):
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
        self._say(f"{side} {name}: {figures[first.name]:.1f} {first.unit}")

    def _problem(self, what: str, error: Exception) -> None:
        self.problems[what] = str(error)
        self._say(f"{what}: not measured: {error}")

    def medians(self) -> dict[str, dict[str, Figures]]:
        """Return the median of each figure over the rounds, by line and side; lines that failed in a round
        have none.
        """
        found: dict[str, dict[str, Figures]] = {}
        for side, lines in self.rounds.items():
            for name, rounds in lines.items():
                if f"{side} {name}" not in self.problems:
                    found.setdefault(name, {})[side] = {
                        key: statistics.median(figures[key] for figures in rounds) for key in rounds[0]
                    }
        return found


def met(value: float, wanted: tuple[str, float]) -> bool:
    """Whether a figure meets its target."""
    return value >= wanted[1] if wanted[0] == ">=" else value <= wanted[1]


def judged(value: float, wanted: Wanted) -> str:
    """Return the target of a figure, and whether the figure meets it."""
    return "" if wanted is None else f"{wanted[0]} {wanted[1]:g} {'yes' if met(value, wanted) else 'NO'}"


def shares(line: Line, ours: Figures, theirs: Figures) -> dict[str, float]:
    """Return the ratios of our figures to Kafka's."""
    known = [figure.name for figure in line.figures if figure.name in ours and theirs.get(figure.name)]
    return {name: ours[name] / theirs[name] for name in known}


def table(medians: Mapping[str, Mapping[str, Figures]]) -> str:
    """Return the medians as text, one figure a line."""
    rows = [f"{'line':20} {'figure':26} {'Tianzhou':>9} {'wanted':12} {'Kafka':>9} {'ratio':>7} wanted"]
    for name, sides in medians.items():
        ours, theirs = (sides.get(side, {}) for side in BOTH)
        share = shares(LINES[name], ours, theirs)
        for one in LINES[name].figures:
            key = one.name
            mine = f"{ours[key]:9.1f} {judged(ours[key], one.wanted):12}" if key in ours else f"{'-':>9} {'':12}"
            other = f"{theirs[key]:9.1f}" if key in theirs else f"{'-':>9}"
            ratio = f"{share[key]:6.2f}x {judged(share[key], one.share)}" if key in share else ""
            rows.append(f"{name:20} {one.unit:26} {mine} {other} {ratio}".rstrip())
    return "\n".join(rows)


def report(run: Run, arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the whole result as JSON."""
    medians = run.medians()
    verdicts: dict[str, bool] = {}
    for name, sides in medians.items():
        ours, theirs = (sides.get(side, {}) for side in BOTH)
        share = shares(LINES[name], ours, theirs)
        for one in LINES[name].figures:
            if one.wanted is not None and one.name in ours:
                verdicts[f"{name}.{one.name}"] = met(ours[one.name], one.wanted)
            if one.share is not None and one.name in share:
                verdicts[f"{name}.{one.name}.ratio"] = met(share[one.name], one.share)
    return {
        "rows": arguments.rows,
        "queues": QUEUES,
        "body": BODY,
        "cores": os.cpu_count(),
        "spark": run.versions,
        "kafka": KAFKA,
        "kafka_options": FETCH_WAIT,
        "medians": medians,
        "rounds": run.rounds,
        "met": verdicts,
        "not_measured": run.problems,
    }


def names(text: str) -> list[str]:
    """Return the line names of `--lines`."""
    chosen = [name.strip() for name in text.split(",")]
    unknown = [name for name in chosen if name not in LINES]
    if unknown:
        raise argparse.ArgumentTypeError(f"no line {', '.join(unknown)}; there are {', '.join(LINES)}")
    return chosen


def positive(text: str) -> int:
    """Return a whole number from 1 on."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text}: expected a whole number from 1")
    return int(text)


def main() -> None:
    """Parse arguments, run, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=positive, default=2_000_000, help="messages in the topic (2000000)")
    parser.add_argument("--rounds", type=positive, default=3, help="how often each line is measured (3)")
    parser.add_argument("--lines", type=names, default=list(LINES), help="comma list of the lines below; all")
    parser.add_argument("--only", choices=BOTH, help="one side alone")
    parser.add_argument("--json", type=Path, help="write all figures here")
    arguments = parser.parse_args()
    # SIGTERM must end the servers and sessions as well.
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
