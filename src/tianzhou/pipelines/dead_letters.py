"""Dead letters: what a group has given up on, counted by cause, with samples, and sent again by choice.

RocketMQ notes the topic and the id a message had before it was retried. Why it failed is not noted: what a consumer
adds to a message it sends back is lost. `reason` is a property that consumers set which put a message here themselves.
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
    """The dead letters of a group: every column of the source, and what they were before.

    `originTopic` and `originId` are the message's own from before it was retried, `reason` is a property.
    """
    property_of = f.col("properties").getItem
    return topics.table(dead_letter_topic(group), **WHOLE).select(
        "*",
        f.coalesce(*map(property_of, TOPIC_PROPERTIES)).alias("originTopic"),
        f.coalesce(*map(property_of, ID_PROPERTIES), "msgId").alias("originId"),
        f.coalesce(*[property_of(name) for name in reasons], f.lit(None).cast("string")).alias("reason"),
    )


def counts(letters: DataFrame) -> DataFrame:
    """Dead letters by original topic, tag, reason and deliveries; the most frequent first."""
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
    """The newest letters of each cause: `each` of every line of `counts`."""
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
    """The letters that ids or a condition choose.

    Args:
        letters: of `dead_letters`.
        ids: ids of dead letters or of the messages they were; empty for no choice by id.
        where: a condition of SQL over the columns, as in `reason = 'Timeout' AND reconsumeTimes > 3`.

    Raises:
        ClientError: an id is none of the group's dead letters.
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
    """Send dead letters to the members of the group that they are of, or to a topic.

    They stay where they are as dead letters: sending them twice is two messages each.

    Args:
        topics: the cluster.
        letters: dead letters of one group.
        to: the topic, all of whose groups get them; None for the group's retry topic.
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
