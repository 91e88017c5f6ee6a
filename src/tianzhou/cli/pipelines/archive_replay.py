"""`pipeline archive`, `replay` and `deduplicate`: messages from topics to files and topics."""

from __future__ import annotations

import sys
import time
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tianzhou.cli.output import (
    Output,
    OutputOption,
    print_fields,
    print_json,
    print_note,
)
from tianzhou.cli.pipelines.clusters import PipelineCluster, of_cluster
from tianzhou.cli.pipelines.command import (
    CheckpointOption,
    ConfOption,
    CorruptBodiesOption,
    DeliveryOption,
    FollowOption,
    SparkOption,
    StoreOption,
    app,
    corrupt_bodies_of,
    delivery_of,
    on_spark,
    pair_of,
    run_query,
)
from tianzhou.cli.pipelines.replaying import ReplayWanted, held_replay, passed, spans_now
from tianzhou.cli.pipelines.reporting import PipelineReport
from tianzhou.cli.progress import progress
from tianzhou.cli.store.store_folder import time_of
from tianzhou.errors import BrokerError, ConfigError
from tianzhou.model.names import AUTO_CREATE_TOPIC
from tianzhou.wire.codes import ResponseCode

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from tianzhou.admin import Admin
    from tianzhou.pipelines.topics import Topics


@dataclass(frozen=True)
class ArchiveWanted:
    """The arguments of an archive.

    Attributes:
        topics: the topics.
        to: the folder of the table.
        checkpoint: the folder of the query's checkpoint; None for one below `to`.
        most: maximum messages in a micro-batch.
        skip_lost: whether to skip messages that were deleted before they were archived.
        corrupt_bodies: rule for a compressed body that cannot be unpacked: fail, null or skip.
    """

    topics: list[str]
    to: str
    checkpoint: str | None
    most: int
    skip_lost: bool
    corrupt_bodies: str


@app.command()
@of_cluster
def archive(
    topics: Annotated[list[str], typer.Argument(help="Topics to archive.")],
    to: Annotated[str, typer.Option(help="Folder of the tables: topic=…/day=… are made below it.")],
    checkpoint: Annotated[
        str | None, typer.Option(help="Folder that keeps how far it is; default: _checkpoint below --to.")
    ] = None,
    follow: FollowOption = False,
    every: Annotated[
        str, typer.Option(help="With --follow: how long messages are gathered for a file.")
    ] = "10 seconds",
    most: Annotated[int, typer.Option(help="Most messages in a micro-batch.", min=1)] = 500_000,
    skip_lost: Annotated[
        bool, typer.Option("--skip-lost", help="Go on when messages were deleted before they were archived.")
    ] = False,
    table_format: Annotated[
        str, typer.Option("--format", help="parquet, or a delta or iceberg table; see also --lake.")
    ] = "parquet",
    lake: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="An option of tianzhou_lake, as compactEvery=20; may be repeated."),
    ] = None,
    corrupt_bodies: CorruptBodiesOption = "fail",
    store: StoreOption = None,
    on_sparks: SparkOption = False,
    conf: ConfOption = None,
    output: OutputOption = Output.text,
    *,
    cluster: PipelineCluster,
) -> None:
    """Write topics to Parquet by topic and day, each message once, before retention deletes it.

    Example: tianzhou pipeline archive orders payments --to archive
    """
    options = _lake_of(table_format, lake or [])
    cluster.refuse_store(store)
    ensure_topics(topics, cluster, store)
    wanted = ArchiveWanted(topics, to, checkpoint, most, skip_lost, corrupt_bodies_of(corrupt_bodies))
    from tianzhou.pipelines.archive_checkpoint import held_checkpoint

    with nullcontext() if options is not None else held_checkpoint(to, checkpoint):
        done = _archive_by_spark(wanted, every if follow else None, options, store, conf, cluster, output)
    if store is not None:
        print_fields({"rows": done.rows, "bytes": done.bytes, "to": to}, output)
        return
    _report_archive(topics, done, to, cluster, output)


def _archive_by_spark(
    wanted: ArchiveWanted,
    every: str | None,
    lake: dict[str, str] | None,
    store: str | None,
    conf: list[str] | None,
    cluster: PipelineCluster,
    output: Output,
) -> Any:
    if every is not None:
        # On a busy machine this may take minutes without any output.
        print_note("starting Spark")

    def work(spark: SparkSession) -> Any:
        from tianzhou.pipelines.archive import Archived
        from tianzhou.pipelines.archive import archive as start
        from tianzhou.pipelines.queries import run

        done = Archived()
        with progress("archived", None) as advance:

            def each(one: Any) -> None:
                before = done.rows
                done(one)
                advance(done.rows)
                if every is not None and output is Output.json:
                    print_json({"rows": done.rows, "bytes": done.bytes})
                elif every is not None and done.rows > before and not sys.stderr.isatty():
                    print_note(f"archived {done.rows} messages so far")

            def begin() -> StreamingQuery:
                query = start(
                    cluster.topics(spark, store=store, corrupt_bodies=wanted.corrupt_bodies),
                    wanted.topics,
                    wanted.to,
                    checkpoint=wanted.checkpoint,
                    follow=every is not None,
                    most=wanted.most,
                    skip_lost=wanted.skip_lost,
                    lake=lake,
                    **({} if every is None else {"every": every}),
                )
                if every is not None:
                    topics = ", ".join(wanted.topics)
                    print_note(f"following {topics}: what comes is written to {wanted.to} every {every}, until Ctrl-C")
                return query

            run(begin, each)
        return done

    return on_spark("archive", conf, work)


