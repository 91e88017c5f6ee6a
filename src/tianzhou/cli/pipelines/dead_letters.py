"""`pipeline dlq`: dead letters of a consumer group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tianzhou.cli.messages.letter_causes import Rows, print_causes
from tianzhou.cli.output import (
    Output,
    OutputOption,
    body_text,
    counted,
    print_json,
    print_line,
    print_note,
    print_rows,
)
from tianzhou.cli.pipelines.clusters import PipelineCluster, of_cluster
from tianzhou.cli.pipelines.command import (
    ConfOption,
    CorruptBodiesOption,
    SparkOption,
    app,
    corrupt_bodies_of,
    on_spark,
)
from tianzhou.errors import ConfigError
from tianzhou.model.dead_letters import REASONS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LISTED = 20
CHOSEN = ("id", "to", "keys", "tag", "reason")


@app.command()
@of_cluster
def dlq(
    group: Annotated[str, typer.Argument(help="The consumer group.")],
    samples: Annotated[int, typer.Option(help="Also show the newest so many of each cause.", min=0)] = 0,
    reason: Annotated[
        list[str] | None,
        typer.Option(help="Property that says why; may be repeated. Default: reason, exception, error."),
    ] = None,
    ids: Annotated[list[str] | None, typer.Option("--id", help="Resend this message; may be repeated.")] = None,
    where: Annotated[
        str | None, typer.Option(help="Resend what fulfils a condition of SQL, \"reason = 'Timeout'\".")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Resend everything.")] = False,
    to: Annotated[
        str | None,
        typer.Option(
            "--to-topic", help="Resend to this topic, all of whose groups get it; default: to the group alone."
        ),
    ] = None,
    corrupt_bodies: CorruptBodiesOption = "fail",
    apply: Annotated[bool, typer.Option("--apply", help="Do it; else it is only shown what would be sent.")] = False,
    on_sparks: SparkOption = False,
    conf: ConfOption = None,
    output: OutputOption = Output.text,
    *,
    cluster: PipelineCluster,
) -> None:
    """Count a group's dead letters by cause, show samples, send chosen ones again.

    Example: tianzhou pipeline dlq billing --where "reason = 'Timeout'" --apply
    """
    resending = bool(ids or where or every)
    if every and (ids or where):
        raise ConfigError("--all chooses everything; leave out --id and --where")
    if (apply or to) and not resending:
        raise ConfigError("--apply and --to-topic send again, and nothing is chosen; choose by --id, --where or --all")
    corrupt = corrupt_bodies_of(corrupt_bodies, sends_bodies=resending)
    _ensure_letters(group, cluster)

    def work(spark: SparkSession) -> None:
        from tianzhou.model.names import retry_topic
        from tianzhou.pipelines import dead_letters as p

        topics = cluster.topics(spark, corrupt_bodies=corrupt)
        letters = p.dead_letters(topics, group, reasons=reason or REASONS)
        if not resending:
            print_causes(group, *_rows_of(p.counts(letters), p.samples(letters, samples) if samples else None), output)
            return
        # Cache the selection, so that exactly the shown letters are sent, even if others arrive meanwhile.
        picked = p.chosen(letters, ids=ids or (), where=where).cache()
        rows = [
            (row["msgId"], to or retry_topic(group), row["keys"], row["tags"], row["reason"])
            for row in picked.orderBy("storeTimestamp").select("msgId", "keys", "tags", "reason").collect()
        ]
        if apply and rows:
            p.resend(topics, picked, to)
        _show_chosen(rows, apply, output)

    on_spark("dlq", conf, work)


def _ensure_letters(group: str, cluster: PipelineCluster) -> None:
    from tianzhou.model.names import dead_letter_topic

    topic = dead_letter_topic(group)
    if not cluster.with_admin(lambda admin: admin.topics.exists(topic)):
        raise ConfigError(f"group {group} has no dead letters: there is no topic {topic}")


def _rows_of(counts: DataFrame, samples: DataFrame | None) -> tuple[Rows, Rows]:
    """Return rows of causes and samples from letters that Spark counted."""
    causes = [
        (
            row["originTopic"],
            row["tags"],
            row["reason"],
            row["reconsumeTimes"],
            row["letters"],
            _time(row["first"]),
            _time(row["last"]),
        )
        for row in counts.collect()
    ]
    letters = [
        (
            row["originTopic"],
            row["tags"],
            row["reason"],
            row["reconsumeTimes"],
            _time(row["storeTimestamp"]),
            row["msgId"],
            row["keys"],
            body_text((row["body"] or "").encode())[:80],
        )
        for row in (samples.collect() if samples is not None else [])
    ]
    place = {cause[:4]: number for number, cause in enumerate(causes)}
    # A letter may have arrived since they were counted.
    letters.sort(key=lambda letter: place.get(letter[:4], len(place)))
    return causes, letters


def _time(value: Any) -> str | None:
    return None if value is None else str(value)[:19]


def _show_chosen(rows: Sequence[tuple[Any, ...]], applied: bool, output: Output) -> None:
    if output is Output.json:
        print_json({"applied": applied, "letters": [dict(zip(CHOSEN, row, strict=True)) for row in rows]})
        return
    if rows:
        print_rows(CHOSEN, rows[:LISTED], output)
    if len(rows) > LISTED:
        print_line(f"… and {len(rows) - LISTED} more")
    if applied:
        print_note(f"{counted(len(rows), 'message')} sent again; they stay among the dead letters")
    else:
        print_note(f"{counted(len(rows), 'message')} would be sent again; --apply does it")
