"""Ordinary sends of a client: both twins and the general code give the same frames, results and errors."""

from __future__ import annotations

import asyncio
import json
import struct
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tianzhou._hot import client_sends, frames, identifiers, sources
from tianzhou.client.producer.message_properties import quick_properties
from tianzhou.client.producer.publish_plan import PublishPlan, PublishTarget
from tianzhou.client.producer.transport import Transport
from tianzhou.clock import SystemClock
from tianzhou.errors import ClientError
from tianzhou.model import Message, MessageQueue, SendResult
from tianzhou.testing.clock import VirtualClock
from tianzhou.wire.command import decode
from tianzhou.wire.templates import SendTemplate

compiled = pytest.importorskip("tianzhou._hot._compiled", reason="the compiled twin was not built here")
pytestmark = pytest.mark.skipif(
    sources.digest() != compiled.SOURCE, reason="the compiled twin was built from other sources"
)

GOLDEN = Path(__file__).parents[1] / "golden/wire"
TWINS: list[Any] = [(client_sends, identifiers), (compiled, compiled)]
QUEUE = MessageQueue("orders", "broker-a", 3)
TARGET = SimpleNamespace(queue=QUEUE, address="127.0.0.1:10911")
I32 = st.integers(-(2**31), 2**31 - 1)
I63 = st.integers(-(2**63) + 1, 2**63 - 1)
KEYS = st.sampled_from(["K", "k", None, 'q"'])
JSON_TEXT = st.text(st.characters(codec="utf-8"), max_size=30).map(lambda text: json.dumps(text)[1:-1])


@cache
def recorded() -> list[bytes]:
    lines = [line for path in sorted(GOLDEN.glob("*.jsonl")) for line in path.read_text().splitlines()]
    found = [bytes.fromhex(note["hex"]) for note in map(json.loads, lines) if "hex" in note]
    return [frame for frame in found if b'"extFields":{"queueId"' in frame[:40]]


class Waiter:
    """A waiter with the interface of a future."""

    def __init__(self, done: bool = False) -> None:
        self.found: Any = None
        self._done = done

    def done(self) -> bool:
        return self._done

    def set_result(self, found: Any) -> None:
        assert not self._done
        self.found, self._done = found, True


def awaited_by(module: Any, opaques: list[int], key: str, done: bool = False) -> dict[int, Any]:
    table = {}
    for opaque in opaques:
        sent = module.Sent(1.0, Waiter(done), 1.0)
        sent.target, sent.unique_key = (QUEUE, TARGET.address, None), key
        if module is client_sends:
            sent.target = PublishTarget(QUEUE, TARGET.address, None)  # type: ignore[arg-type]
        table[opaque] = sent
    return table


def taken(module: Any, data: bytes, opaques: list[int], key: str = "K") -> tuple[Any, list[Any], list[int]]:
    table = awaited_by(module, opaques, key)
    waiters = {opaque: sent.waiter for opaque, sent in table.items()}
    outcome = module.take_results(table, bytearray(data), 0, len(data))
    return outcome, [waiters[opaque].found for opaque in opaques], list(table)


def both(data: bytes, opaques: list[int], key: str = "K") -> tuple[tuple[int, int], list[Any]]:
    expected = taken(client_sends, data, opaques, key)
    (after, count), results, left = taken(compiled, data, opaques, key)
    # The compiled one leaves more sends to the general code; accepted sends have the same result.
    assert after <= expected[0][0]
    assert count <= expected[0][1]
    for mine, others in zip(results, expected[1], strict=True):
        assert mine is None or (mine == others and type(mine) is type(others))
        assert mine is None or list(map(type, mine)) == list(map(type, others))
    assert len(left) == len(opaques) - count
    return (after, count), results


def reply(opaque: int, place: int, queue_id: int, offset: int, transaction: str | None, region: str) -> bytes:
    return frames.stored_reply(opaque, "7F00000100002A9F", place, queue_id, offset, transaction, region, True)


def test_recorded_replies_are_taken_and_mean_what_the_general_way_makes_of_them() -> None:
    seen = 0
    for frame in recorded():
        command = decode(frame[4:])
        outcome, (result,) = both(frame, [command.opaque])
        if command.code or {"batchUniqId", "recallHandle"} & command.fields.keys() or not command.is_response:
            continue
        seen += 1
        assert outcome == (len(frame), 1)
        assert result == Transport(_instance()).result(command, TARGET, "K")  # type: ignore[arg-type]
        assert type(result) is SendResult
    assert seen >= 10


def _instance() -> Any:
    return SimpleNamespace(remoting=SimpleNamespace(group=SimpleNamespace(opaques=identifiers.OpaqueCounter())))


