"""Topics as Spark tables: `session()`, and `spark.read.format("tianzhou")`.

Importing this package imports neither PySpark nor PyArrow; both come in when a session or a source is made.
"""

from tianzhou.spark.progress import lag
from tianzhou.spark.sessions import session
from tianzhou.spark.threads import activate

__all__ = ["activate", "lag", "session"]
