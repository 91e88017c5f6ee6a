"""Tianzhou: a message queue that is RocketMQ to everyone who talks to it, and a pipeline into Spark.

The names most users need are importable from here; everything else lives in the package named after it
(`tianzhou.sync` for blocking code, `tianzhou.spark` for Spark, `tianzhou.errors` for the error tree).
"""

__version__ = "0.1.0"
