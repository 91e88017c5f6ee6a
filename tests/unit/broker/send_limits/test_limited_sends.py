"""Sends to a broker with limits of senders: stored sends, replies to the others, and counters."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from broker_bench import Bench, OpenBench, Peer

from broker_probe import BrokerProbe
from tianzhou import _hot
from tianzhou.broker.metrics.state import BrokerState
from tianzhou.model.send_limit import LimitScope, limit_of
from tianzhou.wire.batch import count_entries, encode_batch
from tianzhou.wire.codes import JSON, ROCKETMQ, RequestCode, ResponseCode
from tianzhou.wire.command import Command, encode
from tianzhou.wire.fields import write_header
from tianzhou.wire.json_dialect import loads


def limit(bench: Bench, scope: str, name: str, *rates: float | None) -> None:
    """Set a limit, with rates as of `limit_of`."""
    bench.tables.send_limits.put([limit_of(LimitScope(scope), name, *rates)])


async def request(peer: Peer, code: int, **fields: str) -> Command:
    """Send a request with these header fields."""
    opaque = peer.next_opaque()
    peer.post_frame(encode(Command(int(code), opaque, fields=fields)))
    return await peer.reply(opaque)


def answered(posted: list[tuple[Peer, int]]) -> list[Command]:
    """Return the replies to sends that have arrived."""
    return [reply for peer, opaque in posted if (reply := peer.peek(opaque)) is not None]


def batch(count: int) -> bytes:
    return encode_batch([(0, b"body", b"")] * count)


@pytest.mark.parametrize("producers", [1, 100])
@pytest.mark.parametrize("rate", [10, 500])
async def test_a_topic_gets_its_burst_and_then_its_rate(rate: int, producers: int, bench: Bench) -> None:
    burst = 2 * rate
    peers = [bench.peer() for _ in range(producers)]
    await peers[0].create_topic("orders")
    limit(bench, "topic", "orders", rate, burst)
    posted = [(peers[n % producers], peers[n % producers].post_send("orders")) for n in range(burst + 60)]
    await asyncio.sleep(0)
    assert sum(reply.code == 0 for reply in answered(posted)) == bench.stats.put_count == burst
    began_s, steps, offered = bench.clock.monotonic(), 250, round(1.2 * rate / 25) + 1
    for step in range(1, steps + 1):
        await asyncio.sleep(began_s + step / 25 - bench.clock.monotonic())
        for n in range(offered):
            peers[(step + n) % producers].post_send("orders")
    assert bench.stats.put_count - burst == pytest.approx(10 * rate, rel=0.02)


async def test_a_refusal_is_system_busy_with_limit_rate_and_time(bench: Bench, peer: Peer) -> None:
    limit(bench, "topic", "orders", 4, 2)
    replies = [await peer.send("orders") for _ in range(3)]
    assert [reply.code for reply in replies] == [0, 0, ResponseCode.SYSTEM_BUSY]
    assert replies[2].remark == (
        "[RATE_LIMIT]broker busy, start flow control for a while, topic orders is limited to 4 messages/s (burst 2), "
        "next token in 250 ms; send less, or raise the limit by: tianzhou limit set"
    )
    assert replies[2].fields["MSG_REGION"] == "DefaultRegion"
    await asyncio.sleep(0.25)
    assert (await peer.send("orders")).code == 0
    assert (await peer.send("other")).code == 0
    assert bench.stats.failed == 0, "a refused message was not lost by the store"


@pytest.mark.parametrize(
    ("scope", "name", "header"),
    [
        ("topic", "*", {}), ("group", "P", {}), ("group", "*", {}), ("client", "127.0.0.1", {}), ("client", "*", {}),
        ("topic", "orders", {"properties": {"DELAY": "1"}}), ("topic", "orders", {"properties": {"TRAN_MSG": "true"}}),
        ("topic", "orders", {"code": RequestCode.SEND_MESSAGE}),
    ],
)  # fmt: skip
async def test_every_kind_of_send_counts(
    scope: str, name: str, header: dict[str, Any], bench: Bench, peer: Peer
) -> None:
    await peer.send("orders")
    limit(bench, scope, name, 1, 3)
    assert [(await peer.send("orders", **header)).code for _ in range(5)] == [0, 0, 0, 2, 2]
    if scope == "group":
        assert (await peer.send("orders", producer_group="Q")).code == 0
    refused = bench.tables.send_limits.refused[f"{scope}:{name}"]
    assert (refused.count, refused.name) == (2, {"topic": "orders", "group": "P"}.get(scope, "127.0.0.1"))


async def test_oneway_sends_and_batches_count_each_message(bench: Bench, peer: Peer) -> None:
    await peer.send("orders")
    limit(bench, "topic", "orders", 1, 10)
    for _ in range(4):
        peer.post_send("orders", oneway=True)
    codes = [
        (await peer.send("orders", batch(count), code=code, batch=True)).code
        for count, code in ((4, 320), (4, 320), (2, 310), (1, 310))
    ]
    assert codes == [0, 2, 0, 2]
    for _ in range(4):
        peer.post_send("orders", oneway=True)
    assert (await peer.send("other")).code == 0
    assert len(bench.records("orders")) == 1 + 4 + 4 + 2
    assert bench.tables.send_limits.refused["topic:orders"].count == 4 + 1 + 4


async def test_bytes_are_those_of_bodies(bench: Bench, peer: Peer) -> None:
    limit(bench, "topic", "orders", None, None, 100, 250)
    assert [(await peer.send("orders", b"x" * 100)).code for _ in range(3)] == [0, 0, 2]
    await asyncio.sleep(0.5)
    assert (await peer.send("orders", b"x" * 100)).code == 0
    # A body above the burst is accepted after a long enough pause.
    await asyncio.sleep(2.5)
    assert (await peer.send("orders", b"x" * 1_000)).code == 0
    assert (await peer.send("orders", b"x")).code == 2


async def test_a_refusal_is_the_same_to_senders_of_both_encodings(bench: Bench, peer: Peer) -> None:
    limit(bench, "topic", "orders", 0.001, 1)
    await peer.send("orders")
    fields = write_header(
        RequestCode.SEND_MESSAGE, producer_group="P", topic="orders", default_topic="TBW102",
        default_topic_queue_nums=4, queue_id=0, sys_flag=0, born_timestamp=1, flag=0, properties="", reconsume_times=0,
        unit_mode=False, batch=False,
    )  # fmt: skip
    replies = []
    for kind in (JSON, ROCKETMQ):
        opaque = peer.next_opaque()
        peer.post_frame(encode(Command(10, opaque, fields=fields, body=b"x", serialize_type=kind)))
        replies.append(await peer.reply(opaque))
    assert [reply.code for reply in replies] == [ResponseCode.SYSTEM_BUSY] * 2
    assert len({(one.code, one.remark, one.flag, one.version, *sorted(one.fields.items())) for one in replies}) == 1


async def test_messages_of_consumers_are_not_limited(bench: Bench, peer: Peer) -> None:
    await peer.create_group("G")
    await peer.send("orders")
    limit(bench, "topic", "*", 1, 1)
    limit(bench, "client", "*", 1, 1)
    stored = await peer.pull("orders")
    assert stored.code == 0
    assert [(await peer.send("%RETRY%G", reconsume_times=1)).code for _ in range(5)] == [0] * 5


async def test_a_limit_counts_from_its_change_on_and_no_more_after_its_deletion(bench: Bench, peer: Peer) -> None:
    assert [(await peer.send("orders")).code for _ in range(5)] == [0] * 5
    limit(bench, "topic", "orders", 1, 2)
    assert [(await peer.send("orders")).code for _ in range(3)] == [0, 0, 2]
    limit(bench, "topic", "orders", 100, 100)
    await asyncio.sleep(0.1)
    assert [(await peer.send("orders")).code for _ in range(11)] == [0] * 10 + [2]
    bench.tables.send_limits.delete(["topic:orders"])
    assert [(await peer.send("orders")).code for _ in range(20)] == [0] * 20


@pytest.mark.skipif(_hot.MODE == "pure", reason="in pure mode each send takes its handler")
async def test_only_sends_that_a_limit_counts_leave_the_run(bench: Bench, peer: Peer) -> None:
    for topic in ("orders", "other"):
        await peer.send(topic)
    probe, commands = BrokerProbe(bench.parts), list[str]()
    send = probe.handlers[RequestCode.SEND_MESSAGE_V2]

    def noted(connection: Any, command: Any) -> Any:
        commands.append(command.header.topic)
        return send(connection, command)

    probe.answer_with(RequestCode.SEND_MESSAGE_V2, noted)

    async def as_commands() -> list[str]:
        for topic in ("orders", "other"):
            await peer.send(topic)
        commands.clear()
        for topic in ("orders", "other"):
            assert [(await peer.send(topic)).code for _ in range(5)] == [0] * 5
        return commands

    assert await as_commands() == []
    limit(bench, "topic", "orders", 100, 100)
    assert await as_commands() == ["orders"] * 5
    limit(bench, "group", "shop", 100, 100)
    assert await as_commands() == ["orders"] * 5 + ["other"] * 5
    bench.tables.send_limits.delete(["topic:orders", "group:shop"])
    assert await as_commands() == []


async def test_limits_are_set_listed_and_deleted_by_request(bench: Bench, peer: Peer) -> None:
    fields = {"limit": "topic:orders", "rate": "500", "burst": "1000", "rateBytes": "0", "burstBytes": "0"}
    assert (await request(peer, RequestCode.UPDATE_SEND_LIMITS, **fields)).code == 0
    more = {"limit": "group:*", "rateBytes": "0.5", "burstBytes": "10"}
    assert (await request(peer, RequestCode.UPDATE_SEND_LIMITS, **more)).code == 0
    for _ in range(3):
        await peer.send("orders", b"x" * 6)
    listed = loads((await request(peer, RequestCode.READ_SEND_LIMITS)).body)
    assert listed["sendLimitTable"] == {
        "topic:orders": {"rate": 500, "burst": 1000, "rateBytes": 0, "burstBytes": 0},
        "group:*": {"rate": 0, "burst": 0, "rateBytes": 0.5, "burstBytes": 10},
    }
    assert listed["refused"] == {"group:*": {"count": 2, "name": "P", "lastMs": bench.clock.now_ms()}}
    assert (await request(peer, RequestCode.UPDATE_SEND_LIMITS, limit="group:*", delete="true")).code == 0
    reply = await request(peer, RequestCode.UPDATE_SEND_LIMITS, limit="group:*", delete="true")
    assert (reply.code, reply.remark) == (ResponseCode.QUERY_NOT_FOUND, "there is no limit of group *")
    for wrong in ({}, {"limit": "orders"}, {"limit": "topic:orders", "rate": "-1"}, {"limit": "topic:a b"}):
        reply = await request(peer, RequestCode.UPDATE_SEND_LIMITS, **wrong)
        assert reply.code == ResponseCode.INVALID_PARAMETER, wrong
    assert list(bench.tables.send_limits.all()) == ["topic:orders"]


async def test_figures_name_limits_that_refuse_now(bench: Bench, peer: Peer) -> None:
    limit(bench, "topic", "orders", 1, 1)
    for _ in range(3):
        await peer.send("orders")
    text = "topic orders (1 messages/s (burst 1)): 2 messages refused, the last of orders"
    assert (await peer.figures())["sendsLimitedBy"] == text
    await asyncio.sleep(61)
    assert "sendsLimitedBy" not in await peer.figures()


async def test_metrics_count_refused_messages_by_limit(bench: Bench, peer: Peer) -> None:
    state = BrokerState(bench.services, list, lambda: 0, lambda: 0, 100)

    def samples() -> dict[str, dict[tuple[str, ...], Any]]:
        return {one.name: dict(one.samples) for one in state.tables() if one is not None}

    assert samples()["tianzhou_send_limits"] == {(): 0}
    limit(bench, "topic", "orders", 1, 1)
    limit(bench, "group", "*", 1, 2)
    for topic in ("orders", "orders", "other", "other"):
        await peer.send(topic)
    found = samples()
    assert found["tianzhou_send_limits"] == {(): 2}
    assert found["tianzhou_limited_messages_total"] == {("topic", "orders"): 1, ("group", "*"): 1}


async def test_a_hostile_batch_is_counted_without_an_error(broker: OpenBench) -> None:
    assert [count_entries(one) for one in (b"", b"\0" * 21, b"\xff" * 40, batch(3), batch(3)[:-1])] == [1, 1, 1, 3, 2]
    async with broker() as bench:
        limit(bench, "topic", "*", 10, 10)
        reply = await bench.peer().send("orders", b"\xff" * 100, code=320, batch=True)
        assert reply.code == ResponseCode.SYSTEM_ERROR
