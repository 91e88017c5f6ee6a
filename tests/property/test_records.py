"""Records round-trip with any contents; random bytes do no harm."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tianzhou.errors import CorruptRecord, ProtocolError
from tianzhou.model import MessageQueue
from tianzhou.records import codec
from tianzhou.records.checksum import crc32
from tianzhou.wire import bodies, json_dialect, pulled
from tianzhou.wire.batch import decode_batch, encode_batch
from tianzhou.wire.bodies.beans import Bean, Wrapper
from tianzhou.wire.compression import COMPRESSED, LZ4, ZLIB, ZSTD, compress, decompress
from tianzhou.wire.hashing import index_hash, java_hash
from tianzhou.wire.ids import address_text, offset_msg_id, parse_offset_msg_id
from tianzhou.wire.properties import decode_properties, encode_properties, get_property


def always(*strategies: st.SearchStrategy[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return `given` without a deadline, because the machine may be busy with other tests."""
    return lambda test: settings(deadline=None)(given(*strategies)(test))


MODULES = [import_module(module.name) for module in iter_modules(bodies.__path__, f"{bodies.__name__}.")]
BODIES = [value for module in MODULES for value in vars(module).values() if isinstance(value, (Bean, Wrapper))]

I32 = st.integers(-(2**31), 2**31 - 1)
I64 = st.integers(-(2**63), 2**63 - 1)
HOSTS = st.binary(min_size=4, max_size=4) | st.binary(min_size=16, max_size=16)
TEXT = st.text(st.characters(exclude_categories=["Cs"]))
NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x01\x02"), max_size=20)
VALUES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x02"), max_size=30)
PROPERTIES = st.dictionaries(NAMES, VALUES, max_size=8)

RECORDS = st.builds(
    codec.Record, topic=st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=140), queue_id=I32,
    queue_offset=I64, physical_offset=I64, flag=I32, sys_flag=I32, born_timestamp=I64, born_host=HOSTS, born_port=I32,
    store_timestamp=I64, store_host=HOSTS, store_port=I32, reconsume_times=I32, prepared_transaction_offset=I64,
    body=st.binary(max_size=300), properties=st.binary(max_size=300),
)  # fmt: skip


def as_stored(original: codec.Record, data: bytes) -> codec.Record:
    """Return the record as it is stored."""
    flags = original.sys_flag & ~0x30
    flags |= (0x10 if len(original.born_host) == 16 else 0) | (0x20 if len(original.store_host) == 16 else 0)
    fields: dict[str, Any] = {name: getattr(original, name) for name in original.__struct_fields__}
    return codec.Record(**(fields | {"sys_flag": flags, "body_crc": crc32(original.body), "size": len(data)}))


@always(RECORDS, st.binary(max_size=20), st.binary(max_size=20))
def test_records_come_back(original: codec.Record, before: bytes, behind: bytes) -> None:
    data = codec.encode_record(original)
    expected = as_stored(original, data)
    buffer = before + data + behind
    assert codec.decode_record(buffer, len(before), check_crc=True) == expected
    assert codec.decode_record(memoryview(buffer), len(before), check_crc=True) == expected
    assert codec.encode_record(expected) == data
    assert codec.peek(buffer, len(before))[0] == len(data)
    assert next(codec.decode_records(data + behind)) == expected


@always(RECORDS, st.data())
def test_a_changed_byte_is_survived(original: codec.Record, data: st.DataObject) -> None:
    stored = bytearray(codec.encode_record(original))
    at = data.draw(st.integers(0, len(stored) - 1))
    stored[at] ^= data.draw(st.integers(1, 255))
    for buffer in (bytes(stored), memoryview(stored)):
        try:
            found = codec.decode_record(buffer, check_crc=True)
        except CorruptRecord as error:
            known = error.size in (-1, codec.peek(stored)[0])
            assert known
        else:
            assert found.size == len(stored)


@always(st.binary(max_size=400), st.integers(0, 50))
def test_random_bytes_are_survived(data: bytes, offset: int) -> None:
    for magic in (b"", b"\xda\xa3\x20\xa7", b"\xda\xa3\x20\xab"):
        buffer = data[:4] + magic + data[4:]
        try:
            codec.decode_record(buffer, offset, check_crc=True)
        except CorruptRecord as error:
            assert error.size <= len(buffer)  # noqa: PT017
        assert list(codec.decode_records(buffer)) is not None
        pulled.decode_messages(buffer, "b")


@always(RECORDS.filter(lambda r: not r.sys_flag & 0xC1), st.integers(1, 4))
def test_both_ways_to_messages_agree(original: codec.Record, count: int) -> None:
    data = codec.encode_record(original) * count
    one_by_one = [m for r in codec.decode_records(data) for m in pulled.to_message(r, "b")]
    assert pulled.decode_messages(data, "b") == one_by_one
    assert len(one_by_one) == count


