"""Pages about messages: parsing of forms, display of bodies, contents of tables and charts."""

from __future__ import annotations

import asyncio
import itertools
import json
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("nicegui", reason="the console's packages are not installed")

from tianzhou.admin import DelayLevel, Due, HalfMessage, MessageTrack, OpenTransactions, Resent, TrackType
from tianzhou.client.tracing.trace_reading import TraceKind, TraceRecord
from tianzhou.console import message_values as values
from tianzhou.console import texts
from tianzhou.console.display.zones import Zone
from tianzhou.console.layout import View
from tianzhou.console.pages import dead_letters, delay, message, messages, trace, transactions, waiting
from tianzhou.console.texts.audit import ACTIONS
from tianzhou.errors import ClientError
from tianzhou.model import MessageExt

UTC = Zone()
ENGLISH: Any = View(None, None, "", "en")  # type: ignore[arg-type]


def stored(offset: int = 7, body: bytes = b"x", at_ms: int = 2_000, **properties: str) -> MessageExt:
    return MessageExt(
        "T", body, 0, properties, "b", 1, offset, 9, 0, 1_000, "p:1", at_ms, "b:2", 0, 0, 0, 90, f"ID{offset}"
    )


def test_numbers_of_addresses_are_bounded() -> None:
    assert [values.number(text, 7, 50) for text in ("", "x", "0", "12", "999", "9" * 20)] == [7, 7, 1, 12, 50, 7]


def test_bodies_are_shown_in_bounds() -> None:
    assert values.body_text(b"\xff\x00a") == "\ufffd\u2400a"
    assert len(values.body_text(b"x" * (1 << 20))) == values.SHOWN_BYTES
    assert values.body_json(b'{"a": [1, "\xe8\x88\x9f"]}') == '{\n  "a": [\n    1,\n    "舟"\n  ]\n}'
    assert values.body_json(b"{") is None
    assert values.body_json(b"[" * 60_000) is None
    assert values.body_json(b"[]" + b" " * values.SHOWN_BYTES) is None
    assert values.body_hex(b"hello, world \x00\xff!\n").splitlines() == [
        "00000000  68 65 6c 6c 6f 2c 20 77 6f 72 6c 64 20 00 ff 21  hello, world ..!",
        "00000010  0a                                               .",
    ]
    assert len(values.body_hex(b"x" * (1 << 20)).splitlines()) == values.HEX_BYTES // values.HEX_WIDTH


def test_a_body_is_shown_in_the_charset_that_a_visitor_chooses() -> None:
    body = '{"城市": "北京"}'.encode("gbk")
    assert "北京" not in values.body_text(body)
    assert values.body_json(body) is None
    assert values.body_text(body, "gb18030") == '{"城市": "北京"}'
    assert values.body_json(body, "gb18030") == '{\n  "城市": "北京"\n}'
    assert "北京".encode("utf-16-le").decode("utf-16-le") == values.body_text("北京".encode("utf-16-le"), "utf-16-le")
    assert [values.charset_of(text) for text in ("gb18030", "", "rot13", "zip")] == [
        "gb18030",
        "utf-8",
        "utf-8",
        "utf-8",
    ]
    for charset in values.CHARSETS:
        assert values.body_text("abc".encode(charset), charset) == "abc"
    assert values.body_json(b"\xef\xbb\xbf[1]") == "[\n  1\n]"


def test_marks_that_turn_the_writing_direction_are_shown_as_marks() -> None:
    assert values.cell("invoice\u202efdp.exe") == "invoice\\u202efdp.exe"
    assert values.body_text("a\u202eb\n\u200fc\td".encode()) == "a\\u202eb\n\\u200fc\td"
    assert "\\u2066" in (values.body_json('["\u2066x"]'.encode()) or "")
    assert len(values.cell("\u202e" * 1_000)) == values.SHOWN_CELL
    (row,) = messages.message_rows([stored(TAGS="a\u202eb")], UTC.text)
    assert row["tags"] == "a\\u202eb"


def test_one_message_is_no_messages() -> None:
    found = {count: ENGLISH.text("message.found", count=count) for count in (0, 1, 2)}
    assert found == {
        0: "0 messages, the newest first", 1: "1 message", 2: "2 messages, the newest first",
    }  # fmt: skip
    assert ENGLISH.text("delay.waiting", count=1) == "1 message waits for its time."
    assert texts.text("zh", "sql.result", count=1) == "共 1 行"
    assert [
        key for key, (english, chinese) in texts.TEXTS.items() if english.count(texts.OR) > 1 or texts.OR in chinese
    ] == []


