"""`store dump|check`: a store folder as files, with no broker and no lock."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from enum import Enum
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tianzhou.cli.output import Output, OutputOption, local_time, print_fields, print_json, print_line
from tianzhou.errors import ConfigError

if TYPE_CHECKING:
    from tianzhou.store.scan import StoreScan

app = typer.Typer(help="Store folders, without a broker: dump, check.", no_args_is_help=True)
StoreArgument = Annotated[
    Path, typer.Argument(help="A store folder (storePathRootDir), or the --data folder of `tianzhou serve`.")
]
DEFAULT_SLOTS = 5_000_000
UNSOUND = 1


class Part(Enum):
    """What `store dump` can show."""

    records = "records"
    queue = "queue"
    index = "index"
    checkpoint = "checkpoint"


def _open(folder: Path) -> StoreScan:
    from tianzhou.store.scan import StoreScan

    if not folder.is_dir():
        raise ConfigError(f"{folder}: no such folder")
    root = folder / "store" if (folder / "tianzhou.json").exists() else folder
    if not (root / "commitlog").is_dir() and not (root / "checkpoint").exists():
        raise ConfigError(f"{folder} is no store: it has neither commitlog/ nor checkpoint; name the storePathRootDir")
    return StoreScan(root)


@app.command()
def dump(
    folder: StoreArgument,
    part: Annotated[Part, typer.Option(help="What to show.")] = Part.records,
    topic: Annotated[str | None, typer.Option("-t", "--topic", help="Only this topic (records, queue).")] = None,
    queue: Annotated[int | None, typer.Option("-q", "--queue", help="Only this queue (records, queue).")] = None,
    begin: Annotated[int | None, typer.Option("--from", help="Physical offset to begin at (records).")] = None,
    limit: Annotated[int | None, typer.Option("--max", help="At most so many lines.", min=1)] = None,
    output: OutputOption = Output.text,
) -> None:
    """Show what a store folder holds, one line or JSON document each.

    Example: tianzhou store dump ./tianzhou-data --topic orders --max 20
    """
    scan = _open(folder)
    if part is Part.checkpoint:
        found = scan.checkpoint()
        print_fields(
            {
                name: getattr(found, name)
                for name in ("physic_msg_timestamp", "logics_msg_timestamp", "index_msg_timestamp",
                             "master_flushed_offset", "confirm_phy_offset")
            },
            output,
        )  # fmt: skip
        return
    lines = {Part.records: _records, Part.queue: _units, Part.index: _entries}[part](scan, topic, queue, begin)
    for fields in islice(lines, limit):
        if output is Output.json:
            print_json(fields)
        else:
            print_line("  ".join(f"{name}={value}" for name, value in fields.items() if value not in (None, "")))


def _records(scan: StoreScan, topic: str | None, queue: int | None, begin: int | None) -> Iterator[dict[str, Any]]:
    from tianzhou.wire.record import decode_record, to_message

    for entry, view in scan.records(begin, check_crc=False):
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
                "body": message.body[:200].decode("utf-8", "backslashreplace"),
            }


def _units(scan: StoreScan, topic: str | None, queue: int | None, begin: int | None) -> Iterator[dict[str, Any]]:
    del begin
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


def _entries(scan: StoreScan, topic: str | None, queue: int | None, begin: int | None) -> Iterator[dict[str, Any]]:
    del topic, queue, begin
    for header in scan.index_headers():
        for entry in scan.index_entries(header, DEFAULT_SLOTS):
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
    slots: Annotated[int, typer.Option(help="maxHashSlotNum of the broker that wrote it.")] = DEFAULT_SLOTS,
    output: OutputOption = Output.text,
) -> None:
    """Go over every record, queue unit and index entry; exit code 1 when something does not fit.

    Example: tianzhou store check ./tianzhou-data
    """
    scan = _open(folder)
    with _spinner("checking"):
        report = scan.check(slots)
    counts = {
        "records": report.records,
        "queue_units": report.units,
        "expired_units": report.expired_units,
        "index_entries": report.index_entries,
        "log_begin": report.log_begin,
        "log_end": report.log_end,
        "sound": report.sound,
    }
    if output is Output.json:
        print_json(counts | {"problems": report.problems})
    else:
        print_fields(counts, output)
        for problem in report.problems:
            print_line(f"problem: {problem}")
    if not report.sound:
        raise typer.Exit(UNSOUND)


def _spinner(text: str) -> Any:
    from contextlib import nullcontext

    if not sys.stderr.isatty():
        return nullcontext()
    from rich.console import Console

    return Console(stderr=True).status(text)
