"""Slow work runs on the side thread, one job at a time, while the loop continues."""

from __future__ import annotations

import asyncio
import sys
import threading

import pytest
from loops import run_bounded

from tianzhou.remoting.side_thread import SWITCH_S, SideThread

pytestmark = pytest.mark.runner.with_args(run_bounded)


async def test_one_thing_at_a_time_while_the_loop_goes_on() -> None:
    aside, go, working, most = SideThread(), threading.Event(), 0, 0
    former = sys.getswitchinterval()

    def work(number: int) -> int:
        nonlocal working, most
        working += 1
        most = max(most, working)
        assert go.wait(20)
        working -= 1
        return number

    tasks = [asyncio.ensure_future(aside.run(work, number)) for number in range(5)]
    await asyncio.sleep(0.01)
    assert aside.begun == 5
    assert sys.getswitchinterval() <= SWITCH_S
    go.set()
    assert await asyncio.gather(*tasks) == [0, 1, 2, 3, 4]
    assert most == 1
    assert aside.begun == 0
    assert sys.getswitchinterval() == former


async def test_what_is_raised_comes_back_and_who_goes_away_leaves_the_line() -> None:
    aside, go, done = SideThread(), threading.Event(), list[int]()

    def fail() -> None:
        assert go.wait(20)
        raise ValueError("no")

    failing = asyncio.ensure_future(aside.run(fail))
    gone = asyncio.ensure_future(aside.run(done.append, 1))
    await asyncio.sleep(0.01)
    gone.cancel()
    await asyncio.sleep(0)
    go.set()
    with pytest.raises(ValueError, match="no"):
        await failing
    assert await aside.run(done.append, 2) is None
    assert done == [2]
    assert aside.begun == 0
