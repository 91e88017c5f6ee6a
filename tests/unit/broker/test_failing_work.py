"""Failures in the middle of a broker's work: waiting clients get an error reply, and other requests are served."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from broker_bench import Bench, OpenBench, Peer

from broker_probe import BrokerProbe
from tianzhou.broker.messages.timer_heap import TimerHeap
from tianzhou.broker.transactions.transactions import WaitingHalf
from tianzhou.supervision import Supervisor
from tianzhou.testing.clock import run
from tianzhou.wire.codes import RequestCode

pytestmark = pytest.mark.runner.with_args(run)


async def test_sends_that_waited_for_the_disk_are_answered_after_the_answering_failed(
    broker: OpenBench,
) -> None:
    async with broker(store={"flush_disk_type": "SYNC_FLUSH"}) as bench:
        bench.answering.cancel()
        acks = bench.parts.acks
        failures = [ValueError("a defect")]

        def fails_once() -> None:
            if failures:
                raise failures.pop()
            answer()

        answer = BrokerProbe(bench.parts).replace_answer(fails_once)
        supervisor = Supervisor("broker", bench.clock)
        supervisor.own("acknowledgements", acks.run)
        peer = bench.peer()
        asked = [peer.post_send("TBW102", queue_id=number) for number in range(3)]
        assert [(await peer.reply(opaque)).code for opaque in asked] == [0, 0, 0]
        assert supervisor.troubles.totals["acknowledgements"] == 1
        await supervisor.end()


async def test_a_half_message_nobody_can_check_does_not_keep_others_from_it(bench: Bench, peer: Peer) -> None:
    await peer.heartbeat("c1", producer="P")
    for key in ("bad", "good"):
        properties = {"TRAN_MSG": "true", "PGROUP": "P", "UNIQ_KEY": key}
        assert (await peer.send("TBW102", properties=properties, sys_flag=4)).code == 0
    bench.clock.advance(60)
    checker = bench.parts.transactions

    async def loads(half: WaitingHalf) -> Any:
        if half.identity.unique_key == "bad":
            raise ValueError("a defect")
        return await load(half)

    load = BrokerProbe(bench.parts).load_halves_by(loads)
    with pytest.raises(ExceptionGroup, match="1 half messages cannot be checked"):
        await checker.check_all()
    await asyncio.sleep(0)
    asked = peer.received(RequestCode.CHECK_TRANSACTION_STATE)
    assert [command.fields["msgId"] for command in asked] == ["good"]


async def test_a_wait_that_raises_does_not_keep_the_others_waiting() -> None:
    ended: list[str] = []

    class Expiring:
        def __init__(self, name: str) -> None:
            self.name = name

        def expire(self) -> None:
            ended.append(self.name)
            if self.name == "bad":
                raise ValueError("a defect")

    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    deadlines = TimerHeap()
    for seconds, name in ((1, "bad"), (1, "second"), (2, "third")):
        deadlines.add(Expiring(name), seconds)
    await asyncio.sleep(3)
    assert ended == ["bad", "second", "third"]
