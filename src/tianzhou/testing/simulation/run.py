"""A run of one seed: build the cluster, load it, inject faults, end them, wait, and check."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final
from unittest.mock import patch

from tianzhou.errors import ConfigError
from tianzhou.testing.disk import PowerLostError
from tianzhou.testing.simulation import checkers, faults
from tianzhou.testing.simulation.checkers import Promise, Violation
from tianzhou.testing.simulation.cluster import GROUPS, SimulatedCluster
from tianzhou.testing.simulation.folder_checkers import folder_problems
from tianzhou.testing.simulation.history import Fault, History, Log
from tianzhou.testing.simulation.loop import SimulationLoop, StuckError
from tianzhou.testing.simulation.members import members_noted
from tianzhou.testing.simulation.processes import here
from tianzhou.testing.simulation.scenarios import SCENARIOS, ClusterLayout
from tianzhou.testing.simulation.seams import simulated
from tianzhou.testing.simulation.table_changes import note_tables, table_problems

MEMORY: Final = Path("/dev/shm")
DRAIN_S: Final = 150.0
"""Maximum virtual seconds after the last fault until all messages are replicated and consumed."""
TABLES_S: Final = 2.0
"""Virtual seconds after which members have applied all committed changes of tables."""
BEFORE: Final = 12


@dataclass(frozen=True, slots=True)
class SeedVerdict:
    """The result of a seed.

    Attributes:
        scenario: name of the scenario.
        seed: the seed.
        title: the drawn variant.
        problems: violations, the first one first.
        steps: number of callbacks of the loop.
        virtual_s: time that passed in the cluster, seconds.
        real_s: time that passed outside, seconds.
        counts: numbers of messages, packets and faults.
        digest: of all events.
        trace: all events when they were requested, else the last ones before the first problem.
    """

    scenario: str
    seed: int
    title: str
    problems: list[Violation]
    steps: int
    virtual_s: float
    real_s: float
    counts: dict[str, int]
    digest: str
    trace: list[str] = field(repr=False)

    @property
    def failed(self) -> bool:
        """Whether there are problems."""
        return bool(self.problems)

    @property
    def replay(self) -> str:
        """The command that runs the seed again, to the same step."""
        return f"tianzhou simulate --scenario {self.scenario} --seed {self.seed} --trace"


def run(scenario: str, seed: int, *, trace: bool = False) -> SeedVerdict:
    """Run a seed.

    Args:
        scenario: one of `SCENARIOS`.
        seed: determines the whole run.
        trace: record all events, and the log lines of programs.

    Raises:
        ConfigError: there is no such scenario.
    """
    chosen = SCENARIOS.get(scenario)
    if chosen is None:
        raise ConfigError(f"--scenario {scenario}: no such scenario; choose from {', '.join(SCENARIOS)}")
    began_s = time.perf_counter()
    # The scenario's name is part of the seed, because one number leads to different runs in different scenarios.
    rng = Random(f"{scenario}/{seed}")
    layout = chosen.draw(rng)
    loop = SimulationLoop(rng)
    history = History(lambda: (loop.steps, loop.time()))
    memory = MEMORY if os.access(MEMORY, os.W_OK) else None
    root = Path(tempfile.mkdtemp(prefix="tianzhou-simulation-", dir=memory))
    crashes: list[Violation] = []
    loop.set_exception_handler(lambda _, context: _note_crash(loop, crashes, context))
    try:
        with _undisturbed(loop), _logs(history if trace else None):
            cluster = SimulatedCluster(layout, loop, root, rng, history)
            with simulated(loop, rng, cluster.disks), members_noted(history):
                try:
                    stuck = loop.run_until_complete(_course(cluster, layout, rng, history))
                except StuckError as error:
                    stuck = str(error)
                finally:
                    # Ignore errors that are reported after the run.
                    loop.set_exception_handler(lambda *_: None)
                    with _letting_go():
                        cluster.tear_down()
                counts = {
                    "messages": len(history.bodies),
                    "packets": loop.network.packets,
                    "faults": sum(isinstance(event, Fault) for event in history.events),
                }
                with _letting_go():
                    del cluster
                    loop.close()
    finally:
        shutil.rmtree(root, ignore_errors=True)
    promise = _promise(layout)
    found = [*checkers.problems(history, promise), *folder_problems(history), *table_problems(history), *crashes]
    if stuck:
        found.append(Violation(loop.steps, "stuck", stuck))
    found.sort(key=lambda problem: problem.step)
    shown = history.events if trace or not found else checkers.around(history.events, found[0].step, BEFORE)
    return SeedVerdict(
        scenario,
        seed,
        layout.title,
        found,
        loop.steps,
        loop.time(),
        time.perf_counter() - began_s,
        counts,
        history.digest,
        [event.line() for event in shown] if trace or found else [],
    )


def _promise(layout: ClusterLayout) -> Promise:
    orderly = [group for group, in_order in GROUPS.items() if in_order]
    # Queues are locked at the master, so ordered consumers wait while it is gone, as in RocketMQ.
    masterless = bool(layout.gone) and not layout.grouped
    reached = [group for group in GROUPS if not masterless or group not in orderly]
    return Promise(layout.promised, reached, orderly, layout.gone if masterless else "", layout.wait_s)


async def _course(cluster: SimulatedCluster, layout: ClusterLayout, rng: Random, history: History) -> str:
    """Run all phases of a run; return why it did not end, or an empty text."""
    loop = asyncio.get_running_loop()
    await cluster.start()
    watching = loop.create_task(cluster.watch()), loop.create_task(cluster.obey())
    begin_s = loop.time()
    mishaps = faults.Mishaps(
        servers=list(cluster.brokers),
        clients=[client.name for client in cluster.clients],
        powerless=layout.powerless,
        rots=layout.rots,
        gone=layout.gone,
        span_s=(begin_s + 0.5, begin_s + layout.load_s),
        grouped=layout.grouped,
        weak=layout.weak,
        exchanges=layout.exchanges,
    )
    for planned in faults.plan(mishaps, rng):
        await asyncio.sleep(max(planned.at_s - loop.time(), 0))
        cluster.strike(planned)
    await asyncio.sleep(max(begin_s + layout.load_s - loop.time(), 0) + rng.random() * 2)
    await cluster.mend()
    stuck = await _drained(cluster, history, _promise(layout), loop.time() + DRAIN_S)
    for task in watching:
        task.cancel()
    history.remains = cluster.remains()
    await asyncio.sleep(TABLES_S)
    if layout.grouped:
        note_tables(history, cluster.brokers.values())
    return stuck


async def _drained(cluster: SimulatedCluster, history: History, promise: Promise, limit_s: float) -> str:
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(1.0)
        for slave in cluster.diverged():
            history.add(Fault, f"{slave.name} is emptied")
            await cluster.empty(slave)
        why = cluster.settled()
        if not why and all(producer.done for producer in cluster.producers):
            history.remains = cluster.remains()
            if not checkers.missing(history, promise):
                return ""
        if loop.time() > limit_s:
            return why


def _note_crash(loop: SimulationLoop, crashes: list[Violation], context: dict[str, Any]) -> None:
    """Record an unhandled exception of a program."""
    process, error = here(), context.get("exception")
    if isinstance(error, PowerLostError) or (process is not None and process.ended):
        return
    crashes.append(Violation(loop.steps, "crash", f"{process}: {context.get('message')}: {error!r}"))


@contextlib.contextmanager
def _undisturbed(loop: SimulationLoop) -> Iterator[None]:
    """Disable the garbage collector, because the time of a collection depends on the whole process.

    Args:
        loop: closed in the end.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    gc.freeze()
    try:
        yield
    finally:
        # Collect the rest of the cluster while the loop is set: closed coroutines may start work, which must reach the
        # closed loop. Without a set loop, asyncio would create one and not release it.
        asyncio.set_event_loop(loop)
        with _letting_go():
            gc.collect()
        asyncio.set_event_loop(None)
        gc.unfreeze()
        if was_enabled:
            gc.enable()


@contextlib.contextmanager
def _letting_go() -> Iterator[None]:
    """Suppress warnings about coroutines of dead processes that no task awaits any more."""
    with warnings.catch_warnings(), patch.object(sys, "unraisablehook", lambda _: None):
        warnings.simplefilter("ignore", RuntimeWarning)
        yield


class _Lines(logging.Handler):
    def __init__(self, history: History) -> None:
        super().__init__()
        self._history = history

    def emit(self, record: logging.LogRecord) -> None:
        self._history.add(Log, str(here() or "outside"), record.getMessage())


@contextlib.contextmanager
def _logs(history: History | None) -> Iterator[None]:
    """Record the log lines of programs, or drop them: a run logs more than a person can read."""
    logger = logging.getLogger("tianzhou")
    before = logger.level, logger.propagate
    handler = logging.NullHandler() if history is None else _Lines(history)
    logger.addHandler(handler)
    logger.setLevel(logging.CRITICAL + 1 if history is None else logging.INFO)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before[0])
        logger.propagate = before[1]
