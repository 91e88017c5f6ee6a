"""`doctor [group|topic|broker|send|connect|spark|host|access|metrics]`: problems of a cluster, and their remedies."""

from __future__ import annotations

import json
import time
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import typer

from tianzhou.cli.output import (
    DEFAULT_NAMESRV,
    NamesrvOption,
    Output,
    OutputOption,
    TlsOption,
    counted,
    print_json,
    print_line,
    print_note,
)
from tianzhou.cli.process import EXIT_FAILED, EXIT_USAGE
from tianzhou.cli.signals import run_client
from tianzhou.errors import ConfigError

if TYPE_CHECKING:
    from tianzhou.doctor import Finding, Report

DEFAULT_TIMEOUT_S: Final = 3.0
MOST_UNANSWERED: Final = 5
MOST_EVIDENCE: Final = 600
"""Maximum characters of a piece of evidence in text output. JSON output contains all of it."""

_SINGULAR: Final = {"addresses": "address"}


class _Words(NamedTuple):
    """Words around findings."""

    fix: str
    cut: str
    unanswered: str
    more: str


_ENGLISH: Final = _Words(
    "fix: ",
    "(-o json has all)",
    "not known, {question} of {server}: {why}",
    "{count} more are not known; -o json has all",
)


class Language(StrEnum):
    """Languages of findings."""

    en = "en"
    zh = "zh"


LangOption = Annotated[
    Language, typer.Option("--lang", help="Of what is printed: English or Chinese. Names and evidence stay.")
]
TimeoutOption = Annotated[
    float,
    typer.Option("--timeout", metavar="SECONDS", help="How long one server may take to answer.", min=0.1, max=600),
]
app = typer.Typer(
    help="Say what ails a cluster, by which evidence, and what to do.\n\nAlone it looks at everything but this machine."
    " Nothing is changed, and nothing sent. Ends with 0 when no finding is an error, 1 when one is, and 2 when it could"
    " not look.",
    epilog="Example: tianzhou doctor group billing -n 127.0.0.1:9876",
    invoke_without_command=True,
)


@app.callback()
def cluster(
    context: typer.Context,
    namesrv: NamesrvOption = DEFAULT_NAMESRV,
    tls: TlsOption = None,
    timeout: TimeoutOption = DEFAULT_TIMEOUT_S,
    output: OutputOption = Output.text,
    lang: LangOption = Language.en,
) -> None:
    """Look at everything but this machine, unless a command says at what."""
    if context.invoked_subcommand is None:
        _look("cluster", None, namesrv, tls, timeout, output, lang)
        return
    for name in context.params:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            command = context.invoked_subcommand
            raise ConfigError(f"--{name} stands before {command}; put it behind: tianzhou doctor {command} --{name} …")


@app.command()
def group(
    group: Annotated[str, typer.Argument(help="The consumer group.")],
    namesrv: NamesrvOption = DEFAULT_NAMESRV,
    tls: TlsOption = None,
    timeout: TimeoutOption = DEFAULT_TIMEOUT_S,
    output: OutputOption = Output.text,
    lang: LangOption = Language.en,
) -> None:
    """Say why a consumer group is stuck or behind.

    Example: tianzhou doctor group billing
    """
    _look("group", group, namesrv, tls, timeout, output, lang)


@app.command()
def topic(
    topic: Annotated[str, typer.Argument(help="The topic.")],
    namesrv: NamesrvOption = DEFAULT_NAMESRV,
    tls: TlsOption = None,
    timeout: TimeoutOption = DEFAULT_TIMEOUT_S,
    output: OutputOption = Output.text,
    lang: LangOption = Language.en,
) -> None:
    """Say why messages of a topic do not arrive.

    Example: tianzhou doctor topic orders
    """
    _look("topic", topic, namesrv, tls, timeout, output, lang)


