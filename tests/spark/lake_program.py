"""A query from a store folder into a lake table, whose driver and JVM are killed at a step named in a file.

It is killed in its second micro-batch, so that each start makes progress.

Run as a program by `test_spark_lake_kills.py`: storePath, topic, the table's options as JSON, a work folder.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path


def killing(plan: str, pids: str, second: str):
    """Return a data source that kills driver, JVM and workers at the step named in a file, once; its classes are local,
    so that workers get them by value.

    It kills only after the file `second` exists, which the first commit creates.
    """
    from pathlib import Path

    from tianzhou.spark.lake.sink import LakeStreamWriter, TianzhouLake

    def due(place: str) -> None:
        import json
        import os
        import signal

        file = Path(plan)
        if not Path(second).exists() or not file.exists() or file.read_text() != place:
            return
        file.unlink()
        for pid in json.loads(Path(pids).read_text()):
            os.kill(pid, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)

    class Writer(LakeStreamWriter):
        def write(self, iterator):
            message = super().write(iterator)
            due("task")
            return message

        def commit(self, messages, batchId):  # noqa: N803
            due("before")
            super().commit(messages, batchId)
            due("after")
            Path(second).touch()

    class Killing(TianzhouLake):
        @classmethod
        def name(cls) -> str:
            return "killing_lake"

        def streamWriter(self, schema, overwrite):  # noqa: N802
            return Writer(self._parsed(), schema, overwrite)

    return Killing


def main() -> None:
    """Read on until everything is in the table."""
    store, topic, options, work = sys.argv[1:]
    from quick_start import JAVA

    from tianzhou.spark import session

    spark = session("kills", "test", **{"spark.driver.memory": "512m"}, **JAVA)
    folder = Path(work)
    jvm = spark.sparkContext._gateway.proc.pid
    (folder / "pids").write_text(json.dumps([jvm, os.getpid()]))
    (folder / "second").unlink(missing_ok=True)
    spark.dataSource.register(killing(*(str(folder / name) for name in ("plan", "pids", "second"))))
    query = (
        spark.readStream.format("tianzhou_store")
        .options(storePath=store, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=100)
        .load()
        .selectExpr("queueId", "queueOffset", "cast(body AS STRING) AS n")
        .writeStream.format("killing_lake")
        .options(**json.loads(options))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
