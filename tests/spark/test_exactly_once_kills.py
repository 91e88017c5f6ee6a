"""kill -9 of driver and workers at random moments: source, transformation, exactly-once sink; no row more or less."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
from exactly_once_query import begin
from quick_start import environment

sys.path.append(str(Path(__file__).resolve().parents[1]))

from process_tree import descendants

SCRIPT = Path(__file__).resolve().parent / "exactly_once_query.py"
DAEMON = b"tianzhou.spark.sessions.daemon"
ROWS_A_STAGE = 160
START_LIMIT_S = 240
END_LIMIT_S = 300
POLL_S = 0.1
"""Polling more often takes a tenth of a processor from the query."""
LONGEST_PAUSE_S = 0.5
"""Maximum pause in seconds between the chosen progress of the query and its kill; about the time of a batch."""


def workers(pid: int) -> list[int]:
    """Return the Python workers of the query: children of its daemons that the daemons have forked."""

    def is_forked(child: int) -> bool:
        command = Path(f"/proc/{child}/cmdline").read_bytes()
        parent = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[1]
        return DAEMON in command and command == Path(f"/proc/{parent}/cmdline").read_bytes()

    found = []
    for child in descendants(pid):
        with contextlib.suppress(OSError):
            if is_forked(child):
                found.append(child)
    return found


class Query:
    """The query's process, and all below it."""

    def __init__(self, folder: Path, environ: dict[str, str], server, source: str, target: str, master: str) -> None:
        self.errors = (folder / "query.err").open("ab")
        self.process = subprocess.Popen(
            [sys.executable, str(SCRIPT), server.address, source, target, str(folder / "checkpoint"), master],
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            env=environ,
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()
        self.errors.close()

    def started(self) -> None:
        watchdog = threading.Timer(START_LIMIT_S, self.kill)
        watchdog.start()
        line = self.process.stdout.readline()
        watchdog.cancel()
        assert line == "started\n", f"the query did not start, see {self.errors.name}"

    def kill(self) -> None:
        """Driver, JVM and workers at once."""
        for pid in [self.process.pid, *descendants(self.process.pid)]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()
        self.process.stdout.close()

    def kill_worker(self, rng: random.Random) -> bool:
        found = workers(self.process.pid)
        if found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(rng.choice(found), signal.SIGKILL)
        return bool(found)

    def until(self, server, target: str, count: float) -> None:
        """Wait until the target has `count` rows, or the query has failed."""
        deadline = time.monotonic() + END_LIMIT_S
        while sum(server.maxima(target).values()) < count and self.process.poll() is None:
            assert time.monotonic() < deadline, f"the query does not get on, see {self.errors.name}"
            time.sleep(POLL_S)


def attack(spark, server, folder: Path, rounds: int, seed: int) -> None:
    """Kill workers and then the query's process in each round, then run the query to its end in the shared session.

    Args:
        spark: the session that runs the query to its end.
        server: server with both topics.
        folder: folder of the checkpoint and of the processes' output.
        rounds: number of processes to kill. In the first and every second round the query gets more rows between both
            kills, and in the others the process is killed soon after its workers.
        seed: seed of all random choices.
    """
    print(f"seed {seed}")
    rng, environ = random.Random(seed), environment(folder)
    source, target = server.create("kills-source", 3), server.create("kills-target", 3)
    sent, ended, shot = 0, 0, 0

    def send() -> None:
        nonlocal sent
        server.send(source, range(sent, sent + ROWS_A_STAGE), tags=lambda n: f"tag{n % 3}")
        sent += ROWS_A_STAGE

    for number in range(rounds):
        send()
        # Spark runs a task that dies with its worker again within the batch, or the query fails and is started again.
        with Query(folder, environ, server, source, target, "local[2,3]") as query:
            query.started()
            query.until(server, target, sent - rng.uniform(0.5, 1) * ROWS_A_STAGE)
            for _ in range(rng.randint(1, 4)):
                time.sleep(rng.uniform(0.1, 0.6))
                shot += query.kill_worker(rng)
            if number % 2 == 0:
                send()
                query.until(server, target, sent - rng.uniform(0.5, 1) * ROWS_A_STAGE)
            time.sleep(rng.uniform(0, LONGEST_PAUSE_S))
            ended += query.process.poll() is not None
    query = begin(spark, server.address, source, target, str(folder / "checkpoint"), available_now=True)
    assert query.awaitTermination(END_LIMIT_S)
    found = Counter(bytes(message.body).decode() for message in server.messages(target))
    print(f"{rounds} rounds, {ended} ended by themselves, {shot} workers killed, {sent} rows in, {found.total()} out")
    wanted = Counter(f"row-{n}" for n in range(sent))
    assert found - wanted == Counter(), "doubled or invented"
    assert wanted - found == Counter(), "lost"
    assert ended < rounds, "no process was killed"
    assert shot, "no worker was killed"


def test_rows_are_there_once_whatever_kill_9_does(spark, own_server, tmp_path):
    attack(spark, own_server, tmp_path, 1, int(os.environ.get("TIANZHOU_SEED", "3")))


@pytest.mark.slow
def test_rows_are_there_once_after_many_kills(spark, own_server, tmp_path):
    attack(spark, own_server, tmp_path, 24, random.SystemRandom().randrange(1 << 30))