@app.command()
def broker(
    broker: Annotated[str | None, typer.Argument(help="The broker's name; default: all.")] = None,
    namesrv: NamesrvOption = DEFAULT_NAMESRV,
    tls: TlsOption = None,
    timeout: TimeoutOption = DEFAULT_TIMEOUT_S,
    output: OutputOption = Output.text,
    lang: LangOption = Language.en,
) -> None:
    """Say what ails brokers and name servers: disks, copies, leaders, clocks, what piles up.

    Example: tianzhou doctor broker broker-a
    """
    _look("broker", broker, namesrv, tls, timeout, output, lang)


@app.command()
def send(
    topic: Annotated[str | None, typer.Argument(help="The topic; default: only the brokers are looked at.")] = None,
    size: Annotated[int | None, typer.Option(metavar="BYTES", help="Of the message's body.", min=0)] = None,
    namesrv: NamesrvOption = DEFAULT_NAMESRV,
    tls: TlsOption = None,
    timeout: TimeoutOption = DEFAULT_TIMEOUT_S,
    output: OutputOption = Output.text,
    lang: LangOption = Language.en,
) -> None:
    """Say why sends are refused. No message is sent.

    Example: tianzhou doctor send orders --size 5000000
    """
    _look("send", topic, namesrv, tls, timeout, output, lang, size=size)


@app.command()
def connect(
    address: Annotated[
        str | None, typer.Argument(help="host:port; default: the name servers, and the brokers they know.")
    ] = None,
    namesrv: NamesrvOption = DEFAULT_NAMESRV,
    tls: TlsOption = None,
    timeout: TimeoutOption = DEFAULT_TIMEOUT_S,
    output: OutputOption = Output.text,
    lang: LangOption = Language.en,
) -> None:
    """Say why a client on this machine cannot connect: names, ports, TLS, signatures.

    Example: tianzhou doctor connect 10.0.0.7:10911
    """
    _look("connect", address, namesrv, tls, timeout, output, lang)


@app.command()
def spark(
    checkpoint: Annotated[
        str | None, typer.Argument(help="checkpointLocation of a query, a folder on this machine.")
    ] = None,
    namesrv: NamesrvOption = DEFAULT_NAMESRV,
    tls: TlsOption = None,
    timeout: TimeoutOption = DEFAULT_TIMEOUT_S,
    output: OutputOption = Output.text,
    lang: LangOption = Language.en,
) -> None:
    """Say why a stream of Spark's stands still: its checkpoint, its topic, Java and pyspark.

    Example: tianzhou doctor spark /data/checkpoints/orders
    """
    _look("spark", checkpoint, namesrv, tls, timeout, output, lang)


@app.command()
def host(
    store: Annotated[str | None, typer.Argument(help="Folder that a broker keeps its store in.")] = None,
    output: OutputOption = Output.text,
    lang: LangOption = Language.en,
) -> None:
    """Say what this machine lacks for a broker in production: limits, memory, disk, interpreter.

    Example: tianzhou doctor host /data/store
    """
    from tianzhou.doctor import diagnose

    _show(run_client(diagnose(None, "host", store)), output, lang)


@app.command()
def access(
    namesrv: NamesrvOption = DEFAULT_NAMESRV,
    tls: TlsOption = None,
    timeout: TimeoutOption = DEFAULT_TIMEOUT_S,
    output: OutputOption = Output.text,
    lang: LangOption = Language.en,
) -> None:
    """Say what strangers may do: servers without access control or TLS, secrets that others can read.

    Example: tianzhou doctor access -n 10.0.0.5:9876
    """
    _look("access", None, namesrv, tls, timeout, output, lang)


