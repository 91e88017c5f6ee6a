"""Column types of MySQL 8 and 9 and MariaDB 10.11, with their values in a change and their Spark types. Pure.

One table of types serves the snapshot and the binlog. A type's `select` is the SQL that a snapshot reads a column with,
`read` turns its result into the value of the change, and `decode` does the same with the bytes of a row event. Both
end in the same functions, so a row that was there and a row that changed have equal values.

| columns | value in JSON | Spark type |
|---|---|---|
| TINYINT to BIGINT, BIT, YEAR | number | TINYINT to DECIMAL(20,0) |
| DECIMAL | text with all digits | DECIMAL |
| FLOAT | shortest number that is the same FLOAT | FLOAT |
| DOUBLE | number | DOUBLE |
| CHAR, VARCHAR, TEXT, ENUM, SET, JSON, UUID, INET4, INET6 | text | STRING |
| BINARY, VARBINARY, BLOB, VECTOR, geometries | base64 of all bytes | BINARY |
| DATE | `2026-11-21`, `0000-00-00` | DATE |
| DATETIME | `2026-11-21 08:00:00.123` | TIMESTAMP_NTZ |
| TIMESTAMP | `2026-11-21T08:00:00.123Z` | TIMESTAMP |
| TIME | `-838:59:59.123` | STRING |
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from tianzhou.pipelines.binlog import values as v
from tianzhou.pipelines.binlog.charsets import is_known, text_of
from tianzhou.pipelines.binlog.documents import document_text

Decode = Callable[[bytes, int], tuple[Any, int]]
"""Reads a value of a row event. It takes the bytes and the value's offset, and returns the value and its end."""
_MEMBER: Final = re.compile(r"'((?:[^']|'')*)'")
_ESCAPED: Final = re.compile(r"''|\\(.)", re.DOTALL)
"""Quotes, backslashes, line breaks and zero bytes of a member, as in COLUMN_TYPE."""
_UNSIGNED_SPARK: Final = {"TINYINT": "SMALLINT", "SMALLINT": "INT", "INT": "BIGINT", "BIGINT": "DECIMAL(20,0)"}


@dataclass(frozen=True)
class Column:
    """A column as information_schema describes it.

    Attributes:
        name: name of the column.
        kind: the type without sizes, in lower case: `varchar`.
        full_type: the declared type: `varchar(40)`, `enum('a','b')`.
        charset: the character set; None for other types than text.
        size_bytes: maximum size in bytes of a text or binary value; None for other types.
        fraction_digits: digits of a second's fraction.
        precision: digits of a DECIMAL.
        scale: digits after a DECIMAL's point.
    """

    name: str
    kind: str
    full_type: str
    charset: str | None = None
    size_bytes: int | None = None
    fraction_digits: int = 0
    precision: int = 0
    scale: int = 0

    @property
    def unsigned(self) -> bool:
        """Whether the number has no sign; ZEROFILL implies it."""
        return "unsigned" in self.full_type or "zerofill" in self.full_type

    @property
    def members(self) -> list[str]:
        """The members of an ENUM or a SET, in order of declaration."""
        return [_ESCAPED.sub(_unescaped, member) for member in _MEMBER.findall(self.full_type)]

    @property
    def two_digit_year(self) -> bool:
        """Whether it is MariaDB's YEAR(2)."""
        return self.full_type == "year(2)"

    @property
    def refused(self) -> str | None:
        """The reason why the column cannot be captured; None if it can."""
        if self.kind not in TYPES:
            return f"has the type {self.full_type}, which is not decoded"
        if "compressed" in self.full_type.lower():
            return "is COMPRESSED, which is not decoded"
        if self.kind in TEXTS | {"enum", "set"} and not is_known(self.charset or ""):
            return f"has the character set {self.charset}, which is not decoded"
        return None

    @property
    def spark(self) -> str:
        """The Spark type that holds every value of the column."""
        return TYPES[self.kind].spark(self)

    @property
    def select(self) -> str:
        """The SQL expression with which a snapshot reads the column."""
        return TYPES[self.kind].select.format(quoted(self.name))

    def read(self, value: Any) -> Any:
        """Return the value of a change for a result of `select`."""
        return None if value is None else TYPES[self.kind].read(self, value)

    def decoder(self, code: int, metadata: bytes) -> Decode | None:
        """Return the reader of the column's values in row events; None if the binlog has another type.

        Args:
            code: the type in the table map.
            metadata: metadata of the type in the table map.
        """
        return TYPES[self.kind].decoder(self, code, metadata)


