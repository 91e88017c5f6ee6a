"""Faults in a group of three under load: lost messages, and the longest time without an acknowledged send.

    .venv/bin/python benchmarks/failover.py --kinds leader-killed,all-killed --rounds 20 --json failover.jsonl

Each round does one thing to a group of three of our brokers, as processes on this machine, while producers send to it:

    leader-killed     SIGKILL, started again after a new leader is elected
    follower-killed   SIGKILL of one of the two others, started again a second later
    leader-stopped    SIGSTOP for 5 to 40 s (--stop), then SIGCONT
    follower-stopped  SIGSTOP of one of the two others, as long
    leader-cut-off    leader and followers cannot reach each other; clients reach all
    leader-one-way    packets from the leader to the followers are lost; every other round, the other direction
    all-killed        SIGKILL of all at once, all started again
    operator          a random action: restarts in order, empty, older and foreign folders, a member list with the
        member alone, a full disk at the leader; before it, a topic is created and an offset committed

A round begins when all members follow one leader and have its whole log. Its figure is the longest time without an
acknowledged send until all members follow one leader again. After --rounds-of-a-group rounds the load ends and the
comparison begins: each acknowledged message must have the queue and offset of its acknowledgement, no queue may have an
offset twice, members must have the same bytes in their logs and queues, and the leader must serve all messages. When a
check fails, the exit code is 1, and the folder of that group is not removed.

--json FILE gets a line immediately after each round and each comparison. With the file of an interrupted run, the
rounds in it are not repeated. `--timers own` is dLegerHeartBeatTimeIntervalMs=250, dLegerMinVoteIntervalMs=50,
dLegerMaxVoteIntervalMs=200; `default` is DLedger's own times.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from faults import members
from faults.checks import (
    ACKNOWLEDGED,
    Findings,
    acknowledgements,
    compare_acknowledged,
    compare_members,
    compare_served,
    read_log,
)
from faults.members import HERE, GaveUpError, Group, until
from faults.operators import Operator

TOPIC, QUEUES = "Failover", 8
OWN_TIMERS = {"dLegerHeartBeatTimeIntervalMs": 250, "dLegerMinVoteIntervalMs": 50, "dLegerMaxVoteIntervalMs": 200}
CALM_S = 1.0
"""Seconds of load before the fault."""
WARM_S = 3.0
"""Seconds of warm-up of the load."""
WRONG = ("lost", "misplaced", "doubled", "missing", "different", "unreadable")
SHOWN = 20
"""Maximum number of findings written per kind."""


@dataclass
class Round:
    """The figures of a round.

    Attributes:
        kind: kind of the fault.
        timers: `own` or `default`.
        gap_s: longest time without an acknowledged send, in seconds.
        gap_at_s: start of that gap, in seconds after the fault.
        fault_s: duration of the fault.
        whole_s: seconds from the end of the fault until all members followed one leader again.
        acknowledged: messages acknowledged in the round.
        rate: messages/s before the fault.
    """

    kind: str
    timers: str
    gap_s: float
    gap_at_s: float
    fault_s: float
    whole_s: float
    acknowledged: int
    rate: float


class Load:
    """The producer process.

    Args:
        group: group that gets the messages.
        options: of the command line.
    """

    def __init__(self, group: Group, options: argparse.Namespace) -> None:
        self.file = group.folder / "acknowledged"
        self.file.touch()
        words = [
            "--rate", options.rate, "--producers", options.producers, "--batch", options.batch,
            "--body", options.body, "--send-timeout-ms", options.send_timeout_ms,
        ]  # fmt: skip
        with (group.folder / "load.log").open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, str(HERE / "load.py"), group.namesrv, TOPIC, str(self.file), *map(str, words)]
                + ["--durable"] * options.durable,
                stdout=log, stderr=log,
            )  # fmt: skip

    @property
    def at(self) -> int:
        """Return the file position of the next acknowledgement."""
        return self.file.stat().st_size // ACKNOWLEDGED.size * ACKNOWLEDGED.size

    def acknowledges(self, since_s: float) -> None:
        """Wait for an acknowledgement after a time.

        Raises:
            GaveUpError: no acknowledgement arrives.
        """

        def later() -> bool:
            if self._process.poll() is not None:
                raise GaveUpError(f"the load has ended; see {self.file.with_name('load.log')}")
            found = list(acknowledgements(self.file, max(self.at - ACKNOWLEDGED.size, 0)))
            return bool(found) and found[-1][0] > since_s

        until(later, "sends are acknowledged")

    def end(self) -> None:
        """Stop sending."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(60)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()


