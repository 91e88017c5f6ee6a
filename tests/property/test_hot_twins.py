"""The compiled twin of the hot functions, compared with the pure one: the same results or the same errors, for any
input.
"""

from __future__ import annotations

import json
import mmap
import struct
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import Struct, structs

from hot_stores import compiled_store
from tianzhou._hot import LogCursor, QueueCursor, frames, headers, properties, records, sources
from tianzhou._hot.cursors import NewRecord
from tianzhou.store.results import PutResult, PutStatus
from tianzhou.wire.command import Command, decode
from tianzhou.wire.hashing import tags_code

compiled = pytest.importorskip("tianzhou._hot._compiled", reason="the compiled twin was not built here")
pytestmark = pytest.mark.skipif(
    sources.digest() != compiled.SOURCE, reason="the compiled twin was built from other sources"
)

MAX_FRAME = 1 << 20
GOLDEN = Path(__file__).parents[1] / "golden/wire"
I32 = st.integers(-(2**31), 2**31 - 1)
I64 = st.integers(-(2**63), 2**63 - 1)
ANY_NUMBER = st.integers(-(2**66), 2**66) | I32 | st.sampled_from([0, 1, 2**31, -(2**31) - 1, 2**63, -(2**63) - 1])


def outcome(attempt: Callable[..., Any], *arguments: Any) -> Any:
    """Return the result of a call: a value, or the type and text of an error."""
    try:
        return attempt(*arguments)
    except Exception as error:  # noqa: BLE001 - both twins have to fail alike
        return type(error), str(error)


def told(found: Any) -> Any:
    """Return the result of `split` with the types of the headers, because headers compare only by their fields."""
    if isinstance(found[0], list):
        return [type(command.header) for command in found[0]], found
    return found


def same_split(data: bytes, start: int = 0, end: int | None = None, max_frame: int = MAX_FRAME) -> list[Command]:
    end = len(data) if end is None else end
    expected = outcome(frames.split, data, start, end, max_frame, decode)
    found = outcome(compiled.split, data, start, end, max_frame, decode)
    assert told(found) == told(expected)
    if isinstance(found[0], list):
        for mine, others in zip(found[0], expected[0], strict=True):
            assert repr(mine) == repr(others)
            assert type(mine.fields) is dict
        return list(found[0])
    return []


def framed(header: bytes, body: bytes = b"") -> bytes:
    return struct.pack(">II", 4 + len(header) + len(body), len(header)) + header + body


# Frames


@cache
def recorded() -> list[bytes]:
    lines = [line for path in sorted(GOLDEN.glob("*.jsonl")) for line in path.read_text().splitlines()]
    return [bytes.fromhex(note["hex"]) for note in map(json.loads, lines) if "hex" in note]


def test_recorded_frames_are_split_alike_and_the_ordinary_ones_are_scanned() -> None:
    scanned = 0
    for frame in recorded():
        same_split(frame)
        with suppress(AssertionError):
            scanned += compiled.split(frame, 0, len(frame), MAX_FRAME, refuse)[1] > 0
    assert scanned >= 500
    joined = b"".join(recorded())
    same_split(joined, max_frame=1 << 24)


def test_frames_of_all_kinds_keep_their_attributes_in_the_same_places() -> None:
    assert len(frames.FRAMES) == 5
    for kind in frames.FRAMES:
        assert kind.__struct_fields__ == frames.FRAMES[0].__struct_fields__
        assert kind.__basicsize__ == frames.FRAMES[0].__basicsize__


def refuse(frame: memoryview) -> Command:
    raise AssertionError("not a usual one")


