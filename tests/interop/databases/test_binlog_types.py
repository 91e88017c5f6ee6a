"""Every column type of a real MariaDB and a real MySQL: snapshot, binlog and the database's own text are equal."""

from __future__ import annotations

import contextlib
import json
import random
import struct
import uuid
from typing import Any

import pytest
from sql_servers import ONLY_MYSQL

from tianzhou.pipelines.binlog.charsets import CODECS, LATIN1, text_of
from tianzhou.pipelines.binlog.columns import Column, quoted

ROWS = 60
"""Rows of each test of a type."""


def texts(rng: random.Random, alphabet: str, most: int) -> list[str]:
    return ["", " ", "a ", "'", *["".join(rng.choices(alphabet, k=rng.randrange(most + 1))) for _ in range(ROWS)]]


def blobs(rng: random.Random, most: int, least: int = 0) -> list[bytes]:
    found = [b"\0" * least, b"\xff" * most, b"\xffA\xff"[:most], b"/0H/"[:most], b"a\0\0"[:most], b" "]
    return [
        raw for raw in [*found, *[rng.randbytes(rng.randint(least, most)) for _ in range(ROWS)]] if len(raw) >= least
    ]


def integers(bits: int, *, signed: bool) -> Any:
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    return lambda rng: [low, high, 0, 1, *[rng.randint(low, high) for _ in range(ROWS)]]