class Rounds:
    """Rounds with one group.

    Args:
        group: running group with the topic.
        load: running producer process.
        options: of the command line.
        chance: random generator.
        operator: acts in rounds of the kind `operator`.

    Attributes:
        action: of the operator in the present round.
    """

    def __init__(
        self, group: Group, load: Load, options: argparse.Namespace, chance: random.Random, operator: Operator | None
    ) -> None:
        self._group = group
        self._load = load
        self._options = options
        self._chance = chance
        self._number = 0
        self._operator = operator
        self.action = ""
        self._kinds: dict[str, Callable[[int], Callable[[], None]]] = {
            "leader-killed": self._leader_killed,
            "follower-killed": self._follower_killed,
            "leader-stopped": self._leader_stopped,
            "follower-stopped": self._follower_stopped,
            "leader-cut-off": self._leader_cut_off,
            "leader-one-way": self._leader_one_way,
            "all-killed": self._all_killed,
            "operator": self._operated,
        }

    def run(self, kind: str) -> Round:
        """Run one round and return its figures.

        Raises:
            GaveUpError: the members do not follow one leader again.
        """
        group, load = self._group, self._load
        leader = group.whole(TOPIC, QUEUES)
        if self._operator is not None:
            self._operator.change_tables(leader)
        calm_s, calm_at = time.monotonic(), load.at
        load.acknowledges(calm_s)
        time.sleep(max(CALM_S - (time.monotonic() - calm_s), 0))
        fault_s = time.monotonic()
        calm = sum(count for at_s, _, count, _, _ in acknowledgements(load.file, calm_at) if at_s <= fault_s)
        self._number += 1
        heal = self._kinds[kind](leader)
        healed_s = time.monotonic()
        heal()
        leader = group.whole(TOPIC, QUEUES)
        whole_s = time.monotonic()
        if self._operator is not None:
            self._operator.check_tables(leader)
        load.acknowledges(whole_s)
        found = list(acknowledgements(load.file, calm_at))
        times = [at_s for at_s, *_ in found]
        gap_s, gap_at_s = max(
            ((b - a, a - fault_s) for a, b in itertools.pairwise(times) if b > fault_s), default=(0, 0)
        )
        return Round(
            kind=kind,
            timers=self._options.timers,
            gap_s=round(gap_s, 3),
            gap_at_s=round(gap_at_s, 2),
            fault_s=round(healed_s - fault_s, 2),
            whole_s=round(whole_s - healed_s, 2),
            acknowledged=sum(count for _, _, count, _, _ in found),
            rate=round(calm / (fault_s - calm_s)),
        )

    def _others(self, leader: int) -> list[int]:
        return [number for number in range(self._group.size) if number != leader]

    def _taken_over(self, leader: int) -> None:
        """Wait until the other members have a leader that acknowledges messages."""
        until(lambda: self._group.leader(self._others(leader)) is not None, "another leader is elected")
        self._load.acknowledges(time.monotonic())

    def _leader_killed(self, leader: int) -> Callable[[], None]:
        self._group.kill(leader)
        self._taken_over(leader)
        return lambda: self._group.launch(leader)

    def _follower_killed(self, leader: int) -> Callable[[], None]:
        other = self._chance.choice(self._others(leader))
        self._group.kill(other)
        time.sleep(1)
        return lambda: self._group.launch(other)

    def _leader_stopped(self, leader: int) -> Callable[[], None]:
        until_s = time.monotonic() + self._chance.uniform(*self._options.stop)
        self._group.pause(leader)
        self._taken_over(leader)
        time.sleep(max(until_s - time.monotonic(), 0))
        return lambda: self._group.resume(leader)

    def _follower_stopped(self, leader: int) -> Callable[[], None]:
        other = self._chance.choice(self._others(leader))
        self._group.pause(other)
        time.sleep(self._chance.uniform(*self._options.stop))
        return lambda: self._group.resume(other)

    def _leader_cut_off(self, leader: int) -> Callable[[], None]:
        for other in self._others(leader):
            self._group.cut(leader, other)
            self._group.cut(other, leader)
        self._taken_over(leader)
        time.sleep(self._chance.uniform(0, 2))
        return self._group.mend

    def _leader_one_way(self, leader: int) -> Callable[[], None]:
        for other in self._others(leader):
            self._group.cut(*((leader, other) if self._number % 2 else (other, leader)))
        self._taken_over(leader)
        time.sleep(self._chance.uniform(0, 2))
        return self._group.mend

    def _operated(self, leader: int) -> Callable[[], None]:
        assert self._operator is not None
        self.action = self._operator.draw()
        print(f"n{leader} leads: {self.action}", flush=True)
        return self._operator.begin(self.action, leader)

    def _all_killed(self, leader: int) -> Callable[[], None]:
        self._group.kill_all()
        return lambda: [self._group.launch(number) for number in range(self._group.size)] and None


