"""Topics into Delta and Iceberg tables, exactly once, and bodies with a schema.

Importing this package imports none of PySpark, deltalake and pyiceberg.
"""

from tianzhou.spark.lake.bodies import avro_type, avro_value, json_value
from tianzhou.spark.lake.formats import compact

__all__ = ["avro_type", "avro_value", "compact", "json_value"]
