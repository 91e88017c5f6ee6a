"""`store check|repair`: consistency of a store's files, and repairs."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tianzhou.cli.output import Output, OutputOption, print_fields, print_json, print_line, print_note
from tianzhou.cli.progress import Advance, progress
from tianzhou.cli.store.store_folder import PROGRESS_FROM, SlotsOption, StoreArgument, open_store

if TYPE_CHECKING:
    from tianzhou.store.offline.check_report import CheckReport, Problem
    from tianzhou.store.offline.scan import StoreScan

UNSOUND = 1
PROBLEMS_SHOWN = 20


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(help=check.__doc__)(check)
    app.command(help=repair.__doc__)(repair)


def check(folder: StoreArgument, slots: SlotsOption = None, output: OutputOption = Output.text) -> None:
    """Go over every record, queue unit, index entry and position; exit code 1 when something does not fit.

    Nothing is locked or written. After a crash, what the next start mends by itself is a note and no problem.

    Example: tianzhou store check ./tianzhou-data
    """
    scan = open_store(folder)
    report = _checked(scan, slots)
    if report.in_use:
        print_note(f"{scan.root} is in use; what is written meanwhile may be reported as a problem")
    _show(report, output)
    if not report.sound:
        if output is Output.text:
            print_note(f"tianzhou store repair {folder} shows what can be done")
        raise typer.Exit(UNSOUND)


def repair(
    folder: StoreArgument,
    apply: Annotated[bool, typer.Option("--apply", help="Do it; otherwise only the plan is shown.")] = False,
    slots: SlotsOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Make a damaged store sound again; without --apply only say what would be done.

    Damaged records are lost; all else is rebuilt from the log. A copy of everything that is cut or replaced stays
    in a folder `repair-<time>` of the store. Exit code 1 when something is or stays wrong.

    Example: tianzhou store repair ./tianzhou-data --apply
    """
    scan = open_store(folder)
    if not apply:
        _show_plan(_checked(scan, slots), output)
        return
    from tianzhou.store.offline.repairer import repair as mend

    with _progress(scan) as advance:
        outcome = mend(scan.root, slots, advance)
    if output is Output.json:
        print_json(
            {
                "done": outcome.done,
                "hopeless": list(outcome.hopeless),
                "kept": outcome.copies and str(outcome.copies),
                "sound": outcome.report.sound,
                "problems": [_fields(problem) for problem in outcome.report.problems],
            }
        )
    else:
        for text in outcome.done:
            print_line(f"done: {text}")
        for text in outcome.hopeless:
            print_line(f"cannot be repaired: {text}")
        for problem in outcome.report.problems:
            print_line(f"problem: {problem.text}")
        if outcome.copies is not None:
            print_note(f"what was changed is kept as it was in {outcome.copies}")
        elif not outcome.done:
            print_note("nothing to repair")
        print_line(f"sound  {str(outcome.report.sound).lower()}")
    if not outcome.report.sound:
        raise typer.Exit(UNSOUND)


def _progress(scan: StoreScan) -> AbstractContextManager[Advance]:
    size = scan.log_bytes()
    return progress("bytes checked", size, worth_it=size > PROGRESS_FROM)


def _checked(scan: StoreScan, slots: int | None) -> CheckReport:
    from tianzhou.store.offline.check import check_store

    with _progress(scan) as advance:
        report = check_store(scan, slots, advance)
        advance(scan.log_bytes())
    return report


def _show_plan(report: CheckReport, output: Output) -> None:
    from tianzhou.store.offline.repair import plan

    todo = plan(report)
    if output is Output.json:
        print_json({"steps": [str(s) for s in todo.steps], "hopeless": list(todo.hopeless), "sound": report.sound})
    else:
        for step in todo.steps:
            print_line(f"would do: {step}")
        for text in todo.hopeless:
            print_line(f"cannot be repaired: {text}")
        print_note("nothing was changed; --apply does it" if todo.steps else "nothing to repair")
    if not report.sound:
        raise typer.Exit(UNSOUND)


def _show(report: CheckReport, output: Output) -> None:
    counts: dict[str, Any] = {
        "records": report.records,
        "queues": report.queues,
        "queue_units": report.units,
        "expired_units": report.expired_units,
        "blank_units": report.blank_units,
        "deleted_records": report.former_records,
        "index_files": report.index_files,
        "index_entries": report.index_entries,
        "log_begin": report.log_begin,
        "log_end": report.log_end,
        "stopped_cleanly": report.clean,
        "in_use": report.in_use,
        "sound": report.sound,
    }
    if output is Output.json:
        findings = {
            "problems": [_fields(problem) for problem in report.problems],
            "notes": [_fields(note) for note in report.notes],
            "findings": {str(kind): count for kind, count in report.counts.items()},
        }
        print_json(counts | findings)
        return
    print_fields(counts, output)
    for problem in report.problems[:PROBLEMS_SHOWN]:
        print_line(f"problem: {problem.text}")
    if len(report.problems) > PROBLEMS_SHOWN:
        print_line(f"and {len(report.problems) - PROBLEMS_SHOWN} more problems; -o json shows them")
    for note in report.notes[:PROBLEMS_SHOWN]:
        print_line(f"as after a crash, the next start sees to it: {note.text}")


def _fields(problem: Problem) -> dict[str, str]:
    return {"kind": str(problem.kind), "text": problem.text}
