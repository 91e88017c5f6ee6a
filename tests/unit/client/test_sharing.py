"""The loop that shares queues ends when it is told to, whatever else it is told at the same moment."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tianzhou.client.rebalance import Averagely
from tianzhou.client.sharing import Sharing
from tianzhou.model import MessageModel

TURNS = range(5)
"""How many turns of the loop are between the two messages."""


def sharing() -> Sharing:
    """Shares no topic at all."""
    nobody: Any = None
    return Sharing(
        nobody, "G", MessageModel.CLUSTERING, Averagely(),
        topics=lambda: (), owned=lambda: (), take=nobody, give_up=nobody,
    )  # fmt: skip


@pytest.mark.parametrize("turns", TURNS)
def test_the_end_counts_when_a_change_of_the_group_comes_with_it(turns: int) -> None:
    async def main() -> None:
        shares = sharing()
        task = asyncio.get_running_loop().create_task(shares.run())
        await asyncio.sleep(0.3)  # behind its first round
        shares.wake()
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task], timeout=5)
        assert task.cancelled()

    asyncio.run(main())
