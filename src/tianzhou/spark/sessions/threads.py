"""Activation of a session in the thread of its writers, so that they find their format in every thread.

Spark looks up a writer's format in the active session of the JVM thread that serves the Python thread. Only the thread
that made the session has an active session. In any other thread `save` and `start` would not find `format("tianzhou")`.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OURS = "tianzhou"
"""Prefix of the names of this package's formats."""


def activate(spark: SparkSession) -> None:
    """Activate a session in the calling thread, so that its writers find `format("tianzhou")`.

    Sessions of `session()` do not need this call. It does nothing for a session on a Spark Connect server, which has no
    threads in this process.

    Args:
        spark: the session.
    """
    java: Any = getattr(spark, "_jsparkSession", None)
    if java is not None:
        machine: Any = spark._jvm
        machine.SparkSession.setActiveSession(java)


def find_from_every_thread() -> None:
    """Patch the writers of this process: a writer activates its own session if its format is one of this package's."""
    from pyspark.sql.readwriter import DataFrameWriter
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    kinds: tuple[Any, ...] = (DataFrameWriter, DataStreamWriter)
    for kind in kinds:
        if not hasattr(kind.format, "activates"):
            kind.format = _activating(kind.format)


def _activating(plain: Any) -> Any:
    @functools.wraps(plain)
    def with_activation(self: Any, source: str) -> Any:
        if isinstance(source, str) and source.lower().startswith(OURS):
            activate(self._spark)
        return plain(self, source)

    with_activation.activates = True  # type: ignore[attr-defined]
    return with_activation
