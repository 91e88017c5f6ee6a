"""`pipeline replay` of few messages by the client, and how far one by Spark is."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tianzhou.cli.output import Output
from tianzhou.cli.pipelines.by_client import Client, condition, with_client
from tianzhou.cli.pipelines.reporting import Report
from tianzhou.errors import ConfigError

if TYPE_CHECKING:
    from tianzhou.cli.pipelines.clusters import Cluster
    from tianzhou.model import MessageExt
    from tianzhou.pipelines.few_messages import Span


@dataclass(frozen=True)
class Wanted:
    """What is to be sent again.

    Attributes:
        source: the topic to read.
        target: the topic to send to.
        checkpoint: the folder that keeps how far it is.
        since_ms: stored at or after this time, milliseconds since the epoch; None for the oldest on.
        until_ms: stored before this time; None for all there are now.
        tags: a tag expression; None for all.
        where: a condition of SQL; None for all.
        per_second: most messages in a second; None for as fast as can be.
        corrupt_bodies: what becomes of a message whose body cannot be unpacked: fail or skip.
    """

    source: str
    target: str
    checkpoint: str
    since_ms: int | None
    until_ms: int | None
    tags: str | None
    where: str | None
    per_second: int | None
    corrupt_bodies: str


def replay_few(wanted: Wanted, needs_spark: str | None, cluster: Cluster, output: Output) -> int | None:
    """Send few messages again by the client; how many were sent, None when Spark has to do it.

    A checkpoint stays with who began it.

    Args:
        wanted: what is to be sent.
        needs_spark: the option that asks for Spark, None without one.
        cluster: where the topics are.
        output: the form of its progress.

    Raises:
        ConfigError: the checkpoint was begun without Spark, and this replay needs it.
    """
    from tianzhou.pipelines.few_messages import COLUMNS
    from tianzhou.pipelines.few_replayed import is_begun, is_sparks

    begun, keep = is_begun(wanted.checkpoint), condition(wanted.where, COLUMNS)
    if keep is None:
        needs_spark = needs_spark or "--where"
    if begun and needs_spark:
        raise ConfigError(
            f"--checkpoint {wanted.checkpoint}: is that of a replay without Spark, which {needs_spark} needs; finish "
            "it as it was begun, or give this one a folder of its own"
        )
    if keep is None or needs_spark or (not begun and is_sparks(wanted.checkpoint)):
        return None
    until_ms, rows = wanted.until_ms, _rows()

    def chosen(message: MessageExt) -> bool:
        return (until_ms is None or message.store_timestamp < until_ms) and keep(rows(message))

    return with_client(cluster, lambda client: _replayed(client, wanted, chosen, output))


def _rows() -> Callable[[MessageExt], dict[str, Any]]:
    from tianzhou.pipelines.few_messages import row_of

    return row_of


async def _replayed(client: Client, wanted: Wanted, chosen: Callable[[MessageExt], bool], output: Output) -> int | None:
    from tianzhou.pipelines import few_replayed as p
    from tianzhou.pipelines.few_messages import FEW, spans_of

    consumer = await client.consumer()
    now = await spans_of(consumer, wanted.source, wanted.since_ms)
    checkpoint = p.Checkpoint(wanted.checkpoint)
    begun = p.is_begun(wanted.checkpoint)
    if not begun and sum(span.count for span in now) > FEW:
        return None
    with checkpoint.held():
        place = checkpoint.place(wanted.source, wanted.target)
        if place is not None:
            await p.check_marks(consumer, place)
        first = p.Place(wanted.source, wanted.target, tuple(now))
        place = first if place is None else place.going_on(now)
        producer = await client.producer()
        with Report("read", sum(span.count for span in place.spans), output) as report:
            return await p.replay(
                consumer,
                producer,
                checkpoint,
                place,
                tags=wanted.tags,
                wanted=chosen,
                pace=p.Pace(wanted.per_second),
                corrupt_bodies=wanted.corrupt_bodies,
                progress=report,
            )


def spans_now(topic: str, since_ms: int | None, cluster: Cluster) -> list[Span]:
    """What a topic holds now, for the percentage of a replay by Spark.

    Args:
        topic: the topic.
        since_ms: see `Wanted`.
        cluster: where it is.
    """
    from tianzhou.pipelines.few_messages import spans_of

    async def work(client: Client) -> list[Span]:
        return await spans_of(await client.consumer(), topic, since_ms)

    return with_client(cluster, work)


def passed(spans: Sequence[Span], end: str | None) -> int:
    """How many messages of spans are behind a stream's offset.

    Args:
        spans: of `spans_now`.
        end: the offset as Spark reports it; None before there is one.
    """
    from tianzhou.spark.source.offsets import from_json

    if not end or end == "null":
        return 0
    at = from_json(json.loads(end))[1]
    return sum(min(max(at.get(span.queue, 0) - span.begin, 0), span.count) for span in spans)
