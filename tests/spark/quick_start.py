"""Spark sessions and queries with a faster start.

Java skips the verification of Spark's own classes. The Python processes of Spark, six for a session's first stream and
one for each further one, do not compile PySpark's modules: they import them from an archive in `SPARK_HOME`, or the
installed ones without an archive.
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
    """Return the environment of processes with such sessions.

    Args:
        folder: folder for a `SPARK_HOME` without the archive.
    """
    home = folder / "spark"
    home.mkdir()
    for part in ("bin", "jars"):
        (home / part).symlink_to(SPARK_HOME / part)
    source = Path(__file__).resolve().parents[2] / "src"
    return {**os.environ, "PYTHONPATH": str(source), "SPARK_HOME": str(home)}