def _lake_of(table_format: str, options: list[str]) -> dict[str, str] | None:
    if table_format not in ("parquet", "delta", "iceberg"):
        raise ConfigError(f"--format {table_format}: expected parquet, delta or iceberg")
    if table_format == "parquet":
        if options:
            raise ConfigError(f"--lake {options[0]}: is for --format delta and iceberg; leave it out")
        return None
    return {"tableFormat": table_format, **dict(pair_of("--lake", text) for text in options)}


def _report_archive(topics: list[str], done: Any, to: str, cluster: PipelineCluster, output: Output) -> None:
    from tianzhou.pipelines.retention import HOUR_MS, standing

    stands = cluster.with_admin(lambda admin: standing(admin, topics, done.positions))
    left = stands.left_ms(int(time.time() * 1000))
    fields = {
        "rows": done.rows,
        "bytes": done.bytes,
        "not_archived_yet": stands.behind,
        "oldest_of_them_s": None if stands.oldest_ms is None else round(time.time() - stands.oldest_ms / 1000),
        "kept_by_brokers_h": None if stands.kept_ms is None else stands.kept_ms // HOUR_MS,
        "hours_before_loss": None if left is None else round(left / HOUR_MS, 1),
        "to": to,
    }
    print_fields(fields, output)
    if left is not None and stands.kept_ms and left < stands.kept_ms / 10:
        print_note("less than a tenth of the retention is left: archive more often, or keep messages longer")


def ensure_topics(topics: list[str], cluster: PipelineCluster, store: str | None = None) -> None:
    """Check before Java starts that the servers answer and the topics exist, or that the store exists.

    Raises:
        ConfigError: a topic or the store does not exist.
        TianzhouError: no server answers.
    """
    if store is not None:
        if not Path(store).is_dir():
            raise ConfigError(f"--store {store}: no such folder; name a storePathRootDir or a --data folder")
        return

    async def missing(admin: Admin) -> list[str]:
        return [topic for topic in topics if not await admin.topics.exists(topic)]

    found = cluster.with_admin(missing)
    if found:
        raise ConfigError(f"topic {found[0]} does not exist; tianzhou topic list --system shows those that do")


TARGET_QUEUES = 4
"""Number of queues of a topic that its first message creates."""


def ensure_target(topic: str, cluster: PipelineCluster) -> None:
    """Check before Java starts that a topic accepts messages. Create it if brokers create topics automatically.

    If the first messages created the topic, its number of queues would change while they are sent, and messages of one
    key would not be in one queue.

    Raises:
        ConfigError: the topic does not exist, and brokers do not create topics.
        ClientError: the name is invalid.
        TianzhouError: no server answers.
    """

    async def make(admin: Admin) -> bool:
        if await admin.topics.exists(topic):
            return True
        if not await admin.topics.exists(AUTO_CREATE_TOPIC):
            return False
        try:
            await admin.topics.create(topic, read_queue_nums=TARGET_QUEUES, write_queue_nums=TARGET_QUEUES)
        except BrokerError as error:
            if error.code != ResponseCode.NO_PERMISSION:
                raise
            return True  # An account that may only send lets the first message create the topic.
        print_note(f"topic {topic} made, with {TARGET_QUEUES} queues on each broker")
        return True

    if not cluster.with_admin(make):
        raise ConfigError(
            f"topic {topic} does not exist, and the brokers make none by themselves (autoCreateTopicEnable=false); "
            f"make it: tianzhou topic create {topic}"
        )


