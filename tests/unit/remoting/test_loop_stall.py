"""After a stall of the process, the check for silent peers runs after the processing of input that arrived
meanwhile.
"""

from __future__ import annotations

import asyncio

import pytest

from tianzhou.remoting.loop_stall import STALL_S, StallAwareTimer, caught_up, stalled
from tianzhou.testing import VirtualLoop, run_virtual

pytestmark = pytest.mark.runner.with_args(run_virtual)


def virtual_loop() -> VirtualLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    return loop


def hear(order: list[str], turns: int) -> None:
    """Note an event after a few iterations of the loop, like a heartbeat that is still to be read."""
    if turns:
        asyncio.get_running_loop().call_soon(hear, order, turns - 1)
    else:
        order.append("heard")


@pytest.mark.parametrize(("stood_still_s", "order"), [(0.0, ["look", "heard"]), (3600.0, ["heard", "look"])])
async def test_a_timer_lets_the_loop_read_first_when_it_comes_late(stood_still_s: float, order: list[str]) -> None:
    loop, found = virtual_loop(), []
    timer = StallAwareTimer(loop, 1.0, lambda: found.append("look"))
    loop.call_later(1.0, hear, found, 4)
    loop.clock.advance(stood_still_s)
    await asyncio.sleep(1.5)
    await caught_up()
    timer.cancel()
    assert found == order


async def test_a_timer_can_be_cancelled_before_and_while_it_lets_others_go_first() -> None:
    loop, found = virtual_loop(), []
    early, late = (StallAwareTimer(loop, 1.0, lambda: found.append("look")) for _ in range(2))
    early.cancel()
    loop.clock.advance(3600)
    assert stalled(loop.time() - STALL_S - 0.1)
    assert not stalled(loop.time() - STALL_S + 0.1)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    late.cancel()
    await caught_up()
    await caught_up()
    assert found == []
