"""How the rows of a partitioned table are divided among folders, and what a file's folder says of its rows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from tianzhou.errors import ConfigError
from tianzhou.spark.lake.options import Part
from tianzhou.spark.lake.tables import LakeError

NULL_FOLDER: Final = "__HIVE_DEFAULT_PARTITION__"
"""What stands in a folder's name for null."""
LONGEST_NAME: Final = 255
LOOSE_NAME: Final = 60
SHOWN: Final = 40
_FORMATS: Final = {"year": "%Y", "month": "%Y-%m", "day": "%Y-%m-%d", "hour": "%Y-%m-%d-%H"}
_SPECIAL: Final = re.compile(r"""[\x00-\x1f"#%'*/:=?\\\x7f{\[\]^]""")
"""What Spark and Hive write as % and a number in folders' names."""
_UNUSUAL: Final = re.compile(r"[^A-Za-z0-9._=-]")
_SEPARATOR: Final = "\x1f"
_ABSENT: Final = "\x00"

Values = tuple[str | None, ...]
"""What the rows of a partition have in common, as text, in the order of the parts."""


@dataclass(frozen=True, slots=True)
class Division:
    """How rows are divided; goes with the tasks.

    Attributes:
        parts: by what.
        in_files: whether the columns stay in the files; else only the table, or the folder, knows their values.
        exact: whether folders' names have to say the values.
    """

    parts: tuple[Part, ...]
    in_files: bool = False
    exact: bool = False

    def of_files(self, schema: pa.Schema) -> pa.Schema:
        """The schema of files for rows of a schema."""
        if self.in_files:
            return schema
        gone = {part.column for part in self.parts}
        return pa.schema([field for field in schema if field.name not in gone])

    def split(self, rows: pa.Table) -> Iterator[tuple[Values, pa.Table]]:
        """The rows of each partition, in their order.

        Raises:
            LakeError: a text is empty that no partition could tell from null.
        """
        texts = [self._text(part, rows.column(part.column).combine_chunks()) for part in self.parts]
        joined: Any = pc.binary_join_element_wise(*texts, _SEPARATOR, null_handling="replace", null_replacement=_ABSENT)
        codes = pc.dictionary_encode(joined).indices
        order = pc.sort_indices(codes)
        codes = codes.take(order)
        ends = [*(index + 1 for index, same in enumerate(_same_as_next(codes)) if not same), len(codes)]
        begin = 0
        sorted_rows = rows if len(ends) == 1 else rows.take(order)
        for end in ends:
            first = order[begin].as_py()
            yield tuple(text[first].as_py() for text in texts), sorted_rows.slice(begin, end - begin)
            begin = end

    def _text(self, part: Part, column: Any) -> Any:
        """A column's values as text, so far as the division distinguishes them."""
        if part.transform is not None:
            if types.is_timestamp(column.type):
                # As UTC, whatever zone the column is shown in.
                column = column.cast(pa.timestamp("us", "UTC") if column.type.tz else pa.timestamp("us"))
                column = column.cast(pa.timestamp("us"))
            return pc.strftime(column, format=_FORMATS[part.transform])
        text = column.cast(pa.string())
        if not self.in_files and _is_text(column.type) and pc.any(pc.equal(text, pa.scalar(""))).as_py():
            raise LakeError(
                f"column {part.column}: a row has an empty text, which a partition cannot tell from null; write "
                "another text, or partition by another column"
            )
        return text

    def folder(self, values: Values) -> str:
        """Where files of a partition go, below the table's folder of files.

        Raises:
            LakeError: a value is too long for a folder's name that has to say it.
        """
        names = []
        for part, value in zip(self.parts, values, strict=True):
            text = NULL_FOLDER if value is None else value
            if not self.exact:
                # The table itself says which partition a file is of.
                names.append(_UNUSUAL.sub("_", f"{part.name}={text}")[:LOOSE_NAME])
                continue
            name = f"{_escaped(part.name)}={_escaped(text)}"
            if len(name.encode()) > LONGEST_NAME:
                raise LakeError(
                    f"column {part.column}: the text {_beginning(text)} of {len(text)} letters makes a folder's name "
                    f"of {len(name.encode())} bytes, and {LONGEST_NAME} are the most; partition by another column, by "
                    f"substring({part.column}, 1, 80) or sha1({part.column}) as a column of its own, or write a Delta "
                    "or Iceberg table, which keep such texts in their log. Nothing of this batch is in the table"
                )
            names.append(name)
        return "/".join(names)


