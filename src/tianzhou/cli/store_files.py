"""`store dump|check|repair`: a store folder as files, with no broker and no lock."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from enum import Enum
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tianzhou.cli.output import (
    Output,
    OutputOption,
    body_text,
    local_time,
    print_fields,
    print_json,
    print_line,
    print_note,
)
from tianzhou.cli.progress import Advance, progress
from tianzhou.errors import ConfigError

if TYPE_CHECKING:
    from tianzhou.store.check_report import CheckReport
    from tianzhou.store.logscan import LogItem
    from tianzhou.store.scan import StoreScan

app = typer.Typer(
    help="Store folders, without a broker: dump, check, repair.",
    epilog="Example: tianzhou store check ./tianzhou-data",
    no_args_is_help=True,
)
StoreArgument = Annotated[
    Path, typer.Argument(help="A store folder (storePathRootDir), or the --data folder of `tianzhou serve`.")
]
SlotsOption = Annotated[int, typer.Option(help="maxHashSlotNum of the broker that wrote the index.", min=1)]
FoundSlotsOption = Annotated[
    int | None, typer.Option("--slots", help="maxHashSlotNum of the broker that wrote it; default: found out.", min=1)
]
DEFAULT_SLOTS = 5_000_000
UNSOUND = 1
PROBLEMS_SHOWN = 20
PROGRESS_FROM = 64 * 1024 * 1024


class Part(Enum):
    """What `store dump` can show."""

    records = "records"
    queue = "queue"
    index = "index"
    checkpoint = "checkpoint"


def _open(folder: Path) -> StoreScan:
    from tianzhou.store.scan import StoreScan

    if not folder.is_dir():
        raise ConfigError(f"{folder}: no such folder; name a storePathRootDir or a --data folder")
    root = folder / "store" if (folder / "tianzhou.json").exists() else folder
    if not (root / "commitlog").is_dir() and not (root / "checkpoint").exists():
        raise ConfigError(
            f"{folder}: is no store, it has neither commitlog/ nor checkpoint; "
            "name a storePathRootDir or a --data folder"
        )
    return StoreScan(root)


@app.command()
def dump(
    folder: StoreArgument,
    part: Annotated[Part, typer.Option(help="What to show.")] = Part.records,
    topic: Annotated[str | None, typer.Option("-t", "--topic", help="Only this topic (records, queue).")] = None,
    queue: Annotated[int | None, typer.Option("-q", "--queue", help="Only this queue (records, queue).")] = None,
    begin: Annotated[
        int | None, typer.Option("--from", help="Physical offset of the record to begin at (records).", min=0)
    ] = None,
    limit: Annotated[int | None, typer.Option("--max", help="At most so many lines.", min=1)] = None,
    slots: SlotsOption = DEFAULT_SLOTS,
    output: OutputOption = Output.text,
) -> None:
    """Show what a store folder holds, one line or JSON document each.

    Example: tianzhou store dump ./tianzhou-data --topic orders --max 20
    """
    scan = _open(folder)
    if part is Part.checkpoint:
        _show_checkpoint(scan, output)
        return
    lines = {
        Part.records: lambda: _records(scan, topic, queue, begin),
        Part.queue: lambda: _units(scan, topic, queue),
        Part.index: lambda: _entries(scan, slots),
    }[part]()
    shown = 0
    for fields in islice(lines, limit):
        shown += 1
        if output is Output.json:
            print_json(fields)
        else:
            print_line("  ".join(f"{name}={value}" for name, value in fields.items() if value not in (None, "")))
    if not shown and output is Output.text:
        print_note("nothing found")


def _show_checkpoint(scan: StoreScan, output: Output) -> None:
    found = scan.checkpoint()
    names = (
        "physic_msg_timestamp", "logics_msg_timestamp", "index_msg_timestamp", "master_flushed_offset",
        "confirm_phy_offset",
    )  # fmt: skip
    print_fields({name: getattr(found, name) for name in names}, output)


def _records(scan: StoreScan, topic: str | None, queue: int | None, begin: int | None) -> Iterator[dict[str, Any]]:
    from tianzhou.wire.record import decode_record, to_message

    def damaged(item: LogItem) -> None:
        print_note(f"no intact record between {item.offset} and {item.offset + item.size}: {item.reason}")

    for entry, view in scan.records(begin, check_crc=False, on_damage=damaged):
        if (topic is not None and entry.topic != topic) or (queue is not None and entry.queue_id != queue):
            continue
        for message in to_message(decode_record(view), ""):
            yield {
                "offset": entry.offset,
                "size": entry.size,
                "topic": message.topic,
                "queue_id": message.queue_id,
                "queue_offset": message.queue_offset,
                "stored": local_time(message.store_timestamp),
                "msg_id": message.msg_id,
                "tags": message.tags,
                "keys": message.keys,
                "reconsume_times": message.reconsume_times,
                "body": body_text(message.body[:200]),
            }


def _units(scan: StoreScan, topic: str | None, queue: int | None) -> Iterator[dict[str, Any]]:
    for name, queue_id in scan.queues():
        if (topic is not None and name != topic) or (queue is not None and queue_id != queue):
            continue
        for unit in scan.units(name, queue_id):
            yield {
                "topic": name,
                "queue_id": queue_id,
                "queue_offset": unit.queue_offset,
                "offset": unit.physical_offset,
                "size": unit.size,
                "tags_code": unit.tags_code,
                "blank": unit.blank or None,
            }


def _entries(scan: StoreScan, slots: int) -> Iterator[dict[str, Any]]:
    for header in scan.index_headers():
        for entry in scan.index_entries(header, slots):
            yield {
                "file": header.path.name,
                "number": entry.number,
                "key_hash": entry.key_hash,
                "offset": entry.physical_offset,
                "stored": local_time(entry.timestamp),
                "previous": entry.previous,
            }


@app.command()
def check(folder: StoreArgument, slots: FoundSlotsOption = None, output: OutputOption = Output.text) -> None:
    """Go over every record, queue unit and index entry; exit code 1 when something does not fit.

    Example: tianzhou store check ./tianzhou-data
    """
    scan = _open(folder)
    with _progress(scan) as advance:
        report = scan.check(slots, advance)
    _show_report(report, scan.root, output)
    if not report.sound:
        raise typer.Exit(UNSOUND)


@app.command()
def repair(
    folder: StoreArgument,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be done.")] = False,
    slots: FoundSlotsOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Make a damaged store sound again: queues and index anew from the log, damaged stretches of the log covered.

    What it changes is copied first, into a folder repair-TIME of the store. No broker may use the store. Exit code 1
    when something stays wrong.

    Example: tianzhou store repair ./tianzhou-data --dry-run
    """
    from tianzhou.store.repair import plan
    from tianzhou.store.repair_steps import repair as carry_out

    scan = _open(folder)
    if dry_run:
        with _progress(scan) as advance:
            found = plan(scan.check(slots, advance))
        _show_steps([str(step) for step in found.steps], found.hopeless, output)
        return
    with _progress(scan) as advance:
        outcome = carry_out(scan.root, slots, advance)
    sound = outcome.report.sound
    if output is Output.json:
        print_json({"done": outcome.done, "hopeless": list(outcome.hopeless), "kept": outcome.kept, "sound": sound})
    else:
        _show_steps(outcome.done, outcome.hopeless, output)
        print_line(f"sound  {str(sound).lower()}")
        if outcome.kept is not None:
            print_note(f"what was changed is kept as it was in {outcome.kept}")
    if not sound:
        raise typer.Exit(UNSOUND)


