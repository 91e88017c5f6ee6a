"""A topic as a streaming table, and a table of figures about it that is kept up to date."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

spark = SparkSession.active()


@dp.table
def messages() -> DataFrame:
    """Every message of the topic, once; a run reads on from where the last one ended."""
    return (
        spark.readStream.format("tianzhou")
        .option("namesrvAddr", spark.conf.get("tianzhou.namesrvAddr"))
        .option("subscribe", spark.conf.get("tianzhou.topic"))
        .option("startingOffsets", "earliest")
        .load()
        .withColumn("text", f.col("body").cast("string"))
    )


@dp.materialized_view
def by_tag() -> DataFrame:
    """Messages by tag."""
    return spark.read.table("messages").groupBy("tags").agg(f.count("*").alias("messages"))
