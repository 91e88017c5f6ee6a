"""Ready pipelines over topics, one small file each, to run (`tianzhou pipeline NAME`) or to copy and change.

Every file reads from top to bottom: its input, its transformation, its output. All share `topics` for input and output,
and `queries` to wait for a streaming query. Importing this package imports neither PySpark nor PyArrow. The files do,
except `logs`, which needs no Spark.
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