@given(st.binary())
def test_an_exported_message_is_one_line(body: bytes) -> None:
    (line,) = values.to_json_lines([stored(body=body, KEYS="k\u2028")]).decode().split("\n")[:-1]
    found = json.loads(line)
    assert (found["msgId"], found["properties"]) == ("ID7", {"KEYS": "k\u2028"})
    assert ("body" in found) != ("bodyBase64" in found)


def test_the_page_before_goes_up_to_the_last_message() -> None:
    found = [stored(at_ms=3_000), stored(at_ms=2_000)]
    assert messages.older({"topic": "T", "end": "9"}, found) == {"topic": "T", "end": "2000"}
    assert messages.older({}, found[:1] * 2) == {"end": "2999"}


def test_rows_of_messages() -> None:
    (row,) = messages.message_rows([stored(KEYS="k" * 1_000, TAGS="t")], UTC.text)
    assert (row["key"], row["id"], row["size"], row["tags"]) == ("b:1:7", "ID7", 1, "t")
    assert len(row["keys"]) == values.SHOWN_CELL
    fields = {row["name"]: row["value"] for row in message.field_rows(stored(), UTC.text)}
    assert (fields["queueOffset"], fields["commitLogOffset"], fields["tags"]) == ("7", "9", "")


@pytest.mark.parametrize(
    ("track", "words"),
    [
        (MessageTrack("G", TrackType.CONSUMED, consumer_offset=8), "consumed"),
        (MessageTrack("G", TrackType.NOT_ONLINE), "not online"),
        (MessageTrack("G", TrackType.NOT_ONLINE, consumer_offset=8), "not online; its offset has passed it"),
        (MessageTrack("G", TrackType.NOT_ONLINE, consumer_offset=7), "not online; it is still ahead of it"),
        (MessageTrack("G", TrackType.PULL), "pulls; its progress is its own"),
        (
            MessageTrack("G", TrackType.PULL, consumer_offset=8),
            "pulls; its progress is its own; its offset has passed it",
        ),
        (MessageTrack("G", TrackType.UNKNOWN, "late"), "unknown: late"),
    ],
)
def test_what_became_of_a_message_in_words(track: MessageTrack, words: str) -> None:
    assert message.track_state(ENGLISH, stored(), track) == words


def test_every_state_and_step_has_words() -> None:
    for key in (*(f"track.{one}" for one in TrackType), *(f"trace.{one}" for one in TraceKind)):
        assert all(texts.text(language, key) for language in texts.LANGUAGES)


def test_rows_of_dead_letters() -> None:
    (row,) = dead_letters.letter_rows([stored(RETRY_TOPIC="orders", ORIGIN_MESSAGE_ID="O")], UTC.text)
    assert (row["topic"], row["origin"], row["id"]) == ("orders", "O", "ID7")


def test_a_trace_as_steps_and_bars() -> None:
    records = [
        TraceRecord(TraceKind.SENT, "M", 1_000, "P", cost_ms=4, success=True),
        TraceRecord(TraceKind.CONSUMING, "M", 1_020, "C", request_id="R"),
        TraceRecord(TraceKind.CONSUMING, "M", 1_030, "C", request_id="still running"),
        TraceRecord(TraceKind.CONSUMED, "M", 1_020, "C", cost_ms=5, success=False, request_id="R"),
    ]
    found = trace.steps(records, 1_002, "b")
    rows = trace.step_rows(ENGLISH, found)
    assert [row["step"] for row in rows] == ["sent", "stored", "consumed", "being consumed"]
    assert [row["result"] for row in rows] == ["success", "success", "failed", ""]
    starts, costs = trace.timeline(found, ["a", "b", "c", "d"])["series"]
    assert starts["data"] == [0, 2, 20, 30]
    assert [cost["value"] for cost in costs["data"]] == [4, 1, 5, 1]