@app.command()
def metrics(
    file: Annotated[
        Path | None, typer.Option(help="Replace this file, a .prom of node_exporter's; default: they are printed.")
    ] = None,
    namesrv: NamesrvOption = DEFAULT_NAMESRV,
    tls: TlsOption = None,
    timeout: TimeoutOption = DEFAULT_TIMEOUT_S,
    output: OutputOption = Output.text,
) -> None:
    """Look at everything but this machine, and show the findings to Prometheus as figures.

    Ends with 0 whatever it finds, and with 2 when it could not look.

    Example: tianzhou doctor metrics --file /var/lib/node_exporter/tianzhou.prom
    """
    from tianzhou.doctor.figures import families
    from tianzhou.metrics.exposition import pieces

    report = run_client(_diagnosis("cluster", None, namesrv, tls, timeout))
    page = b"".join(pieces(families(report, time.time()), {}))
    if file is not None:
        _replace(file, page)
    if output is Output.json:
        print_json(report.as_json())
    elif file is None:
        for line in page.decode().splitlines():
            print_line(line)
    if not report.could_look:
        raise typer.Exit(EXIT_USAGE)


def _replace(file: Path, page: bytes) -> None:
    """Replace a file atomically, because another process may read it at any moment."""
    # A collector reads all files that end with .prom, so the new file must end differently.
    beside = file.with_name(f"{file.name}.new")
    try:
        beside.write_bytes(page)
        beside.replace(file)
    except OSError as error:
        raise ConfigError(
            f"--file {file} cannot be written ({error.strerror}); name a file in a folder that is there and that you "
            "may write to"
        ) from error


async def _diagnosis(
    subject: str, name: str | None, namesrv: str, tls: bool | None, limit_s: float, size: int | None = None
) -> Report:
    from tianzhou.admin import Admin
    from tianzhou.doctor import diagnose

    limit_ms = round(limit_s * 1000)
    async with Admin(namesrv, tls=tls, timeout_ms=limit_ms, connect_timeout_ms=limit_ms) as admin:
        return await diagnose(admin, subject, name, size=size, timeout_ms=limit_ms)


def _look(
    subject: str,
    name: str | None,
    namesrv: str,
    tls: bool | None,
    timeout: float,
    output: Output,
    lang: Language,
    *,
    size: int | None = None,
) -> None:
    _show(run_client(_diagnosis(subject, name, namesrv, tls, timeout, size)), output, lang)


def _show(report: Report, output: Output, lang: Language) -> None:
    words, summary = _ENGLISH, _summary
    if lang is Language.zh:
        from tianzhou.doctor.chinese import AROUND_FINDINGS, report_in_chinese, summary_in_chinese

        words, summary, report = _Words(*AROUND_FINDINGS), summary_in_chinese, report_in_chinese(report)
    if output is Output.json:
        print_json(report.as_json())
    else:
        for finding in report.findings:
            _show_finding(finding, words)
        _show_unanswered(report, words)
        print_line(summary(report))
    if not report.could_look:
        raise typer.Exit(EXIT_USAGE)
    if not report.healthy:
        raise typer.Exit(EXIT_FAILED)


def _show_finding(finding: Finding, words: _Words) -> None:
    print_line(f"{finding.severity.upper()} {finding.name}: {finding.message}")
    for name, value in finding.evidence.items():
        text = _text(value)
        shown = text if len(text) <= MOST_EVIDENCE else f"{text[:MOST_EVIDENCE]}… {words.cut}"
        print_line(f"  {name}: {shown}")
    print_line(f"  {words.fix}{finding.fix}")
    print_line("")


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _show_unanswered(report: Report, words: _Words) -> None:
    for one in report.unanswered[:MOST_UNANSWERED]:
        print_note(words.unanswered.format(question=one.question, server=one.server, why=one.why))
    if len(report.unanswered) > MOST_UNANSWERED:
        print_note(words.more.format(count=len(report.unanswered) - MOST_UNANSWERED))


def _summary(report: Report) -> str:
    looked_at = (
        (_SINGULAR.get(what, what.removesuffix("s")), what, number) for what, number in report.looked_at.items()
    )
    looked = ", ".join(f"{number} {one if number == 1 else what}" for one, what, number in looked_at if number)
    if not report.could_look:
        return f"{report.subject}: could not look, as no name server answers"
    counts = [counted(number, severity) for severity, number in report.counts().items() if number]
    return f"{report.subject}: {', '.join(counts) or 'healthy'} ({looked or 'nothing'} looked at)"
