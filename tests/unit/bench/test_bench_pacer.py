"""Wake-ups at a time: never early, in order, and all of them on close."""

from __future__ import annotations

import asyncio
import time

import pytest

from tianzhou.bench import pacer
from tianzhou.bench.pacer import Pacer
from tianzhou.remoting.loop import run


@pytest.fixture(params=["timer file", "loop timer"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "loop timer":
        monkeypatch.setattr(pacer, "_libc", None)
    return str(request.param)


def test_nobody_is_woken_early_and_all_in_order(way: str) -> None:
    async def main() -> None:
        waker = Pacer()
        assert waker.exact == (way == "timer file")
        start = time.monotonic()
        dues = [start + n / 2_000 for n in range(-3, 20)]
        woken: list[float] = []

        async def one(due: float) -> None:
            await waker.until(due)
            assert time.monotonic() >= due
            woken.append(due)

        async with asyncio.timeout(30):
            await asyncio.gather(*map(one, dues))
        assert woken == dues
        waker.close()

    run(main())


def test_closing_wakes_everybody() -> None:
    async def main() -> None:
        waker = Pacer()
        waiting = [asyncio.create_task(waker.until(time.monotonic() + 3_600 + n)) for n in range(3)]
        await asyncio.sleep(0)
        waiting[1].cancel()
        await asyncio.sleep(0)
        waker.close()
        async with asyncio.timeout(30):
            await asyncio.gather(*waiting, return_exceptions=True)
        waker.close()

    run(main())
