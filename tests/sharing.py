"""How the workers of a run share the tests: those that take long begin first, quick ones fill what these leave idle."""

from __future__ import annotations

import os

from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

FOREIGN, SPARK, BROWSER = "tests/interop/", "tests/spark/", "tests/browser/"
WHOLE_FILES = (FOREIGN, SPARK, BROWSER)
"""Each file of these stays on one worker, as its tests share a JVM or a server. Files of browsers share one browser and
one cluster, and stay on one worker together."""
SHARED_SETUP = (
    "tests/fault/damage/test_bit_rot.py", "tests/fault/hostile_peers/test_access_bypass.py",
    "tests/fault/hostile_peers/test_bad_input.py", "tests/fault/test_bench_process.py", "tests/form/test_wheels.py",
    "tests/scenario/test_mqadmin_answers.py",
)  # fmt: skip
"""Files with an expensive setup per module. Each file stays on one worker, because each further worker repeats it."""
QUICK = ("tests/unit/", "tests/property/", "tests/golden_checks/", "tests/form/", "tests/contract/client/")
"""Folders of tests that wait for no process. They run last, because a busy machine makes none of them fail."""
SPARK_WORKER = "gw1"
SPARE_NICE = 15
"""The spare worker gets next to nothing while others have something to do: these wait with time limits."""


def is_spare(worker: str, workers: int) -> bool:
    """Whether a worker is the spare one, which is the last."""
    return worker == f"gw{workers - 1}"


def step_back() -> None:
    """Have this process wait for others."""
    os.nice(SPARE_NICE)


class LongFirst(LoadScopeScheduling):
    """Gives out the tests in the order they were collected, with two exceptions.

    Tests of foreign peers wait most of the time, for elections and for each other; those of Spark work. One worker
    begins with Spark's, and the others come to these last, so that not all work, or all wait, at once. A spare worker
    takes the last of the quick ones, and no time from the others; it ends when there are no more.

    Groups by markers (`--dist loadgroup` alone) do nothing with pytest 9, whose items keep their names.
    """

    def _split_scope(self, nodeid: str) -> str:
        if nodeid.startswith(BROWSER):
            return BROWSER
        return nodeid.split("::")[0] if nodeid.startswith(WHOLE_FILES + SHARED_SETUP) else nodeid

    def schedule(self) -> None:
        if not hasattr(self, "_place"):
            self.config.option.loadscopereorder = False
            self._place = {nodeid: i for i, nodeid in enumerate(next(iter(self.registered_collections.values())))}
        super().schedule()

    def _is_spare(self, node: WorkerController) -> bool:
        return bool(self.config.getoption("spare_worker")) and is_spare(node.gateway.id, self.numnodes)

    def _next_for(self, node: WorkerController) -> str | None:
        """The scope that a worker gets next; None when there is none for it."""
        last = next(reversed(self.workqueue))
        if self._is_spare(node):
            return last if last.startswith(QUICK) else None
        wants_spark = node.gateway.id == SPARK_WORKER
        # Scopes of Spark come early, so that a look at all is a look at few.
        for scope in self.workqueue:
            if scope.startswith(SPARK) == wants_spark:
                return scope
            if wants_spark and scope.startswith(QUICK):
                break
        return next(iter(self.workqueue))

    def _assign_work_unit(self, node: WorkerController) -> None:
        scope = self._next_for(node)
        if scope is None:
            node.shutdown()
            return
        unit = self.workqueue.pop(scope)
        self.assigned_work[node][scope] = unit
        node.send_runtest_some([self._place[nodeid] for nodeid, is_done in unit.items() if not is_done])

    def mark_test_complete(self, node: WorkerController, item_index: int, duration: float = 0) -> None:
        nodeid = self.registered_collections[node][item_index]
        scope = self._split_scope(nodeid)
        unit = self.assigned_work[node][scope]
        unit[nodeid] = True
        # The base class keeps all, and counts them anew with each test.
        if all(unit.values()):
            del self.assigned_work[node][scope]
        self._reschedule(node)
