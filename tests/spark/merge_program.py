"""A merge into a Delta table whose driver and JVM are killed at a step named in a file.

Run as a program by `test_pipeline_merge.py`: name servers, topic, a work folder.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path


def main() -> None:
    """Merge on until everything is in the table."""
    servers, topic, work = sys.argv[1:]
    from quick_start import JAVA

    from tianzhou.pipelines.merged_table import merge
    from tianzhou.pipelines.topics import Topics
    from tianzhou.spark import session
    from tianzhou.spark.lake.merging import DELETED_KEYS, MergedDelta

    spark = session("kills", "test", **{"spark.driver.memory": "512m"}, **JAVA)
    jvm, plan, whole = spark.sparkContext._gateway.proc.pid, Path(work, "plan"), MergedDelta._merge

    def due(place: str) -> None:
        if plan.read_text() == place:
            plan.write_text("")
            os.kill(jvm, signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)

    def killing(self, path, *rest) -> None:
        if not path.endswith(DELETED_KEYS):
            due("before")
        whole(self, path, *rest)
        due("gone" if path.endswith(DELETED_KEYS) else "after")

    MergedDelta._merge = killing
    options = {"table": "shop.items", "schema": "id INT, name STRING"}
    merge(Topics(spark, servers), topic, str(Path(work, "merged")), **options).awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
