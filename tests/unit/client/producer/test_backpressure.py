"""Limits on the requests in flight (client.md §5.2)."""

import asyncio

import pytest

from tianzhou.client.producer.backpressure import Backpressure
from tianzhou.client.producer.options import ProducerOptions
from tianzhou.errors import ConfigError, TooManyRequests
from tianzhou.testing.clock import run

pytestmark = pytest.mark.runner.with_args(run)

MIB = 1024 * 1024


async def test_senders_wait_for_room_and_go_in_order() -> None:
    pressure = Backpressure(10, 100 * MIB)
    order: list[int] = []
    most = 0

    async def send(i: int) -> None:
        nonlocal most
        async with pressure.room(1, 10_000):
            order.append(i)
            most = max(most, pressure.messages)
            await asyncio.sleep(0.1)

    await asyncio.gather(*(send(i) for i in range(35)))
    assert order == list(range(35))
    assert most == 10
    assert (pressure.messages, pressure.bytes) == (0, 0)


async def test_bytes_are_limited_too_and_a_giant_passes_alone() -> None:
    pressure = Backpressure(100, 4 * MIB)
    most = 0

    async def send(size: int) -> None:
        nonlocal most
        async with pressure.room(size, 60_000):
            most = max(most, pressure.bytes)
            await asyncio.sleep(0.1)

    await asyncio.gather(*(send(3 * MIB // 2) for _ in range(7)))
    assert most == 3 * MIB
    await asyncio.gather(send(9 * MIB), send(1), send(1))
    assert most == 9 * MIB
    assert (pressure.messages, pressure.bytes) == (0, 0)


async def test_who_gets_no_room_in_time_learns_the_limits() -> None:
    pressure = Backpressure(10, 100 * MIB)
    release = asyncio.Event()

    async def hold() -> None:
        async with pressure.room(5, 1_000):
            await release.wait()

    holders = [asyncio.create_task(hold()) for _ in range(10)]
    await asyncio.sleep(0)
    with pytest.raises(TooManyRequests, match="back_pressure_for_async_send_num 10"):
        async with pressure.room(1, 500):
            pass
    cancelled = asyncio.create_task(hold())
    await asyncio.sleep(0)
    cancelled.cancel()
    await asyncio.wait([cancelled])
    release.set()
    await asyncio.gather(*holders)
    async with pressure.room(1, 1):
        assert pressure.messages == 1
    assert (pressure.messages, pressure.bytes) == (0, 0)


def test_limits_have_least_values() -> None:
    with pytest.raises(ConfigError, match="at least 10"):
        ProducerOptions(enable_backpressure_for_async_mode=True, back_pressure_for_async_send_num=9)
    with pytest.raises(ConfigError, match="at least 1048576"):
        ProducerOptions(enable_backpressure_for_async_mode=True, back_pressure_for_async_send_size=1000)
