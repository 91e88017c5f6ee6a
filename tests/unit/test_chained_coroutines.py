"""Coroutines that end before their first step: the coroutine they would await is closed, and Python does not warn."""

from __future__ import annotations

import asyncio
import gc
import warnings
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

import pytest

from tianzhou.broker.replication.table_requests import TableRequests
from tianzhou.chained_coroutines import ChainedCoroutine
from tianzhou.remoting.connection import Reply
from tianzhou.testing.simulation.loop import SimulationLoop
from tianzhou.wire.codes import RequestCode
from tianzhou.wire.command import Command


@contextmanager
def nothing_unawaited() -> Iterator[None]:
    """Fail when Python warns of a coroutine that was never awaited."""
    gc.collect()  # other tests may have left garbage that warns
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        yield
        gc.collect()
    assert [text for warning in seen if "never awaited" in (text := str(warning.message))] == []


async def answer() -> Reply:
    return Command(0)


class Log:
    leads = True

    async def publish(self) -> None:
        raise AssertionError("nothing was changed")


def table_change() -> Any:
    around = TableRequests(Log(), str).around(lambda _code, handle: handle)
    serve = around(int(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP), lambda *_: answer())
    return serve(None, Command(200))  # type: ignore[arg-type]


def chained() -> Any:
    inner = answer()

    async def outer() -> Reply:
        return await inner

    return ChainedCoroutine(outer(), inner)


@pytest.mark.parametrize("begin", [table_change, chained])
def test_a_request_that_is_cancelled_before_its_first_step_leaves_no_coroutine(begin: Callable[[], Any]) -> None:
    async def cancel() -> None:
        task = asyncio.get_running_loop().create_task(begin())
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()

    with nothing_unawaited():
        asyncio.run(cancel())


@pytest.mark.parametrize("begin", [table_change, chained])
def test_a_request_that_is_closed_before_its_first_step_leaves_no_coroutine(begin: Callable[[], Any]) -> None:
    with nothing_unawaited():
        begin().close()


def test_a_chained_coroutine_returns_and_raises_what_the_outer_one_does() -> None:
    async def refuse() -> Reply:
        raise ValueError("refused")

    async def awaiting(inner: Awaitable[Reply]) -> Reply:
        return await inner

    async def both() -> None:
        inner = answer()
        assert isinstance(await ChainedCoroutine(awaiting(inner), inner), Command)
        refused = refuse()
        with pytest.raises(ValueError, match="refused"):
            await asyncio.get_running_loop().create_task(ChainedCoroutine(awaiting(refused), refused))

    with nothing_unawaited():
        asyncio.run(both())


def test_a_simulated_process_that_dies_leaves_no_coroutine_of_a_request_that_has_not_begun() -> None:
    loop = SimulationLoop(Random(1))

    async def finish(reply: Awaitable[Reply]) -> None:
        await reply

    with nothing_unawaited():
        loop.create_task(finish(table_change()))
        loop.abandon()
        loop.close()
