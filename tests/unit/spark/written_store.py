"""A store that a test writes, reads as a table, copies, cuts and damages."""

from __future__ import annotations

import shutil
from pathlib import Path

from pyspark.sql.types import LongType, StringType, StructField, StructType

from store_probe import StoreProbe
from tianzhou.spark.rows.schema import arrow_schema, columns_of, row_schema
from tianzhou.spark.source.offsets import Span
from tianzhou.spark.store.store_files import StoreFiles
from tianzhou.spark.store.store_rows import Wanted, read_all
from tianzhou.store import MessageStore, NewRecord, StoreSettings
from tianzhou.wire.hashing import tags_code
from tianzhou.wire.properties import encode_properties

TOPIC = "orders"


class Store:
    """A store that a test adds to."""

    def __init__(self, root: Path, **settings: object) -> None:
        self.root = root
        self.settings = StoreSettings(
            store_path_root_dir=str(root),
            mapped_file_size_commit_log=64 << 10,
            mapped_file_size_consume_queue=20 * 100,
            max_hash_slot_num=100,
            max_index_num=400,
            **settings,
        )
        self.store = MessageStore(self.settings)
        self.store.open()

    def add(self, count: int = 1, queue: int = 0, topic: str = TOPIC, body: bytes | None = None, **more) -> None:
        for number in range(count):
            tag, key, sys_flag = more.get("tag", ""), more.get("key", ""), more.get("sys_flag", 0)
            properties = {
                "TAGS": tag,
                "KEYS": key,
                "UNIQ_KEY": f"{queue:04X}{number:08X}",
                **more.get("properties", {}),
            }
            record = NewRecord(
                topic,
                queue,
                body if body is not None else b"body %d" % number,
                encode_properties({name: value for name, value in properties.items() if value}),
                flag=0,
                sys_flag=sys_flag,
                born_timestamp=1_700_000_000_000,
                born_host=b"\x7f\0\0\1",
                born_port=1,
                reconsume_times=0,
                tags_code=tags_code(tag),
                keys=key,
                uniq_key=properties["UNIQ_KEY"],
            )
            self.store.append(record)
        StoreProbe(self.store).dispatch_all()

    def close(self) -> None:
        self.store.close_now()


def copied(store: Store, tmp_path: Path, *without: str) -> Path:
    """Return a copy of the folder, without its lock and some folders."""
    copy = tmp_path / "copy"
    shutil.copytree(store.root, copy, ignore=shutil.ignore_patterns("lock"))
    for folder in without:
        shutil.rmtree(copy / folder)
    return copy


def cut(path: Path, position: int) -> None:
    """Overwrite a file's bytes from a position on with zeros."""
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(position)
        file.write(bytes(size - position))


def schema_of(columns: str) -> StructType:
    kinds = {"LONG": LongType(), "STRING": StringType()}
    return StructType([StructField(name, kinds[kind]) for name, kind in map(str.split, columns.split(", "))])


def rows_of(files: StoreFiles, topic: str = TOPIC, columns: str | None = None, span=None, **wanted) -> list[dict]:
    schema = row_schema(True, True) if columns is None else schema_of(columns)
    bounds = files.bounds(files.queues([topic]))
    spans = [Span(queue, *(span or limits)) for queue, limits in bounds.items() if limits.maximum > limits.minimum]
    batches = read_all(files, spans, Wanted(arrow_schema(schema), columns_of(schema), **wanted))
    return [row for batch in batches for row in batch.to_pylist()]


def offsets_of(rows) -> list[int]:
    return [row["queueOffset"] for row in rows]


def flip(folder: Path, position: int, value: bytes = b"\xff") -> None:
    """Change bytes of the commit log."""
    paths = sorted(folder.joinpath("commitlog").iterdir())
    path = max((path for path in paths if int(path.name) <= position), key=lambda path: path.name)
    with path.open("r+b") as file:
        file.seek(position - int(path.name))
        file.write(value)
