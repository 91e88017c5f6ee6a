"""`bench`: load a cluster and report its throughput and latency. `tianzhou.bench` does the work."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from contextlib import AsyncExitStack
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tianzhou.bench.payloads import Keys
from tianzhou.bench.spec import DEFAULT_SECONDS, LONGEST_WARM_UP_S, MOST_PROCESSES, BenchKind, LoadSpec, Payload
from tianzhou.cli.output import (
    DEFAULT_NAMESRV,
    NamesrvOption,
    Output,
    OutputOption,
    TlsOption,
    print_json,
    print_note,
    print_rows,
)
from tianzhou.cli.servers import Flush
from tianzhou.cli.signals import run_client
from tianzhou.errors import ConfigError

if TYPE_CHECKING:
    from tianzhou.bench.runner import Run

DEFAULT_TOPIC = "bench"
DEFAULT_FILL = 200_000
LONGEST_BODY = 4 * 1024 * 1024
IN_WORKLOADS = frozenset({"rate", "seconds", "warm_up_s", "connections", "keys", "consumers", "groups", "queues"})
"""Options that a workload file sets as well."""
_DECLARED: Mapping[str, Callable[[str], Any]] = {
    "output": Output, "keys": Keys, "flush": Flush,
    **dict.fromkeys(("payload_file", "embedded_dir", "csv", "png", "compare", "workload"), Path),
}  # fmt: skip

app = typer.Typer(
    help="Load a cluster and say how fast it was: produce, consume, latency, mixed.",
    epilog="Example: tianzhou bench produce --embedded --seconds 5",
    no_args_is_help=True,
)

TopicArgument = Annotated[str, typer.Argument(help="The topic; made when it is not there.")]
QueuesOption = Annotated[int, typer.Option("-q", "--queues", help="Queues of a topic that is made.", min=1, max=10_000)]
SecondsOption = Annotated[
    float | None,
    typer.Option(help=f"Measure so long; without it and --count {DEFAULT_SECONDS}.", min=0.1, max=86_400 * 30),
]
AllSecondsOption = Annotated[
    float | None, typer.Option(help="Measure so long; default: until all is consumed.", min=0.1)
]
CountOption = Annotated[int | None, typer.Option(help="Measure so many messages, or a batch more.", min=1)]
WarmUpOption = Annotated[
    int, typer.Option("--warm-up", help="Seconds under load before measuring begins.", min=0, max=LONGEST_WARM_UP_S)
]
RateOption = Annotated[
    float,
    typer.Option(
        help="Messages a second, kept up whatever the answers do; 0 for as many as can be. With a rate, latency counts "
        "from when a message was due.",
        min=0,
        max=1e8,
    ),
]
SizeOption = Annotated[int, typer.Option(help="Bytes of a body.", min=1, max=LONGEST_BODY)]
PayloadFileOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Bodies in turn instead: the lines of this file.")
]
ConnectionsOption = Annotated[
    int | None, typer.Option(help="Producers, each with its own connections; default: --processes.", min=1, max=10_000)
]
InFlightOption = Annotated[
    int, typer.Option(help="Messages (or batches) of a connection on their way at the same time.", min=1, max=60_000)
]
BatchOption = Annotated[int, typer.Option(help="Messages of one request.", min=1, max=10_000)]
KeysOption = Annotated[Keys, typer.Option(help="Keys of messages: none, 10 000 in turn, or random ones.")]
TagsOption = Annotated[str | None, typer.Option(help="Tag of every message.")]
ConsumersOption = Annotated[int, typer.Option(help="Members of each consumer group.", min=1, max=10_000)]
GroupsOption = Annotated[int, typer.Option(help="Consumer groups; each gets all messages.", min=1, max=1_000)]
HandlersOption = Annotated[int, typer.Option(help="Handlers of a member that run at the same time.", min=1, max=1_000)]
ConsumeBatchOption = Annotated[int, typer.Option(help="Most messages of one call of a handler.", min=1, max=1_024)]
PullBatchOption = Annotated[int, typer.Option(help="Most messages requested at once.", min=1, max=1_024)]
PullOption = Annotated[bool, typer.Option("--pull", help="Poll for messages instead of having handlers called.")]
ProcessesOption = Annotated[
    int,
    typer.Option(
        help="Processes that send, and as many that receive; one may be the limit itself.", min=1, max=MOST_PROCESSES
    ),
]
EmbeddedOption = Annotated[
    bool, typer.Option("--embedded", help="Start a server for this run alone, instead of -n; it is removed again.")
]
EmbeddedDirOption = Annotated[
    Path | None, typer.Option(metavar="DIR", help="Where the embedded server keeps its files meanwhile.")
]
FlushOption = Annotated[Flush, typer.Option(help="The embedded server's flush.")]
CsvOption = Annotated[Path | None, typer.Option(metavar="FILE", help="Write a row for every second.")]
PngOption = Annotated[Path | None, typer.Option(metavar="FILE", help="Draw throughput and latency by the second.")]
CompareOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Show ratios to an earlier run, kept with -o json > FILE.")
]
WorkloadOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="A workload file of openmessaging-benchmark; other options change parts of it."),
]
FillOption = Annotated[
    int,
    typer.Option(help=f"Store so many messages first; {DEFAULT_FILL} by default with --embedded.", min=0),
]


@app.command()
def produce(
    context: typer.Context,
    topic: TopicArgument = DEFAULT_TOPIC,
    rate: RateOption = 0,
    seconds: SecondsOption = None,
    count: CountOption = None,
    warm_up_s: WarmUpOption = 1,
    size: SizeOption = 1024,
    payload_file: PayloadFileOption = None,
    connections: ConnectionsOption = None,
    in_flight: InFlightOption = 256,
    batch: BatchOption = 1,
    keys: KeysOption = Keys.none,
    tags: TagsOption = None,
    queues: QueuesOption = 8,
    processes: ProcessesOption = 1,
    embedded: EmbeddedOption = False,
    embedded_dir: EmbeddedDirOption = None,
    flush: FlushOption = Flush.ASYNC_FLUSH,
    csv: CsvOption = None,
    png: PngOption = None,
    compare: CompareOption = None,
    namesrv: NamesrvOption = DEFAULT_NAMESRV,
    tls: TlsOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Measure sending: messages a second, and how long acknowledgements take.

    Example: tianzhou bench produce --rate 10000 --seconds 30
    """
    _bench(BenchKind.produce, context)