@app.command()
@of_cluster
def replay(
    topic: Annotated[str, typer.Argument(help="Topic whose messages are sent again.")],
    to: Annotated[str | None, typer.Option(help="Topic to send to; default: the same.")] = None,
    ids: Annotated[
        list[str] | None, typer.Option("--id", help="Only this message; may be repeated. Needs no Spark.")
    ] = None,
    since: Annotated[str | None, typer.Option(help="Not stored before this time (2026-01-31T08:00:00).")] = None,
    until: Annotated[str | None, typer.Option(help="Stored before this time.")] = None,
    tags: Annotated[str | None, typer.Option(help="Tag expression, 'A || B'.")] = None,
    where: Annotated[str | None, typer.Option(help="Condition of SQL over the columns, \"keys = '7'\".")] = None,
    rate: Annotated[int | None, typer.Option(help="Most messages in a second.", min=1)] = None,
    checkpoint: Annotated[
        str | None,
        typer.Option(
            help="Folder that keeps how far it is, so that an interrupted replay goes on; needed without --id."
        ),
    ] = None,
    corrupt_bodies: CorruptBodiesOption = "fail",
    delivery: DeliveryOption = None,
    on_sparks: SparkOption = False,
    conf: ConfOption = None,
    output: OutputOption = Output.text,
    *,
    cluster: PipelineCluster,
) -> None:
    """Send messages of a time, or some by their ids, to a topic again.

    Keys, tags and properties stay; origin_kind, origin_topic, origin_id and origin_place say what they were.

    Example: tianzhou pipeline replay orders --since 2026-11-21T08:00:00 --rate 500 --checkpoint replay-1
    """
    target = to or topic
    if ids:
        if since or until or tags or where or rate or checkpoint or delivery or conf:
            raise ConfigError(
                "--id chooses single messages; leave out --since, --until, --tags, --where, --rate, --checkpoint, "
                "--delivery and --conf"
            )
        sent = _replay_ids(topic, target, ids, cluster)
    else:
        if checkpoint is None:
            raise ConfigError("--checkpoint is missing: a folder of this replay's own, or choose messages by --id")
        delivered = delivery_of(delivery)
        corrupt = corrupt_bodies_of(corrupt_bodies, sends_bodies=True)
        first, last = time_of("--since", since), time_of("--until", until)
        if first is not None and last is not None and first >= last:
            raise ConfigError(f"--until {until} is not later than --since {since}")
        ensure_topics([topic], cluster)
        if target != topic:
            ensure_target(target, cluster)

        wanted = ReplayWanted(topic, target, checkpoint, first, last, tags, where, rate, corrupt)
        sent = _replay_by_spark(wanted, conf, cluster, delivered, output)
        if not sent:
            print_note(f"nothing (more) to send; to replay the same again, give another --checkpoint than {checkpoint}")
    print_fields({"sent": sent, "from": topic, "to": target}, output)


def _replay_by_spark(
    wanted: ReplayWanted, conf: list[str] | None, cluster: PipelineCluster, delivery: str | None, output: Output
) -> int:
    from tianzhou.pipelines.queries import Rows

    rows = Rows()
    spans = spans_now(wanted.source, wanted.since_ms, cluster)
    with (
        held_replay(wanted, spans) as ends,
        PipelineReport("read", sum(span.count for span in spans), output) as report,
    ):

        def start(topics: Topics) -> StreamingQuery:
            from tianzhou.pipelines.replay import replay

            return replay(
                topics,
                wanted.source,
                wanted.target,
                wanted.checkpoint,
                since_ms=wanted.since_ms,
                until_ms=wanted.until_ms,
                until_offsets=ends,
                tags=wanted.tags,
                where=wanted.where,
                per_second=wanted.per_second,
            )

        def each(batch: Any) -> None:
            rows(batch)
            report(passed(spans, batch.sources[0].endOffset), rows.sent)

        run_query(start, "replay", conf, cluster, delivery, each=each, corrupt_bodies=wanted.corrupt_bodies, bar=False)
    return rows.sent


def _replay_ids(topic: str, target: str, ids: list[str], cluster: PipelineCluster) -> int:
    async def work(admin: Admin) -> int:
        from tianzhou.client import Producer
        from tianzhou.model.dead_letters import resent

        messages = [await admin.messages.view(topic, one) for one in ids]
        async with Producer("tianzhou-cli", cluster.namesrv, **cluster.client_options) as producer:
            for message in messages:
                await producer.send(resent(message, target, "replay"))
        return len(messages)

    return cluster.with_admin(work)


@app.command()
@of_cluster
def deduplicate(
    topic: Annotated[str, typer.Argument(help="Topic to read.")],
    to: Annotated[str, typer.Option(help="Topic to send the first of equal messages to.")],
    checkpoint: CheckpointOption,
    by: Annotated[
        str, typer.Option(help="What makes messages equal: id, keys, body, property:NAME or json:PATH.")
    ] = "id",
    within: Annotated[str, typer.Option(help="How long messages are remembered at least.")] = "10 minutes",
    most: Annotated[int, typer.Option(help="Most messages in a micro-batch.", min=1)] = 100_000,
    corrupt_bodies: CorruptBodiesOption = "fail",
    follow: FollowOption = False,
    delivery: DeliveryOption = None,
    conf: ConfOption = None,
    output: OutputOption = Output.text,
    *,
    cluster: PipelineCluster,
) -> None:
    """Copy a topic without its repetitions.

    Example: tianzhou pipeline deduplicate orders --to orders-once --by keys --checkpoint once
    """
    delivered = delivery_of(delivery)
    corrupt = corrupt_bodies_of(corrupt_bodies, sends_bodies=True)
    ensure_topics([topic], cluster)
    ensure_target(to, cluster)

    def start(topics: Topics) -> StreamingQuery:
        from tianzhou.pipelines.deduplicate import deduplicate

        return deduplicate(topics, topic, to, checkpoint, by=by, within=within, follow=follow, most=most)

    rows = run_query(start, "deduplicate", conf, cluster, delivered, corrupt_bodies=corrupt)
    left_out = rows.count - rows.sent - rows.late
    print_fields({"read": rows.count, "left_out": left_out, "late": rows.late, "sent": rows.sent, "to": to}, output)
