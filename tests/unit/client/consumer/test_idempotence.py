"""At most once per id within a window."""

import asyncio
import sqlite3
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tianzhou.client import ConsumeContext, MemoryIds, RedisIds, SqliteIds, idempotent
from tianzhou.client.consumer.push.handlers import Handlers
from tianzhou.client.consumer.push.idempotence import Claim, default_id
from tianzhou.errors import ConfigError, DuplicateInProgress
from tianzhou.model import ConsumeResult, MessageExt, MessageQueue
from tianzhou.testing.clock import VirtualClock

Q = MessageQueue("T", "b", 0)


def message(key: str = "U", body: bytes = b"x", keys: str = "") -> MessageExt:
    properties = {"UNIQ_KEY": key} | ({"KEYS": keys} if keys else {})
    crc = sum(body)
    return MessageExt("T", body, 0, properties, "b", 0, 0, 0, 0, 0, "h", 0, "h", 0, 0, crc, 0, f"O{key}")


class FakeRedis:
    """The three commands that are used, with expiry by a clock."""

    def __init__(self, clock) -> None:
        self._now_ms = clock.now_ms
        self.data: dict[str, tuple[bytes, int]] = {}

    def set(self, name, value, nx=False, px=None):
        if nx and self.get(name) is not None:
            return None
        self.data[name] = (value, self._now_ms() + px)
        return True

    def get(self, name):
        value, until = self.data.get(name, (None, 0))
        return value if until > self._now_ms() else None

    def delete(self, name):
        self.data.pop(name, None)


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture(params=["memory", "sqlite", "redis"])
def ids(request, clock, tmp_path):
    if request.param == "sqlite":
        store = SqliteIds(tmp_path / "ids.db", durable=False)
        yield store
        store.close()
    else:
        yield MemoryIds() if request.param == "memory" else RedisIds(FakeRedis(clock))


def consume(handler, *arguments):
    """Call a handler of either kind like a consumer."""

    async def main():
        handlers = Handlers("G", orderly=False, batch_size=2 if isinstance(arguments[0], list) else 1, threads=2)
        handlers.add("T", handler)
        given = arguments[0] if isinstance(arguments[0], list) else [arguments[0]]
        try:
            return await handlers.call("T", given, *(arguments[1:] or (ConsumeContext(Q),)))
        finally:
            handlers.close()

    return asyncio.run(main())


@pytest.mark.parametrize("kind", ["async", "sync"])
def test_what_was_done_is_not_done_again_within_the_window(ids, clock, kind) -> None:
    seen = []

    if kind == "async":

        @idempotent(ids, window_s=60, clock=clock)
        async def handle(one) -> None:
            seen.append(one.msg_id)
    else:

        @idempotent(ids, window_s=60, clock=clock)
        def handle(one) -> None:
            seen.append(one.msg_id)

    for key in ("A", "A", "B", "A", "B"):
        assert consume(handle, message(key)) is None
    assert seen == ["A", "B"]
    clock.advance(59)
    consume(handle, message("A"))
    assert seen == ["A", "B"]
    clock.advance(2)
    consume(handle, message("A"))
    assert seen == ["A", "B", "A"]


def test_what_failed_is_done_again(ids, clock) -> None:
    answers = iter([ValueError("no"), ConsumeResult.RECONSUME_LATER, ConsumeResult.SUCCESS])
    runs = 0

    @idempotent(ids, clock=clock)
    async def handle(one):
        nonlocal runs
        runs += 1
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    with pytest.raises(ValueError, match="no"):
        consume(handle, message())
    assert consume(handle, message()) is ConsumeResult.RECONSUME_LATER
    assert consume(handle, message()) is ConsumeResult.SUCCESS
    assert consume(handle, message()) is None
    assert runs == 3


def test_a_run_that_died_stays_claimed_or_is_leased(ids, clock) -> None:
    """A claim without an end, as a process leaves it that was killed."""
    assert ids.claim(f"G:{default_id(message())}", clock.now_ms(), 60_000) is Claim.GRANTED
    seen = []
    strict = idempotent(ids, window_s=60, scope="G", clock=clock)(seen.append)
    leased = idempotent(ids, window_s=60, scope="G", lease_s=60, clock=clock)(seen.append)
    consume(strict, message())
    with pytest.raises(DuplicateInProgress, match="in work elsewhere"):
        consume(leased, message())
    assert seen == []
    clock.advance(61)
    consume(leased, message())
    assert len(seen) == 1


