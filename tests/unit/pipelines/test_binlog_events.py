"""Binlog events as changes: decoded, skipped and refused ones."""

import struct
import zlib

import pytest
import zstandard

from tianzhou.pipelines.binlog import events as e
from tianzhou.pipelines.binlog.captured import BinlogDecoder, Captured, ChangesLost
from tianzhou.pipelines.binlog.columns import Column
from tianzhou.pipelines.binlog.database import file_of
from tianzhou.pipelines.binlog.documents import document_text

ORDERS = Captured(
    "shop", "orders", (Column("id", "int", "int(11)"), Column("raw", "binary", "binary(4)", None, 4)), ("id",)
)
FILE = "bin.000007"
ID = (5).to_bytes(6, "little")


def event(kind: int, body: bytes, *, flags: int = 0) -> e.BinlogEvent:
    return e.BinlogEvent(kind, 1_700_000_000, flags, body, 99, e.HEADER_BYTES + len(body))


def text(raw: bytes) -> bytes:
    return bytes([len(raw)]) + raw


def table_map(
    names: tuple[bytes, ...] | None = (b"id", b"raw"), types: bytes = b"\x03\xfe", key: int = 0
) -> e.BinlogEvent:
    optional = b""
    if names is not None:
        listed = b"".join(text(name) for name in names)
        optional = bytes([4]) + text(listed) + bytes([8]) + text(bytes([key]))
    body = ID + b"\1\0" + text(b"shop") + b"\0" + text(b"orders") + b"\0"
    return event(e.TABLE_MAP, body + text(types) + text(b"\xfe\x04") + b"\0" + optional)


def row(number: int, raw: bytes) -> bytes:
    return b"\0" + struct.pack("<i", number) + text(raw)


def rows(kind: int, *images: bytes, present: bytes = b"\3") -> e.BinlogEvent:
    extra = b"\2\0" if kind in (30, 31, 32) else b""
    bitmaps = present * (2 if e.ROWS[kind] == e.UPDATE else 1)
    return event(kind, ID + b"\1\0" + extra + b"\2" + bitmaps + b"".join(images))


def query(statement: str, schema: str = "shop") -> e.BinlogEvent:
    body = struct.pack("<IIBHH", 1, 0, len(schema), 0, 0) + schema.encode() + b"\0" + statement.encode()
    return event(e.QUERY, body)


def found(*given: e.BinlogEvent) -> list[tuple]:
    reader = BinlogDecoder({("shop", "orders"): ORDERS})
    made = [change for place, one in enumerate(given) for change in reader.changes(one, FILE, 100 + place)]
    assert len({change.position for change in made}) == len(made)
    assert [change.position for change in made] == sorted(change.position for change in made)
    return [(change.op, change.key, change.row) for change in made]


@pytest.mark.parametrize("kind", [23, 30])
def test_bytes_have_their_declared_length(kind):
    given = found(table_map(), rows(kind, row(7, b"\xffA\0\0"), row(8, b"\xffA")))
    assert given == [("insert", {"id": number}, {"id": number, "raw": "/0EAAA=="}) for number in (7, 8)]


@pytest.mark.parametrize(("kind", "length"), [(166, b"\x81"), (169, b"\x82\0")])
def test_compressed_rows_are_decoded(kind, length):
    plain = row(7, b"abcd") * 3
    body = ID + b"\1\0" + (b"\2\0" if kind == 169 else b"") + b"\2\3"
    packed = event(kind, body + length + bytes([len(plain)]) + zlib.compress(plain))
    assert [key for _, key, _ in found(table_map(), packed)] == [{"id": 7}] * 3


def framed(one: e.BinlogEvent) -> bytes:
    return struct.pack("<IBIIIH", one.at, one.kind, 1, one.size, 0, 0) + one.body


def payload(*inner: e.BinlogEvent, algorithm: int = 0) -> e.BinlogEvent:
    raw = b"".join(framed(one) for one in inner)
    packed = zstandard.ZstdCompressor(write_content_size=False).compress(raw) if algorithm == 0 else raw

    def value(field: int, number: int) -> bytes:
        return bytes([field, 3, 252]) + number.to_bytes(2, "little")

    fields = value(1, len(packed)) + value(2, algorithm) + value(3, len(raw)) + b"\0"
    return event(e.TRANSACTION_PAYLOAD, fields + packed)


@pytest.mark.parametrize("algorithm", [0, 255])
def test_a_compressed_transaction_is_decoded(algorithm):
    given = payload(
        query("BEGIN"), table_map(), rows(30, row(1, b"a")), rows(31, row(1, b"a"), row(2, b"a")),
        event(e.XID, b"12345678"), algorithm=algorithm,
    )  # fmt: skip
    assert [(op, key) for op, key, _ in found(given)] == [
        ("insert", {"id": 1}), ("delete", {"id": 1}), ("insert", {"id": 2}),
    ]  # fmt: skip


def test_a_table_that_is_emptied_and_filled_again():
    given = found(query("TRUNCATE orders"), table_map(), rows(23, row(1, b"a")))
    assert [op for op, _, _ in given] == ["truncate", "insert"]


