"""`pipeline trace`, `rates` and `timeouts`: figures and events made of messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tianzhou.cli.output import (
    Output,
    OutputOption,
    print_fields,
    print_json,
    print_line,
    print_note,
    print_rows,
)
from tianzhou.cli.pipelines.archive_replay import ensure_target, ensure_topics
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
    run_query,
)
from tianzhou.cli.store.store_folder import time_of
from tianzhou.errors import ConfigError
from tianzhou.model.names import TRACE_TOPIC

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from tianzhou.pipelines.topics import Topics

LateOption = Annotated[str, typer.Option(help="How much later than others a message may come and still count.")]

STATUS = "$.status"
TIMES = ("store", "born")
TIMERS = ("event", "clock")
TimeOption = Annotated[str, typer.Option(help="Whose time counts: store, the broker's, or born, the producer's.")]


@app.command()
@of_cluster
def trace(
    since: Annotated[str | None, typer.Option(help="Only traces stored at or after this time.")] = None,
    topic: Annotated[str, typer.Option(help="The trace topic.")] = TRACE_TOPIC,
    corrupt_bodies: CorruptBodiesOption = "fail",
    store: StoreOption = None,
    on_sparks: SparkOption = False,
    conf: ConfOption = None,
    output: OutputOption = Output.text,
    *,
    cluster: PipelineCluster,
) -> None:
    """Show how long sends and handlers take and how many succeed, by topic and group, from message trace.

    Example: tianzhou pipeline trace --since 2026-11-21T08:00:00
    """
    first = time_of("--since", since)
    corrupt = corrupt_bodies_of(corrupt_bodies)
    cluster.refuse_store(store)
    ensure_topics([topic], cluster, store)

    sent, delivered = _traced_by_spark(topic, first, store, conf, cluster, corrupt)
    if output is Output.json:
        print_json({"sends": sent, "deliveries": delivered})
        return
    for title, rows in (("sends", sent), ("deliveries", delivered)):
        if rows:
            print_line(title)
            print_rows(list(rows[0]), [list(row.values()) for row in rows], output)
            print_line("")
    if not sent and not delivered:
        print_note("no traces; clients write them with trace=True (Java: enableMsgTrace)")


Rows = list[dict[str, Any]]


def _traced_by_spark(
    topic: str,
    since_ms: int | None,
    store: str | None,
    conf: list[str] | None,
    cluster: PipelineCluster,
    corrupt_bodies: str,
) -> tuple[Rows, Rows]:
    def work(spark: SparkSession) -> tuple[Rows, Rows]:
        from tianzhou.pipelines import trace_figures as p

        topics = cluster.topics(spark, store=store, corrupt_bodies=corrupt_bodies)
        traced = p.records(topics, topic=topic, startingTimestamp=since_ms).cache()
        return (
            [row.asDict() for row in p.send_figures(traced).collect()],
            [row.asDict() for row in p.delivery_figures(traced).collect()],
        )

    return on_spark("trace", conf, work)


@app.command()
@of_cluster
def rates(
    topic: Annotated[str, typer.Argument(help="Topic of the messages, JSON unless --tags is given.")],
    to: Annotated[str, typer.Option(help="Topic the finished windows are sent to.")],
    checkpoint: CheckpointOption,
    status: Annotated[str, typer.Option(help="JSON path of what says how it went.")] = STATUS,
    tags: Annotated[
        str | None, typer.Option(help="Tags that say how it went instead, as in 'paid||failed'; others do not count.")
    ] = None,
    good: Annotated[str, typer.Option(help="The value, or the tag, that means success.")] = "ok",
    group_by: Annotated[str | None, typer.Option(help="JSON path of what to count separately.")] = None,
    window: Annotated[str, typer.Option(help="Length of a window.")] = "1 minute",
    late: LateOption = "10 seconds",
    time: TimeOption = "store",
    corrupt_bodies: CorruptBodiesOption = "fail",
    follow: FollowOption = False,
    delivery: DeliveryOption = None,
    conf: ConfOption = None,
    output: OutputOption = Output.text,
    *,
    cluster: PipelineCluster,
) -> None:
    """Count the success rate of a topic's messages in windows of time.

    Example: tianzhou pipeline rates payments --to payment-rates --group-by '$.merchant' --checkpoint rates
    """
    from tianzhou.pipelines.conditions import outcome_tags

    delivered = delivery_of(delivery)
    _check_time(time)
    if tags is not None and status != STATUS:
        raise ConfigError(f"--tags {tags} and --status {status} exclude each other; leave one out")
    outcomes = () if tags is None else outcome_tags(tags, good)
    corrupt = corrupt_bodies_of(corrupt_bodies)
    ensure_topics([topic], cluster)
    ensure_target(to, cluster)

    def start(topics: Topics) -> StreamingQuery:
        from tianzhou.pipelines.success_rate import success_rate

        return success_rate(
            topics,
            topic,
            to,
            checkpoint,
            status=status,
            good=good,
            by=group_by,
            window=window,
            late=late,
            time=time,
            tags=outcomes,
            follow=follow,
        )

    _run("rates", start, to, cluster, delivered, conf, output, corrupt)


@app.command()
@of_cluster
def timeouts(
    orders: Annotated[str, typer.Argument(help="Topic of the orders, JSON.")],
    payments: Annotated[str, typer.Argument(help="Topic of the payments, JSON.")],
    to: Annotated[str, typer.Option(help="Topic the outcomes are sent to.")],
    checkpoint: CheckpointOption,
    key: Annotated[str, typer.Option(help="JSON path of the order's id, in both.")] = "$.order",
    timeout: Annotated[int, typer.Option(help="Seconds an order may stay unpaid.", min=1)] = 900,
    late: LateOption = "10 seconds",
    time: TimeOption = "store",
    timer: Annotated[
        str,
        typer.Option(
            help="When time is over: event, once later messages say so, or clock, by Spark's clock, also without "
            "traffic; needs --follow."
        ),
    ] = "event",
    corrupt_bodies: CorruptBodiesOption = "fail",
    follow: FollowOption = False,
    delivery: DeliveryOption = None,
    conf: ConfOption = None,
    output: OutputOption = Output.text,
    *,
    cluster: PipelineCluster,
) -> None:
    """Tell which orders were paid in time and which were not.

    Example: tianzhou pipeline timeouts orders payments --to outcomes --timeout 900 --checkpoint timeouts
    """
    delivered = delivery_of(delivery)
    _check_time(time)
    if timer not in TIMERS:
        raise ConfigError(f"--timer {timer}: expected {' or '.join(TIMERS)}")
    if timer == "clock" and not follow:
        raise ConfigError("--timer clock: orders time out while the query runs; add --follow")
    corrupt = corrupt_bodies_of(corrupt_bodies)
    ensure_topics([orders, payments], cluster)
    ensure_target(to, cluster)

    def start(topics: Topics) -> StreamingQuery:
        from tianzhou.pipelines.order_timeouts import order_timeouts

        return order_timeouts(
            topics,
            orders,
            payments,
            to,
            checkpoint,
            key=key,
            timeout_s=timeout,
            late=late,
            time=time,
            by_clock=timer == "clock",
            follow=follow,
        )

    _run("timeouts", start, to, cluster, delivered, conf, output, corrupt)


def _check_time(time: str) -> None:
    if time not in TIMES:
        raise ConfigError(f"--time {time}: expected {' or '.join(TIMES)}")


def _run(
    name: str,
    start: Callable[[Topics], StreamingQuery],
    to: str,
    cluster: PipelineCluster,
    delivery: str | None,
    conf: list[str] | None,
    output: Output,
    corrupt_bodies: str,
) -> None:
    waiting = 0

    def each(batch: Any) -> None:
        nonlocal waiting
        waiting = sum(state.numRowsTotal for state in batch.stateOperators)

    rows = run_query(start, name, conf, cluster, delivery, each=each, corrupt_bodies=corrupt_bodies)
    # A state with timers counts its timers as rows too, so the number would not help users.
    open_windows = {"still_open": waiting} if name == "rates" else {}
    print_fields({"read": rows.count, "sent": rows.sent, "late": rows.late, **open_windows, "to": to}, output)
