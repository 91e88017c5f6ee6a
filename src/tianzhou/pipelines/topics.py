"""Topics as tables and streams of one cluster: how every pipeline reads and writes."""

from __future__ import annotations

from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from tianzhou.model.names import RESERVED, SHARDING_KEY
from tianzhou.pipelines.queries import SENT
from tianzhou.spark.sink.options import EXACTLY_ONCE

EVERY = "1 second"
"""How often a query that follows its topic looks for new messages."""


class Topics:
    """Reads and writes topics through one set of name servers.

    Args:
        spark: the session.
        namesrv: name servers, `host:port` joined by `;`.
        tls: whether to speak TLS; None leaves it to the environment.
        delivery: the sink's option of that name, None for its default.
        store: read the files of a store in this folder instead of asking brokers; writing goes to brokers as ever.
    """

    def __init__(
        self,
        spark: SparkSession,
        namesrv: str,
        *,
        tls: bool | None = None,
        delivery: str | None = None,
        store: str | None = None,
    ) -> None:
        self.spark = spark
        self._servers = {"namesrvAddr": namesrv, "tls": tls}
        self._from = ("tianzhou", self._servers) if store is None else ("tianzhou_store", {"storePath": store})
        self._delivery = delivery

    @property
    def exactly_once(self) -> bool:
        """Whether what is sent becomes visible a batch at a time, and once."""
        return (self._delivery or "").lower() == EXACTLY_ONCE

    def table(self, *topics: str, **options: Any) -> DataFrame:
        """What the topics hold now; `options` are those of `spark.read.format("tianzhou")`, None leaves one out."""
        name, where = self._from
        return self.spark.read.format(name).options(**_given(where, {"subscribe": ",".join(topics)}, options)).load()

    def stream(self, *topics: str, **options: Any) -> DataFrame:
        """The topics as a stream; `options` are those of `spark.readStream.format("tianzhou")`."""
        name, where = self._from
        given = _given(where, {"subscribe": ",".join(topics)}, options)
        return self.spark.readStream.format(name).options(**given).load()

    def send(self, rows: DataFrame, topic: str | None = None) -> None:
        """Send the rows of a table and wait until all are acknowledged."""
        given = _given(self._servers, {"topic": topic, "delivery": self._delivery})
        rows.write.format("tianzhou").options(**given).mode("append").save()

    def start(
        self, rows: DataFrame, checkpoint: str, *, topic: str | None = None, follow: bool = False, **options: Any
    ) -> StreamingQuery:
        """Send the rows of a stream.

        Args:
            rows: the columns of the sink.
            checkpoint: the folder that keeps how far it is.
            topic: where rows without a `topic` column go.
            follow: go on with what is sent later, and not only up to what is there now.
            options: further ones of the sink, None leaves one out.
        """
        given = _given(self._servers, {"topic": topic, "delivery": self._delivery}, options)
        rows = rows.observe(SENT, f.count(f.lit(1)).alias("rows"))
        writer = rows.writeStream.format("tianzhou").options(**given).option("checkpointLocation", checkpoint)
        return (writer.trigger(processingTime=EVERY) if follow else writer.trigger(availableNow=True)).start()


def _given(*options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for some in options for name, value in some.items() if value is not None}


def text_body() -> Column:
    """A message's body as text."""
    return f.col("body").cast("string")


def user_properties() -> Column:
    """The properties a message's sender had set, without those of the system, which no sender may set."""
    return f.map_filter(
        f.coalesce("properties", f.create_map().cast("map<string,string>")),
        lambda name, _: ~name.isin(*sorted(RESERVED)),
    )


def sent_again(rows: DataFrame, kind: str, topic: Column) -> DataFrame:
    """Messages as rows of the sink: body, keys, tag, sharding key and the sender's properties as they were.

    Where each comes from is in the properties `origin_kind` (the argument), `origin_topic`, `origin_id` and
    `origin_place`, which is `broker:queue@offset`. A delay is not kept: it has passed.
    """
    place = f.format_string("%s:%d@%d", "brokerName", "queueId", "queueOffset")
    origin = f.create_map(
        *(f.lit("origin_kind"), f.lit(kind)),
        *(f.lit("origin_topic"), f.col("topic")),
        *(f.lit("origin_id"), f.col("msgId")),
        *(f.lit("origin_place"), place),
    )
    own = f.map_filter(user_properties(), lambda name, _: ~name.startswith("origin_"))
    return rows.select(
        topic.alias("topic"),
        "body",
        "keys",
        "tags",
        f.col("properties")[SHARDING_KEY].alias("shardingKey"),
        f.map_concat(own, origin).alias("properties"),
    )
