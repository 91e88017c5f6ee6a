"""A directory of Parquet files that any reader takes as it is, with batches committed by a manifest.

Tasks write below `_staging`, which readers pass over. A commit writes a manifest of moves and removals under the
batch's name, which decides; then it carries them out. The next process that finds a manifest not carried out, because a
driver died, does that first. The manifest of a writer's last batch stays and shows which batch that was.

A process that decides or carries out holds the lock of the directory; the lock goes with the process.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import logging
import os
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from tianzhou.spark.lake.files import NewFile, sync, write_files
from tianzhou.spark.lake.options import LakeOptions, Part
from tianzhou.spark.lake.partitions import Division, agreed, check_parts, folder_texts, parts_of, type_of, value_of
from tianzhou.spark.lake.pruning import Condition, may_hold
from tianzhou.spark.lake.reading import TableFile, file_batches
from tianzhou.spark.lake.tables import Batch, LakeError, fitting, refuse_new

logger = logging.getLogger(__name__)

STAGING: Final = "_staging"
COMMITS: Final = "_tianzhou"
PARTITIONS: Final = "partitions"
"""Says by which columns a directory is partitioned, and their types, which folders' names do not tell."""
_TYPES: Final = {
    str(kind): kind
    for kind in (
        *(pa.string(), pa.bool_(), pa.date32()),
        *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
    )
}
LOCK: Final = "lock"
_NO_LOCKS: Final = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL}
"""What file systems say that do not know `flock`."""


