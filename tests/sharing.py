"""How the workers of a run share the tests: those that take long begin first, quick ones fill what these leave idle."""

from __future__ import annotations

import os

from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

WHOLE_FILES = ("tests/interop/", "tests/spark/", "tests/browser/")
"""Each file of these stays on one worker, as its tests share a JVM, a server or a browser."""
QUICK = ("tests/unit/", "tests/property/", "tests/golden_checks/", "tests/form/")
"""Rooms of tests that work and wait for nobody, so that they may wait for everybody else."""
SPARE_NICE = 5
"""The spare worker gets a third of what one of the others gets while both have something to do."""


def is_spare(worker: str, workers: int) -> bool:
    """Whether a worker is the spare one, which is the last."""
    return worker == f"gw{workers - 1}"


def step_back() -> None:
    """Have this process wait for others."""
    os.nice(SPARE_NICE)


class LongFirst(LoadScopeScheduling):  # type: ignore[misc]
    """Gives out the tests in the order they were collected, and to a spare worker the last of the quick ones.

    Suites of real processes wait half of the time, for elections and for each other. More of them at a time would
    starve those that wait with a time limit; the spare worker takes no time from them. It ends when no quick test is
    left.

    Groups by markers (`--dist loadgroup` alone) do nothing with pytest 9, whose items keep their names.
    """

    def _split_scope(self, nodeid: str) -> str:
        return nodeid.split("::")[0] if nodeid.startswith(WHOLE_FILES) else nodeid

    def schedule(self) -> None:
        if not hasattr(self, "_place"):
            self.config.option.loadscopereorder = False
            self._place = {nodeid: i for i, nodeid in enumerate(next(iter(self.registered_collections.values())))}
        super().schedule()

    def _is_spare(self, node: WorkerController) -> bool:
        return bool(self.config.getoption("spare_worker")) and is_spare(node.gateway.id, self.numnodes)

    def _assign_work_unit(self, node: WorkerController) -> None:
        if self._is_spare(node):
            if not next(reversed(self.workqueue)).startswith(QUICK):
                node.shutdown()
                return
            scope, unit = self.workqueue.popitem(last=True)
        else:
            scope, unit = self.workqueue.popitem(last=False)
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