def _is_text(kind: pa.DataType) -> bool:
    return types.is_string(kind) or types.is_large_string(kind)


def _same_as_next(codes: Any) -> list[bool]:
    if len(codes) < 2:
        return []
    return pc.equal(codes.slice(0, len(codes) - 1), codes.slice(1)).to_pylist()  # type: ignore[no-any-return]


def _beginning(text: str) -> str:
    """A text as it may be shown, so far as tells which it is."""
    return repr(text if len(text) <= SHOWN else text[:SHOWN] + "…")


def _escaped(text: str) -> str:
    return _SPECIAL.sub(lambda found: f"%{ord(found[0]):02X}", text)


def check_parts(parts: Sequence[Part], rows: pa.Schema, name: str, *, in_files: bool) -> None:
    """See that rows can be divided so.

    Args:
        parts: by what.
        rows: the rows' schema.
        name: the table, for messages.
        in_files: see `Division`.

    Raises:
        ConfigError: they cannot; names the column.
    """
    for part in parts:
        index = rows.get_field_index(part.column)
        if index < 0:
            raise ConfigError(
                f"{name} is partitioned by {part}, and the rows have no column {part.column}; they have "
                f"{', '.join(rows.names)}"
            )
        kind = rows.field(index).type
        if part.transform is None:
            fits = _is_text(kind) or types.is_integer(kind) or types.is_boolean(kind) or types.is_date32(kind)
            wanted = "texts, whole numbers, booleans and dates; for times Iceberg has day() and hour()"
        else:
            fits = types.is_timestamp(kind) or (types.is_date32(kind) and part.transform != "hour")
            wanted = "timestamps" if part.transform == "hour" else "timestamps and dates"
        if not fits:
            raise ConfigError(
                f"{name} is partitioned by {part}, and column {part.column} is {kind}; that goes with {wanted}"
            )
    if not in_files and parts and {part.column for part in parts} >= set(rows.names):
        raise ConfigError(f"{name} is partitioned by all of its columns; leave at least one to be in the files")


def agreed(wanted: Sequence[Part], there: Sequence[Part], name: str) -> tuple[Part, ...]:
    """How a table that is there is partitioned.

    Raises:
        ConfigError: partitionBy asks for something else.
    """
    if wanted and tuple(wanted) != tuple(there):
        how = f"partitioned by {listed(there)}" if there else "not partitioned"
        raise ConfigError(
            f"partitionBy={listed(wanted)}: {name} is {how}; leave partitionBy out, or write into a table of its own"
        )
    return tuple(there)


def listed(parts: Sequence[Part]) -> str:
    """Parts as `partitionBy` has them."""
    return ", ".join(map(str, parts))


def folder_texts(folders: Sequence[str]) -> dict[str, str | None]:
    """What folders' names of the form `column=value` say."""
    found: dict[str, str | None] = {}
    for folder in folders:
        column, equals, text = folder.partition("=")
        if equals:
            found[unquote(column)] = None if text == NULL_FOLDER else unquote(text)
    return found


def value_of(text: str | None, kind: pa.DataType) -> Any:
    """What a text of a folder's name is, of a type.

    Raises:
        pa.ArrowInvalid: it is none.
    """
    return None if text is None else pa.scalar(text).cast(kind).as_py()


def type_of(texts: Sequence[str | None]) -> pa.DataType:
    """The type of a column that only folders' names tell of: whole numbers, dates or texts."""
    known = [text for text in texts if text is not None]
    if known and all(re.fullmatch(r"-?\d{1,18}", text) for text in known):
        return pa.int64()
    if known and all(re.fullmatch(r"\d{4}-\d\d-\d\d", text) for text in known):
        return pa.date32()
    return pa.string()


def parts_of(columns: Sequence[str]) -> tuple[Part, ...]:
    """Parts that are columns."""
    return tuple(Part(column) for column in columns)