@given(st.data())
def test_damaged_recorded_frames_are_split_alike(data: st.DataObject) -> None:
    hot = [frame for frame in recorded() if frame[8:16] == b'{"code":']
    frame = bytearray(data.draw(st.sampled_from(hot)))
    (size,) = struct.unpack_from(">I", frame, 4)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(8, min(len(frame), 8 + size) - 1))
        piece = data.draw(
            st.sampled_from(
                [b'"', b"\\", b"\\u0001", b"\\n", b"0", b"-", b"}", b",", b" ", b"\xff", b"\xc3\xa9", b"null", b"1.5"]
            )
            | st.binary(min_size=1, max_size=2)
        )  # fmt: skip
        how = data.draw(st.sampled_from(["change", "insert", "remove"]))
        if how == "change":
            frame[at : at + len(piece)] = piece
        elif how == "insert":
            frame[at:at] = piece
            size += len(piece)
        else:
            del frame[at]
            size -= 1
    if data.draw(st.booleans()):
        struct.pack_into(">II", frame, 0, len(frame) - 4, max(size, 0))
    same_split(bytes(frame), end=data.draw(st.sampled_from([len(frame), max(len(frame) - 3, 0)])))


KINDS = {
    310: headers.SendHeaderV2, 320: headers.SendHeaderV2, 10: headers.SendHeader, 11: headers.PullHeader,
    361: headers.PullHeader, 0: headers.SendReplyHeader, 19: headers.PullReplyHeader, 325: headers.SendHeaderV2,
}  # fmt: skip
KIND_OF = ((headers.Int32, "i"), (headers.Int64, "l"), (headers.Switch, "b"), (str, "s"))


def layout_of(header: type[Struct]) -> list[tuple[str, str, bool]]:
    """Return the fields of a header: name on the wire, type of value, whether it is required."""
    return [(field.encode_name, kind_of(field.type), field.required) for field in structs.fields(header)]


def kind_of(annotation: Any) -> str:
    known = next((kind for given, kind in KIND_OF if given == annotation), "")
    return known or next(filter(None, map(kind_of, get_args(annotation))), "")


ODD_TEXT = st.sampled_from(
    ["", "0", "-0", "007", "+1", "1.0", "1e3", "null", "NULL", "true", "TRUE", "false", "2147483648", "-2147483649",
     "9223372036854775807", "9223372036854775808", "123456789012345678", "1234567890123456789", " 1", "1_0", "٣"]
)  # fmt: skip
TEXT = st.text(st.characters(codec="utf-8") | st.sampled_from('\x00\x01\x02\x1f\x7f\u2028"\\/\n\ud7ff'), max_size=80)
ESCAPES = ("none", "json", "upper", "all")


def spelled(text: str, how: str) -> str:
    """Return a JSON string in one of the usual spellings."""
    if how == "none":
        return json.dumps(text, ensure_ascii=False)
    if how == "json":
        return json.dumps(text)
    if how == "upper":
        return '"' + "".join(c if c.isalnum() and c.isascii() else escape(c) for c in text) + '"'
    return '"' + "".join(map(escape, text)) + '"'


def escape(c: str) -> str:
    units = c.encode("utf-16-be")
    return "".join(f"\\u{units[i]:02X}{units[i + 1]:02X}" for i in range(0, len(units), 2))


@st.composite
def hot_headers(draw: st.DrawFn) -> bytes:
    code = draw(st.sampled_from(sorted(KINDS)))
    rows = layout_of(KINDS[code])
    chosen = [row for row in rows if row[2] or draw(st.integers(0, 3)) == 0]
    if draw(st.integers(0, 3)) == 0:
        chosen = draw(st.permutations(chosen))
    if code in (0, 19):
        chosen.sort(key=lambda row: row[0] not in ("queueId", "suggestWhichBrokerId"))
    values = {"s": TEXT, "i": I32.map(str), "l": I64.map(str), "b": st.sampled_from(["true", "false"])}
    pairs = []
    for name, kind, _ in chosen:
        value = draw(ODD_TEXT if draw(st.integers(0, 25)) == 0 else values[kind])
        bare = draw(st.integers(0, 25)) == 0
        pairs.append((name, value if bare else spelled(value, draw(st.sampled_from(ESCAPES)))))
    odd = draw(st.integers(0, 12))
    if odd == 0:
        pairs.append((draw(st.sampled_from([row[0] for row in rows] + ["Signature", "x"])), '"1"'))
    elif odd == 1 and pairs:
        del pairs[draw(st.integers(0, len(pairs) - 1))]
    fields = ",".join(f'"{name}":{value}' for name, value in pairs)
    rest = [
        ("flag", str(draw(I32))),
        ("language", draw(st.sampled_from(['"JAVA"', '"GO"', '"MARS"', '"JA\\u0056A"', "3"]))),
    ]
    rest += [("opaque", draw(I32.map(str) | st.sampled_from(['"5"', "5.0", "99999999999"])))]
    if draw(st.booleans()):
        rest.append(("remark", spelled(draw(TEXT | ODD_TEXT), draw(st.sampled_from(ESCAPES)))))
    rest += [
        ("serializeTypeCurrentRPC", draw(st.sampled_from(['"JSON"', '"ROCKETMQ"', "1"]))),
        ("version", str(draw(I32))),
    ]
    if draw(st.integers(0, 5)) == 0:
        rest = draw(st.permutations(rest))[: draw(st.integers(0, len(rest)))]
    if draw(st.integers(0, 12)) == 0 and rest:
        rest.append(draw(st.sampled_from([rest[0], ("code", "11"), ("more", "{}")])))
    comma = draw(st.sampled_from([",", ",", ",", ", "]))
    text = f'{{"code":{code}{comma}"extFields":{{{fields}}}' + "".join(f'{comma}"{n}":{v}' for n, v in rest) + "}"
    return (text + draw(st.sampled_from(["", "", "", "\n", " "]))).encode("utf-8", "surrogatepass")