KINDS = (
    "leader-killed", "follower-killed", "leader-stopped", "follower-stopped", "leader-cut-off", "leader-one-way",
    "all-killed", "operator",
)  # fmt: skip


def compared(group: Group, load: Load) -> Findings:
    """End the load, wait until all members have the same log, and compare the stores.

    Raises:
        GaveUpError: the members do not reach the same log, or do not stop.
    """
    load.end()
    leader = group.whole(TOPIC, QUEUES)
    findings = Findings()
    keys = read_log(next(group.store(leader).glob("dledger-*/data")), TOPIC, QUEUES, findings)
    compare_acknowledged(load.file, keys, findings)
    compare_served(group.addresses[leader], TOPIC, keys, findings)
    group.stop_all(last=group.whole(TOPIC, QUEUES))
    compare_members([group.store(number) for number in range(group.size)], TOPIC, findings)
    return findings


class Journal:
    """Lines about rounds and comparisons, on standard output and in a file.

    Args:
        path: the file; None for none.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self.lines: list[dict[str, Any]] = []
        if path is not None and path.exists():
            self.lines = [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")]

    def add(self, line: dict[str, Any]) -> None:
        self.lines.append(line)
        if self._path is not None:
            with self._path.open("a") as file:
                file.write(json.dumps(line) + "\n")

    def compared(self, kind: str, timers: str) -> int:
        """Return the number of rounds with a finished comparison."""
        return sum(
            line["rounds"]
            for line in self.lines
            if (line["kind"], line["timers"]) == (kind, timers) and "rounds" in line
        )

    def table(self) -> str:
        """Return all results as a Markdown table."""
        rows = [
            "| kind | timers | rounds | acknowledged | lost | doubled | other | median s | worst s | messages/s |",
            "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|",
        ]
        pairs = dict.fromkeys((line["kind"], line["timers"]) for line in self.lines)
        for kind, timers in pairs:
            mine = [line for line in self.lines if (line["kind"], line["timers"]) == (kind, timers)]
            rounds = [line for line in mine if "gap_s" in line]
            checks = [line for line in mine if "rounds" in line]
            if not rounds or not checks:
                continue
            gaps = [line["gap_s"] for line in rounds]
            total = {name: sum(line[name] for line in checks) for name in ("rounds", "acknowledged", *WRONG)}
            other = sum(total[name] for name in WRONG) - total["lost"] - total["doubled"]
            rate = statistics.median(line["rate"] for line in rounds)
            rows.append(
                f"| {kind} | {timers} | {total['rounds']} | {total['acknowledged']:,} | {total['lost']} "
                f"| {total['doubled']} | {other} | {statistics.median(gaps):.2f} | {max(gaps):.2f} | {rate:,.0f} |"
            )
        return "\n".join(rows)


def stretch(kind: str, rounds: int, options: argparse.Namespace, journal: Journal) -> bool:
    """Run rounds with a new group and compare the stores; return whether the comparison found no error."""
    folder = Path(tempfile.mkdtemp(prefix="failover-", dir=options.folder))
    settings: dict[str, object] = dict(OWN_TIMERS if options.timers == "own" else {})
    settings |= dict(pair.split("=", 1) for pair in options.set)
    linked = kind in {"leader-cut-off", "leader-one-way"}
    clean = False
    try:
        chance = random.Random(options.seed)
        operators: list[Operator] = []

        def prepare(group: Group) -> None:
            operators.append(Operator(group, TOPIC, chance))
            operators[0].prepare()

        with Group(folder, 3, settings, linked=linked, before=prepare if kind == "operator" else None) as group:
            group.create_topic(TOPIC, QUEUES)
            until(lambda: group.whole(TOPIC, QUEUES) >= 0, "all members know the topic")
            load = Load(group, options)
            try:
                load.acknowledges(0)
                time.sleep(WARM_S)
                made = Rounds(group, load, options, chance, operators[0] if operators else None)
                done = 0
                while done < rounds:
                    found = made.run(kind)
                    done += 1
                    journal.add(asdict(found))
                    print(
                        f"{kind} {journal.compared(kind, options.timers) + done}: {found.gap_s:.2f} s without an "
                        f"acknowledgement, together again {found.whole_s:.1f} s after the end of "
                        f"{found.fault_s:.1f} s; {found.rate:,} messages/s before",
                        flush=True,
                    )
                findings = compared(group, load)
                findings.different += [lost for operator in operators for lost in operator.lost]
            finally:
                load.end()
        clean = findings.clean
        counts = {name: value if isinstance(value, int) else len(value) for name, value in asdict(findings).items()}
        journal.add({"kind": kind, "timers": options.timers, "rounds": rounds, **counts})
        print(", ".join(f"{name} {value:,}" for name, value in counts.items()), flush=True)
        if not clean:
            for name, value in asdict(findings).items():
                if value and not isinstance(value, int):
                    print(f"{name}: {value[:SHOWN]}", flush=True)
    finally:
        if clean and not options.keep:
            shutil.rmtree(folder)
        else:
            print(f"stores and logs: {folder}", flush=True)
    return clean


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", default=",".join(KINDS), help="which, with commas between; by default all")
    parser.add_argument("--rounds", type=int, default=100, help="of each kind")
    parser.add_argument("--rounds-of-a-group", type=int, default=10, help="rounds before all is compared")
    parser.add_argument("--timers", choices=("own", "default"), default="own")
    parser.add_argument("--rate", type=int, default=20_000, help="messages/s that are tried")
    parser.add_argument("--producers", type=int, default=4)
    parser.add_argument("--batch", type=int, default=20, help="messages of a request")
    parser.add_argument("--body", type=int, default=100, help="bytes of a body")
    parser.add_argument("--send-timeout-ms", type=int, default=1000, help="limit of a send; then it is sent again")
    parser.add_argument("--durable", action="store_true", help="send with durable=True and its limits")
    parser.add_argument("--stop", type=float, nargs=2, default=(5, 40), metavar=("LEAST", "MOST"), help="s of SIGSTOP")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="setting of every member")
    parser.add_argument("--seed", type=int, default=None, help="of the dice")
    parser.add_argument("--folder", default=None, help="where stores are made, by default in the system's folder")
    parser.add_argument("--limit", type=float, default=120, help="s after which a group counts as stuck")
    parser.add_argument("--keep", action="store_true", help="leave stores and logs")
    parser.add_argument("--json", type=Path, default=None, help="file that gets a line for each round")
    options = parser.parse_args()
    kinds = options.kinds.split(",")
    if unknown := set(kinds) - set(KINDS):
        parser.error(f"no such kind: {', '.join(sorted(unknown))}; choose from {', '.join(KINDS)}")
    members.limit_s = options.limit
    # A SIGTERM must also end the brokers, so leave through the context managers.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    journal = Journal(options.json)
    clean = True
    for kind in kinds:
        while clean and (left := options.rounds - journal.compared(kind, options.timers)) > 0:
            clean = stretch(kind, min(left, options.rounds_of_a_group), options, journal)
    print(journal.table())
    return 0 if clean else 1


if __name__ == "__main__":
    sys.exit(main())