def test_rows_of_open_transactions() -> None:
    halves = [HalfMessage("b", "T", "P", f"M{at}", at, 0, born_ms, 2, 5) for at, born_ms in ((1, 9_000), (2, 4_000))]
    found = [OpenTransactions("b", halves)]
    assert [(row["id"], row["age"]) for row in transactions.half_rows(found, 10_500, UTC.text)] == [
        ("M2", 6),
        ("M1", 1),
    ]
    assert transactions.by_topic(found) == [{"key": "b:T", "broker": "b", "topic": "T", "count": 2}]


def test_facts_of_messages_that_wait() -> None:
    half = HalfMessage("b", "T", "P", "M", 1, 9_000, 4_000, 2, 5, 77)
    facts = dict(waiting.half_facts(half, stored(TAGS="t"), 10_500, UTC.text))
    assert (facts["topic"], facts["half.group"], facts["half.checks"], facts["half.age"]) == ("T", "P", "2", "6")
    assert (facts["waiting.producer"], facts["half.born"]) == ("p:1", "1970-01-01 00:00:04")
    delayed = dict(waiting.delayed_facts(3, Due(12_000, "T", "M", 7), stored(), UTC.text))
    assert (delayed["topic"], delayed["delay.due"], delayed["delay.level"]) == ("T", "1970-01-01 00:00:12", "3")
    assert all(key in texts.TEXTS for key in {**facts, **delayed})
    assert all(f"half.{one.name.lower()}{ask}" in texts.TEXTS for one in waiting.DECISIONS for ask in ("", ".ask"))
    assert set(waiting.DECISIONS.values()) <= ACTIONS.keys()


def test_an_address_without_a_place_opens_no_message() -> None:
    assert waiting.place_of({"level": "3", "offset": "7"}, "level", "offset") == [3, 7]
    for query in (
        {},
        {"level": "3", "offset": "-1"},
        {"level": "x", "offset": "7"},
        {"level": "3", "offset": "9" * 30},
    ):
        with pytest.raises(ClientError, match="names no message"):
            waiting.place_of(query, "level", "offset")


def test_what_is_due_when() -> None:
    levels = [
        DelayLevel("b", 1, 1_000, 1, [Due(10_000, "T", "A", 0)]),
        DelayLevel("b", 2, 90_000, 5, [Due(15_500, "T", "B", 0), Due(9_900_000, "T", "C", 1)]),
        DelayLevel("b", 3, 7_200_000, 0, []),
    ]
    assert [count for _, count in delay.histogram(levels, 10_000)] == [1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1]
    assert [row["id"] for row in delay.due_rows(reversed(levels), UTC.text)] == ["A", "B", "C"]
    assert [row["delay"] for row in delay.level_rows(levels, UTC.text)] == ["1s", "90s", "2h"]
    assert delay.span(1) == "1ms"


def test_sending_again_stops_when_it_is_told_to() -> None:
    async def endless(letters: Any, *, to: str | None, progress: Any) -> Resent:
        for sent in itertools.count(1):
            progress(Resent(sent))
            await asyncio.sleep(0)
        raise AssertionError

    async def stopped() -> dead_letters.Resending:
        console = SimpleNamespace(admin=SimpleNamespace(dead_letters=SimpleNamespace(resend=endless)))
        one = dead_letters.Resending()
        run = asyncio.ensure_future(one.run(View(console, None, "", "en"), [], ""))  # type: ignore[arg-type]
        while one.so_far.sent < 3:
            await asyncio.sleep(0)
        one.stop()
        assert await run == one.so_far
        return one

    one = asyncio.run(stopped())
    assert one.stopped
    assert 3 <= one.so_far.sent < 10


def test_what_could_not_be_sent_again_is_said() -> None:
    async def fail(letters: Any, *, to: str | None, progress: Any) -> Resent:
        progress(Resent(2, 1, "no such topic"))
        return Resent(2, 1, "no such topic")

    console = SimpleNamespace(admin=SimpleNamespace(dead_letters=SimpleNamespace(resend=fail)))
    view: Any = SimpleNamespace(console=console)
    with pytest.raises(ClientError, match="2 sent, 1 not: no such topic"):
        asyncio.run(dead_letters.Resending().run(view, [], ""))


def test_an_export_has_a_bound():
    letters = [stored(n) for n in range(3)]
    size = len(values.to_json_lines(letters))
    assert values.to_json_lines(letters, size)
    with pytest.raises(ClientError, match=r"more than \d+ MiB as JSON; choose fewer.*tianzhou dlq export"):
        values.to_json_lines(letters, size - 1)