@given(hot_headers(), st.binary(max_size=6))
def test_headers_of_hot_kinds_are_read_alike(header: bytes, body: bytes) -> None:
    same_split(framed(header, body))


@given(st.lists(hot_headers().map(framed), max_size=4), st.data())
def test_reads_are_cut_alike(made: list[bytes], data: st.DataObject) -> None:
    joined = b"".join(made)
    start, end = sorted(data.draw(st.tuples(st.integers(0, len(joined)), st.integers(0, len(joined)))))
    same_split(joined, data.draw(st.sampled_from([0, start])), end, data.draw(st.sampled_from([MAX_FRAME, 300])))


@pytest.mark.parametrize(("start", "end"), [(0, 100), (-1, 10), (5, 3)])
def test_bounds_that_no_buffer_has_are_answered_alike(start: int, end: int) -> None:
    same_split(framed(b"{}"), start, end)


@given(st.binary(max_size=90))
@example(b"\x00\x00\x00\x04\x01\x00\x00\x00")
def test_any_bytes_are_split_alike(data: bytes) -> None:
    same_split(data)
    same_split(framed(b'{"code":310,"extFields":{"' + data))


# Replies


@given(
    I32, st.text("0123456789ABCDEF,", max_size=60) | st.text("A", min_size=1500, max_size=2100), I32, I64,
    st.none() | st.text(max_size=40) | st.text("0aZ", max_size=40), TEXT | st.sampled_from(["%s", "T", '"T"']),
    st.booleans(),
)  # fmt: skip
def test_replies_to_sends_are_written_alike(
    opaque: int, head: str, queue_id: int, offset: int, unique: str | None, region: str, trace_on: bool
) -> None:
    arguments = (opaque, head, abs(offset) >> 1, queue_id, offset, unique, region, trace_on)
    assert compiled.stored_reply(*arguments) == frames.stored_reply(*arguments)


@given(I32, st.sampled_from([0, 0, 0, 19, 20, 21]), st.sampled_from(["FOUND", "FOUND", "OFFSET_TOO_SMALL", None, "ü"]),
       st.lists(I64, min_size=6, max_size=6), st.binary(max_size=50))  # fmt: skip
@example(-1 << 31, 0, "FOUND", [-1 << 63] * 6, b"")
def test_replies_to_pulls_are_written_alike(
    opaque: int, code: int, remark: str | None, numbers: list[int], records: bytes
) -> None:
    arguments = (opaque, code, remark, *numbers, records)
    assert compiled.pull_reply(*arguments) == frames.pull_reply(*arguments)


# Properties

SPECIAL = frozenset({"DELAY", "TRAN_MSG"})
NAMES = st.sampled_from(["UNIQ_KEY", "KEYS", "TAGS", "WAIT", "DELAY", "TRAN_MSG", "a", "", "UNIQ_KEYS", "DELAYS"])
PAIRS = st.lists(
    st.tuples(
        NAMES, st.sampled_from(["\x01", "\x01", "\x01", ""]), TEXT | st.sampled_from(["false", "true", "", "k k", "ü"])
    )
)  # fmt: skip