def decimals(precision: int, scale: int) -> Any:
    def make(rng: random.Random) -> list[str]:
        most = 10**precision - 1
        numbers = [
            0,
            1,
            -1,
            most,
            -most,
            *[rng.randint(-most, most) // 10 ** rng.randrange(precision) for _ in range(ROWS)],
        ]
        return [f"{'-' if n < 0 else ''}{abs(n) // 10**scale}.{abs(n) % 10**scale:0{scale or 1}d}" for n in numbers]

    return make


def floats(form: str) -> Any:
    def make(rng: random.Random) -> list[float]:
        found = [0.0, -0.0, 0.1, -1.5, 1e-30, 3.4028234e38, 16777217.0, 1234567.8]
        while len(found) < ROWS:
            (number,) = struct.unpack(form, rng.randbytes(struct.calcsize(form)))
            if number == number and abs(number) != float("inf"):
                found.append(number)
        return found

    return make


def clock(rng: random.Random, digits: int) -> str:
    time = f"{rng.randrange(24):02}:{rng.randrange(60):02}:{rng.randrange(60):02}"
    return f"{time}.{rng.randrange(10**digits):0{digits}d}" if digits else time


def dates(rng: random.Random) -> list[str]:
    return [
        "0000-00-00", "2026-00-10", "2026-11-00", "0001-01-01", "9999-12-31",
        *[f"{rng.randrange(1, 9999):04}-{rng.randrange(1, 13):02}-{rng.randrange(1, 29):02}" for _ in range(ROWS)],
    ]  # fmt: skip


def datetimes(digits: int) -> Any:
    return lambda rng: [f"{date} {clock(rng, digits)}" for date in dates(rng)] + ["0000-00-00 00:00:00"]


def timestamps(digits: int) -> Any:
    return lambda rng: [
        "0000-00-00 00:00:00", "1970-01-01 08:00:01", "2038-01-19 11:14:07",
        *[f"{rng.randrange(1971, 2038)}-{rng.randrange(1, 13):02}-{rng.randrange(1, 29):02} {clock(rng, digits)}"
          for _ in range(ROWS)],
    ]  # fmt: skip


def times(digits: int) -> Any:
    def make(rng: random.Random) -> list[str]:
        fixed = [
            "838:59:59",
            "-838:59:59",
            "00:00:00",
            "-00:00:01",
            "-00:00:00.5",
            "-12:00:00.999999",
            "00:00:00.000001",
        ]
        return fixed + [f"{rng.choice(['', '-'])}{rng.randrange(838)}:{clock(rng, digits)[3:]}" for _ in range(ROWS)]

    return make


def uuids(rng: random.Random) -> list[str]:
    found = ["00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff"]
    for version in range(16):
        for _ in range(6):
            raw = bytearray(rng.randbytes(16))
            raw[6] = raw[6] & 0x0F | version << 4
            if rng.random() < 0.8:
                raw[8] = raw[8] & 0x3F | 0x80
            if rng.random() < 0.3:
                raw[-2:] = b"\0\0"
            found.append(str(uuid.UUID(bytes=bytes(raw))))
    return found


def addresses6(rng: random.Random) -> list[str]:
    found = ["::", "::1", "::ffff:1.2.3.4", "::1.2.3.4", "::0.0.1.2", "1::", "fe80::1:0:0:1", "2001:db8::", "1:0:0:2::",
             "1:2:3:4:5:6:7:0", "0:2:3:4:5:6:7:8", "1:0:3:4:5:6:7:8", "1:0:0:4:0:0:7:8"]  # fmt: skip
    return found + [
        ":".join(rng.choice(["0", "0", f"{rng.randrange(1 << 16):x}"]) for _ in range(8)) for _ in range(ROWS)
    ]


MEMBERS = ["b", "a", "it''s", "x,y"[:1], "ü"]
LATIN = "".join(chr(code) for code in range(0x20, 0x7F)) + "äöüßé€"
ANY = LATIN + "漢字\x01\x02\x00\n😀 "
CYRILLIC = "абвгдеёж Z"
TYPES: dict[str, Any] = {
    "TINYINT": integers(8, signed=True),
    "TINYINT UNSIGNED": integers(8, signed=False),
    "SMALLINT": integers(16, signed=True),
    "SMALLINT UNSIGNED ZEROFILL": integers(16, signed=False),
    "MEDIUMINT": integers(24, signed=True),
    "MEDIUMINT UNSIGNED": integers(24, signed=False),
    "INT": integers(32, signed=True),
    "INT(5) UNSIGNED ZEROFILL": integers(32, signed=False),
    "BIGINT": integers(64, signed=True),
    "BIGINT UNSIGNED": integers(64, signed=False),
    "BOOLEAN": lambda rng: [0, 1, 2],
    "DECIMAL(10,2)": decimals(10, 2),
    "DECIMAL(38,0)": decimals(38, 0),
    "DECIMAL(65,30)": decimals(65, 30),
    "DECIMAL(9,9)": decimals(9, 9),
    "DECIMAL(20,1) UNSIGNED ZEROFILL": lambda rng: [
        "0", "1.5", *[f"{rng.randrange(10**19)}.{n % 10}" for n in range(ROWS)],
    ],
    "FLOAT": floats("<f"),
    "FLOAT(7,3)": lambda rng: [round(rng.uniform(-9999, 9999), 3) for _ in range(ROWS)],
    "DOUBLE": floats("<d"),
    "DOUBLE(20,4)": lambda rng: [rng.uniform(-1e9, 1e9) for _ in range(ROWS)],
    "BIT(1)": lambda rng: [0, 1],
    "BIT(9)": integers(9, signed=False),
    "BIT(64)": integers(64, signed=False),
    "YEAR": lambda rng: ["0000", 1901, 2155, *[rng.randint(1901, 2155) for _ in range(ROWS)]],
    "DATE": dates,
    "DATETIME": datetimes(0),
    "DATETIME(1)": datetimes(1),
    "DATETIME(3)": datetimes(3),
    "DATETIME(6)": datetimes(6),
    "TIMESTAMP NULL": timestamps(0),
    "TIMESTAMP(2) NULL": timestamps(2),
    "TIMESTAMP(5) NULL": timestamps(5),
    "TIMESTAMP(6) NULL": timestamps(6),
    "TIME": times(0),
    "TIME(1)": times(1),
    "TIME(3)": times(3),
    "TIME(6)": times(6),
    "CHAR(40) CHARACTER SET utf8mb4": lambda rng: texts(rng, ANY, 40),
    "CHAR(255) CHARACTER SET utf8mb4": lambda rng: texts(rng, ANY, 255),
    "CHAR(40) CHARACTER SET latin1": lambda rng: texts(rng, LATIN, 40),
    "VARCHAR(40) CHARACTER SET utf8mb4": lambda rng: texts(rng, ANY, 40),
    "VARCHAR(400) CHARACTER SET ucs2": lambda rng: texts(rng, LATIN, 400),
    "VARCHAR(40) CHARACTER SET utf16": lambda rng: texts(rng, ANY, 40),
    "VARCHAR(40) CHARACTER SET utf32": lambda rng: texts(rng, ANY, 40),
    "VARCHAR(40) CHARACTER SET koi8r": lambda rng: texts(rng, CYRILLIC, 40),
    "VARCHAR(40) CHARACTER SET utf8mb4 COLLATE utf8mb4_uca1400_ai_ci": lambda rng: texts(rng, ANY, 40),
    "VARCHAR(40) CHARACTER SET utf8mb4 COLLATE utf8mb4_0900_ai_ci": lambda rng: texts(rng, ANY, 40),
    "TEXT CHARACTER SET gb18030": lambda rng: texts(rng, ANY, 1000),
    "TINYTEXT CHARACTER SET cp1251": lambda rng: texts(rng, CYRILLIC, 40),
    "TEXT CHARACTER SET utf8mb4": lambda rng: texts(rng, ANY, 1000),
    "MEDIUMTEXT CHARACTER SET sjis": lambda rng: texts(rng, "漢字かな abc", 50),
    "LONGTEXT CHARACTER SET utf8mb3": lambda rng: texts(rng, LATIN, 100),
    "JSON": lambda rng: ['{"a": 1.0, "ü": [null, true]}', "[]", '"x"'],
    "BINARY(4)": lambda rng: blobs(rng, 4),
    "BINARY(255)": lambda rng: blobs(rng, 255),
    "VARBINARY(40)": lambda rng: blobs(rng, 40),
    "VARBINARY(400)": lambda rng: blobs(rng, 400),
    "TINYBLOB": lambda rng: blobs(rng, 255),
    "BLOB": lambda rng: blobs(rng, 3000),
    "MEDIUMBLOB": lambda rng: blobs(rng, 30),
    "LONGBLOB": lambda rng: blobs(rng, 30),
    "ENUM('b','a','it''s','x,y','ü')": lambda rng: ["b", "a", "it's", "x,y", "ü", "refused", 0],
    "SET('b','a','it''s','x','ü')": lambda rng: ["", "a,b", "x,a", "b,a,it's,x,ü", "ü,b", 5, 31],
    "SET(" + ",".join(f"'m{n}'" for n in range(64)) + ")": integers(64, signed=False),
    "ENUM(" + ",".join(f"'m{n}'" for n in range(300)) + ")": lambda rng: [
        1, 300, *[rng.randint(1, 300) for _ in range(ROWS)],
    ],
    r"ENUM('a\\b','new\nline','q''q','t\tb','\\n','\r')": lambda rng: [1, 2, 3, 4, 5, 6],
    r"SET('a\\b','new\nline','q''q')": lambda rng: list(range(8)),
    "UUID": uuids,
    "INET6": addresses6,
    "INET4": lambda rng: [
        "0.0.0.0", "255.255.255.255", "10.0.0.0",
        *[".".join(str(byte) for byte in rng.randbytes(4)) for _ in range(ROWS)],
    ],
    "VECTOR(5)": lambda rng: [struct.pack("<5f", *[rng.uniform(-9, 9) for _ in range(5)]) for _ in range(ROWS)],
    "POINT": lambda rng: [],
}  # fmt: skip


MARIADB_TYPES = {"UUID", "INET6", "INET4", "VARCHAR(40) CHARACTER SET utf8mb4 COLLATE utf8mb4_uca1400_ai_ci"}
MYSQL_TYPES = {
    "VARCHAR(40) CHARACTER SET utf8mb4 COLLATE utf8mb4_0900_ai_ci",
    "TEXT CHARACTER SET gb18030",
    "VECTOR(5)",
}


@pytest.mark.parametrize("definition", TYPES)
def test_snapshot_binlog_and_the_databases_text_are_equal(database, made, definition):
    if definition in (MYSQL_TYPES if database.name == "MariaDB" else MARIADB_TYPES):
        pytest.skip(f"{database.name} has no such type")
    rng = random.Random(definition)
    seen = made(f"v {definition}")
    values = [None, *TYPES[definition](rng)]
    database.insert(seen.name, [(number, value) for number, value in enumerate(values)])
    if definition == "POINT":
        database.do(f"INSERT INTO {seen.name} VALUES (9, ST_GeomFromText('POINT(1 2)', 4326))")
    snapshot = {row["id"]: row["v"] for row in seen.rows()}
    assert {change.row["id"]: change.row["v"] for change in seen.changes()} == snapshot
    assert len(snapshot) >= len(values)
    (column,) = [column for column in seen.table.columns if column.name == "v"]
    shown = database.do("SET time_zone = '+00:00'", f"SELECT id, {own_text(column)} FROM {seen.name}")
    database.do("SET time_zone = '+08:00'")
    assert [(number, value) for number, value in shown if not is_same(column, snapshot[number], value)] == []


DOCUMENTS = [
    "'null'", "'true'", "'-0.0'", "'1.0'", "'1e15'", "'1e16'", "'1e17'", "'123456789012345680000'", "'1e-5'",
    "'1e-4'", "'0.00001234'", "'1e300'", "'1.7976931348623157e308'", "'5e-324'", "'18446744073709551615'",
    "'-9223372036854775808'", "'-32769'", "'32768'", "'65536'", "'[]'", "'{}'", "'{\"\": {\"\": []}}'",
    "'[[[[[[1]]]]]]'", "CAST(CAST('1.10' AS DECIMAL(10,2)) AS JSON)", "CAST(CAST('-0.00' AS DECIMAL(30,20)) AS JSON)",
    "CAST(CAST('-12345678901234567890.12345' AS DECIMAL(65,30)) AS JSON)", "CAST(CAST('2026-11-30' AS DATE) AS JSON)",
    "CAST(CAST('-838:59:59' AS TIME) AS JSON)", "CAST(CAST('-00:00:00.5' AS TIME(6)) AS JSON)",
    "CAST(CAST('12:34:56.000001' AS TIME(6)) AS JSON)",
    "CAST(CAST('2026-11-30 12:34:56.123456' AS DATETIME(6)) AS JSON)", "JSON_ARRAY(TIMESTAMP('2026-11-30 01:02:03'))",
    "JSON_ARRAY(x'00ff41')", "JSON_ARRAY(CAST('a' AS BINARY))", "JSON_ARRAY(b'101')", "JSON_OBJECT('k', NULL)",
    "JSON_ARRAY(CAST(2026 AS YEAR))", "JSON_ARRAY(REPEAT('ü', 70000))",
    "JSON_OBJECT(REPEAT('k', 300), REPEAT('v', 128))", "JSON_ARRAY('\\b\\t\\n\\f\\r\\\\\\\"/ \\u007f \\u2028')",
    "JSON_QUOTE(CHAR(0, 1, 27, 31, 127 USING utf8mb4))", "CAST(ST_GeomFromText('POINT(1 2)') AS JSON)",
    "CAST(1.5E0 AS JSON)", "CAST(0.1E0 + 0.2E0 AS JSON)",
]  # fmt: skip
"""Documents of every type that JSON of MySQL stores, as SQL."""


def document(rng: random.Random, depth: int) -> Any:
    """Return a random document."""
    kind = rng.randrange(8 if depth else 6)
    if kind < 2:
        return rng.choice([None, True, False, "", "a", "ü😀\x01\n", 0, -1, 65535, 65536])
    if kind == 2:
        return rng.choice([-1, 1]) * rng.getrandbits(rng.choice([7, 15, 16, 31, 32, 63]))
    if kind < 5:
        (number,) = struct.unpack("<d", rng.randbytes(8))
        return number if abs(number) < float("inf") else rng.uniform(-1e6, 1e6)
    if kind == 5:
        return round(rng.uniform(-1e4, 1e4), rng.randrange(6))
    size = rng.randrange(9)
    if kind == 6:
        return [document(rng, depth - 1) for _ in range(size)]
    return {"".join(rng.choices('ab ü"', k=rng.randrange(9))): document(rng, depth - 1) for _ in range(size)}


@ONLY_MYSQL
def test_documents_of_mysql_have_the_databases_text(database, made):
    """MySQL logs a document in its binary form, which is converted to text here."""
    rng = random.Random(33)
    seen = made("v JSON")
    for number, sql in enumerate(DOCUMENTS):
        database.do(f"INSERT INTO {seen.name} VALUES ({number}, {sql})")
    several = [document(rng, 4) for _ in range(400)]
    several += [{f"key{n}": document(rng, 2) for n in range(9000)}]  # offsets of four bytes
    database.insert(seen.name, [(number, json.dumps(one)) for number, one in enumerate(several, 1000)])
    snapshot = {row["id"]: row["v"] for row in seen.rows()}
    found = {change.row["id"]: change.row["v"] for change in seen.changes()}
    assert len(found) == len(snapshot) == len(DOCUMENTS) + len(several)
    assert [
        (number, text[:99], snapshot[number][:99]) for number, text in found.items() if text != snapshot[number]
    ] == []


@pytest.mark.parametrize("charset", sorted({*CODECS, LATIN1} - {"gb18030"}))  # only MySQL has it
def test_character_sets_are_decoded_as_the_server_does(database, made, charset):
    """Every byte, or pair of bytes, that the server accepts as a character is that character or an error here."""
    seen = made("v VARBINARY(4)")
    wide = {"utf8", "utf8mb3", "utf8mb4", "ucs2", "utf16", "utf16le", "utf32"}
    if charset in wide:
        size = {"ucs2": "utf-16-be"}.get(charset, CODECS[charset])
        raws = [chr(code).encode(size) for code in range(0x20, 0x10000, 61) if not 0xD800 <= code < 0xE000]
    else:
        raws = [bytes([code]) for code in range(256)]
        raws += [bytes([first, second]) for first in range(0x81, 0xFF, 9) for second in range(0x40, 0xFF)]
    database.insert(seen.name, list(enumerate(raws)))
    server = {"utf8": "utf8mb3"}.get(charset, charset)
    shown = database.do(f"SELECT v, CONVERT(CAST(v AS CHAR CHARACTER SET {server}) USING utf8mb4) FROM {seen.name}")
    compared = 0
    for raw, text in shown:
        with contextlib.suppress(ValueError):
            found = text_of(raw, charset)
            if text is not None and "?" not in text and len(found) == len(text):
                compared += 1
                assert found == text, raw.hex()
    assert compared > 90


def own_text(column: Column) -> str:
    """Return the SQL expression that prints a column's value."""
    name = quoted(column.name)
    if column.spark == "BINARY":
        return f"TO_BASE64({name})"
    if column.kind in ("bit", "year") or "zerofill" in column.full_type:
        return f"CAST({name} + 0 AS CHAR)"
    if column.kind in ("float", "double"):
        return f"({name} * 1E0)"  # MySQL casts 15 digits only, but sends all
    return f"CONVERT(CAST({name} AS CHAR) USING utf8mb4)"


def is_same(column: Column, value: Any, text: str | None) -> bool:
    """Whether a change's value equals the database's text."""
    if value is None or text is None:
        return value is None and text is None
    if column.kind == "float":
        return struct.pack("<f", value) == struct.pack("<f", float(text))
    if column.kind == "double":
        return value == float(text)
    if column.kind == "timestamp":
        return value == f"{text}Z".replace(" ", "T")
    return str(value) == text.replace("\n", "") if column.spark == "BINARY" else str(value) == text
