"""One seed: build the cluster, load it, let things go wrong, mend them, wait, and check."""

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
"""Virtual seconds within which everything is where it belongs once nothing goes wrong any more."""
TABLES_S: Final = 2.0
"""Virtual seconds after which members have applied all committed changes of tables."""
BEFORE: Final = 12


@dataclass(frozen=True, slots=True)
class SeedVerdict:
    """What came of a seed.

    Attributes:
        scenario: which cluster.
        seed: the seed.
        title: what the seed has drawn.
        problems: what should not have happened, the first one first.
        steps: callbacks of the loop.
        virtual_s: time that passed in the cluster.
        real_s: and outside.
        counts: messages, packets, faults.
        digest: of everything that happened.
        trace: the events; all of them when they were asked for, else the last ones before the first problem.
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
        """Whether anything is wrong."""
        return bool(self.problems)

    @property
    def replay(self) -> str:
        """The command that runs the seed again, to the same step."""
        return f"tianzhou simulate --scenario {self.scenario} --seed {self.seed} --trace"


def run(scenario: str, seed: int, *, trace: bool = False) -> SeedVerdict:
    """Run a seed.

    Args:
        scenario: one of `SCENARIOS`.
        seed: decides everything that happens.
        trace: keep all events, and what the programs log.

    Raises:
        ConfigError: there is no such scenario.
    """
    chosen = SCENARIOS.get(scenario)
    if chosen is None:
        raise ConfigError(f"--scenario {scenario}: no such scenario; choose from {', '.join(SCENARIOS)}")
    began_s = time.perf_counter()
    # The name belongs to it: the same number shows other things in another scenario.
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
                    # What nobody will ever ask for is no news any more.
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
    # Queues are locked at the master: who consumes in order waits for it when it is gone, as with RocketMQ.
    masterless = bool(layout.gone) and not layout.grouped
    reached = [group for group in GROUPS if not masterless or group not in orderly]
    return Promise(layout.promised, reached, orderly, layout.gone if masterless else "", layout.wait_s)


async def _course(cluster: SimulatedCluster, layout: ClusterLayout, rng: Random, history: History) -> str:
    """All that happens in a run; returns why it had no end, if it had none."""
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
    """A program raised what nobody looked after."""
    process, error = here(), context.get("exception")
    if isinstance(error, PowerLostError) or (process is not None and process.ended):
        return
    crashes.append(Violation(loop.steps, "crash", f"{process}: {context.get('message')}: {error!r}"))


@contextlib.contextmanager
def _undisturbed(loop: SimulationLoop) -> Iterator[None]:
    """No garbage is collected in between: when that would happen depends on what else the process has done.

    Args:
        loop: closed in the end.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    gc.freeze()
    try:
        yield
    finally:
        # What is left of the cluster goes while there is something to go from.
        # What coroutines begin when they are closed goes to a closed loop; asyncio would make one, and keep it.
        asyncio.set_event_loop(loop)
        with _letting_go():
            gc.collect()
        asyncio.set_event_loop(None)
        gc.unfreeze()
        if was_enabled:
            gc.enable()


@contextlib.contextmanager
def _letting_go() -> Iterator[None]:
    """What a dead process had begun, and nobody awaits any more, is let go without a word."""
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
    """What the programs log goes to the history, or nowhere: they live through more than anybody wants to read."""
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