def sent(text: str | None) -> headers.SendHeaderV2:
    numbers = dict.fromkeys(("default_topic_queue_nums", "queue_id", "sys_flag", "born_timestamp", "flag"), 0)
    return headers.SendHeaderV2(producer_group="p", topic="T", default_topic="D", properties=text, **numbers)  # type: ignore[arg-type]


@given(PAIRS.map(lambda pairs: "".join(f"{a}{b}{c}\x02" for a, b, c in pairs)) | TEXT | st.none(), st.booleans())
@example("UNIQ_KEY\x01x", False)
@example("UNIQ_KEY\x01\ud800\x02", False)
@example("UNIQ_KEY\x01x\x02UNIQ_KEY\x01y\x02", False)
def test_properties_are_read_alike(text: str | None, cut: bool) -> None:
    if cut and text:
        text = text[:-1]
    readers = [twin.PropertyReader(SPECIAL, b"CLUSTER\x01c\x02", tags_code) for twin in (properties, compiled)]
    expected, found = (reader.record(sent(text), b"x", b"\x7f\0\0\1", 7, 0) for reader in readers)
    assert found == expected


SENDS = st.builds(
    headers.SendHeaderV2, producer_group=TEXT, topic=TEXT, default_topic=TEXT, default_topic_queue_nums=I32,
    queue_id=I32,
    sys_flag=st.sampled_from([0, 1, 8, 0x40, 0x80]) | I32, born_timestamp=I64, flag=I32,
    properties=st.none() | st.just("UNIQ_KEY\x01x\x02WAIT\x01false") | TEXT, reconsume_times=I32,
    batch_text=st.sampled_from(["false", "false", "true"]),
)  # fmt: skip


@given(SENDS, st.sampled_from([b"", b"x", memoryview(b"x")]), st.booleans(), st.sampled_from([0, 2]))
def test_records_of_sends_are_made_alike(header: headers.SendHeaderV2, body: Any, full_names: bool, flags: int) -> None:
    made = header
    if full_names:
        made = headers.SendHeader(**{name: getattr(header, name) for name in headers.SendHeader.__struct_fields__})  # type: ignore[assignment]
    readers = [twin.PropertyReader(SPECIAL, b"C\x01c\x02", tags_code) for twin in (properties, compiled)]
    expected, found = (reader.record(made, body, b"\x7f\0\0\1", 7, flags) for reader in readers)
    assert found == expected


@given(st.text(max_size=12), st.text("abcXYZ019", max_size=200))
def test_tags_get_the_same_code(tag: str, long: str) -> None:
    for one in (tag, long):
        header = sent(f"UNIQ_KEY\x01u\x02TAGS\x01{one}\x02")
        readers = [twin.PropertyReader(SPECIAL, b"", tags_code) for twin in (properties, compiled)]
        expected, found = (reader.record(header, b"x", b"\x7f\0\0\1", 7, 0) for reader in readers)
        assert found == expected


# Records

HOST = st.binary(min_size=4, max_size=4) | st.binary(min_size=16, max_size=16) | st.just(b"odd")
NEW_RECORDS = st.builds(
    NewRecord, topic=st.just("T"), queue_id=I32 | ANY_NUMBER, body=st.binary(max_size=200),
    properties=st.binary(max_size=100) | st.text("ab\x01\x02", max_size=20).map(str.encode), flag=I32 | ANY_NUMBER,
    sys_flag=st.integers(0, 255) | I32, born_timestamp=I64 | ANY_NUMBER,
    born_host=st.binary(min_size=4, max_size=4) | HOST, born_port=st.integers(0, 65535) | ANY_NUMBER,
    reconsume_times=I32, prepared_transaction_offset=I64, tags_code=I32, keys=st.text(max_size=5),
    uniq_key=st.text(max_size=5),
)  # fmt: skip