@dataclass(frozen=True)
class Type:
    """A column type and its conversions.

    Attributes:
        spark: returns the Spark type.
        select: SQL, with `{}` for the quoted name.
        read: converts the SQL's result to the value.
        decoder: returns the reader of row events.
    """

    spark: Callable[[Column], str]
    select: str
    read: Callable[[Column, Any], Any]
    decoder: Callable[[Column, int, bytes], Decode | None]


def _unescaped(found: re.Match[str]) -> str:
    return "'" if found[1] is None else {"n": "\n", "r": "\r", "0": "\0"}.get(found[1], found[1])


def quoted(name: str) -> str:
    """Return a name quoted for SQL."""
    return "`" + name.replace("`", "``") + "`"


def _integer(code: int, size: int, spark: str) -> Type:
    def decoder(column: Column, found: int, _metadata: bytes) -> Decode | None:
        signed = not column.unsigned
        return v.fixed(size, lambda raw: int.from_bytes(raw, "little", signed=signed)) if found == code else None

    return Type(
        lambda column: _UNSIGNED_SPARK[spark] if column.unsigned else spark, "{}", lambda _, value: int(value), decoder
    )


def _stored(column: Column, raw: bytes) -> Any:
    """Return the value of bytes as the server stores them: text of the column's character set, or base64."""
    if column.kind in TEXTS:
        return text_of(raw, column.charset or "")
    if column.kind == "binary":
        raw = raw.ljust(column.size_bytes or 0, b"\0")
    return v.bytes_text(raw)


def _bytes_decoder(column: Column, code: int, metadata: bytes) -> Decode | None:
    size = v.length_size(code, metadata)
    return None if size is None else v.prefixed(size, lambda raw: _stored(column, raw))


def _geometry_decoder(_column: Column, code: int, metadata: bytes) -> Decode | None:
    return v.prefixed(metadata[0], v.bytes_text) if code == v.GEOMETRY else None


def _json_decoder(_column: Column, code: int, metadata: bytes) -> Decode | None:
    return v.prefixed(metadata[0], document_text) if code == v.JSON else None


def _double(code: int, size: int, spark: str, of: Callable[[float], float]) -> Type:
    def decoder(_column: Column, found: int, _metadata: bytes) -> Decode | None:
        return v.fixed(size, lambda raw: of(v.real(raw))) if found == code else None

    # The product has all digits. The column alone is printed with fewer.
    return Type(lambda _: spark, "({} * 1E0)", lambda _, value: of(float(value)), decoder)


def _decimal_decoder(column: Column, code: int, metadata: bytes) -> Decode | None:
    if code != v.NEWDECIMAL or (metadata[0], metadata[1]) != (column.precision, column.scale):
        return None
    size = v.decimal_size(column.precision, column.scale)
    return v.fixed(size, lambda raw: v.decimal_text(raw, column.precision, column.scale))


