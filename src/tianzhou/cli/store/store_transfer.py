"""`store export|import`: messages from a store folder to files, and from files to a store folder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tianzhou.cli.output import Output, OutputOption, counted, print_json, print_line, print_note
from tianzhou.cli.progress import progress
from tianzhou.cli.store.export_files import Format, FormatOption, format_of, need_pyarrow, target
from tianzhou.cli.store.store_folder import (
    PROGRESS_FROM,
    SinceOption,
    StoreArgument,
    UntilOption,
    open_store,
    root_of,
    time_of,
)
from tianzhou.errors import ConfigError, CorruptRecord, ProtocolError, StoreError

if TYPE_CHECKING:
    from tianzhou.records.walk import LogEntry, LogItem

Records = Iterator[tuple["LogEntry", memoryview]]
ROWS_AT_ONCE = 4096


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("export", help=export.__doc__)(export)
    app.command("import", help=import_.__doc__)(import_)


def export(
    folder: StoreArgument,
    to: Annotated[Path | None, typer.Option(help="File to write; without it, JSON lines go to stdout.")] = None,
    form: FormatOption = None,
    topic: Annotated[list[str] | None, typer.Option("-t", "--topic", help="Only this topic; may be repeated.")] = None,
    queue: Annotated[int | None, typer.Option("-q", "--queue", help="Only this queue.", min=0)] = None,
    since: SinceOption = None,
    until: UntilOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Write a store's messages into a file, as JSON lines or Parquet; no broker is needed.

    Without --topic, everything but topics of the system and deleted ones. Bodies are unpacked. The last line, on
    stderr, says how many there were.

    Example: tianzhou store export ./tianzhou-data --topic orders --to orders.parquet
    """
    from tianzhou.store.offline.import_export import Selection, selected, visible_topics

    scan = open_store(folder)
    chosen = format_of(form, to)
    topics = frozenset(topic) if topic else visible_topics(scan)
    selection = Selection(topics, queue, time_of("--since", since), time_of("--until", until))
    damage: list[str] = []

    def damaged(item: LogItem) -> None:
        damage.append(f"no intact record between {item.offset} and {item.offset + item.size}: {item.reason}")

    size = scan.log_bytes()
    counts: Counter[tuple[str, int]] = Counter()
    with progress("bytes read", size, worth_it=size > PROGRESS_FROM) as advance:
        records = selected(scan, selection, advance, damaged)
        (_write_parquet if chosen is Format.parquet else _write_lines)(records, to, counts, damage.append)
    for text in damage:
        print_note(text)
    if to is not None and output is Output.json:
        _show_counts(counts, output)
    print_note(f"{counted(sum(counts.values()), 'message')} of {counted(len(counts), 'queue')} exported")
    if damage:
        raise typer.Exit(1)


def import_(
    source: Annotated[Path, typer.Argument(help="File of an export, or a folder of such files.")],
    to: Annotated[Path, typer.Option(help="Store folder, or --data folder of `tianzhou serve`; made when absent.")],
    segment_size: Annotated[
        int | None, typer.Option(help="Bytes of a commit-log file in a new store (RocketMQ: 1073741824).", min=1 << 16)
    ] = None,
    output: OutputOption = Output.text,
) -> None:
    """Add the messages of an export to a store that no broker has open.

    Topic, queue, body, properties, flags, times and addresses of birth and delivery counts stay. Offsets, store
    time and store address are new, and a message that came out of a transaction no longer points to its half.
    Topics the store's broker does not know are added to its table.

    Example: tianzhou store import orders.jsonl --to ./other-data
    """
    from tianzhou.store.offline.import_export import Importer

    files = _files_of(source)
    root = root_of(to)
    if to.exists() and not to.is_dir():
        raise ConfigError(f"--to {to}: is a file; name a folder")
    if to.is_dir() and any(to.iterdir()) and root == to and not (to / "commitlog").is_dir() and not _is_store(to):
        raise ConfigError(f"--to {to}: has other things in it and is no store; name a new folder or a store")
    total = sum(path.stat().st_size for path in files)
    done = 0
    with (
        Importer(root, segment_size) as importer,
        progress("bytes imported", total, worth_it=total > PROGRESS_FROM) as advance,
    ):
        for path in files:
            for number, (row, read) in enumerate(_rows_of(path), 1):
                try:
                    importer.add(row)
                except (ConfigError, StoreError) as error:
                    imported = sum(importer.counts.values())
                    where = f"{path}: row {number}: {error}; {counted(imported, 'message')} before it are imported"
                    raise type(error)(where) from error
                if number % ROWS_AT_ONCE == 0:
                    advance(done + read)
            done += path.stat().st_size
    _show_counts(importer.counts, output)
    print_note(f"{counted(sum(importer.counts.values()), 'message')} imported; offsets and store times are new")