@given(
    st.lists(
        st.tuples(st.integers(0, 2**60), st.sampled_from([3, 3, 4, -1]), st.integers(0, 10**17), KEYS),
        min_size=1,
        max_size=8,
        ),
    st.sampled_from(["DefaultRegion", "", "other", "süd"]),
    st.integers(0, 400),
)  # fmt: skip
def test_a_run_of_replies_completes_what_awaits_them(rows: Any, region: str, cut: int) -> None:
    data = b"".join(reply(n, place, queue, offset, key, region) for n, (place, queue, offset, key) in enumerate(rows))
    both(data[: len(data) - cut], list(range(len(rows))))
    whole = all(key in ("K", "k", None) for *_, key in rows) and region.isascii()
    (after, count), results = both(data, list(range(len(rows))))
    if whole:
        assert (after, count) == (len(data), len(rows))
        assert [result.queue.queue_id for result in results] == [queue for _, queue, _, _ in rows]
        assert [result.transaction_id for result in results] == [key for *_, key in rows]


@given(st.data())
def test_damaged_replies_are_taken_alike_or_left(data: st.DataObject) -> None:
    frame = bytearray(data.draw(st.sampled_from([reply(7, 99, 3, 12, "K", "DefaultRegion"), *recorded()[:4]])))
    opaque = decode(bytes(frame[4:])).opaque
    (size,) = struct.unpack_from(">I", frame, 4)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(frame) - 1))
        piece = data.draw(
            st.sampled_from([b'"', b"\\", b"\\n", b"0", b"-", b"}", b",", b" ", b"\xff", b"\xc3\xa9", b"null", b"007"])
            | st.binary(min_size=1, max_size=2)
        )
        frame[at : at + len(piece)] = piece
    if data.draw(st.booleans()):
        frame[:8] = struct.pack(">II", len(frame) - 4, size)
    both(bytes(frame), [opaque])