class ParquetDirectory:
    """A folder of Parquet files.

    Args:
        options: of the table.
    """

    prefix = f"{STAGING}/part"

    def __init__(self, options: LakeOptions) -> None:
        self._options = options
        self._root = Path(options.path)
        self.division: Division | None = None

    @property
    def location(self) -> str:
        """The folder."""
        return str(self._root)

    def prepare(self, schema: pa.Schema) -> pa.Schema:
        """See `LakeTable.prepare`."""
        name, wanted = self._options.name, self._options.parts
        there = self._known_schema()
        columns = self._partition_columns()
        if wanted and there is None and not columns:
            check_parts(wanted, schema, name, in_files=False)
            with self._locked():
                if not self._noted().exists():
                    _replace(self._noted(), [[part.column, str(schema.field(part.column).type)] for part in wanted])
            columns = self._partition_columns()
        parts = agreed(wanted, parts_of([column.name for column in columns]), name)
        if parts:
            check_parts(parts, schema, name, in_files=False)
            fitting(schema, pa.schema([*columns, *(one for one in schema if Part(one.name) not in parts)]), name)
            self.division = Division(parts, exact=True)
        if there is not None:
            new = fitting(schema, there, name)
            if new and not self._options.merge_schema:
                raise refuse_new(new, there, name)
        if (self._root / COMMITS).is_dir():
            with self._locked():
                self._carry_out_all()
        return schema

    def _known_schema(self) -> pa.Schema | None:
        files = self._files()
        return self._with_partitions([files[0], files[-1]]) if files else None

    def _with_partitions(self, files: Sequence[Path]) -> pa.Schema:
        """The columns that files hold, and behind them those that folders tell of."""
        held = pa.unify_schemas([pq.read_schema(path) for path in files])
        return pa.schema([*held, *(column for column in self._partition_columns() if column.name not in held.names)])

    def _files(self) -> list[Path]:
        """The files of the rows, the oldest first, those in folders of partitions with them."""
        found = self._root.rglob("*.parquet") if self._root.is_dir() else []
        return sorted(filter(self._holds_rows, found), key=lambda path: path.stat().st_mtime_ns)

    def _holds_rows(self, path: Path) -> bool:
        *folders, name = path.relative_to(self._root).parts
        return all("=" in folder and folder[0] not in "._" for folder in folders) and name[0] not in "._"

    # --- partitions

    def _noted(self) -> Path:
        return self._root / COMMITS / f"{PARTITIONS}.noted"

    def _partition_columns(self) -> list[pa.Field[Any]]:
        """The columns that the directory is partitioned by: noted when we made it, else what folders' names say."""
        if self._noted().exists():
            return [pa.field(name, _TYPES[kind]) for name, kind in json.loads(self._noted().read_bytes())]
        found: dict[str, list[str | None]] = {}
        for path in self._files():
            for column, text in self._texts(path).items():
                found.setdefault(column, []).append(text)
        return [pa.field(name, type_of(texts)) for name, texts in found.items()]

    def _texts(self, path: Path) -> dict[str, str | None]:
        return folder_texts(path.relative_to(self._root).parts[:-1])

    def _values(self, path: Path, columns: Sequence[pa.Field[Any]]) -> dict[str, Any]:
        """What a file's folders say of its rows.

        Raises:
            LakeError: a folder is of another kind of value.
        """
        texts = self._texts(path)
        try:
            return {column.name: value_of(texts.get(column.name), column.type) for column in columns}
        except pa.ArrowInvalid as error:
            raise LakeError(f"{self._options.name}: {path}: its folder is of no value of its column: {error}") from None

    # --- commits

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Keep everybody else from deciding and carrying out, in this process and others; waits for those at it."""
        folder = self._root / COMMITS
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / LOCK).open("ab") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX)
            except OSError as error:
                if error.errno not in _NO_LOCKS:
                    raise LakeError(f"{self._options.name}: {file.name} cannot be locked: {error.strerror}") from error
                logger.warning(
                    "%s: its file system has no flock (%s); let one query at a time write there and nobody compact "
                    "meanwhile",
                    self._options.name,
                    error.strerror,
                )
            yield  # closing the file lets go

    def _manifest(self, writer: str) -> Path:
        # A query's id can be anything; the digest is a file name.
        return self._root / COMMITS / f"{hashlib.sha256(writer.encode()).hexdigest()[:32]}.json"

    def _read(self, writer: str) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = json.loads(self._manifest(writer).read_bytes())
        except FileNotFoundError:
            return None
        return found

    def committed(self, writer: str) -> int | None:
        """See `LakeTable.committed`."""
        manifest = self._read(writer)
        return None if manifest is None else int(manifest["batch"])

    def commit(self, files: Sequence[NewFile], batch: Batch, overwrite: bool) -> bool:
        """See `LakeTable.commit`."""
        writer = batch.writer or f"once-{uuid.uuid4().hex}"
        with self._locked():
            if overwrite:
                self._carry_out_all()  # else what was decided before would come back after this
            else:
                self._carry_out(writer)
            last = self.committed(writer)
            if last is not None and last >= batch.number:
                return False
            removed = [self._name(path) for path in self._files()] if overwrite else []
            moves = {file.path: file.path.removeprefix(f"{STAGING}/") for file in files}
            self._decide(writer, batch.number, moves, removed)
            self._carry_out(writer)
            if batch.writer is None:
                self._manifest(writer).unlink(missing_ok=True)
        return True

    def _name(self, path: Path) -> str:
        return str(path.relative_to(self._root))

    def _decide(self, writer: str, number: int, moves: dict[str, str], removed: Sequence[str]) -> None:
        path = self._manifest(writer)
        path.parent.mkdir(parents=True, exist_ok=True)
        value = {"writer": writer, "batch": number, "moves": moves, "removed": list(removed), "done": False}
        _replace(path, value)

    def _carry_out(self, writer: str) -> None:
        """Do what a manifest says; once more does no harm."""
        manifest = self._read(writer)
        if manifest is None or manifest["done"]:
            return
        for folder in {(self._root / name).parent for name in manifest["moves"].values()} - {self._root}:
            folder.mkdir(parents=True, exist_ok=True)
        for staged, name in manifest["moves"].items():
            try:
                (self._root / staged).rename(self._root / name)
            except FileNotFoundError:
                if not (self._root / name).exists():
                    raise LakeError(
                        f"{self._options.name}: {staged} of batch {manifest['batch']} is gone before it was moved into "
                        f"place; remove {self._manifest(writer)} to give its rows up"
                    ) from None
        for name in manifest["removed"]:
            (self._root / name).unlink(missing_ok=True)
        for folder in {place for name in manifest["moves"].values() for place in (self._root / name).parents}:
            if folder.is_relative_to(self._root):
                sync(folder)
        sync(self._root)
        _replace(self._manifest(writer), {**manifest, "moves": {}, "removed": [], "done": True})

    def _carry_out_all(self) -> None:
        folder = self._root / COMMITS
        for path in sorted(folder.glob("*.json")) if folder.is_dir() else []:
            manifest = json.loads(path.read_bytes())
            if not manifest["done"]:
                self._carry_out(manifest["writer"])

    # --- the rest

    def known(self, paths: Sequence[str]) -> set[str]:
        """See `LakeTable.known`."""
        if not (self._root / COMMITS).is_dir():
            return set()
        with self._locked():
            manifests = [json.loads(path.read_bytes()) for path in (self._root / COMMITS).glob("*.json")]
        return {path for path in paths if any(path in manifest["moves"] for manifest in manifests)}

    def compact(self, target_bytes: int) -> int:
        """See `LakeTable.compact`."""
        if not self._root.is_dir():
            return 0
        with self._locked():
            return self._compacted(target_bytes)

    def _compacted(self, target_bytes: int) -> int:
        self._carry_out_all()
        by_folder: dict[str, list[Path]] = {}
        for path in self._files():
            if path.stat().st_size < target_bytes // 2:
                by_folder.setdefault(self._name(path).rpartition("/")[0], []).append(path)
        moves: dict[str, str] = {}
        merged: list[Path] = []
        for folder, paths in by_folder.items():
            if len(paths) > 1:
                schema = pa.unify_schemas([pq.read_schema(path) for path in paths])
                batches = (batch for path in paths for batch in file_batches(TableFile(str(path)), schema))
                prefix = "/".join(part for part in (STAGING, folder, "part") if part)
                files = write_files(batches, schema, self.location, prefix, self._options.compression, target_bytes)
                moves |= {file.path: file.path.removeprefix(f"{STAGING}/") for file in files}
                merged += paths
        if not merged:
            return 0
        writer = f"compaction-{uuid.uuid4().hex}"
        self._decide(writer, 0, moves, [self._name(path) for path in merged])
        self._carry_out(writer)
        self._manifest(writer).unlink(missing_ok=True)
        return len(merged)

    def files(self, conditions: Sequence[Condition] = ()) -> list[TableFile]:
        """See `LakeTable.files`."""
        columns = self._partition_columns()
        files = [TableFile(str(path), self._values(path, columns)) for path in self._there()]
        return [file for file in files if may_hold(file.values, conditions)]

    def schema(self) -> pa.Schema:
        """See `LakeTable.schema`; every file says what it holds."""
        return self._with_partitions(self._there())

    def _there(self) -> list[Path]:
        files = self._files()
        if not files:
            raise LakeError(f"{self._options.name} has no files")
        return files


def _replace(path: Path, value: object) -> None:
    """Write a JSON file so that it is there whole or not at all, also after a power failure."""
    draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    with draft.open("w") as file:
        json.dump(value, file)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    sync(path.parent)