@pytest.mark.parametrize("kind", [2, 3, 5, 13, 14, 16, 27, 29, 33, 34, 35, 42, 160, 161, 162, 163, 164])
def test_events_without_rows_are_passed_over(kind):
    assert found(query("BEGIN") if kind == 2 else event(kind, b"")) == []


def test_an_event_that_may_be_ignored_is_passed_over():
    assert found(event(200, b"", flags=e.IGNORABLE)) == []


def test_rows_of_other_tables_are_passed_over():
    other = event(e.TABLE_MAP, table_map().body.replace(b"orders", b"others"))
    assert found(other, rows(30, row(1, b"a"))) == []


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ([event(200, b"")], "the event has the type 200, which is not known"),
        ([event(e.PARTIAL_UPDATE, b"")], "parts of JSON documents only"),
        ([event(e.INCIDENT, b"")], "the server says that it lost events"),
        ([event(18, b"")], "LOAD DATA is logged as a statement"),
        ([query("INSERT INTO orders VALUES (1)")], "logged as a statement.*: INSERT INTO orders"),
        ([query("ALTER TABLE orders ADD x INT")], r"changes its columns.*: ALTER TABLE orders ADD x INT"),
        ([table_map(names=None)], "binlog_row_metadata=FULL"),
        ([table_map(names=(b"number", b"raw"))], "the columns were number, raw and are id, raw now"),
        ([table_map(key=1)], "the primary key was raw and is id now"),
        ([table_map(types=b"\x08\xfe")], "column id was logged as type 8"),
        ([rows(30, row(1, b"a"))], "came before its columns"),
        ([table_map(), rows(30, row(1, b"a"), present=b"\1")], "binlog_row_image=FULL"),
        ([table_map(), rows(31, row(1, b"a"), row(1, b"b"), present=b"\1")], "binlog_row_image=FULL"),
        ([table_map(), rows(30, row(1, b"abcd")[:-2])], "column raw: the row is cut off"),
        ([table_map(), rows(30, row(1, b"a")), query("ROLLBACK")], "rolls a transaction back"),
        ([table_map(), rows(30, row(1, b"a")), event(e.XA_PREPARE, b"")], "an XA transaction is prepared"),
        ([payload(event(e.PARTIAL_UPDATE, b""))], "parts of JSON documents only"),
        ([payload(algorithm=7)], "the compression 7"),
        ([table_map(), event(166, ID + b"\1\0\2\3" + b"\x91\5abc")], "the compression 0x91 is not known"),
    ],
)
def test_events_that_cannot_be_followed_are_refused_by_name(given, reason):
    with pytest.raises(ChangesLost, match=rf"shop\.orders: the binlog cannot be followed at {FILE}:10\d: .*{reason}"):
        found(*given)


def test_an_event_whose_checksum_is_wrong():
    raw = framed(event(30, b"abc"))
    raw = raw[:9] + struct.pack("<I", len(raw) + 4) + raw[13:]
    assert e.event_of(raw + struct.pack("<I", zlib.crc32(raw)), checksum=True).body == b"abc"
    with pytest.raises(ValueError, match="checksum is wrong"):
        e.event_of(raw + b"1234", checksum=True)


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("000100" + "0c00" + "0b00" + "0100" + "050100" + "61", '{"a": 1}'),
        ("02" + "0300" + "0d00" + "040100" + "040000" + "05ffff", "[true, null, -1]"),
        ("0c" + "0561c3bc2201", '"aü\\"\\u0001"'),
        ("0b" + "000000000000f83f", "1.5"),
        ("0b" + "0000000000000080", "-0.0"),
        ("0b" + "0000901ec4bcd642", "100000000000000.0"),
        ("0b" + "00003426f56b0c43", "1e15"),
        ("0b" + "02eb2af2548b1143", "1234567890123456.5"),
        ("0b" + "f168e388b5f8e43e", "0.00001"),
        ("0b" + "bc89d897b2d29c3c", "1e-16"),
        ("0b" + "83b63ad29712b081", "-1.5e-300"),
        ("0a" + "ffffffffffffffff", "18446744073709551615"),
        ("0f0c08" + "0000000000000000", '"0000-00-00 00:00:00.000000"'),
        ("0ffc0261ff", '"base64:type252:Yf8="'),
        ("", "null"),
    ],
)
def test_json_documents_of_mysql(raw, shown):
    assert document_text(bytes.fromhex(raw)) == shown


def test_the_size_of_an_encrypted_binlog_file_has_no_header_of_encryption():
    assert [file_of(row) for row in (("bin.1", 700), ("bin.2", "700", "No"), ("bin.3", 700, "Yes"))] == [
        ("bin.1", 700), ("bin.2", 700), ("bin.3", 188),
    ]  # fmt: skip


def test_a_json_document_that_is_cut_off():
    with pytest.raises(ValueError, match="is cut off"):
        document_text(bytes.fromhex("000100" + "0c00" + "0b00"))
