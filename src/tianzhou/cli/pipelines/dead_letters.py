"""`pipeline dlq`: what a group has given up on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tianzhou.cli.messages.body_pieces import body_start
from tianzhou.cli.output import (
    Output,
    OutputOption,
    body_text,
    counted,
    local_time,
    print_json,
    print_line,
    print_note,
    print_rows,
)
from tianzhou.cli.pipelines.by_client import Client, Condition, SparkOption, condition, with_client
from tianzhou.cli.pipelines.clusters import Cluster, of_cluster
from tianzhou.cli.pipelines.command import ConfOption, CorruptBodiesOption, app, corrupt_bodies_of, on_spark
from tianzhou.cli.pipelines.reporting import Report
from tianzhou.errors import ConfigError
from tianzhou.model.dead_letters import REASONS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tianzhou.pipelines.few_dead_letters import Causes

LISTED = 20
COUNTS = ("topic", "tag", "reason", "deliveries", "letters", "first", "last")
SAMPLES = ("topic", "tag", "reason", "deliveries", "stored", "id", "keys", "body")
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
    cluster: Cluster,
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
    if not (on_sparks or conf):
        from tianzhou.pipelines.few_dead_letters import LETTER_COLUMNS

        wanted = condition(where, LETTER_COLUMNS)
        if wanted is not None:
            by_client = _ByClient(group, reason, output, corrupt)
            if resending:
                done = with_client(cluster, lambda client: by_client.choose(client, ids or [], wanted, to, apply))
            else:
                done = with_client(cluster, lambda client: by_client.count(client, samples))
            if done:
                return

    def work(spark: SparkSession) -> None:
        from tianzhou.model.names import retry_topic
        from tianzhou.pipelines import dead_letters as p

        topics = cluster.topics(spark, corrupt_bodies=corrupt)
        letters = p.dead_letters(topics, group, reasons=reason or REASONS)
        if not resending:
            _show(group, *_rows_of(p.counts(letters), p.samples(letters, samples) if samples else None), output)
            return
        # What is sent is what was shown, whatever arrives meanwhile.
        picked = p.chosen(letters, ids=ids or (), where=where).cache()
        rows = [
            (row["msgId"], to or retry_topic(group), row["keys"], row["tags"], row["reason"])
            for row in picked.orderBy("storeTimestamp").select("msgId", "keys", "tags", "reason").collect()
        ]
        if apply and rows:
            p.resend(topics, picked, to)
        _show_chosen(rows, apply, output)

    on_spark("dlq", conf, work)


def _ensure_letters(group: str, cluster: Cluster) -> None:
    from tianzhou.model.names import dead_letter_topic

    topic = dead_letter_topic(group)
    if not cluster.with_admin(lambda admin: admin.topics.exists(topic)):
        raise ConfigError(f"group {group} has no dead letters: there is no topic {topic}")


class _ByClient:
    """The command without Spark; its works say whether there were few enough letters for them.

    Args:
        group: the consumer group.
        reasons: properties that say why; None for the default.
        output: the form.
        corrupt_bodies: what becomes of a letter whose body cannot be unpacked.
    """

    def __init__(self, group: str, reasons: Sequence[str] | None, output: Output, corrupt_bodies: str) -> None:
        from tianzhou.model.names import dead_letter_topic

        self._group, self._topic = group, dead_letter_topic(group)
        self._reasons = reasons or REASONS
        self._output = output
        self._corrupt = corrupt_bodies

    async def count(self, client: Client, samples: int) -> bool:
        """Count letters, and show so many of each cause."""
        from tianzhou.pipelines import few_dead_letters as p
        from tianzhou.pipelines.few_messages import FEW, spans_of

        consumer = await client.consumer()
        spans = await spans_of(consumer, self._topic)
        total = sum(span.count for span in spans)
        if total > FEW:
            return False
        with Report("counted", total, self._output) as report:
            causes = await p.count(consumer, spans, self._reasons, samples, report, self._corrupt)
        _show(self._group, *_rows_counted(causes), self._output)
        return True

    async def choose(self, client: Client, ids: Sequence[str], wanted: Condition, to: str | None, apply: bool) -> bool:
        """Choose letters, and send them again when that is to be done."""
        from tianzhou.pipelines import few_dead_letters as p
        from tianzhou.pipelines.few_messages import FEW, spans_of

        consumer = await client.consumer()
        spans = await spans_of(consumer, self._topic)
        total = sum(span.count for span in spans)
        if total > FEW:
            return False
        with Report("looked at", total, self._output) as report:
            ways = (consumer, spans, self._reasons)
            found = await p.chosen(*ways, ids=ids, where=wanted, to=to, progress=report, corrupt_bodies=self._corrupt)
        if apply and found:
            producer = await client.producer()
            with Report("sent again", total, self._output) as report:
                await p.resend(consumer, producer, spans, found, to, report)
        _show_chosen([choice.shown for choice in found], apply, self._output)
        return True


Rows = list[tuple[Any, ...]]


def _rows_counted(counted_letters: Causes) -> tuple[Rows, Rows]:
    """Rows of causes and samples, of letters that the client counted."""
    causes, letters = [], []
    for cause, one in counted_letters.ordered():
        causes.append((*cause, one.letters, local_time(one.first_ms), local_time(one.last_ms)))
        letters += [
            (
                *cause,
                local_time(letter.message.store_timestamp),
                letter.message.msg_id,
                letter.message.keys or None,
                body_start(letter.message.body, 80),
            )
            for letter in one.newest
        ]
    return causes, letters


def _rows_of(counts: DataFrame, samples: DataFrame | None) -> tuple[Rows, Rows]:
    """Rows of causes and samples, of letters that Spark counted."""
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
    letters.sort(key=lambda letter: place.get(letter[:4], len(place)))  # one may have come since they were counted
    return causes, letters


def _show(group: str, causes: Rows, letters: Rows, output: Output) -> None:
    if output is Output.json:
        print_json(
            {
                "group": group,
                "causes": [dict(zip(COUNTS, row, strict=True)) for row in causes],
                "samples": [dict(zip(SAMPLES, row, strict=True)) for row in letters],
            }
        )
        return
    print_rows(COUNTS, causes, output)
    if letters:
        print_line("")
        print_rows(SAMPLES, letters, output)


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
