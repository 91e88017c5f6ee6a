"""Spark sessions and queries that start with less work.

Java need not verify Spark's own classes. And the Python processes that Spark starts, six for a session's first stream,
one for each further one, need not compile PySpark's modules: they import them from an archive below `SPARK_HOME`, and
where it has none, those that are installed.
"""

from __future__ import annotations

import os
from pathlib import Path

from spark_processes import SPARK_HOME

from tianzhou.spark.sessions.sessions import settings

OPTIONS = "spark.driver.extraJavaOptions"
JAVA = {OPTIONS: f"{settings('test')[OPTIONS]} -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"}
"""Settings of a session."""
QUERY_LIMIT_S = 300
"""Long, because a query of these tests takes seconds and other processes may use the same core."""


def environment(folder: Path) -> dict[str, str]:
    """The environment of processes with such sessions.

    Args:
        folder: where a `SPARK_HOME` without the archive is made.
    """
    home = folder / "spark"
    home.mkdir()
    for part in ("bin", "jars"):
        (home / part).symlink_to(SPARK_HOME / part)
    source = Path(__file__).resolve().parents[2] / "src"
    return {**os.environ, "PYTHONPATH": str(source), "SPARK_HOME": str(home)}