def log_tail(memory: mmap.mmap | None, position: int, check: int, crc: bool) -> LogCursor:
    tail = LogCursor()
    tail._map, tail.position, tail._check, tail.appends_crc = memory, position, check, crc
    tail.base, tail._overhead, tail._sys_bits = 1 << 30, 90, 0
    tail.store_host_field = b"\x7f\0\0\1\0\0\x2a\x9f"
    return tail


def queue_tail(delayed: bool) -> QueueCursor:
    tail = QueueCursor()
    tail.delayed, tail.next_offset, tail.topic, tail.topic_field, tail.magic = delayed, 7, "T", b"\x01T", -626843481
    return tail


@compiled_store
@given(NEW_RECORDS, st.integers(0, 3000), st.integers(0, 4096), st.booleans(), st.booleans(), st.booleans())
def test_ordinary_messages_are_stored_alike(
    record: NewRecord, position: int, check: int, crc: bool, delayed: bool, viewed: bool
) -> None:
    if viewed:
        record.body = memoryview(record.body)  # type: ignore[assignment]
    found = []
    for twin in (records, compiled):
        memory = mmap.mmap(-1, 4096)
        log, queue = log_tail(memory, position, check, crc and delayed), queue_tail(delayed and not crc)
        pending: deque[Any] = deque()
        result = twin.put_plain(log, queue, record, 1_700_000_000_000, pending, PutResult(PutStatus.PUT_OK))
        if result is None:
            memory[:] = bytes(4096)  # the data of the first call is overwritten
        found.append((result, memory[:], log.position, queue.next_offset, [item[1:] for item in pending]))
    assert found[0] == found[1]


def test_a_log_that_is_closed_takes_nothing() -> None:
    record = NewRecord("T", 0, b"x", b"")
    for twin in (records, compiled):
        done = PutResult(PutStatus.PUT_OK)
        assert twin.put_plain(log_tail(None, 0, 4000, False), queue_tail(False), record, 0, deque(), done) is None


class Part:
    def __init__(self, start: int, data: bytes) -> None:
        self.start, self.view = start, memoryview(data)


@given(st.data())
def test_units_are_gathered_alike(data: st.DataObject) -> None:
    size = 400
    parts = []
    for start in (1000, 1400):
        whole = bytearray(size)
        for at in range(0, size, 40):
            magic = data.draw(st.sampled_from([-626843481, -626843481, -626843477, 5]))
            struct.pack_into(">ii20xqi", whole, at, data.draw(st.sampled_from([40, 40, 40, 41])), magic, start + at, at)
        parts.append(Part(start, bytes(whole)))
    places = st.integers(0, 19).map(lambda n: 1000 + 40 * n) | st.integers(-50, 2000)
    codes = st.sampled_from([7, 8, 0, -(1 << 63) + 40, records.HOLE, -(1 << 31) - 1, -(1 << 31)])
    sizes = st.sampled_from([40, 40, 40, 41, 0, -40, 0x7FFFFFFF])
    units = data.draw(st.lists(st.tuples(places, sizes, codes), max_size=25))
    packed = b"".join(records.UNIT.pack(*unit) for unit in units)
    wanted = data.draw(st.none() | st.frozensets(codes))
    accept = data.draw(st.sampled_from([None, lambda record: record[-1] % 80 == 0]))
    limits = records.GatherLimits(*data.draw(st.tuples(*[st.sampled_from([0, 1, 3, 100, 200, 1 << 40])] * 5)))
    log_end = data.draw(st.sampled_from([1000, 1400, 1440, 1800]))
    given_parts = data.draw(st.sampled_from([parts, parts[:1], []]))
    arguments = (memoryview(packed), given_parts, size, log_end, wanted, accept, limits)
    assert outcome(compiled.gather, *arguments) == outcome(records.gather, *arguments)


def test_structs_are_copies_not_shared() -> None:
    frame = next(
        frame
        for frame in recorded()
        if type(compiled.split(frame, 0, len(frame), MAX_FRAME, decode)[0][0].header) is headers.SendHeaderV2
    )
    first, second = (compiled.split(frame, 0, len(frame), MAX_FRAME, decode)[0][0] for _ in range(2))
    first.header.topic, first.fields["x"] = "other", "y"
    assert second.header.topic != "other"
    assert second.fields == {}
    assert structs.replace(second.header, topic="other") == first.header
