"""A slave copies its master's tables: it retries soon after a hang, and ignores a former master."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tianzhou.broker.replication.metadata_sync import WORK, MetadataSync
from tianzhou.errors import ConnectFailed, RequestTimeout, TianzhouError
from tianzhou.testing.clock import VirtualClock, run
from tianzhou.troubles import Troubles
from tianzhou.wire.codes import RequestCode
from tianzhou.wire.command import Command

pytestmark = pytest.mark.runner.with_args(run)


class LoopClock(VirtualClock):
    """The time of the loop that the test runs on."""

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()


class Slave:
    """The code under test, with a reply function as the master; tables and store must not be used."""

    def __init__(self, answer: Callable[[Command], Awaitable[Any]]) -> None:
        self.master = "old"
        self.asked: list[float] = []
        self.troubles = Troubles()
        self._answer = answer
        client = SimpleNamespace(invoke=self._invoke)
        store = SimpleNamespace(end_offset=0)
        self.sync = MetadataSync(
            cast("Any", None), cast("Any", client), LoopClock(), lambda: self.master, cast("Any", store), period_s=0.5
        )

    async def _invoke(self, address: str, command: Command, limit_ms: float) -> Any:
        self.asked.append(asyncio.get_running_loop().time())
        return await self._answer(command)

    async def run_for(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.sync.run(self.troubles)


async def test_a_master_that_hung_is_asked_again_soon() -> None:
    async def hangs(command: Command) -> None:
        await asyncio.sleep(5)
        raise RequestTimeout("no reply")

    slave = Slave(hangs)
    await slave.run_for(30)
    assert len(slave.asked) == 6
    assert slave.troubles.totals[WORK] == 5


async def test_a_master_that_is_gone_for_good_is_no_trouble() -> None:
    async def refuses(command: Command) -> None:
        raise ConnectFailed("refused")

    slave = Slave(refuses)
    await slave.run_for(1)
    assert WORK in slave.troubles
    slave.master = ""
    await slave.run_for(1)
    assert not slave.troubles


async def test_what_a_former_master_answers_late_is_passed_over() -> None:
    async def answers_late(command: Command) -> Any:
        slave.master = ""
        return command.reply(0, body=b"{}")

    slave = Slave(answers_late)
    await slave.sync.round()
    assert len(slave.asked) == 1


async def test_a_table_that_cannot_be_read_holds_up_no_other() -> None:
    asked = []

    async def answers_nonsense(command: Command) -> Any:
        asked.append(command.code)
        return command.reply(0, fields={}, body=b"[no table")

    with pytest.raises(TianzhouError, match="cannot be read"):
        await Slave(answers_nonsense).sync.round()
    assert asked == [
        RequestCode.GET_ALL_TOPIC_CONFIG,
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
        RequestCode.GET_ALL_CONSUMER_OFFSET,
        RequestCode.GET_ALL_DELAY_OFFSET,
    ]