@always(PROPERTIES)
def test_properties_come_back(properties: dict[str, str]) -> None:
    data = encode_properties(properties)
    kept = {name: value for name, value in properties.items() if name and value}
    assert decode_properties(data) == kept
    assert decode_properties(data.removesuffix(b"\x02")) == kept
    assert decode_properties(data + encode_properties({"UNIQ_KEY": "x"})) == kept | {"UNIQ_KEY": "x"}


@always(st.binary(max_size=60) | st.lists(st.sampled_from([b"a", b"b", b"\x01", b"\x02", b"\xff"])).map(b"".join))
def test_one_property_is_what_the_whole_parse_says(data: bytes) -> None:
    parsed = decode_properties(data)
    for name in ("a", "b", "ab", "aa", "z", "KEYS"):
        assert get_property(data, name) == parsed.get(name)


@always(TEXT, TEXT)
def test_hashes_follow_their_definition(topic: str, key: str) -> None:
    h = 0
    units = f"{topic}#{key}".encode("utf-16-be")
    for i in range(0, len(units), 2):
        h = (31 * h + int.from_bytes(units[i : i + 2], "big")) & 0xFFFFFFFF
    signed = h - (1 << 32) if h >> 31 else h
    assert java_hash(f"{topic}#{key}") == signed
    assert index_hash(topic, key) == (0 if signed == -(2**31) else abs(signed))


@always(HOSTS, st.integers(0, 65_535), st.integers(0, 2**63 - 1))
def test_offset_message_ids_come_back(host: bytes, port: int, offset: int) -> None:
    assert parse_offset_msg_id(offset_msg_id(host, port, offset)) == (address_text(host), port, offset)


@always(st.lists(st.tuples(I32, st.binary(max_size=50), st.binary(max_size=50)), max_size=5))
def test_batches_come_back(entries: list[tuple[int, bytes, bytes]]) -> None:
    found = decode_batch(encode_batch(entries))
    assert [(flag, bytes(body), bytes(properties)) for flag, body, properties in found] == entries


@always(st.binary(max_size=80))
def test_random_batches_are_survived(data: bytes) -> None:
    try:
        entries = decode_batch(data)
    except ProtocolError:
        return
    assert sum(22 + len(body) + len(properties) for _, body, properties in entries) == len(data)


@always(st.binary(max_size=500), st.sampled_from([ZLIB, LZ4, ZSTD]), st.integers(1, 9))
def test_compression_comes_back(body: bytes, kind: int, level: int) -> None:
    assert decompress(compress(body, kind, level), COMPRESSED | kind, len(body)) == body


@always(st.binary(max_size=200), st.integers(0, 0x7FF))
def test_random_compressed_bodies_are_survived(data: bytes, sys_flag: int) -> None:
    with suppress(ProtocolError):
        assert len(decompress(data, sys_flag, 1000)) <= 1000


QUEUES = st.builds(MessageQueue, TEXT, TEXT, I32)
SCALARS = st.none() | st.booleans() | I64 | st.floats(allow_nan=False, allow_infinity=False) | TEXT
VALUES_OF_JSON = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(TEXT, inner, max_size=4)
        | st.dictionaries(I32, inner, max_size=4)
        | st.dictionaries(QUEUES, inner, max_size=3)
    ),
    max_leaves=20,
)


def without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_none(member) for key, member in value.items() if member is not None}
    return [without_none(item) for item in value] if isinstance(value, list) else value


@always(VALUES_OF_JSON, st.booleans())
def test_the_dialect_comes_back(value: Any, sort_keys: bool) -> None:
    expected = without_none(value)
    assert json_dialect.loads(json_dialect.dumps(value, sort_keys=sort_keys)) == expected
    assert json_dialect.loads(json_dialect.dumps_pretty(value, sort_keys=sort_keys)) == expected
    json.loads(json_dialect.dumps_standard(value, sort_keys=sort_keys))


@always(st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner), max_leaves=20))
def test_the_standard_form_is_standard(value: Any) -> None:
    data = json_dialect.dumps_standard(value)
    assert data.isascii()
    assert json.loads(data) == without_none(value)


@always(st.binary(max_size=60) | st.text("{}[]:,'\"0a1.-\\ux/*$ref ntfS", max_size=40).map(str.encode))
def test_random_json_is_survived(data: bytes) -> None:
    try:
        json_dialect.loads(data)
    except ProtocolError as error:
        assert str(error).startswith("JSON at character ")  # noqa: PT017


@always(VALUES_OF_JSON)
def test_bodies_of_any_shape_are_survived(value: Any) -> None:
    data = json_dialect.dumps(value)
    for body_codec in BODIES:
        with suppress(ProtocolError):
            body_codec.loads(data)
