"""`flights`: the main job: 336 776 real flights through a topic into Spark and Parquet, with proof."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tianzhou.cli.children import interruptible
from tianzhou.cli.output import Output, OutputOption, print_json, print_line, print_note
from tianzhou.cli.process import EXIT_FAILED

if TYPE_CHECKING:
    from tianzhou.cli.flights.job import JobResult
    from tianzhou.cli.signals import ShutdownSignals


def flights(
    rows: Annotated[int | None, typer.Option(help="Take only so many flights; default all 336 776.", min=1)] = None,
    out: Annotated[
        Path, typer.Option(help="Folder for server data, tables and plot; an earlier run's is replaced.")
    ] = Path("data/flights"),
    kill: Annotated[
        bool, typer.Option("--kill", help="Kill the Spark queries (kill -9) in the middle, and start them again.")
    ] = False,
    output: OutputOption = Output.text,
) -> None:
    """Stream real flights through topics into Spark and Parquet and prove that none was lost or doubled.

    Example: tianzhou flights --rows 5000
    """
    with interruptible() as ending:
        _run(rows, out, output, ending, kill=kill)


def _run(rows: int | None, out: Path, output: Output, ending: ShutdownSignals, *, kill: bool) -> None:
    from rich.console import Console

    from tianzhou.cli.flights import job, report
    from tianzhou.cli.flights.pipeline import LATE_TOPIC

    job.prepare_folder(out)
    with job.ServerProcess(out / "server") as server:
        if output is Output.text:
            print_line(f"server: name server {server.namesrv}, broker {server.broker}, ready in {server.start_s:.2f} s")
        result = job.run_job(out, rows, server, Console(stderr=True), ending.watch, kill=kill)
        plot = out / "delays.png"
        report.plot_delays(result.delays, plot)
        if output is Output.json:
            print_json(_document(result, out))
        else:
            report.print_delays(result.delays)
            print_line("")
            report.print_proof(result.checks)
            print_line("")
            if result.killed_at:
                read = ", ".join(map(str, result.killed_at))
                print_line(f"the queries were killed when they had read {read} rows, and started again")
            rate = result.rows / result.produce_s if result.produce_s else 0
            print_line(
                f"{result.rows} rows: acknowledged in {result.produce_s:.1f} s ({rate:,.0f}/s), "
                f"in Parquet {result.read_s:.1f} s after the queries began, {result.total_s:.1f} s in all"
            )
            print_line(f"tables {out}/flights.parquet, {out}/delays.parquet; late flights in topic {LATE_TOPIC}")
            print_line(f"plot {plot}")
        if not result.proved:
            print_note(f"NOT PROVED: {', '.join(check.name for check in result.checks if not check.holds)}")
            raise typer.Exit(EXIT_FAILED)
        if output is Output.text and job.is_interactive():
            _show_next_commands(server.namesrv)
            job.keep_serving(server)


def _show_next_commands(namesrv: str) -> None:
    print_line("")
    print_line("The server goes on until Ctrl-C. In another terminal, look around:")
    print_line(f"  .venv/bin/tianzhou topic describe flights -n {namesrv}")
    print_line(f"  .venv/bin/tianzhou consume flights --from-beginning --max 5 -n {namesrv}")
    print_line(f"  .venv/bin/tianzhou produce flights --body '{{}}' --tags AA -n {namesrv}")


def _document(result: JobResult, out: Path) -> dict[str, object]:
    return {
        "proved": result.proved,
        "rows": result.rows,
        "checks": [{"name": c.name, "source": c.expected, "found": c.found} for c in result.checks],
        "produce_s": round(result.produce_s, 3),
        "read_s": round(result.read_s, 3),
        "total_s": round(result.total_s, 3),
        "killed_at": result.killed_at,
        "delays": result.delays,
        "out": str(out),
    }
