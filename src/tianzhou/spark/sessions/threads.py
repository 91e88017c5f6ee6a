"""Writers that are found from every thread.

Spark looks for a writer's format in the session that is active in the thread of the JVM that serves the Python thread.
In the thread that made the session it is; in any other none is, and `save` and `start` find no `format("tianzhou")`.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OURS = "tianzhou"
"""How the names of our formats begin."""


def activate(spark: SparkSession) -> None:
    """Make a session the active one of the calling thread, so that its writers find `format("tianzhou")`.

    A session of `session()` needs no call. One on a Spark Connect server has no threads here, and is left alone.

    Args:
        spark: the session.
    """
    java: Any = getattr(spark, "_jsparkSession", None)
    if java is not None:
        machine: Any = spark._jvm
        machine.SparkSession.setActiveSession(java)


def find_from_every_thread() -> None:
    """Have writers of this process activate their own session when their format is one of ours."""
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