@pytest.mark.parametrize("module", [client_sends, compiled], ids=["pure", "compiled"])
def test_what_nobody_awaits_or_what_awaits_a_command_is_left(module: Any) -> None:
    data = reply(1, 5, 3, 0, "K", "r") + reply(2, 6, 3, 1, "K", "r") + reply(3, 7, 3, 2, "K", "r")
    table = awaited_by(module, [1, 3], "K")
    (after, count) = module.take_results(table, data, 0, len(data))
    assert (after, count) == (len(data) // 3, 1)
    assert list(table) == [3]
    table = awaited_by(module, [1], "K") | {2: module.Awaited(1.0, Waiter(), 1.0)}
    assert module.take_results(table, data, 0, len(data)) == (len(data) // 3, 1)
    assert list(table) == [2]
    table = awaited_by(module, [1], "K", done=True)  # cancelled in this moment
    assert module.take_results(table, data, 0, len(data)) == (len(data) // 3, 1)


@given(I32, I63, I63, st.integers(0, 2**31 - 1), JSON_TEXT, st.binary(max_size=40), JSON_TEXT)
@example(0, 0, 0, 0, "", b"", "")
def test_frames_are_the_same_bytes(
    opaque: int, born_ms: int, flag: int, sys_flag: int, text: str, body: bytes, name: str
) -> None:
    pieces = f'{{"a":"{name}","f":"', f'","j":"0{name}', ',"version":479}'
    found = [module.SendFrames(*pieces).frame(opaque, born_ms, flag, sys_flag, text, body) for module, _ in TWINS]
    assert found[0] == found[1]


@given(
    st.binary(min_size=4, max_size=4) | st.binary(min_size=16, max_size=16), I32, I63, st.lists(st.integers(0, 2**43))
)
@example(bytes(4), 1, 1, [5, 5, 2**42, 4])
def test_unique_keys_are_the_same(ip: bytes, pid: int, number: int, times: list[int]) -> None:
    mine, others = [module.UniqueIdGenerator(ip, pid, number) for _, module in TWINS]
    assert [mine.next(now_ms) for now_ms in times] == [others.next(now_ms) for now_ms in times]


def test_numbers_of_requests_wrap_alike() -> None:
    for _, module in TWINS:
        counter = module.OpaqueCounter(0x7FFFFFFE)
        assert [counter.next() for _ in range(3)] == [0x7FFFFFFE, 0x7FFFFFFF, -0x80000000]
        assert (counter.in_flight, counter.most) == (0, identifiers.UNBOUNDED)


class Wire:
    """A connection that records the sent frames."""

    def __init__(self, group: Any) -> None:
        self.closed = False
        self._awaited: dict[int, Any] = {}
        self._group = group
        self._out: list[bytes] = []
        self._out_size = 0
        self._flush_scheduled = False

    def await_reply(self, opaque: int, awaited: Any) -> None:
        self._awaited[opaque] = awaited
        self._group.opaques.in_flight += 1

    def send_request(self, frame: bytes) -> None:
        self._out.append(frame)
        self._out_size += len(frame)
        self._flush_scheduled = True


class Bench:
    """A producer's quick sends by one of the twins, with all their dependencies."""

    def __init__(self, module: Any, numbers: Any, clock: Any = None) -> None:
        self.clock = clock or VirtualClock()
        self.loop = SimpleNamespace(create_future=Waiter)
        self.group = SimpleNamespace(monotonic=self.clock.monotonic, opaques=numbers.OpaqueCounter(), loop=self.loop)
        self.wire = Wire(self.group)
        queues = [MessageQueue("orders", "broker-a", n) for n in range(3)]
        targets = [PublishTarget(queue, "a:1", self._template(module, queue)) for queue in queues]
        self.plan = PublishPlan(None, 1, targets, 0)  # type: ignore[arg-type]
        self.routes = SimpleNamespace(version=1)
        self.running: Any = self.loop
        self.quick = module.QuickSends(
            {"orders": self.plan},
            self.routes,
            {"a:1": self.wire},
            self.group,
            numbers.UniqueIdGenerator(bytes([127, 0, 0, 1]), 1, 1),
            self.clock,
            lambda: self.running,
            quick_properties,
            lambda body: (b"packed" + body[:3], 0x301),
            100,
            200,
        )
        self.quick.open = True

    def _template(self, module: Any, queue: MessageQueue) -> Any:
        template = SendTemplate("pg", queue, "TBW102", 4)
        before, between, behind = (
            f'{{"code":310,"extFields":{{"e":"{queue.queue_id}","f":"',
            '","j":"0"},"flag":0,"opaque":',
            ',"version":479}',
        )
        template.frames = module.SendFrames(before, between, behind)
        return template

    def begin(self, message: Any, timeout_ms: float = 3000) -> Any:
        try:
            sent = self.quick.begin(message, timeout_ms)
        except ClientError as error:
            return str(error)
        if sent is None:
            return None
        assert self.wire._awaited[sent.opaque] is sent
        return (
            sent.opaque, sent.target.queue, sent.unique_key, sent.born_ms, sent.flag, sent.sys_flag, sent.properties,
            sent.body, sent.deadline_s, sent.timeout_s, self.wire._out[-1], self.wire._out_size, self.plan.turn.index,
            self.group.opaques.in_flight,
        )  # fmt: skip


def benches(**more: Any) -> list[Bench]:
    return [Bench(*twin, **more) for twin in TWINS]


class Special(Message):
    """No plain message."""


MESSAGES = st.builds(
    Message,
    st.sampled_from(["orders", "orders", "other"]),
    st.binary(max_size=210) | st.binary(min_size=1, max_size=20).map(bytearray),
    st.sampled_from([None, None, "", "tag", "é", 'q"', "a||b"]),
    st.sampled_from(["", "", "key", "a b", ["x", "y"], 'k\\"']),
    st.sampled_from([0, 0, 5, -1, 2**63, -(2**63), True]),
    st.dictionaries(
        st.sampled_from(["p", "é", "DELAY", "UNIQ_KEY", "TRAN_MSG"]), st.sampled_from(["v", "", "ü"]), max_size=2
    ),
    st.sampled_from([0, 0, 3]),
    st.sampled_from([None, None, None, "", "shard"]),
    st.sampled_from([True, True, False]),
)


@given(st.lists(MESSAGES, min_size=1, max_size=4))
@example([Message("orders", b"body"), Message("orders", b"body", "tag", "key")])
def test_both_begin_the_same_sends_and_leave_the_same_to_others(messages: list[Message]) -> None:
    pure, quick = benches()
    for message in messages:
        mine, others = pure.begin(message), quick.begin(message)
        assert mine == others
        pure.clock.advance(0.0004)
        quick.clock.advance(0.0004)


def test_what_is_in_the_way_of_a_quick_send() -> None:
    message = Message("orders", b"body")
    for bench in benches():
        first = bench.begin(message)
        assert first is not None
        assert bench.plan.turn.index == 0
        decoded = decode(first[10][4:])
        assert (decoded.code, bytes(decoded.body), decoded.fields["e"]) == (310, b"body", "0")
        assert decoded.fields["i"] == f"UNIQ_KEY\x01{first[2]}\x02"
        bench.group.opaques.most = 1
        assert bench.begin(message) is None
        bench.group.opaques.most = 10
        bench.wire.closed = True
        assert bench.begin(message) is None
        bench.wire.closed = False
        bench.routes.version = 2
        assert bench.begin(message) is None
        bench.routes.version = 1
        bench.running = object()
        assert bench.begin(message) is None
        bench.running = bench.loop
        bench.quick.open = False
        assert bench.begin(message) is None
        bench.quick.open = True
        assert bench.begin(Special("orders", b"body")) is None
        assert bench.begin("no message") is None
        # None of these sends advanced the choice of queues.
        assert bench.begin(message)[1].queue_id == 1
        assert bench.group.opaques.in_flight == 2


def test_the_time_of_day_is_the_systems() -> None:
    import time

    for bench in benches(clock=SystemClock()):
        before = time.time_ns() // 1_000_000
        born_ms = bench.begin(Message("orders", b"x"))[3]
        assert before <= born_ms <= time.time_ns() // 1_000_000


async def test_much_of_one_turn_is_not_gathered_without_end() -> None:
    for bench in benches():
        sizes = []
        message = Message("orders", b"x" * 90)
        for _ in range(5):
            bench.begin(message)
            sizes.append(bench.wire._out_size)
        assert sizes == sorted(sizes)
        bench.wire._out_size = client_sends.FLUSH_BYTES
        sent: list[bytes] = []
        bench.wire.send_request = sent.append  # type: ignore[assignment,method-assign]
        bench.begin(message)
        assert len(sent) == 1
    await asyncio.sleep(0)
