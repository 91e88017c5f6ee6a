"""`simulate`: whole clusters in virtual time, one per seed, with faults of all kinds."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tianzhou.cli.output import Output, OutputOption, counted, print_json, print_line, print_note, print_rows
from tianzhou.cli.process import EXIT_FAILED
from tianzhou.cli.progress import progress
from tianzhou.errors import ConfigError

if TYPE_CHECKING:
    from tianzhou.testing.simulation.run import SeedVerdict

DEFAULT_SEEDS = 100
PROGRESS_FROM = 10
"""Number of runs from which a progress bar is shown."""


def simulate(
    seeds: Annotated[int, typer.Option(help="How many seeds of each scenario.", min=1)] = DEFAULT_SEEDS,
    first: Annotated[int, typer.Option("--from", help="The first of them.", min=0)] = 0,
    scenario: Annotated[
        str, typer.Option(help="Scenarios joined by ','; --list shows them. All that can be run by default.")
    ] = "",
    seed: Annotated[int | None, typer.Option(help="Run this seed only.", min=0)] = None,
    trace: Annotated[bool, typer.Option("--trace", help="Show all that happens, and what the programs log.")] = False,
    list_: Annotated[bool, typer.Option("--list", help="List the scenarios and end.")] = False,
    output: OutputOption = Output.text,
) -> None:
    """Run whole clusters in virtual time, one from each seed, with cuts, deaths and lost power; check all promises.

    Name servers, brokers, producers and consumers are the real ones, on a simulated network, disks and clocks.
    A seed decides all that happens: one that fails is printed with the command that runs it again, to the same
    step. Exit code 1 when one fails.

    Example: tianzhou simulate --seeds 200 --scenario master-slave
    """
    # Other commands must not wait for the import of the simulation.
    from tianzhou.testing.simulation.scenarios import SCENARIOS

    if list_:
        print_rows(("scenario", "about"), [(one.name, one.about) for one in SCENARIOS.values()], output)
        return
    names = [name.strip() for name in scenario.split(",") if name.strip()] or list(SCENARIOS)
    for name in names:
        if name not in SCENARIOS:
            raise ConfigError(f"--scenario {name}: no such scenario; choose from {', '.join(SCENARIOS)}")
    if trace and seed is None:
        raise ConfigError("--trace shows one run: say which by --seed")
    chosen = range(first, first + seeds) if seed is None else range(seed, seed + 1)
    began_s = time.perf_counter()
    failed: list[SeedVerdict] = []
    steps = 0
    last: SeedVerdict | None = None
    with progress("seeds", len(names) * len(chosen), worth_it=len(names) * len(chosen) >= PROGRESS_FROM) as advance:
        for done, verdict in enumerate(_verdicts(names, chosen, trace=trace), 1):
            advance(done)
            last = verdict
            steps += verdict.steps
            if verdict.failed:
                failed.append(verdict)
            if output is Output.text and (verdict.failed or trace):
                _show(verdict)
    took_s = time.perf_counter() - began_s
    runs = len(names) * len(chosen)
    if output is Output.json:
        print_json(
            {
                "runs": runs,
                "steps": steps,
                "seconds": round(took_s, 3),
                "scenarios": names,
                "seeds": [chosen.start, chosen.stop],
                "failed": [_document(verdict) for verdict in failed],
                "digest": last.digest if last is not None and runs == 1 else None,
            }
        )
    else:
        digest = f", digest {last.digest}" if last is not None and runs == 1 else ""
        print_line(f"{counted(runs, 'run')}, {len(failed)} failed, {steps:,} steps in {took_s:.1f} s{digest}")
    if failed:
        raise typer.Exit(EXIT_FAILED)


def _verdicts(names: list[str], chosen: range, *, trace: bool) -> Iterator[SeedVerdict]:
    from tianzhou.testing.simulation.run import run

    for name in names:
        for number in chosen:
            yield run(name, number, trace=trace)


def _show(verdict: SeedVerdict) -> None:
    for line in verdict.trace:
        print_line(line)
    if not verdict.failed:
        return
    first = verdict.problems[0]
    print_line(f"FAILED {verdict.scenario} seed {verdict.seed} ({verdict.title}) at step {first.step}")
    print_line(f"  {first.checker}: {first.text}")
    if len(verdict.problems) > 1:
        print_line(f"  and {len(verdict.problems) - 1} more")
    print_note(f"  again: {verdict.replay}")


def _document(verdict: SeedVerdict) -> dict[str, Any]:
    return {
        "scenario": verdict.scenario,
        "seed": verdict.seed,
        "title": verdict.title,
        "step": verdict.problems[0].step,
        "problems": [{"step": one.step, "checker": one.checker, "text": one.text} for one in verdict.problems],
        "digest": verdict.digest,
        "replay": verdict.replay,
        "trace": verdict.trace,
    }