@app.command()
def consume(
    context: typer.Context,
    topic: TopicArgument = DEFAULT_TOPIC,
    fill: FillOption = 0,
    seconds: AllSecondsOption = None,
    count: CountOption = None,
    warm_up_s: WarmUpOption = 0,
    size: SizeOption = 1024,
    payload_file: PayloadFileOption = None,
    consumers: ConsumersOption = 1,
    groups: GroupsOption = 1,
    handlers: HandlersOption = 20,
    consume_batch: ConsumeBatchOption = 1,
    pull_batch: PullBatchOption = 32,
    by_pulling: PullOption = False,
    queues: QueuesOption = 8,
    processes: ProcessesOption = 1,
    embedded: EmbeddedOption = False,
    embedded_dir: EmbeddedDirOption = None,
    flush: FlushOption = Flush.ASYNC_FLUSH,
    csv: CsvOption = None,
    png: PngOption = None,
    compare: CompareOption = None,
    namesrv: NamesrvOption = DEFAULT_NAMESRV,
    tls: TlsOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Measure consuming what a topic holds, from its first message.

    New groups consume it and are deleted in the end; other groups are not disturbed.

    Example: tianzhou bench consume --embedded --fill 500000
    """
    _bench(BenchKind.consume, context)


@app.command()
def latency(
    context: typer.Context,
    topic: TopicArgument = DEFAULT_TOPIC,
    rate: RateOption = 1000,
    seconds: SecondsOption = None,
    count: CountOption = None,
    warm_up_s: WarmUpOption = 2,
    size: SizeOption = 1024,
    payload_file: PayloadFileOption = None,
    connections: ConnectionsOption = None,
    in_flight: InFlightOption = 256,
    keys: KeysOption = Keys.none,
    tags: TagsOption = None,
    consumers: ConsumersOption = 1,
    groups: GroupsOption = 1,
    handlers: HandlersOption = 20,
    by_pulling: PullOption = False,
    queues: QueuesOption = 8,
    processes: ProcessesOption = 1,
    embedded: EmbeddedOption = False,
    embedded_dir: EmbeddedDirOption = None,
    flush: FlushOption = Flush.ASYNC_FLUSH,
    csv: CsvOption = None,
    png: PngOption = None,
    compare: CompareOption = None,
    namesrv: NamesrvOption = DEFAULT_NAMESRV,
    tls: TlsOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Measure how long messages take from when they are due until they are consumed, at a steady rate.

    Example: tianzhou bench latency --rate 10000 --seconds 30
    """
    _bench(BenchKind.latency, context)


@app.command()
def mixed(
    context: typer.Context,
    topic: TopicArgument = DEFAULT_TOPIC,
    workload: WorkloadOption = None,
    rate: RateOption = 0,
    seconds: SecondsOption = None,
    count: CountOption = None,
    warm_up_s: WarmUpOption = 1,
    size: SizeOption = 1024,
    payload_file: PayloadFileOption = None,
    connections: ConnectionsOption = None,
    in_flight: InFlightOption = 256,
    batch: BatchOption = 1,
    keys: KeysOption = Keys.none,
    tags: TagsOption = None,
    consumers: ConsumersOption = 1,
    groups: GroupsOption = 1,
    handlers: HandlersOption = 20,
    consume_batch: ConsumeBatchOption = 1,
    pull_batch: PullBatchOption = 32,
    by_pulling: PullOption = False,
    queues: QueuesOption = 8,
    processes: ProcessesOption = 1,
    embedded: EmbeddedOption = False,
    embedded_dir: EmbeddedDirOption = None,
    flush: FlushOption = Flush.ASYNC_FLUSH,
    csv: CsvOption = None,
    png: PngOption = None,
    compare: CompareOption = None,
    namesrv: NamesrvOption = DEFAULT_NAMESRV,
    tls: TlsOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Measure sending and consuming at the same time, also as a workload file says.

    Example: tianzhou bench mixed --workload 1-topic-16-partitions-1kb.yaml
    """
    _bench(BenchKind.mixed, context)


def _bench(kind: BenchKind, context: typer.Context) -> None:
    options = _values(context)
    output: Output = options["output"]
    notes: list[str] = []
    spec = _load_spec(kind, options)
    if (workload := options.get("workload")) is not None:
        sources = {name: context.get_parameter_source(name) for name in options}
        chosen = {name for name, source in sources.items() if source is not None and source.name == "COMMANDLINE"}
        spec, notes = _of_workload(workload, options, chosen, spec)
    spec = spec.checked()
    files = _BenchFiles(options)
    for note in notes:
        print_note(note)

    async def main() -> None:
        from tianzhou.bench.local_server import LocalServer
        from tianzhou.bench.report import progress_line
        from tianzhou.bench.runner import Run

        def announce(text: str) -> None:
            if output is Output.text:
                print_note(text)

        def progress(run: Run, number: int) -> None:
            announce(progress_line(number, [(role.value, series.at(number)) for role, series in run.series.items()]))

        run = Run(spec, options["tls"], progress, announce)
        try:
            async with AsyncExitStack() as stack:
                server = None
                namesrv = options["namesrv"]
                if options["embedded"]:
                    server = LocalServer(options["embedded_dir"], options["flush"].value)
                    await stack.enter_async_context(server)
                    namesrv = server.namesrv
                try:
                    await run.measure(namesrv, server)
                finally:
                    # If the run failed or was interrupted, show the figures so far.
                    if run.measured:
                        files.show(run, notes, output)
                if server is None:
                    printed = len(run.notes)
                    await run.forget_groups_again()
                    for note in run.notes[printed:]:
                        print_note(note)
        finally:
            # Draw last, because it takes long and may be cancelled after an interruption.
            if run.measured:
                files.draw(run)

    run_client(main())


def _values(context: typer.Context) -> dict[str, Any]:
    """The options of a command by name, as they are declared: a context has names and paths as text."""
    values = dict(context.params)
    for name, kind in _DECLARED.items():
        if values.get(name) is not None:
            values[name] = kind(values[name])
    return values


def _load_spec(kind: BenchKind, options: Mapping[str, Any]) -> LoadSpec:
    """Return the run that the options describe. Options that a command lacks have the defaults of `LoadSpec`."""
    file = options["payload_file"]
    values = {name: options[name] for name in _load_fields(options)}
    if kind is BenchKind.consume and options["embedded"] and not options["fill"]:
        values["fill"] = options["count"] or DEFAULT_FILL
    payload = Payload(options["size"], str(file) if file is not None else "")
    return LoadSpec(kind, (options["topic"],), payload=payload, **values)


def _load_fields(options: Mapping[str, Any]) -> set[str]:
    """Return the names of the options that are fields of `LoadSpec`."""
    return {field.name for field in fields(LoadSpec)} & options.keys()


def _of_workload(
    path: Path, options: Mapping[str, Any], chosen: Collection[str], spec: LoadSpec
) -> tuple[LoadSpec, list[str]]:
    """Return a workload file's run, overridden by the options that were given."""
    from tianzhou.bench.workload import apply, parse

    found, notes = apply(parse(_text("--workload", path), str(path)), str(path), options["topic"])
    wanted = [name for name in _load_fields(options) if name in chosen or name not in IN_WORKLOADS]
    found = replace(found, **{name: getattr(spec, name) for name in wanted})
    if "count" in chosen and "seconds" not in chosen:
        found = replace(found, seconds=None)
    if not {"size", "payload_file"}.isdisjoint(chosen):
        found = replace(found, payload=spec.payload)
    elif found.payload.file:
        found = replace(found, payload=replace(found.payload, file=str(_payload_of(path, found.payload.file))))
    return found, notes


def _payload_of(workload: Path, name: str) -> Path:
    """Find a workload's payload in the working directory, beside the file, or in the parent of the file's folder."""
    places = [Path(name), workload.parent / name, workload.parent.parent / name]
    for place in places:
        if place.is_file():
            return place
    raise ConfigError(
        f"--workload {workload}: payloadFile: {name} is not there, from here or from the file's folders; name it with "
        "--payload-file, or give --size for bodies of letters"
    )


def _text(option: str, path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{option} {path}: {error.strerror}; name a file that is there") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{option} {path}: is no text; name a text file") from None


def _check_can_write(option: str, path: Path) -> None:
    if path.is_dir():
        raise ConfigError(f"{option} {path}: is a folder; name a file")
    folder = path.parent
    if not folder.is_dir():
        raise ConfigError(f"{option} {path}: the folder {folder} is not there; make it, or name another file")
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise ConfigError(f"{option} {path}: cannot be written; name another file")


class _BenchFiles:
    """The files that are read before the run and written after it. Their errors are raised before the run."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        from tianzhou.bench.report import read_earlier

        self._csv: Path | None = options["csv"]
        self._png: Path | None = options["png"]
        self._compare: Path | None = options["compare"]
        self._earlier = None
        if self._compare is not None:
            self._earlier = read_earlier(_text("--compare", self._compare), str(self._compare))
        if self._csv is not None:
            _check_can_write("--csv", self._csv)
        if self._png is not None:
            from tianzhou.bench.plot import check_can_plot

            _check_can_write("--png", self._png)
            check_can_plot()

    def show(self, run: Run, notes: list[str], output: Output) -> None:
        """Print the result, and write the rows."""
        from tianzhou.bench.report import COLUMNS, compare, csv_text, differing, ratio_rows, table

        document = _document(run, notes)
        seconds = {role.value: series.seconds() for role, series in run.series.items()}
        if self._earlier is not None:
            document["compare"] = {"file": str(self._compare), **compare(document, self._earlier)}
        if output is Output.json:
            document["seconds"] = [{"role": role, **one.document()} for role, rows in seconds.items() for one in rows]
            print_json(document)
        else:
            print_rows(COLUMNS, table(document), output)
            if self._earlier is not None:
                print_rows(
                    (f"ratio to {self._compare}", *COLUMNS[1:]), ratio_rows(compare(document, self._earlier)), output
                )
                if changed := differing(document, self._earlier):
                    print_note("not the same run: " + ", ".join(changed))
            _remarks(document)
        if self._csv is not None:
            self._csv.write_text(csv_text(seconds), encoding="utf-8")

    def draw(self, run: Run) -> None:
        """Draw the plot."""
        if self._png is not None:
            from tianzhou.bench.plot import plot

            seconds = {role.value: series.seconds() for role, series in run.series.items()}
            plot(self._png, f"tianzhou bench {run.spec.kind.value} {' '.join(run.spec.topics[:3])}", seconds)


def _document(run: Run, notes: list[str]) -> dict[str, Any]:
    from tianzhou import __version__
    from tianzhou.bench.report import limits

    server = run.server
    return {
        "command": run.spec.kind.value,
        "version": __version__,
        "interrupted": run.interrupted,
        **run.figures(),
        "failures": {role.value: series.errors for role, series in run.series.items()},
        "embedded_mode": server.mode if server is not None else None,
        "embedded_cpu_us_per_message": run.server_cpu_us(),
        "processes": run.processes(),
        "limits": limits(run.processes(), os.cpu_count() or 1),
        "notes": notes + run.notes,
        "given": run.spec.document(),
    }


def _remarks(document: Mapping[str, Any]) -> None:
    """Print notes about the figures."""
    if document["interrupted"]:
        print_note("interrupted: the figures are of what was measured until then")
    for reasons in document["failures"].values():
        for reason, times in sorted(reasons.items(), key=lambda found: -found[1])[:5]:
            print_note(f"failed {times} times: {reason}")
    for note in document["notes"]:
        print_note(note)
    for text in document["limits"]:
        print_note(text)
    if (cpu_us := document["embedded_cpu_us_per_message"]) is not None:
        print_note(f"the embedded server ({document['embedded_mode']} mode) took {cpu_us} us CPU per message")