def _is_store(folder: Path) -> bool:
    return (folder / "checkpoint").exists() or {path.name for path in folder.iterdir()} <= {"config"}


def _show_counts(counts: Counter[tuple[str, int]], output: Output) -> None:
    for (topic, queue_id), count in sorted(counts.items()):
        if output is Output.json:
            print_json({"topic": topic, "queue_id": queue_id, "messages": count})
        else:
            print_line(f"{topic}/{queue_id}  {counted(count, 'message')}")


def _write_lines(
    records: Records, to: Path | None, counts: Counter[tuple[str, int]], on_damage: Callable[[str], None]
) -> None:
    import orjson

    from tianzhou.store.offline.import_export import rows

    with target(to) as file:
        for entry, view in records:
            try:
                found = rows(view)
            except ProtocolError as error:
                on_damage(str(error))
                continue
            for row in found:
                file.write(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE))
            counts[entry.topic, entry.queue_id] += len(found)


def _write_parquet(
    records: Records, to: Path | None, counts: Counter[tuple[str, int]], on_damage: Callable[[str], None]
) -> None:
    del on_damage  # A body that cannot be unpacked ends the export, because a piece contains several bodies.
    need_pyarrow()
    import pyarrow.parquet as parquet

    from tianzhou.spark.store.store_tables import SCHEMA, tables

    assert to is not None
    try:
        with target(to) as file, parquet.ParquetWriter(file, SCHEMA, compression="zstd") as writer:
            for table in tables(records):
                writer.write_table(table)
                found = table.group_by(["topic", "queueId"]).aggregate([([], "count_all")]).to_pylist()
                for row in found:
                    counts[row["topic"], row["queueId"]] += row["count_all"]
    except CorruptRecord as error:
        raise StoreError(f"{error}; --format jsonl leaves such messages out and goes on") from error


def _files_of(source: Path) -> list[Path]:
    if source.is_file():
        return [source]
    if not source.is_dir():
        raise ConfigError(f"{source}: no such file or folder; name what `tianzhou store export` has written")
    files = sorted(chain(source.glob("*.jsonl"), source.glob("*.parquet")))
    if not files:
        raise ConfigError(f"{source}: has no *.jsonl or *.parquet; name what `tianzhou store export` has written")
    return files


def _rows_of(path: Path) -> Iterator[tuple[dict[str, Any], int]]:
    """Yield each row, and the number of bytes of the file read so far."""
    with path.open("rb") as file:
        is_parquet = file.read(4) == b"PAR1"
    yield from _rows_of_parquet(path) if is_parquet else _rows_of_lines(path)


def _rows_of_lines(path: Path) -> Iterator[tuple[dict[str, Any], int]]:
    import orjson

    read = 0
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            read += len(line)
            if not line.strip():
                continue
            try:
                row = orjson.loads(line)
            except ValueError as error:
                raise ConfigError(f"{path}: line {number}: is no JSON ({error})") from error
            if not isinstance(row, dict):
                raise ConfigError(f"{path}: line {number}: is no JSON object; every line is one message")
            yield row, read


def _rows_of_parquet(path: Path) -> Iterator[tuple[dict[str, Any], int]]:
    need_pyarrow()
    import pyarrow as pa
    import pyarrow.parquet as parquet

    file = parquet.ParquetFile(path)
    missing = {"topic", "body"} - set(file.schema_arrow.names)
    if missing:
        raise ConfigError(f"{path}: has no column {', '.join(sorted(missing))}; it is no export of a store")
    size = path.stat().st_size
    total = max(file.metadata.num_rows, 1)
    done = 0
    for batch in file.iter_batches(ROWS_AT_ONCE):
        columns = {}
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            if pa.types.is_timestamp(column.type):
                column = column.cast(pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64())
            columns[name] = column.to_pylist()
        done += batch.num_rows
        for values in zip(*columns.values(), strict=True):
            yield dict(zip(columns, values, strict=True)), done * size // total
