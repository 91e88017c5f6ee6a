"""Ready pipelines over topics, one small file each, to run (`tianzhou pipeline NAME`) or to copy and change.

Every file reads from top to bottom: what comes in, what is done with it, where it goes. `topics` is the way in and
out that they share, `queries` waits for a streaming query. Importing this package imports neither PySpark nor PyArrow;
the files do, but for `logs`, which needs no Spark.
"""

FILES = (
    "archive",
    "dead_letters",
    "replay",
    "deduplicate",
    "trace_figures",
    "success_rate",
    "order_timeouts",
    "binlog_changes",
    "binlog_source",
    "merged_table",
    "logs",
)
"""The modules to copy; `tianzhou pipeline source NAME` prints one."""
DECLARATIVE = "declarative"
"""The folder of definitions for `spark-pipelines`, which `tianzhou pipeline source declarative --to FOLDER` copies."""
