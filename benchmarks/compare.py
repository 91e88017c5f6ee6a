#!/usr/bin/env python3
"""Side by side: Apache RocketMQ's broker 5.3.3 and Tianzhou's under one load tool, in turn, on the same cores and disk.

    .venv/bin/python benchmarks/compare.py --short
    .venv/bin/python benchmarks/compare.py --lines put64x1,put8x32 --sides apache,tianzhou --rounds 3
    .venv/bin/python benchmarks/compare.py --before ../before --sides tianzhou --lines put64x1,pull8x4 --rounds 9
    .venv/bin/python benchmarks/compare.py --markdown docs/performance.md --json compare.json
    .venv/bin/python benchmarks/compare.py --pin --markdown docs/performance.md --json compare-pinned.json
    .venv/bin/python benchmarks/compare.py --sides tianzhou --lines put64x1,signed64x1,accounts64x1,users64x1
    .venv/bin/python benchmarks/compare.py --groups --sides apache,tianzhou --markdown docs/performance.md
    .venv/bin/python benchmarks/compare.py --sides tianzhou,floor --lines put8x32,pull8x4 --rounds 3

Needs gcc, Java and Maven (Apache's jars come from Maven into the tests' cache). Each round restarts each server for
each group of lines, warms it and runs its lines; the side that begins changes from round to round. The table has the
median over the rounds, the ratio to Apache's broker in the same run, and whether the compiled mode meets its target.
The report names each measurement that cannot run, with the reason; nothing is estimated. A run that is interrupted
reports the finished rounds, and `--json` is written after every group. `--sides tianzhou` measures one side alone,
which proves nothing but is quick. The side `floor` is a server in C that reads, stores and writes the same bytes and
does nothing else (`floor.c`): the cost of the machine itself. It has the lines of a plain server only.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from accounts import SIGNS
from lines import FIGURES, GROUPS, LINES, SERVERS, START, Line, Setting, chosen
from machine import Stolen, describe, disk_limit, in_words, touch_memory
from replicas import HEAP as REPLICAS_HEAP
from replicas import server as server_of
from rounds import in_turn, parser_of, set_duration, some_of
from sides import BEFORE, BROKER_CORE, HEAP, LOAD_CORE, SIDES, CannotRunError, Server, build, load
from stored import fill
from tables import against_before, growth, machine_list, put_section, table, write_json

GIB = 1 << 30
FULL = 0.85


class Run:
    """All measurements of one run, and the reasons for the missing ones.

    Args:
        arguments: parsed options of the command line.
        work: scratch folder on the disk that is measured.
        sides: names from `SIDES`, in order.
        lines: lines to measure.
        left_out: reasons for lines that are not run.
    """

    def __init__(
        self, arguments: argparse.Namespace, work: Path, sides: list[str], lines: list[Line], left_out: list[str]
    ) -> None:
        self.arguments = arguments
        self.work = work
        self.sides = sides
        self.lines = lines
        self.notes = list(left_out)
        self.failed = False
        self.machine: dict[str, str] = {}
        self.rounds: dict[str, dict[str, list[float]]] = {side: {} for side in sides}
        self.rounds_done = 0
        self._stolen = {side: Stolen() for side in sides}

    def measure(self) -> None:
        """Run all rounds, all sides and all groups of lines; return early only when interrupted."""
        self.machine = describe(self.work)
        self.machine["fresh memory"] = touch_memory(self.work)
        self.machine["disk"] = in_words(disk_limit(self.work, 3 if self.arguments.short else 10))
        program = build("loadgen", self.work)
        taken = "processor time the host took"
        for number in range(self.arguments.rounds):
            for side in in_turn(self.sides, number):
                for name in dict.fromkeys(line.server for line in self.lines):
                    if number and SERVERS[name].once:
                        continue
                    self._stolen[side].skip()
                    self._group(side, name, program)
                    self._stolen[side].count()
                    self.machine[taken] = ", ".join(f"{SIDES[key]} {self._stolen[key]}" for key in self.sides)
                    self.write_json()
                print(f"round {number + 1} of {self.arguments.rounds}: {side} done", file=sys.stderr, flush=True)
            self.rounds_done = number + 1
        self.machine["fresh memory, at the end"] = touch_memory(self.work)

    def _group(self, side: str, name: str, program: Path) -> None:
        """Start one server and run its lines."""
        setting, lines = SERVERS[name], [line for line in self.lines if line.server == name]
        if side == "floor":
            if name != "plain":
                return
            lines = [line for line in lines if line is not START]
        signs = SIGNS if setting.access else ""
        try:
            if setting.access and side == "apache":
                raise CannotRunError("access control is measured against our own broker without it")
            self._check_space(setting)
            before = disk_limit(self.work, 10, syncs=50) if name == "sustained" else None
            server = self._server(side, setting)
        except (CannotRunError, OSError) as error:
            self._cannot(side, ", ".join(line.name for line in lines), error)
            return
        try:
            # The line `start` is measured on the server of the plain lines. The figures of a store with segments show
            # how its size slows the start.
            if START in lines:
                self._keep(side, START.name, start_s=server.start_s, idle_anon_mb=server.idle_anon_mb)
            if setting.segments:
                self._keep(side, name, start_s=server.start_s, idle_anon_mb=server.idle_anon_mb)
            loads = [line for line in lines if line.options]
            if loads:
                self._load(program, "-c 64 -w 1 -W 0" + signs, server, self.arguments.warm * setting.warmed)
            prepared: set[str] = set()
            for line in loads:
                try:
                    self._line(side, line, program, server, prepared)
                    if before is not None:
                        self._sustained(side, line, server, before["disk_mb_per_s"])
                except (CannotRunError, OSError) as error:
                    self._cannot(side, line.name, error)
        except (CannotRunError, OSError) as error:
            self._cannot(side, ", ".join(line.name for line in lines), error)
        finally:
            server.stop()

    def _check_space(self, setting: Setting) -> None:
        disk = shutil.disk_usage(self.work)
        if disk.free < setting.free_gib * GIB:
            raise CannotRunError(f"{disk.free / GIB:.0f} GiB free in {self.work}, {setting.free_gib} needed")
        full = (disk.used + setting.free_gib * GIB) / (disk.used + disk.free)
        if full >= FULL:
            raise CannotRunError(
                f"{self.work} would be {full:.0%} full, and both brokers delete messages from {FULL:.0%} on"
            )

    def _server(self, side: str, setting: Setting) -> Server:
        segments = setting.segments
        return server_of(
            side,
            self.work,
            setting.flush,
            copies=setting.copies,
            access=setting.access,
            pin=self.arguments.pin,
            fill=(lambda store: fill(store, segments)) if segments else None,
            patience_s=300 if segments else 60,
        )

    def _load(self, program: Path, options: str, server: Server, seconds: int) -> dict[str, Any]:
        try:
            return load(program, options, server.port, seconds, pids=server.pids, pin=self.arguments.pin)
        except CannotRunError:
            server.check_alive()
            raise

    def _line(self, side: str, line: Line, program: Path, server: Server, prepared: set[str]) -> None:
        if line.before and line.before not in prepared:
            began = time.monotonic()
            self._load(program, line.before, server, 0)
            prepared.add(line.before)
            if line.server == "topics":
                self._keep(side, line.name, made_s=time.monotonic() - began)
            server.settle()
        result = self._load(program, line.options, server, line.seconds or self.arguments.secs)
        if result["bad"]:
            self._note(f"{line.name}, {SIDES[side]}: {result['bad']} replies were no success; {result['said']}")
        if result["late"]:
            self._note(f"{line.name}, {SIDES[side]}: {result['late']} messages could not be sent when they were due")
        self._keep(
            side,
            line.name,
            msgs_per_s=result["msgs"],
            p50_us=result["p50_us"],
            p99_us=result["p99_us"],
            cpu_us_per_msg=result["cpu_us"],
        )

    def _sustained(self, side: str, line: Line, server: Server, disk: float) -> None:
        stored = self.rounds[side][f"{line.name}.msgs_per_s"][-1] * server.record_bytes() / 1e6
        behind = server.sync_s()
        self._keep(
            side, line.name, stored_mb_per_s=stored, disk_mb_per_s=disk, disk_share=stored / disk, behind_s=behind
        )

    def _keep(self, side: str, line: str, **figures: float) -> None:
        assert figures.keys() <= FIGURES.keys()
        for name, value in figures.items():
            self.rounds[side].setdefault(f"{line}.{name}", []).append(value)

    def _note(self, text: str) -> None:
        self.notes.append(text)
        print(text, file=sys.stderr, flush=True)

    def _cannot(self, side: str, lines: str, error: Exception) -> None:
        self.failed = True
        self._note(f"not run: {lines}, {SIDES[side]}: {error}")

    def write_json(self) -> None:
        """Write every figure of every round to the file of `--json`, if given."""
        whole = {"machine": self.machine, "options": self.options(), "notes": self.notes, "rounds": self.rounds}
        write_json(self.arguments.json, whole)

    def options(self) -> str:
        """Return how the run was measured, for the reader of the table."""
        arguments = self.arguments
        cores = (
            f"broker on core {BROKER_CORE}, load tool and name server on core {LOAD_CORE}"
            if arguments.pin
            else "broker and load tool free to use every core"
        )
        warmed = "(twice that for two brokers, three times for three)" if arguments.groups else ""
        heap = f"{HEAP}, {REPLICAS_HEAP} each where there are several brokers" if arguments.groups else HEAP
        return (
            f"{self.rounds_done} of {arguments.rounds} rounds, medians; {arguments.secs} s a line after "
            f"{arguments.warm} s of warming each server{warmed and ' '}{warmed}; 1 KiB bodies, 8 queues, ASYNC_FLUSH "
            f"unless the line says otherwise; {cores}; Apache's heap {heap}"
        )

    @property
    def title(self) -> str:
        """Return the title of the table."""
        if self.arguments.groups:
            return "Groups and pairs"
        return "Pinned to one core each" if self.arguments.pin else "All cores free"

    def markdown(self) -> str:
        """Return the section for `docs/performance.md`."""
        titles = {side: SIDES[side] for side in self.sides}
        parts = [
            f"### {self.title}\n",
            f"{self.options()}.\n",
            machine_list(self.machine),
            table(titles, self.rounds, self.lines),
            against_before(self.rounds, self.lines),
            growth(titles, self.rounds),
            "".join(f"- {note}\n" for note in dict.fromkeys(self.notes)),
        ]
        return "\n".join(part for part in parts if part)


def hot_mode() -> str:
    """Return the mode, compiled or pure, of our package on the side `tianzhou`."""
    command = [sys.executable, "-c", "from tianzhou import _hot; print(_hot.MODE)"]
    env = {**os.environ, "TIANZHOU_PURE": "0"}
    return subprocess.run(command, capture_output=True, text=True, check=True, env=env).stdout.strip()


def parsed() -> argparse.Namespace:
    """Return the parsed arguments, with defaults that depend on other options."""
    parser = parser_of(__doc__)
    parser.add_argument("--lines", default="", help="comma list of " + ", ".join(LINES) + "; default all")
    parser.add_argument("--sides", default="apache,tianzhou,pure", help="comma list of " + ", ".join(SIDES))
    parser.add_argument("--before", type=Path, help="another checkout, built; adds the side `before`")
    parser.add_argument("--pin", action="store_true", help="broker and load tool on one core each: the second table")
    parser.add_argument(
        "--groups", action="store_true", help="masters with slaves and DLedger groups: a table of its own"
    )
    arguments = parser.parse_args()
    if arguments.groups and (arguments.lines or arguments.pin):
        parser.error("--groups: says itself which lines are measured, on all cores; leave --lines and --pin out")
    if arguments.groups:
        arguments.lines = ",".join(GROUPS)
    set_duration(arguments, rounds=5, secs=(3, 5), warm=(6, 12))
    arguments.sides = some_of(parser, "--sides", arguments.sides, SIDES)
    if arguments.before is not None:
        if not (arguments.before / "src" / "tianzhou").is_dir():
            parser.error(f"--before {arguments.before}: no checkout, it has no src/tianzhou")
        os.environ[BEFORE] = str(arguments.before.resolve())
        arguments.sides.append("before")
    elif "before" in arguments.sides:
        parser.error("--sides before: say which checkout that is, with --before")
    arguments.sides = [side for side in SIDES if side in arguments.sides]
    try:
        arguments.chosen, arguments.left_out = chosen(arguments.lines, short=arguments.short)
    except ValueError as error:
        parser.error(f"--lines: {error}")
    if arguments.pin and (os.cpu_count() or 1) < 2:
        parser.error("--pin: this machine has one core; broker and load tool need one each")
    if "tianzhou" in arguments.sides and (mode := hot_mode()) != "compiled":
        parser.error(f"the hot functions are {mode} here, and what is wanted is wanted of the compiled ones: run ./run")
    return arguments


def main() -> int:
    """Parse arguments, run, print; 0 when everything was measured, 1 when not, 130 when interrupted."""
    arguments = parsed()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    interrupted = False
    with tempfile.TemporaryDirectory(prefix="compare-") as scratch:
        run = Run(arguments, Path(scratch), arguments.sides, arguments.chosen, arguments.left_out)
        try:
            run.measure()
        except CannotRunError as error:
            sys.exit(f"cannot run: {error}")
        except KeyboardInterrupt:
            interrupted = True
            run.notes.append(
                f"interrupted in round {run.rounds_done + 1} of {arguments.rounds}: medians of what was done"
            )
    run.write_json()
    section = "compare --groups" if arguments.groups else "compare --pin" if arguments.pin else "compare"
    put_section(arguments.markdown, section, run.markdown())
    return 130 if interrupted else int(run.failed)


if __name__ == "__main__":
    sys.exit(main())
