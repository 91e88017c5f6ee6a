"""Limits on pending work at the broker: requests, transactions and long polls."""

from __future__ import annotations

from typing import Any

import pytest
from broker_bench import OpenBench
from staging_talk import STAGE, message, stage

from tianzhou.wire.codes import RequestCode, ResponseCode

REFUSED = ResponseCode.INVALID_PARAMETER


@pytest.mark.over_limit("maxLongPolls")
async def test_more_pulls_than_may_wait_have_to_try_again(broker: OpenBench) -> None:
    async with broker(max_long_polls=2) as bench:
        peers = [bench.peer() for _ in range(3)]
        await peers[0].create_topic("T")
        waiting = [peer.post_pull("T", sys_flag=6, suspend_timeout_millis=5_000) for peer in peers[:2]]
        reply = await peers[2].pull("T", sys_flag=6)
        assert reply.code == ResponseCode.SYSTEM_BUSY
        assert "raise maxLongPolls" in reply.remark
        assert (await peers[2].pull("T", sys_flag=4)).code == ResponseCode.PULL_NOT_FOUND
        assert [peer.peek(one) for peer, one in zip(peers, waiting, strict=False)] == [None, None]
        peers[0].transport.lose()
        last = peers[2].post_pull("T", sys_flag=6)
        await peers[1].send("T", b"new")
        assert (await peers[1].reply(waiting[1])).code == 0
        assert (await peers[2].reply(last)).code == 0
        assert await peers[1].refused() == {"maxLongPolls": "1"}


@pytest.mark.over_limit("maxLongPollsPerConnection")
async def test_one_connection_cannot_take_all_the_places_of_waiting_pulls(broker: OpenBench) -> None:
    async with broker(max_long_polls_per_connection=2) as bench:
        greedy, other = bench.peer(), bench.peer()
        await other.create_topic("T")
        waiting = [greedy.post_pull("T", sys_flag=6, suspend_timeout_millis=5_000) for _ in range(2)]
        reply = await greedy.pull("T", sys_flag=6)
        assert reply.code == ResponseCode.SYSTEM_BUSY
        assert "3 pulls, at most 2 are allowed; raise maxLongPollsPerConnection" in reply.remark
        waiting.append(other.post_pull("T", sys_flag=6))
        await other.send("T", b"new")
        assert [(await greedy.reply(one)).code for one in waiting[:2]] == [0, 0]
        assert (await other.reply(waiting[2])).code == 0
        greedy.post_pull("T", offset=1, sys_flag=6)
        assert await other.refused() == {"maxLongPollsPerConnection": "1"}


@pytest.mark.over_limit("maxRequestsPerClient")
async def test_requests_to_a_client_that_answers_nothing_come_to_an_end(broker: OpenBench) -> None:
    async with broker(max_requests_per_client=2) as bench:
        member, tool = bench.peer(), bench.peer()
        await tool.create_topic("T")
        await member.heartbeat("c", "T")
        ask = {"consumer_group": "G", "client_id": "c"}
        asked = [tool.post(RequestCode.GET_CONSUMER_RUNNING_INFO, **ask) for _ in range(2)]
        reply = await tool.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, **ask)
        assert reply.code == ResponseCode.SYSTEM_BUSY
        assert reply.remark.startswith("client c: 3 requests, at most 2 are allowed")
        assert tool.peek(asked[0]) is None
        question, *_ = member.received(RequestCode.GET_CONSUMER_RUNNING_INFO)
        member.answer(question)
        assert (await tool.reply(asked[0])).code == 0
        third = tool.post(RequestCode.GET_CONSUMER_RUNNING_INFO, **ask)
        assert (await tool.reply(third)).code == ResponseCode.CONSUME_MSG_TIMEOUT


@pytest.mark.over_limit("maxHalfMessages")
async def test_half_messages_come_to_an_end(broker: OpenBench) -> None:
    async with broker(max_half_messages=2) as bench:
        peer = bench.peer()

        def prepare(key: str) -> Any:
            properties = {"TRAN_MSG": "true", "PGROUP": "P", "UNIQ_KEY": key}
            return peer.send("T", properties=properties, sys_flag=4)

        replies = [await prepare(key) for key in "ABC"]
        assert [reply.code for reply in replies] == [0, 0, ResponseCode.SYSTEM_BUSY]
        assert "raise maxHalfMessages" in replies[2].remark
        assert (await peer.send("T")).code == 0


@pytest.mark.over_limit("maxStagedWriters")
async def test_writers_of_staged_messages_come_to_an_end(broker: OpenBench) -> None:
    async with broker(max_staged_writers=1) as bench:
        peer = bench.peer()
        assert (await stage(peer, "a", [message("m")])).code == 0
        more = {
            "writer": "X", "batch": 0, "attempt": "b", "number": 0, "coordinator": "broker-a", "born_timestamp": 9,
            "last": True, "default_topic": "TBW102", "default_topic_queue_nums": 4,
        }  # fmt: skip
        reply = await peer.ask(STAGE, b"any", **more)
        assert (reply.code, reply.remark[:9]) == (REFUSED, "writer X:")
        assert (await stage(peer, "b", [message("n")], batch=1)).code == 0


@pytest.mark.over_limit("maxStagedUnits")
async def test_units_that_wait_for_a_decision_come_to_an_end(broker: OpenBench) -> None:
    async with broker(max_staged_units=2) as bench:
        peer = bench.peer()
        assert (await stage(peer, "a", [message("m")], number=0)).code == 0
        assert (await stage(peer, "a", [message("n")], number=1)).code == 0
        assert (await stage(peer, "a", [message("o")], number=2)).code == REFUSED
        assert (await stage(peer, "a", [message("n")], number=1)).code == 0, "it is known"
