"""Dead letters: messages that a group could not consume, counted by cause, with samples, and optionally sent again.

RocketMQ stores the topic and the id that a message had before its retries. It does not store the reason of the failure:
properties that a consumer adds when it sends a message back are lost. `reason` is a property of consumers that send
messages to the dead-letter topic themselves.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from tianzhou.errors import ClientError
from tianzhou.model.dead_letters import ID_PROPERTIES, KIND, REASONS, TOPIC_PROPERTIES
from tianzhou.model.names import DLQ_PREFIX, RETRY_PREFIX, dead_letter_topic
from tianzhou.pipelines.topics import WHOLE, Topics, sent_again, text_body


def dead_letters(topics: Topics, group: str, *, reasons: Sequence[str] = REASONS) -> DataFrame:
    """Return the dead letters of a group: every column of the source, and the original messages' topic and id.

    `originTopic` and `originId` are those of the message before its retries. `reason` is a property.
    """
    property_of = f.col("properties").getItem
    return topics.table(dead_letter_topic(group), **WHOLE).select(
        "*",
        f.coalesce(*map(property_of, TOPIC_PROPERTIES)).alias("originTopic"),
        f.coalesce(*map(property_of, ID_PROPERTIES), "msgId").alias("originId"),
        f.coalesce(*[property_of(name) for name in reasons], f.lit(None).cast("string")).alias("reason"),
    )


def counts(letters: DataFrame) -> DataFrame:
    """Return the number of dead letters by original topic, tag, reason and deliveries, the most frequent first."""
    return (
        letters.groupBy("originTopic", "tags", "reason", "reconsumeTimes")
        .agg(
            f.count(f.lit(1)).alias("letters"),
            f.min("storeTimestamp").alias("first"),
            f.max("storeTimestamp").alias("last"),
            f.max_by("msgId", "storeTimestamp").alias("newest"),
        )
        .orderBy(f.desc("letters"), "originTopic", "tags", "reason", "reconsumeTimes")
    )


def samples(letters: DataFrame, each: int) -> DataFrame:
    """Return the newest letters of each cause: `each` letters for every row of `counts`."""
    cause = f.struct("originTopic", "tags", "reason", "reconsumeTimes")
    newest = f.array_sort(
        f.collect_list(f.struct(f.col("storeTimestamp"), f.col("msgId"), f.col("keys"), text_body().alias("body"))),
        lambda a, b: f.when(a > b, -1).when(a < b, 1).otherwise(0),
    )
    return (
        letters.groupBy(cause.alias("cause"))
        .agg(f.slice(newest, 1, each).alias("newest"))
        .select("cause.*", f.explode("newest").alias("letter"))
        .select("originTopic", "tags", "reason", "reconsumeTimes", "letter.*")
    )


def chosen(letters: DataFrame, *, ids: Sequence[str] = (), where: str | None = None) -> DataFrame:
    """Return the letters that match ids or a condition.

    Args:
        letters: result of `dead_letters`.
        ids: ids of dead letters or of their original messages; empty for any.
        where: a condition of SQL over the columns, as in `reason = 'Timeout' AND reconsumeTimes > 3`.

    Raises:
        ClientError: an id belongs to none of the group's dead letters.
    """
    if where is not None:
        letters = letters.where(where)
    if ids:
        letters = letters.where(f.col("msgId").isin(*ids) | f.col("originId").isin(*ids))
        found = {value for row in letters.select("msgId", "originId").collect() for value in row}
        missing = [one for one in ids if one not in found]
        if missing:
            raise ClientError(f"no dead letter has the id {', '.join(missing)}; list them with --samples 1000")
    return letters


def resend(topics: Topics, letters: DataFrame, to: str | None = None) -> None:
    """Send dead letters to the members of their group, or to a topic.

    They remain dead letters. If they are sent again, they are consumed again.

    Args:
        topics: the cluster.
        letters: dead letters of one group.
        to: the target topic, for all its groups; None for the group's retry topic.
    """
    if to is not None:
        topics.send(sent_again(letters, KIND, f.lit(to)))
        return
    retry_topic = f.concat(f.lit(RETRY_PREFIX), f.substr("topic", f.lit(len(DLQ_PREFIX) + 1)))
    missing = f.concat(
        f.lit("dead letter "),
        "msgId",
        f.lit(" does not have the topic that it was first sent to; name one by --to-topic"),
    )
    topics.send(sent_again(letters, KIND, retry_topic, retry_of=f.coalesce("originTopic", f.raise_error(missing))))
