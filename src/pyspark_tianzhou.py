"""Makes `format("tianzhou")` known to Spark without registration.

Spark looks for top-level modules named `pyspark_*` with a `DefaultSource` in them.
"""

from tianzhou.spark.data_source import TianzhouSource as DefaultSource

__all__ = ["DefaultSource"]
