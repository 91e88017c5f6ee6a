"""Makes `format("tianzhou_store")` known to Spark without registration.

Spark looks for top-level modules named `pyspark_*` with a `DefaultSource` in them.
"""

from tianzhou.spark.store.store_source import TianzhouStore as DefaultSource

__all__ = ["DefaultSource"]
