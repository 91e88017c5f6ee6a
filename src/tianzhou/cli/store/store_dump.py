"""`store dump`: the content of a store's files, line by line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum
from itertools import islice
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
from tianzhou.cli.store.store_folder import SinceOption, SlotsOption, StoreArgument, UntilOption, open_store, time_of
from tianzhou.errors import ConfigError

if TYPE_CHECKING:
    from tianzhou.records.walk import LogItem
    from tianzhou.store.offline.import_export import Selection
    from tianzhou.store.offline.scan import StoreScan


class DumpPart(Enum):
    """The parts of a store to show."""

    records = "records"
    queue = "queue"
    index = "index"
    checkpoint = "checkpoint"
    config = "config"


class Body(Enum):
    """The part of each body to show."""

    full = "full"
    start = "200"
    none = "none"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(help=dump.__doc__)(dump)


def dump(
    folder: StoreArgument,
    part: Annotated[DumpPart, typer.Option(help="What to show.")] = DumpPart.records,
    topic: Annotated[str | None, typer.Option("-t", "--topic", help="Only this topic (records, queue).")] = None,
    queue: Annotated[int | None, typer.Option("-q", "--queue", help="Only this queue (records, queue).")] = None,
    offsets: Annotated[
        str | None, typer.Option(metavar="FROM:TO", help="Only these queue offsets, TO left out (records, queue).")
    ] = None,
    since: SinceOption = None,
    until: UntilOption = None,
    key: Annotated[
        str | None, typer.Option(help="Only what has this key or unique key (records; index with --topic).")
    ] = None,
    begin: Annotated[
        int | None, typer.Option("--from", help="Physical offset of the record to begin at (records).", min=0)
    ] = None,
    body: Annotated[Body, typer.Option(help="How much of each body (records).")] = Body.start,
    limit: Annotated[int | None, typer.Option("--max", help="At most so many lines.", min=1)] = None,
    slots: SlotsOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Show what a store folder holds, one line or JSON document each.

    Example: tianzhou store dump ./tianzhou-data --topic orders --max 20
    """
    scan = open_store(folder)
    if part is DumpPart.checkpoint:
        _show_checkpoint(scan, output)
        return
    from tianzhou.store.offline.import_export import Selection

    first, last = _range(offsets)
    selection = Selection(
        None if topic is None else frozenset({topic}),
        queue,
        time_of("--since", since),
        time_of("--until", until),
        first,
        last,
        key,
    )
    makers: dict[DumpPart, Callable[[], Iterator[dict[str, Any]]]] = {
        DumpPart.records: lambda: _records(scan, selection, begin, body),
        DumpPart.queue: lambda: _units(scan, selection),
        DumpPart.index: lambda: _entries(scan, selection, topic, slots),
        DumpPart.config: lambda: _config(scan),
    }
    shown = 0
    for fields in islice(makers[part](), limit):
        shown += 1
        if output is Output.json:
            print_json(fields)
        else:
            print_line("  ".join(f"{name}={value}" for name, value in fields.items() if value not in (None, "")))
    if not shown and output is Output.text:
        print_note("nothing found")


def _range(text: str | None) -> tuple[int | None, int | None]:
    if text is None:
        return None, None
    first, colon, last = text.partition(":")
    if not all(part.isdigit() or not part for part in (first, last)) or not (first or last):
        raise ConfigError(f"--offsets {text}: write FROM:TO, FROM: or :TO with queue offsets")
    start = int(first) if first else None
    return start, (int(last) if last else None) if colon else int(first) + 1


def _show_checkpoint(scan: StoreScan, output: Output) -> None:
    found = scan.checkpoint()
    names = (
        "physic_msg_timestamp", "logics_msg_timestamp", "index_msg_timestamp", "master_flushed_offset",
        "confirm_phy_offset",
    )  # fmt: skip
    print_fields({name: getattr(found, name) for name in names}, output)


def _records(scan: StoreScan, selection: Selection, begin: int | None, body: Body) -> Iterator[dict[str, Any]]:
    from tianzhou.records.codec import decode_record
    from tianzhou.wire.pulled import to_message

    def damaged(item: LogItem) -> None:
        print_note(f"no intact record between {item.offset} and {item.offset + item.size}: {item.reason}")

    for entry, view in scan.records(begin, check_crc=False, on_damage=damaged):
        if not selection.wants(entry):
            continue
        for message in to_message(decode_record(view), ""):
            content = message.body[:200] if body is Body.start else message.body
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
                **({} if body is Body.none else {"body": body_text(content)}),
            }


def _units(scan: StoreScan, selection: Selection) -> Iterator[dict[str, Any]]:
    topics, only = selection.topics, selection.queue_id
    for name, queue_id in scan.queues():
        if (topics is not None and name not in topics) or (only is not None and only != queue_id):
            continue
        for unit in scan.units(name, queue_id):
            if unit.queue_offset < (selection.begin or 0):
                continue
            if selection.end is not None and unit.queue_offset >= selection.end:
                break
            yield {
                "topic": name,
                "queue_id": queue_id,
                "queue_offset": unit.queue_offset,
                "offset": unit.physical_offset,
                "size": unit.size,
                "tags_code": unit.tags_code,
                "blank": unit.blank or None,
            }


def _entries(scan: StoreScan, selection: Selection, topic: str | None, slots: int | None) -> Iterator[dict[str, Any]]:
    from tianzhou.store.offline.index_files import index_entries
    from tianzhou.wire.hashing import index_hash

    if selection.key is not None and topic is None:
        raise ConfigError("--key finds index entries only together with --topic; give that, too")
    wanted = None if selection.key is None else index_hash(topic or "", selection.key)
    for header in scan.index_headers():
        for entry in index_entries(header, slots):
            if (
                (wanted is not None and entry.key_hash != wanted)
                or entry.timestamp < (selection.since or 0)
                or (selection.until is not None and entry.timestamp >= selection.until)
            ):
                continue
            yield {
                "file": header.path.name,
                "number": entry.number,
                "key_hash": entry.key_hash,
                "offset": entry.physical_offset,
                "stored": local_time(entry.timestamp),
                "previous": entry.previous,
            }


def _config(scan: StoreScan) -> Iterator[dict[str, Any]]:
    from tianzhou.store.offline.check_files import read_json

    folder = scan.root / "config"
    for path in sorted(folder.glob("*.json")) if folder.is_dir() else []:
        for table, entries in read_json(path).items():
            for name, value in entries.items() if isinstance(entries, dict) else [("", entries)]:
                yield {"file": path.name, "table": table, "name": str(name), "value": value}
