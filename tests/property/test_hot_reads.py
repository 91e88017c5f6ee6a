"""The compiled code of a read, compared with the pure one: the same calls, in the same order, in any
connection state.
"""

from __future__ import annotations

from math import inf
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_probe import ConnectionProbe
from tianzhou._hot import client_sends, frames, identifiers, reads, sources
from tianzhou.client.producer.publish_plan import PublishTarget
from tianzhou.model import MessageQueue, SendResult

compiled = pytest.importorskip("tianzhou._hot._compiled", reason="the compiled twin was not built here")
pytestmark = pytest.mark.skipif(
    sources.digest() != compiled.SOURCE, reason="the compiled twin was built from other sources"
)


REPLIES = [frames.send_reply(number, f"id-{number}", 0, number, None, "", True) for number in range(3)]
CODE = 0
"""Request code at the beginning of the read data: that of `REPLIES`."""
TARGET = PublishTarget(MessageQueue("orders", "broker-a", 0), "", None)  # type: ignore[arg-type]


def module_of(twin: Any, pure: Any) -> Any:
    return pure if twin is reads else twin


def connection_of(twin: Any) -> tuple[Any, list[Any]]:
    """Return a connection that records the calls it gets, and the record."""
    seen: list[Any] = []
    shared = twin.SharedReads()
    shared.scratch = bytearray(b"".join(REPLIES).ljust(reads.READ_SIZE, b"\0"))
    shared.window = memoryview(shared.scratch)[:100]
    shared.opaques = module_of(twin, identifiers).OpaqueCounter()
    shared.budget = SimpleNamespace(read_size=reads.READ_SIZE)
    shared.busy_poll = SimpleNamespace(requested=lambda peer, gap_s: seen.append(("requested", peer is path, gap_s)))
    shared.next_mark, shared.turn_full, shared.unread_full, shared.fast_paths = inf, False, False, {}
    clock = [0.0]

    def monotonic() -> float:
        clock[0] += 0.25
        return clock[0]

    class Path(twin.ReadPath):  # type: ignore[misc]
        def _room(self) -> memoryview:
            seen.append("room")
            return memoryview(bytearray(7))

        def _take_read(self, *arguments: Any) -> None:
            seen.append(("read", arguments))

        def _write(self, pieces: list[bytes], size: int) -> None:
            seen.append(("write", pieces, size))

    shared.monotonic = monotonic
    path = Path()
    ConnectionProbe(path).connect(shared, SimpleNamespace(write=lambda piece: seen.append(("sent", piece))))
    return path, seen


def go_through(twin: Any, steps: list[tuple[str, Any]]) -> list[Any]:
    path, seen = connection_of(twin)
    group, awaited = ConnectionProbe(path).group, ConnectionProbe(path).awaited
    for name, value in steps:
        if name == "read":
            count, after, replies, closes = value

            def runs(
                peer: Any, buffer: bytearray, start: int, end: int, *, after: int = after, replies: Any = replies,
                closes: bool = closes,
            ) -> tuple[int, list[bytes]]:  # fmt: skip
                seen.append(("run", peer is path, buffer is group.scratch, start, end))
                peer.closed = peer.closed or closes
                return min(after, end), list(replies)

            if group.fast_paths:
                group.fast_paths = {CODE: runs}
            seen.append(len(path.get_buffer(-1)))
            path.buffer_updated(count)
        elif name == "sends":
            # They await replies, and the beginning of the next read has some.
            for number in range(value):
                sent = module_of(twin, client_sends).Sent(1.0, SimpleNamespace(), 1.0)
                sent.target, sent.unique_key = TARGET, "K"
                sent.waiter.done, sent.waiter.set_result = (lambda: False), seen.append
                awaited[number] = sent
                group.opaques.in_flight += 1
            group.scratch[: len(b"".join(REPLIES))] = b"".join(REPLIES)
        elif name == "runs":
            group.fast_paths = {CODE: lambda *_: (0, [])} if value else {}
        elif name == "read_size":
            group.budget.read_size = value
        elif hasattr(group, name):
            setattr(group, name, value)
        else:
            setattr(path, name, value)
        seen.append((path.closed, path.last_read, path.last_write, path.silent_since))
        seen.append((list(awaited), group.opaques.in_flight))
    return seen


SIZES = [sum(map(len, REPLIES[:count])) for count in (1, 2, 3)]
READ = st.tuples(
    st.sampled_from([1, 50, 100, *SIZES, reads.READ_SIZE]), st.sampled_from([0, 30, reads.READ_SIZE]),
    st.lists(st.binary(max_size=3), max_size=3), st.booleans(),
)  # fmt: skip
STEP = st.one_of(
    *[st.tuples(st.just("read"), READ)] * 6,
    st.tuples(st.just("runs"), st.booleans()),
    st.tuples(st.just("read_size"), st.sampled_from([512, reads.READ_SIZE])),
    st.tuples(st.just("next_mark"), st.sampled_from([0.0, 5.0, inf])),
    st.tuples(st.sampled_from(["turn_full", "unread_full", "closed"]), st.sampled_from([True, False, False])),
    st.tuples(st.just("_reserved"), st.sampled_from([0, 0, 9])),
    st.tuples(st.just("_backlog"), st.sampled_from([[], [], ["request"]])),
    st.tuples(st.just("sends"), st.integers(0, 3)),
    st.tuples(st.just("busy_poll"), st.none()),
)


@given(st.lists(STEP, min_size=1, max_size=12))
def test_both_ways_of_a_read_do_the_same(steps: list[tuple[str, Any]]) -> None:
    steps = [("runs", True), *steps]
    assert go_through(compiled, steps) == go_through(reads, steps)


@pytest.mark.parametrize("twin", [compiled, reads], ids=["compiled", "pure"])
def test_what_a_run_has_served_is_answered_at_once(twin: Any) -> None:
    """One reply goes to the transport unchanged; a connection that is closed meanwhile gets none."""
    steps = [("runs", True), ("read", (50, 100, [b"reply"], False)), ("read", (50, 100, [b"late"], True))]
    seen = go_through(twin, steps)
    assert [step for step in seen if type(step) is tuple and step[0] == "sent"] == [("sent", b"reply")]


@pytest.mark.parametrize("twin", [compiled, reads], ids=["compiled", "pure"])
def test_a_read_of_replies_completes_their_sends(twin: Any) -> None:
    seen = go_through(twin, [("sends", 3), ("read", (SIZES[1], 0, [], False)), ("read", (5, 0, [], False))])
    results = [step for step in seen if isinstance(step, SendResult)]
    assert [result.queue_offset for result in results] == [0, 1]
    assert seen[-1] == ([2], 1)
    assert [step for step in seen if type(step) is tuple and step[0] == "read"] == [("read", (5, 0.0, 0, []))]


@pytest.mark.parametrize("twin", [compiled, reads], ids=["compiled", "pure"])
def test_what_a_run_has_left_is_read_behind_it(twin: Any) -> None:
    seen = go_through(twin, [("runs", True), ("read", (50, 30, [b"reply"], False))])
    assert ("read", (50, 0.0, 30, [b"reply"])) in seen
    assert not [step for step in seen if type(step) is tuple and step[0] == "sent"]