def _timed(code: int, size: int, of: Callable[[bytes, int], str]) -> Callable[[Column, int, bytes], Decode | None]:
    def decoder(column: Column, found: int, metadata: bytes) -> Decode | None:
        digits = column.fraction_digits
        if found != code or metadata[0] != digits:
            return None
        return v.fixed(size + (digits + 1) // 2, lambda raw: of(raw, digits))

    return decoder


def _bit_decoder(column: Column, code: int, metadata: bytes) -> Decode | None:
    bits = metadata[0] + 8 * metadata[1] if code == v.BIT else 0
    if column.full_type != f"bit({bits})":
        return None
    return v.fixed((bits + 7) // 8, lambda raw: int.from_bytes(raw, "big"))


def _member_decoder(code: int, of: Callable[[Column, int], str]) -> Callable[[Column, int, bytes], Decode | None]:
    def decoder(column: Column, found: int, metadata: bytes) -> Decode | None:
        if found != v.STRING or metadata[0] != code:
            return None
        return v.fixed(metadata[1], lambda raw: of(column, int.from_bytes(raw, "little")))

    return decoder


def _enum(column: Column, number: int) -> str:
    return v.enum_text(number, column.members)


def _set(column: Column, mask: int) -> str:
    return v.set_text(mask, column.members)


def _address_decoder(size: int, of: Callable[[bytes], str]) -> Callable[[Column, int, bytes], Decode | None]:
    """Return a decoder of MariaDB's types of fixed size, which are BINARY in the binlog."""

    def decoder(_column: Column, code: int, metadata: bytes) -> Decode | None:
        if code != v.STRING or v.string_size(metadata) != size:
            return None
        return v.prefixed(1, lambda raw: of(raw.ljust(size, b"\0")))

    return decoder


def _year(column: Column, number: int) -> int:
    year = 1900 + number if number else 0
    return year % 100 if column.two_digit_year else year


def _year_decoder(column: Column, code: int, _metadata: bytes) -> Decode | None:
    return v.fixed(1, lambda raw: _year(column, raw[0])) if code == v.YEAR else None


def _date_decoder(_column: Column, code: int, _metadata: bytes) -> Decode | None:
    return v.fixed(3, v.date_text) if code in (v.DATE, v.NEWDATE) else None


def _same(spark: str) -> Callable[[Column], str]:
    return lambda _: spark


def _read_text(_column: Column, value: Any) -> str:
    return str(value)


_TEXT: Final = Type(_same("STRING"), "CAST({} AS BINARY)", _stored, _bytes_decoder)
_BYTES: Final = Type(_same("BINARY"), "CAST({} AS BINARY)", _stored, _bytes_decoder)
_GEOMETRY: Final = Type(_same("BINARY"), "{}", lambda _, raw: v.bytes_text(raw), _geometry_decoder)
TEXTS: Final = frozenset({"char", "varchar", "tinytext", "text", "mediumtext", "longtext"})
TYPES: Final[dict[str, Type]] = {
    "tinyint": _integer(v.TINY, 1, "TINYINT"),
    "smallint": _integer(v.SHORT, 2, "SMALLINT"),
    "mediumint": _integer(v.INT24, 3, "INT"),
    "int": _integer(v.LONG, 4, "INT"),
    "bigint": _integer(v.LONGLONG, 8, "BIGINT"),
    "bit": Type(_same("DECIMAL(20,0)"), "CAST({} AS UNSIGNED)", lambda _, value: int(value), _bit_decoder),
    "year": Type(_same("SMALLINT"), "({} + 0)", lambda _, value: int(value), _year_decoder),
    "decimal": Type(
        lambda column: f"DECIMAL({column.precision},{column.scale})" if column.precision <= 38 else "STRING",
        "{}",
        lambda column, value: v.fixed_point(value, column.scale),
        _decimal_decoder,
    ),
    "float": _double(v.FLOAT, 4, "FLOAT", v.shortest_float),
    "double": _double(v.DOUBLE, 8, "DOUBLE", float),
    **dict.fromkeys(TEXTS, _TEXT),
    **dict.fromkeys(("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob", "vector"), _BYTES),
    **dict.fromkeys(
        ("geometry", "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon",
         "geometrycollection", "geomcollection"), _GEOMETRY,
    ),
    "json": Type(_same("STRING"), "CAST({} AS CHAR CHARACTER SET utf8mb4)", _read_text, _json_decoder),
    "enum": Type(_same("STRING"), "({} + 0)", lambda column, value: _enum(column, int(value)),
                 _member_decoder(v.ENUM, _enum)),
    "set": Type(_same("STRING"), "CAST({} AS UNSIGNED)", lambda column, value: _set(column, int(value)),
                _member_decoder(v.SET, _set)),
    "date": Type(_same("DATE"), "CAST({} AS CHAR)", _read_text, _date_decoder),
    "datetime": Type(_same("TIMESTAMP_NTZ"), "CAST({} AS CHAR)", _read_text, _timed(v.DATETIME2, 5, v.datetime_text)),
    "timestamp": Type(
        _same("TIMESTAMP"), "CAST({} AS CHAR)", lambda _, text: v.instant_text(str(text)),
        _timed(v.TIMESTAMP2, 4, v.timestamp_text),
    ),
    "time": Type(_same("STRING"), "CAST({} AS CHAR)", _read_text, _timed(v.TIME2, 3, v.time_text)),
    "uuid": Type(_same("STRING"), "CAST({} AS CHAR)", _read_text, _address_decoder(16, v.uuid_text)),
    "inet6": Type(_same("STRING"), "CAST({} AS CHAR)", _read_text, _address_decoder(16, v.inet6_text)),
    "inet4": Type(_same("STRING"), "CAST({} AS CHAR)", _read_text, _address_decoder(4, v.inet4_text)),
}  # fmt: skip
"""The table of types, by DATA_TYPE of information_schema.COLUMNS."""
