"""`pipeline dlq`: what a group has given up on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from tianzhou.cli.output import (
    DEFAULT_NAMESRV,
    NamesrvOption,
    Output,
    OutputOption,
    TlsOption,
    body_text,
    counted,
    print_json,
    print_line,
    print_note,
    print_rows,
)
from tianzhou.cli.pipelines.command import ConfOption, app, on_spark
from tianzhou.cli.topics import with_admin
from tianzhou.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LISTED = 20
COUNTS = ("topic", "tag", "reason", "deliveries", "letters", "first", "last")
SAMPLES = ("topic", "tag", "reason", "deliveries", "stored", "id", "keys", "body")
CHOSEN = ("id", "to", "keys", "tag", "reason")


@app.command()
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
    to: Annotated[str | None, typer.Option(help="Resend to this topic; default: each to its own.")] = None,
    apply: Annotated[bool, typer.Option("--apply", help="Do it; else it is only shown what would be sent.")] = False,
    conf: ConfOption = None,
    namesrv: NamesrvOption = DEFAULT_NAMESRV,
    tls: TlsOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Count a group's dead letters by cause, show samples, send chosen ones again.

    Example: tianzhou pipeline dlq billing --where "reason = 'Timeout'" --apply
    """
    resending = bool(ids or where or every)
    if every and (ids or where):
        raise ConfigError("--all chooses everything; leave out --id and --where")
    if (apply or to) and not resending:
        raise ConfigError("--apply and --to send again, and nothing is chosen; choose by --id, --where or --all")
    _ensure_letters(group, namesrv, tls)

    def work(spark: SparkSession) -> None:
        from tianzhou.pipelines import dead_letters as p
        from tianzhou.pipelines.topics import Topics

        topics = Topics(spark, namesrv, tls=tls)
        letters = p.dead_letters(topics, group, reasons=reason or p.REASONS)
        if not resending:
            _show(group, p.counts(letters), p.samples(letters, samples) if samples else None, output)
            return
        # What is sent is what was shown, whatever arrives meanwhile.
        picked = p.chosen(letters, ids=ids or (), where=where).cache()
        rows = [
            (row["msgId"], to or row["originTopic"], row["keys"], row["tags"], row["reason"])
            for row in picked.orderBy("storeTimestamp")
            .select("msgId", "originTopic", "keys", "tags", "reason")
            .collect()
        ]
        if apply and rows:
            p.resend(topics, picked, to)
        _show_chosen(rows, apply, output)

    on_spark("dlq", conf, work)


def _ensure_letters(group: str, namesrv: str, tls: bool | None) -> None:
    from tianzhou.model.names import dead_letter_topic

    topic = dead_letter_topic(group)
    if not with_admin(namesrv, tls, lambda admin: admin.topics.exists(topic)):
        raise ConfigError(f"group {group} has no dead letters: there is no topic {topic}")


def _show(group: str, counts: DataFrame, samples: DataFrame | None, output: Output) -> None:
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


def _time(value: Any) -> str:
    return str(value)[:19]


def _show_chosen(rows: list[tuple[Any, ...]], applied: bool, output: Output) -> None:
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
