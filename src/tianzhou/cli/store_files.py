"""`store dump|check`: a store folder as files, with no broker and no lock."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import asdict
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
from tianzhou.cli.progress import progress
from tianzhou.errors import ConfigError

if TYPE_CHECKING:
    from tianzhou.store.logscan import LogItem
    from tianzhou.store.scan import StoreScan

app = typer.Typer(
    help="Store folders, without a broker: dump, check.",
    epilog="Example: tianzhou store check ./tianzhou-data",
    no_args_is_help=True,
)
StoreArgument = Annotated[
    Path, typer.Argument(help="A store folder (storePathRootDir), or the --data folder of `tianzhou serve`.")
]
SlotsOption = Annotated[int, typer.Option(help="maxHashSlotNum of the broker that wrote the index.", min=1)]
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
def check(
    folder: StoreArgument,
    slots: Annotated[
        int | None, typer.Option(help="maxHashSlotNum of the broker that wrote it; default: found out.", min=1)
    ] = None,
    output: OutputOption = Output.text,
) -> None:
    """Go over every record, queue unit and index entry; exit code 1 when something does not fit.

    Example: tianzhou store check ./tianzhou-data
    """
    scan = _open(folder)
    if _in_use(scan.root):
        print_note(f"{scan.root} is in use; what is written meanwhile may be reported as a problem")
    size = scan.log_bytes()
    with progress("bytes checked", size, worth_it=size > PROGRESS_FROM) as advance:
        report = scan.check(slots, advance)
        advance(size)
    counts = {name: value for name, value in asdict(report).items() if name != "problems"} | {"sound": report.sound}
    if output is Output.json:
        print_json(counts | {"problems": report.problems})
    else:
        print_fields(counts, output)
        for problem in report.problems[:PROBLEMS_SHOWN]:
            print_line(f"problem: {problem}")
        if len(report.problems) > PROBLEMS_SHOWN:
            print_line(f"and {len(report.problems) - PROBLEMS_SHOWN} more problems; -o json shows them all")
    if not report.sound:
        raise typer.Exit(UNSOUND)


def _in_use(root: Path) -> bool:
    # The mark of a running broker, and not its lock: asking for that could disturb one that just starts.
    try:
        os.kill(int((root / "abort").read_text()), 0)
    except PermissionError:
        return True
    except (OSError, ValueError):
        return False
    return True