def test_of_a_list_only_what_is_new_is_passed(ids, clock) -> None:
    seen = []

    @idempotent(ids, clock=clock)
    async def handle(messages, context):
        seen.append([one.msg_id for one in messages])
        if "fail" in seen[-1]:
            raise ValueError("no")
        if "C" in seen[-1]:
            context.ack_index = 0

    consume(handle, [message("A"), message("A"), message("B")])
    assert seen.pop() == ["A", "B"]
    assert consume(handle, [message("A"), message("B")]) is None
    assert seen == []
    context = ConsumeContext(Q)
    consume(handle, [message("A"), message("C"), message("B"), message("D")], context)
    assert seen.pop() == ["C", "D"]
    assert context.ack_index == 2  # D is repeated, and only D
    consume(handle, [message("C"), message("D")])
    assert seen.pop() == ["D"]
    with pytest.raises(ValueError, match="no"):
        consume(handle, [message("E"), message("fail")])
    seen.clear()
    consume(handle, [message("E")])
    assert seen == [["E"]]


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_one_id_is_claimed_by_one(tmp_path, clock, kind) -> None:
    ids = MemoryIds() if kind == "memory" else SqliteIds(tmp_path / "ids.db", durable=False)
    barrier = threading.Barrier(8)

    def race(i: int) -> int:
        barrier.wait(10)
        return sum(ids.claim(f"K{n}", clock.now_ms(), 60_000) is Claim.GRANTED for n in range(50))

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(race, range(8))) == 50


def test_scopes_and_keys_keep_apart(clock) -> None:
    ids, seen = MemoryIds(), []
    first = idempotent(ids, scope="G1", clock=clock)(seen.append)
    second = idempotent(ids, scope="G2", clock=clock)(seen.append)
    by_order = idempotent(ids, scope="G3", key=lambda one: one.properties["KEYS"], clock=clock)(seen.append)
    for handler in (first, second, first):
        handler(message("A"))
    assert len(seen) == 2
    for key in ("A", "B"):
        by_order(message(key, keys="order-1"))
    assert len(seen) == 3
    # One key for a whole batch, like in Java's client since 5.0.
    for body in (b"1", b"2", b"1"):
        first(message("batch", body))
    assert len(seen) == 5


def test_memory_is_bounded_and_what_expired_goes(clock) -> None:
    ids = MemoryIds(most=10)
    for i in range(100):
        ids.claim(str(i), clock.now_ms(), 1_000)
    assert len(ids) == 10
    clock.advance(2)
    for i in range(6):
        ids.claim(f"new{i}", clock.now_ms(), 1_000)
    assert len(ids) <= 6


def test_sqlite_outlives_a_process_and_forgets_what_expired(tmp_path, clock) -> None:
    path = tmp_path / "ids.db"
    first = SqliteIds(path)
    assert first.claim("A", clock.now_ms(), 60_000) is Claim.GRANTED
    first.finish("A", clock.now_ms(), 60_000)
    first.claim("B", clock.now_ms(), 60_000)
    second = SqliteIds(path)  # of another process, while the first is at work
    assert second.claim("A", clock.now_ms(), 60_000) is Claim.DONE
    assert second.claim("B", clock.now_ms(), 60_000) is Claim.RUNNING
    first.close()
    clock.advance(61)
    for i in range(1_000):
        second.claim(f"x{i}", clock.now_ms(), 1)
    second.close()
    with sqlite3.connect(path) as database:
        assert database.execute("SELECT count(*) FROM processed WHERE id IN ('A', 'B')").fetchone() == (0,)
    with pytest.raises(ConfigError, match="cannot be used"):
        SqliteIds(tmp_path / "no" / "such" / "ids.db")


def test_redis_is_optional_and_its_absence_names_the_fix(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "redis", None)
    with pytest.raises(ConfigError, match=r"pip install tianzhou\[redis\]"):
        RedisIds("redis://localhost:6379/0")


@pytest.mark.parametrize("options", [{"window_s": 0}, {"lease_s": 0}, {"window_s": -1}])
def test_times_are_positive(options) -> None:
    with pytest.raises(ConfigError, match="above 0"):
        idempotent(MemoryIds(), **options)
    with pytest.raises(ConfigError, match="at least 1"):
        MemoryIds(0)
