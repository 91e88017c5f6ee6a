"""The process that forks Spark's Python workers, for sessions that run on one machine.

It is PySpark's own daemon with three changes (`spark.python.daemon.module` names this module).

- A worker whose reader disconnected, as after `take` or at the end of a session, prints no traceback. Spark closes
  these connections on purpose.
- The modules that each worker needs are imported once before the fork, from the installed PySpark. PySpark's archive,
  which Spark puts first in the path, would make every process compile the modules.
- After each task a worker collects garbage only among objects made since its first task. A full collection over all
  imported modules takes longer than the rows of a small micro-batch.
"""

from __future__ import annotations

import gc
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from importlib import import_module
from types import SimpleNamespace
from typing import Any

GONE = (BrokenPipeError, ConnectionResetError)
"""Errors in a worker whose reader disconnected."""
FOR_WORKERS = ("pyspark.worker", "tianzhou.spark.connections")
"""Modules that every worker imports. pyarrow and numpy are missing: they start threads, which do not survive a fork."""
ARCHIVE = os.path.join("pyspark", "python", "lib", "pyspark.zip")  # noqa: PTH118 - as it stands in sys.path


def without_archive(path: Sequence[str]) -> list[str]:
    """Return an import path without PySpark's archive, if the path contains the same PySpark as files.

    Args:
        path: `sys.path`.
    """
    # An environment may be behind a symbolic link, which Spark resolves and Python does not.
    installed = {os.path.realpath(os.path.join(entry, ARCHIVE)) for entry in path}  # noqa: PTH118
    return [entry for entry in path if os.path.realpath(entry) not in installed]


def unless_gone(tell: Callable[..., None]) -> Callable[..., None]:
    """Return a reporter that reports the current exception, unless the reader has disconnected.

    Args:
        tell: reports an error.
    """

    def unless(*args: Any, **options: Any) -> None:
        if not isinstance(sys.exc_info()[1], GONE):
            tell(*args, **options)

    return unless


def collecting_new() -> Callable[[], None]:
    """Return a function that collects garbage.

    Its first call freezes the surviving objects, mostly modules, so that later calls skip them.
    """
    settled = False

    def collect() -> None:
        nonlocal settled
        gc.collect()
        if not settled:
            settled = True
            gc.freeze()

    return collect


def quieten(daemon: Any) -> None:
    """Patch a daemon's module in this process: report no disconnected readers, and collect less garbage.

    Args:
        daemon: the module `pyspark.daemon`, also when it runs as `__main__`.
    """
    daemon.gc = SimpleNamespace(collect=collecting_new(), freeze=gc.freeze, enable=gc.enable, disable=gc.disable)
    daemon.traceback = SimpleNamespace(print_exc=unless_gone(traceback.print_exc), format_exc=traceback.format_exc)
    daemon.print = unless_gone(print)


def quieten_own() -> None:
    """Patch the daemon that forked this process, if this process is a worker of PySpark's own daemon."""
    main = sys.modules.get("__main__")
    spec = getattr(main, "__spec__", None)
    if spec is not None and spec.name == "pyspark.daemon":
        quieten(main)


def main() -> None:
    """Fork workers until Spark closes stdin."""
    sys.path[:] = without_archive(sys.path)
    for name in FOR_WORKERS:
        import_module(name)
    daemon: Any = import_module("pyspark.daemon")
    quieten(daemon)
    daemon.manager()


if __name__ == "__main__":
    main()
