"""Distribution of the tests over the workers of a run: long tests begin first, quick ones fill the gaps."""

from __future__ import annotations

import os

from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

FOREIGN, SPARK, BROWSER = "tests/interop/", "tests/spark/", "tests/browser/"
WHOLE_FILES = (FOREIGN, SPARK, BROWSER)
"""Files that each stay on one worker, because their tests share a JVM or a server. Files of browsers share one browser
and one cluster, and stay on one worker together.
"""
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
"""Nice value of the spare worker, which runs almost only while others are idle, because others have time limits."""


def is_spare(worker: str, workers: int) -> bool:
    """Whether a worker is the spare one, the last of the run."""
    return worker == f"gw{workers - 1}"


def step_back() -> None:
    """Lower the priority of this process."""
    os.nice(SPARE_NICE)


class LongFirst(LoadScopeScheduling):
    """A scheduler that distributes the tests in the order of their collection, with two exceptions.

    Tests of foreign peers mostly wait, for elections and for each other; Spark's tests use the processor. One worker
    begins with Spark's, and the others run these last, so that the workers do not all compute, or all wait, at the same
    time. A spare worker runs the last of the quick ones at low priority; it ends when no more are left.

    Groups by markers (`--dist loadgroup` alone) do nothing with pytest 9, which does not rename items.
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
        """Return the next scope of a worker; None when there is none for it."""
        last = next(reversed(self.workqueue))
        if self._is_spare(node):
            return last if last.startswith(QUICK) else None
        wants_spark = node.gateway.id == SPARK_WORKER
        # Scopes of Spark come early, so that this loop is short.
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
        # The base class stores all, and counts them again with each test.
        if all(unit.values()):
            del self.assigned_work[node][scope]
        self._reschedule(node)
