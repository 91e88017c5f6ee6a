"""The guarantees of every store of processed ids: in memory, in SQLite, and in a Redis of the test's own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tianzhou.client import MemoryIds, RedisIds, SqliteIds, idempotent
from tianzhou.client.consumer.push.idempotence import Claim, ProcessedIds
from tianzhou.errors import DuplicateInProgress
from tianzhou.model import MessageExt
from tianzhou.testing.clock import VirtualClock

SECOND_MS = 1_000
MOMENT_MS = 300
"""Window in ms for tests that wait for its end: Redis has its own clock, so this takes real time."""


@dataclass
class Place:
    """A store, further users of the same data, and its time."""

    ids: ProcessedIds
    another: Callable[[], ProcessedIds]
    clock: Any
    wait_ms: Callable[[int], None]

    def claim(self, key: str, claim_ms: int = 60 * SECOND_MS) -> Claim:
        return self.ids.claim(key, self.clock.now_ms(), claim_ms)

    def finish(self, key: str, window_ms: int = 60 * SECOND_MS) -> None:
        self.ids.finish(key, self.clock.now_ms(), window_ms)


class RealClock:
    """The machine's time, which Redis uses, too."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()


@pytest.fixture(params=["memory", "sqlite", "redis"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param == "redis":
        url = request.getfixturevalue("redis_url")
        prefix = f"{request.node.name}:"
        yield Place(
            RedisIds(url, prefix=prefix),
            lambda: RedisIds(url, prefix=prefix),
            RealClock(),
            lambda span_ms: time.sleep(span_ms / 1000),
        )
        return
    clock = VirtualClock()
    if request.param == "memory":
        ids = MemoryIds()
        yield Place(ids, lambda: ids, clock, lambda span_ms: clock.advance(span_ms / 1000))
        return
    opened = [SqliteIds(tmp_path / "ids.db", durable=False)]

    def another() -> SqliteIds:
        opened.append(SqliteIds(tmp_path / "ids.db", durable=False))
        return opened[-1]

    yield Place(opened[0], another, clock, lambda span_ms: clock.advance(span_ms / 1000))
    for one in opened:
        one.close()


def message(key: str) -> MessageExt:
    return MessageExt("T", b"x", 0, {"UNIQ_KEY": key}, "b", 0, 0, 0, 0, 0, "h", 0, "h", 0, 0, 1, 0, "O")


def test_an_id_is_claimed_once_and_then_done(place: Place) -> None:
    assert place.claim("A") is Claim.GRANTED
    assert place.claim("A") is Claim.RUNNING
    assert place.claim("B") is Claim.GRANTED
    place.finish("A")
    assert place.claim("A") is Claim.DONE
    assert place.claim("B") is Claim.RUNNING


def test_others_who_share_the_store_see_the_same(place: Place) -> None:
    other = place.another()
    now_ms = place.clock.now_ms()
    assert place.claim("A") is Claim.GRANTED
    assert other.claim("A", now_ms, SECOND_MS) is Claim.RUNNING
    place.finish("A")
    assert other.claim("A", now_ms, SECOND_MS) is Claim.DONE


def test_what_is_released_may_be_claimed_again(place: Place) -> None:
    assert place.claim("A") is Claim.GRANTED
    place.ids.release("A")
    assert place.claim("A") is Claim.GRANTED
    place.ids.release("never claimed")
    assert place.claim("A") is Claim.RUNNING


def test_a_claim_ends_with_its_time_and_so_does_what_is_done(place: Place) -> None:
    assert place.claim("claimed", MOMENT_MS) is Claim.GRANTED
    assert place.claim("done", MOMENT_MS) is Claim.GRANTED
    place.finish("done", MOMENT_MS)
    assert place.claim("long", 60 * SECOND_MS) is Claim.GRANTED
    place.wait_ms(MOMENT_MS + 100)
    assert place.claim("claimed") is Claim.GRANTED
    assert place.claim("done") is Claim.GRANTED
    assert place.claim("long") is Claim.RUNNING


def test_finishing_counts_from_the_end_of_the_work(place: Place) -> None:
    assert place.claim("A", MOMENT_MS) is Claim.GRANTED
    place.finish("A", 60 * SECOND_MS)
    place.wait_ms(MOMENT_MS + 100)
    assert place.claim("A") is Claim.DONE


def test_of_many_who_claim_at_the_same_time_one_gets_it(place: Place) -> None:
    stores = [place.another() for _ in range(8)]
    barrier = threading.Barrier(len(stores))
    now_ms = place.clock.now_ms()

    def race(store: ProcessedIds) -> int:
        barrier.wait(10)
        return sum(store.claim(f"K{n}", now_ms, 60 * SECOND_MS) is Claim.GRANTED for n in range(50))

    with ThreadPoolExecutor(len(stores)) as pool:
        assert sum(pool.map(race, stores)) == 50


def test_keys_may_be_any_text(place: Place) -> None:
    keys = ["a b", "é\U0001f600", "x" * 2_000, "with:colons:", "new\nline", '"quoted"', ""]
    assert [place.claim(key) for key in keys] == [Claim.GRANTED] * len(keys)
    for key in keys:
        place.finish(key)
    assert [place.claim(key) for key in keys] == [Claim.DONE] * len(keys)


def test_a_handler_runs_once_for_each_id(place: Place) -> None:
    seen: list[str] = []
    answers = iter([ValueError("no"), None])

    @idempotent(place.ids, window_s=60, scope="G", clock=place.clock)
    def handle(one: MessageExt) -> None:
        if one.msg_id == "fails once" and (error := next(answers)) is not None:
            raise error
        seen.append(one.msg_id)

    for key in ("A", "B", "A", "A", "B"):
        handle(message(key))
    with pytest.raises(ValueError, match="no"):
        handle(message("fails once"))
    handle(message("fails once"))
    handle(message("fails once"))
    assert seen == ["A", "B", "fails once"]


def test_a_dead_run_is_taken_over_when_its_lease_is_over(place: Place) -> None:
    seen: list[MessageExt] = []
    leased = idempotent(place.ids, window_s=60, scope="G", lease_s=MOMENT_MS / 1000, clock=place.clock)(seen.append)
    # The claim of a killed process.
    key = f"G:{message('A').msg_id}:00000001:"
    assert place.claim(key, MOMENT_MS) is Claim.GRANTED
    with pytest.raises(DuplicateInProgress, match="in work elsewhere"):
        leased(message("A"))
    assert seen == []
    place.wait_ms(MOMENT_MS + 100)
    leased(message("A"))
    assert len(seen) == 1


def test_redis_forgets_by_itself_and_takes_any_client(redis_url: str) -> None:
    redis = pytest.importorskip("redis")
    for decode in (False, True):
        client = redis.Redis.from_url(redis_url, decode_responses=decode)
        ids = RedisIds(client, prefix=f"any client {decode}:")
        assert ids.claim("A", 0, 60 * SECOND_MS) is Claim.GRANTED
        assert ids.claim("A", 0, 60 * SECOND_MS) is Claim.RUNNING
        assert 0 < client.pttl(f"any client {decode}:A") <= 60 * SECOND_MS
        ids.finish("A", 0, 120 * SECOND_MS)
        assert ids.claim("A", 0, 60 * SECOND_MS) is Claim.DONE
        assert 60 * SECOND_MS < client.pttl(f"any client {decode}:A") <= 120 * SECOND_MS
        client.close()
