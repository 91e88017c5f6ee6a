"""Topics of one cluster as tables and streams: the input and output of every pipeline."""

from __future__ import annotations

from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from tianzhou.model.dead_letters import ORIGIN_ID, ORIGIN_KIND, ORIGIN_PLACE, ORIGIN_PREFIX, ORIGIN_TOPIC
from tianzhou.model.names import RESERVED, RETRY_TOPIC, SHARDING_KEY
from tianzhou.model.timestamps import RAW_TIMES
from tianzhou.pipelines.queries import SENT
from tianzhou.spark.sink.options import EXACTLY_ONCE

WHOLE = {"includeProperties": True, "includeMetadata": True}
"""Options of the source for messages with all columns. A query with fewer columns is faster."""
INTERVAL = "1 second"
"""Interval at which a query that follows its topic checks for new messages."""


class Topics:
    """A reader and writer of topics through one set of name servers.

    Args:
        spark: the session.
        namesrv: name servers, `host:port` joined by `;`.
        tls: whether to use TLS; None for the setting in the environment.
        tls_config_file: path of a file with RocketMQ's `tls.*` keys; None for the path in the environment.
        access_key: the account that signs requests; None for that of the environment.
        secret_key: secret of the account.
        namespace: prefix of the names of topics and groups.
        delivery: the sink's option `delivery`, None for its default.
        corrupt_bodies: the source's option `corruptBodies`, None for its default.
        store: folder of a store whose files are read instead of brokers. Writes go to brokers.
    """

    def __init__(
        self,
        spark: SparkSession,
        namesrv: str,
        *,
        tls: bool | None = None,
        tls_config_file: str | None = None,
        access_key: str | None = None,
        secret_key: str | None = None,
        namespace: str | None = None,
        delivery: str | None = None,
        corrupt_bodies: str | None = None,
        store: str | None = None,
    ) -> None:
        self.spark = spark
        servers: dict[str, Any] = {
            "namesrvAddr": namesrv,
            "tls": tls,
            "tlsConfigFile": tls_config_file,
            "accessKey": access_key,
            "secretKey": secret_key,
            "namespace": namespace,
        }
        name, where = ("tianzhou", servers) if store is None else ("tianzhou_store", {"storePath": store})
        self._source = name, {**where, "corruptBodies": corrupt_bodies}
        self._sink = {**servers, "delivery": delivery}

    @property
    def exactly_once(self) -> bool:
        """Whether messages become visible exactly once, together with their micro-batch."""
        return (self._sink["delivery"] or "").lower() == EXACTLY_ONCE

    def table(self, *topics: str, **options: Any) -> DataFrame:
        """Return the present messages of topics as a table.

        `options` are those of `spark.read.format("tianzhou")`. An option of None is left out.
        """
        name, where = self._source
        return self.spark.read.format(name).options(**_set({**where, "subscribe": ",".join(topics), **options})).load()

    def stream(self, *topics: str, **options: Any) -> DataFrame:
        """Return topics as a stream. `options` are those of `spark.readStream.format("tianzhou")`."""
        name, where = self._source
        options = _set({**where, "subscribe": ",".join(topics), **options})
        return self.spark.readStream.format(name).options(**options).load()

    def send(self, rows: DataFrame, topic: str | None = None) -> None:
        """Send the rows of a table and wait until all are acknowledged."""
        rows.write.format("tianzhou").options(**_set({**self._sink, "topic": topic})).mode("append").save()

    def start(
        self, rows: DataFrame, checkpoint: str, *, topic: str | None = None, follow: bool = False, **options: Any
    ) -> StreamingQuery:
        """Start sending the rows of a stream.

        Args:
            rows: rows with the columns of the sink.
            checkpoint: see `started`.
            topic: topic of rows without a column `topic`.
            follow: see `started`.
            options: further options of the sink. An option of None is left out.
        """
        rows = rows.observe(SENT, f.count(f.lit(1)).alias("rows"))
        writer = rows.writeStream.format("tianzhou").options(**_set({**self._sink, "topic": topic, **options}))
        return started(writer, checkpoint, follow=follow)


def _set(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def started(
    writer: DataStreamWriter, checkpoint: str, *, follow: bool = False, every: str = INTERVAL
) -> StreamingQuery:
    """Start a query that ends with the present messages, or follows its topics.

    Args:
        writer: the writer of the stream.
        checkpoint: the folder of the query's checkpoint.
        follow: whether to continue with later messages, instead of ending with the present ones.
        every: interval at which a query that follows checks for new messages.
    """
    writer = writer.option("checkpointLocation", checkpoint)
    return (writer.trigger(processingTime=every) if follow else writer.trigger(availableNow=True)).start()


def text_body() -> Column:
    """Return a message's body as text."""
    return f.col("body").cast("string")


def made_at(rows: DataFrame) -> Column:
    """Return the producer's time as `bornTimestamp`, or the store time when the producer's time is no date."""
    times = [name for name in ("bornTimestamp", "storeTimestamp") if name in rows.columns]
    return f.coalesce(*times).alias("bornTimestamp")


def user_properties() -> Column:
    """Return the properties that the sender set, without the system's properties."""
    return f.map_filter(
        f.coalesce("properties", f.create_map().cast("map<string,string>")),
        lambda name, _: ~name.isin(*sorted(RESERVED | RAW_TIMES)),
    )


def sent_again(rows: DataFrame, kind: str, topic: Column, retry_of: Column | None = None) -> DataFrame:
    """Return messages as rows of the sink, with the same body, keys, tag, sharding key and sender's properties.

    The properties `origin_kind` (the argument), `origin_topic`, `origin_id` and `origin_place` (`broker:queue@offset`)
    identify the original message. A delay has passed and is left out.

    Args:
        rows: messages with all columns of the source.
        kind: value of `origin_kind`.
        topic: the target topic.
        retry_of: the topic that members of a group are to see as the message's topic, if `topic` is their retry topic.
    """
    place = f.format_string("%s:%d@%d", "brokerName", "queueId", "queueOffset")
    origin = f.create_map(
        *(f.lit(ORIGIN_KIND), f.lit(kind)),
        *(f.lit(ORIGIN_TOPIC), f.col("topic")),
        *(f.lit(ORIGIN_ID), f.col("msgId")),
        *(f.lit(ORIGIN_PLACE), place),
        *(() if retry_of is None else (f.lit(RETRY_TOPIC), retry_of)),
    )
    own = f.map_filter(user_properties(), lambda name, _: ~name.startswith(ORIGIN_PREFIX))
    return rows.select(
        topic.alias("topic"),
        "body",
        "keys",
        "tags",
        f.col("properties")[SHARDING_KEY].alias("shardingKey"),
        f.map_concat(own, origin).alias("properties"),
    )
