"""Export of a group's dead letters to a file, from the oldest to the newest."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

from tianzhou.cli.messages.body_pieces import document
from tianzhou.cli.messages.letter_pages import FOREVER_MS, count_of, letter_pages, letter_spans
from tianzhou.cli.progress import progress
from tianzhou.cli.store.export_files import Format, target
from tianzhou.model.dead_letters import origin_id, origin_topic
from tianzhou.model.timestamps import raw_times

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tianzhou.admin import Admin
    from tianzhou.model import MessageExt

ROWS_AT_ONCE = 4_096


class Write(Protocol):
    """A function that appends dead letters to a file."""

    def __call__(self, letters: Sequence[MessageExt]) -> None:
        """Append dead letters."""


async def write_letters(
    admin: Admin, group: str, to: Path | None, form: Format, begin_ms: int = 0, end_ms: int = FOREVER_MS
) -> int:
    """Write the present dead letters of a group. Return their number.

    Args:
        admin: the client.
        group: the group.
        to: the file, which is created completely or not at all; None for stdout.
        form: form of the file.
        begin_ms: earliest store time, milliseconds since the epoch.
        end_ms: latest store time.
    """
    spans = await letter_spans(admin, group, begin_ms)
    size, number = count_of(spans), 0
    with (
        target(to) as file,
        _writer(file, group, form) as write,
        progress("dead letters exported", size, worth_it=size > ROWS_AT_ONCE) as advance,
    ):
        async for letters in letter_pages(admin, spans, advance, begin_ms, end_ms):
            write(letters)
            number += len(letters)
    return number


def _writer(file: BinaryIO, group: str, form: Format) -> AbstractContextManager[Write]:
    return _parquet_lines(file, group) if form is Format.parquet else _json_lines(file, group)


def _row(group: str, letter: MessageExt) -> dict[str, Any]:
    return {"group": group, "origin_topic": origin_topic(letter.properties), "origin_id": origin_id(letter)}


@contextmanager
def _json_lines(file: BinaryIO, group: str) -> Iterator[Write]:
    def write(letters: Sequence[MessageExt]) -> None:
        for letter in letters:
            line = json.dumps(document(letter) | _row(group, letter), ensure_ascii=False)
            file.write(line.encode("utf-8", "backslashreplace") + b"\n")

    yield write


@contextmanager
def _parquet_lines(file: BinaryIO, group: str) -> Iterator[Write]:
    import pyarrow as pa
    from pyarrow import parquet

    moment = pa.timestamp("ms", "UTC")
    columns: list[tuple[str, pa.DataType]] = [
        ("group", pa.string()),
        ("origin_topic", pa.string()),
        ("origin_id", pa.string()),
        ("broker", pa.string()),
        ("queue_id", pa.int32()),
        ("queue_offset", pa.int64()),
        ("msg_id", pa.string()),
        ("tags", pa.string()),
        ("keys", pa.string()),
        ("properties", pa.map_(pa.string(), pa.string())),
        ("body", pa.binary()),
        ("born_timestamp", moment),
        ("store_timestamp", moment),
        ("reconsume_times", pa.int32()),
    ]
    schema = pa.schema(columns)
    rows: list[dict[str, Any]] = []
    with parquet.ParquetWriter(file, schema, compression="zstd") as writer:

        def flush() -> None:
            writer.write_table(pa.Table.from_pylist(rows, schema))
            rows.clear()

        def write(letters: Sequence[MessageExt]) -> None:
            for letter in letters:
                odd = raw_times(letter.born_timestamp, letter.store_timestamp)
                own: dict[str, Any] = {"body": letter.body, "properties": list((letter.user_properties | odd).items())}
                own |= {name.removesuffix("_MS").lower(): None for name in odd}
                rows.append(document(letter) | own | _row(group, letter))
            if len(rows) >= ROWS_AT_ONCE:
                flush()

        yield write
        flush()
