"""Makes `format("tianzhou_lake")` known to Spark without registration.

Spark looks for top-level modules named `pyspark_*` with a `DefaultSource` in them.
"""

from tianzhou.spark.lake.sink import TianzhouLake as DefaultSource

__all__ = ["DefaultSource"]
