"""The process that forks Spark's Python workers, where one machine runs the whole session.

It is PySpark's own (`spark.python.daemon.module` names this one) but for three things. A worker whose reader went away,
as behind `take` or at the end of a session, ends without a word: Spark has closed the connection on purpose. What each
worker imports is imported once, before the fork, from the PySpark that is installed, and not from the archive that
Spark puts before it, whose modules every process would compile. And behind each task a worker looks for garbage among
what came since its first one, not among all that it has imported, which takes longer than a small micro-batch's rows.
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
"""What a worker meets whose reader went away."""
FOR_WORKERS = ("pyspark.worker", "tianzhou.spark.connections")
"""What every worker needs and begins no thread, as importing pyarrow and numpy does: threads do not outlive a fork."""
ARCHIVE = os.path.join("pyspark", "python", "lib", "pyspark.zip")  # noqa: PTH118 - as it stands in sys.path


def without_archive(path: Sequence[str]) -> list[str]:
    """Where to import from, without PySpark's archive where the same PySpark lies there as files.

    Args:
        path: `sys.path`.
    """
    # An environment may lie behind a link, which Spark follows and Python does not.
    installed = {os.path.realpath(os.path.join(entry, ARCHIVE)) for entry in path}  # noqa: PTH118
    return [entry for entry in path if os.path.realpath(entry) not in installed]


def unless_gone(tell: Callable[..., None]) -> Callable[..., None]:
    """A way to tell of the error being handled that says nothing when the reader went away.

    Args:
        tell: reports an error.
    """

    def unless(*args: Any, **options: Any) -> None:
        if not isinstance(sys.exc_info()[1], GONE):
            tell(*args, **options)

    return unless


def collecting_new() -> Callable[[], None]:
    """A collection of garbage that no longer looks at what its first call has left: modules, above all."""
    settled = False

    def collect() -> None:
        nonlocal settled
        gc.collect()
        if not settled:
            settled = True
            gc.freeze()

    return collect


def quieten(daemon: Any) -> None:
    """Have a daemon's module, in this process, say nothing of workers whose reader went away, and collect less.

    Args:
        daemon: the module `pyspark.daemon`, whatever name it was run by.
    """
    daemon.gc = SimpleNamespace(collect=collecting_new(), freeze=gc.freeze, enable=gc.enable, disable=gc.disable)
    daemon.traceback = SimpleNamespace(print_exc=unless_gone(traceback.print_exc), format_exc=traceback.format_exc)
    daemon.print = unless_gone(print)


def quieten_own() -> None:
    """The same for the daemon that forked this process, if it is such a worker of PySpark's own."""
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
