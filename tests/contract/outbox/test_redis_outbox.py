"""The outbox in Redis: ownership of the stream, and a Redis that is down, full, or has lost its data."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest
from redis_server import RedisServer, run_in_real_time

from server_ports import server_ports
from tianzhou import Message, Producer, SendStatus
from tianzhou.client import RedisOutbox
from tianzhou.errors import ConfigError, OutboxFull, OutboxUnavailable

GROUP = "P"


pytestmark = pytest.mark.runner.with_args(run_in_real_time)


@pytest.fixture
def own_redis(tmp_path: Path) -> Any:
    """A redis-server that a test may stop, with a log of its writes."""
    (tmp_path / "redis").mkdir()
    with RedisServer(tmp_path / "redis", is_logged=True) as server:
        yield server


async def test_a_redis_that_is_away_is_named_with_what_to_do() -> None:
    url = f"redis://user:secret@127.0.0.1:{server_ports()}/2"
    with pytest.raises(ConfigError, match=r"outbox redis://127\.0\.0\.1:\d+/2 .*cannot be used.*start Redis") as one:
        await Producer(GROUP, "127.0.0.1:9", outbox=url).start()
    assert "secret" not in str(one.value)


async def test_messages_wait_while_redis_restarts_and_later_ones_are_refused(own_redis: RedisServer) -> None:
    address = f"127.0.0.1:{server_ports()}"
    async with Producer(GROUP, address, outbox=own_redis.url) as producer:
        for text in (b"a", b"b"):
            assert (await producer.send(Message("T", text))).status is SendStatus.KEPT_IN_OUTBOX
        own_redis.stop()
        with pytest.raises(OutboxUnavailable, match=r"tianzhou:outbox:\{P\} does not answer.*send it again"):
            await producer.send(Message("T", b"c"))
        own_redis.start()
        assert (await producer.send(Message("T", b"d"))).status is SendStatus.KEPT_IN_OUTBOX
        assert producer.outbox is not None
        assert (producer.outbox.pending, producer.outbox.lost) == (3, 0)


async def test_a_redis_without_memory_refuses_and_still_gives_its_messages_out(own_redis: RedisServer) -> None:
    store = RedisOutbox(own_redis.url)
    await store.open(GROUP)
    await store.append([b"x" * 1_000] * 3)
    with own_redis.client() as client:
        client.config_set("maxmemory", 1)
        with pytest.raises(OutboxFull, match=r"cannot take \d+ bytes.*no memory left \(maxmemory\).*raise maxmemory"):
            await store.append([b"y"])
        assert (store.count, store.lost) == (3, 0)
        frames = await store.peek(1_000_000)
        assert len(frames) == 3
        await store.remove(frames[:1])
        assert [frame.payload for frame in await store.peek(1_000_000)] == [b"x" * 1_000] * 2
        client.config_set("maxmemory", 0)
    await store.append([b"y"])
    assert store.count == 3
    await store.close()


async def test_a_redis_that_would_evict_the_stream_is_refused(own_redis: RedisServer) -> None:
    with own_redis.client() as client:
        client.config_set("maxmemory", 100_000_000)
        client.config_set("maxmemory-policy", "allkeys-lru")
        with pytest.raises(ConfigError, match=r"evicts any key.*allkeys-lru.*set maxmemory-policy noeviction"):
            await RedisOutbox(own_redis.url).open(GROUP)
        client.config_set("maxmemory-policy", "volatile-lru")
    store = RedisOutbox(own_redis.url)
    await store.open(GROUP)
    await store.close()


async def test_a_redis_without_a_log_is_warned_about(redis_url: str, caplog: pytest.LogCaptureFixture) -> None:
    store = RedisOutbox(redis_url, "warned")
    with caplog.at_level(logging.WARNING):
        await store.open(GROUP)
    assert "does not log its writes, so messages are lost when it restarts; set appendonly yes" in caplog.text
    await store.close()


async def test_messages_of_another_group_are_not_sent_by_this_one(redis_url: str) -> None:
    store = RedisOutbox(redis_url, "of-another-group")
    await store.open("shop")
    await store.append([b"x"])
    await store.close()
    with pytest.raises(ConfigError, match=r"has 1 messages of producer group shop, and this producer's group is bank"):
        await RedisOutbox(redis_url, "of-another-group").open("bank")
    await store.open("shop")
    await store.remove(await store.peek(1))
    await store.close()
    other = RedisOutbox(redis_url, "of-another-group")  # an empty one may change hands
    await other.open("bank")
    await other.close()


async def test_another_producer_waits_for_a_killed_one_and_shuts_out_one_that_hung(redis_url: str) -> None:
    hung = RedisOutbox(redis_url, "hung", lease_s=0.3)
    await hung.open(GROUP)
    await hung.append([b"first"])
    # The lease ends as if the process had stood still.
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        if "_renew" in repr(task):
            task.cancel()
    began_s = asyncio.get_running_loop().time()
    other = RedisOutbox(redis_url, "hung", lease_s=0.3)
    await other.open(GROUP)
    assert asyncio.get_running_loop().time() - began_s < 5
    for call in (hung.append([b"second"]), hung.peek(100), hung.remove(await other.peek(1))):
        with pytest.raises(OutboxUnavailable, match=r"held by another producer \(group P, process \d+ of .*\).*lease"):
            await call
    assert [frame.payload for frame in await other.peek(1_000)] == [b"first"]
    await hung.close()
    await other.append([b"second"])  # the other one's end has not released its lease
    assert other.count == 2
    await other.close()


async def test_messages_that_redis_has_lost_are_reported(
    redis_server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    store = RedisOutbox(redis_server.url, "gone")
    await store.open(GROUP)
    await store.append([b"a", b"b"])
    with redis_server.client() as client:
        client.delete("tianzhou:outbox:{gone}")
    assert await store.peek(100) == []
    assert "2 messages are lost: Redis no longer has them" in caplog.text
    assert (store.count, store.bytes, store.lost) == (0, 0, 2)
    await store.append([b"c"])
    assert [frame.payload for frame in await store.peek(100)] == [b"c"]
    await store.close()


async def test_a_client_of_the_users_own_is_used_and_left_open(redis_url: str) -> None:
    redis = pytest.importorskip("redis.asyncio")
    client = redis.Redis.from_url(redis_url)
    store = RedisOutbox(client, "own-client")
    await store.open(GROUP)
    await store.append([b"x"])
    await store.close()
    assert await client.xlen("tianzhou:outbox:{own-client}") == 1
    await client.aclose()
    with pytest.raises(ConfigError, match="decode_responses=True"):
        RedisOutbox(redis.Redis.from_url(redis_url, decode_responses=True))


async def test_a_key_of_another_kind_is_named(redis_server: RedisServer) -> None:
    with redis_server.client() as client:
        client.set("tianzhou:outbox:{text}", b"x")
    with pytest.raises(ConfigError, match=r"tianzhou:outbox:\{text\} cannot be used.*WRONGTYPE"):
        await RedisOutbox(redis_server.url, "text").open(GROUP)


def test_a_url_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(ConfigError, match="is no address of a Redis"):
        RedisOutbox("redis://host:port/0")