def _progress(scan: StoreScan) -> AbstractContextManager[Advance]:
    size = scan.log_bytes()
    return progress("bytes checked", size, worth_it=size > PROGRESS_FROM)


def _show_report(report: CheckReport, root: Path, output: Output) -> None:
    counts = {
        "records": report.records,
        "queues": report.queues,
        "queue_units": report.units,
        "expired_units": report.expired_units,
        "former_records": report.former_records,
        "index_files": report.index_files,
        "index_entries": report.index_entries,
        "log_begin": report.log_begin,
        "log_end": report.log_end,
        "clean": report.clean,
        "sound": report.sound,
    }
    if output is Output.json:
        told = {
            name: [{"kind": one.kind, "text": one.text} for one in found]
            for name, found in (("problems", report.problems), ("notes", report.notes))
        }
        print_json(counts | told | {"counts": dict(report.counts)})
    else:
        print_fields(counts, output)
        _show_some([f"problem: {problem.text}" for problem in report.problems])
        _show_some([f"note: {note.text}" for note in report.notes])
        if not report.sound:
            print_note(f"tianzhou store repair {root} --dry-run shows what can be done")
    if report.in_use:
        print_note(f"{root} is in use; what is written meanwhile may be reported as a problem")


def _show_steps(steps: Sequence[str], hopeless: Sequence[str], output: Output) -> None:
    if output is Output.json:
        print_json({"steps": list(steps), "hopeless": list(hopeless)})
        return
    for step in steps:
        print_line(step)
    for text in hopeless:
        print_line(f"cannot be repaired: {text}")
    if not steps and not hopeless:
        print_note("nothing to repair")


def _show_some(lines: Sequence[str]) -> None:
    for line in lines[:PROBLEMS_SHOWN]:
        print_line(line)
    if len(lines) > PROBLEMS_SHOWN:
        print_line(f"and {len(lines) - PROBLEMS_SHOWN} more; -o json shows them all")
