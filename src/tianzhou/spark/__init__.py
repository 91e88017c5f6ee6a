"""Topics as Spark tables: `session()`, and `spark.read.format("tianzhou")`.

Importing this package imports neither PySpark nor PyArrow. The first session or source imports both.
"""

from tianzhou.spark.sessions.sessions import session
from tianzhou.spark.sessions.threads import activate
from tianzhou.spark.source.progress import description, lag, metrics

__all__ = ["activate", "description", "lag", "metrics", "session"]
