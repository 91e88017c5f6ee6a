"""Slow requests are bounded, decoded on the side thread, or processed in slices."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from broker_bench import Bench, OpenBench, Peer

from tianzhou.broker import large_bodies
from tianzhou.broker.large_bodies import LARGE
from tianzhou.broker.messages import message_filter
from tianzhou.limits import JSON_OBJECTS
from tianzhou.model import TopicConfig
from tianzhou.remoting.side_thread import ASIDE
from tianzhou.wire.codes import RequestCode, ResponseCode
from tianzhou.wire.fields import read_reply

BUSY_LIMIT = 29


def heartbeat(groups: int = 0, consumers: list[Any] | None = None, **more: Any) -> bytes:
    producers = [{"groupName": f"P{n}"} for n in range(groups)]
    return json.dumps(
        {"clientID": "c", "producerDataSet": producers, "consumerDataSet": consumers or [], **more}
    ).encode()


def consumer(group: str, *expressions: str, kind: str = "TAG") -> dict[str, Any]:
    wanted = [
        {"topic": f"T{n}", "subString": text, "expressionType": kind, "subVersion": 1}
        for n, text in enumerate(expressions)
    ]
    return {"groupName": group, "subscriptionDataSet": wanted}


async def refused(peer: Peer, code: int, body: bytes, remark: str, **header: Any) -> None:
    reply = await peer.ask(code, body, **header)
    assert (reply.code, reply.remark) == (BUSY_LIMIT, remark)


@pytest.fixture
def aside(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record the names of functions run on the side thread, in order."""
    done: list[str] = []
    run = type(ASIDE).run

    async def noted(self: Any, work: Callable[..., Any], *arguments: Any) -> Any:
        done.append(getattr(work, "__name__", "?"))
        return await run(self, work, *arguments)

    monkeypatch.setattr(type(ASIDE), "run", noted)
    return done


async def test_a_large_heartbeat_is_read_aside_and_does_what_a_small_one_does(
    bench: Bench, peer: Peer, aside: list[str]
) -> None:
    consumers = [consumer(f"G{n}", "a || b", "*") for n in range(200)]
    large = heartbeat(300, consumers)
    assert len(large) > LARGE
    assert (await peer.ask(RequestCode.HEART_BEAT, large)).code == ResponseCode.SUCCESS
    assert aside == ["_read"]
    assert sorted(bench.tables.clients.consumers) == sorted(f"G{n}" for n in range(200))
    assert len(bench.tables.clients.producers) == 300
    assert bench.tables.clients.consumers["G7"].subscriptions["T0"].codes == {97, 98}
    assert (await peer.ask(RequestCode.HEART_BEAT, heartbeat(3))).code == ResponseCode.SUCCESS
    assert aside == ["_read"]


async def test_a_goodbye_does_not_overtake_a_heartbeat_that_is_read_aside(bench: Bench, aside: list[str]) -> None:
    peer, other = bench.peer(), bench.peer()
    code = RequestCode.UNREGISTER_CLIENT
    large = heartbeat(400, [consumer(f"G{n}", "a || b", "*") for n in range(200)])
    asked = [
        peer.post(RequestCode.HEART_BEAT, large),
        peer.post(code, client_id="c", producer_group="P7", consumer_group="G7"),
        peer.post(RequestCode.HEART_BEAT, heartbeat(1)),
        peer.post(code, client_id="c", producer_group="P0"),
    ]
    # Other requests wait for none of them.
    said = other.post(RequestCode.HEART_BEAT, heartbeat(0, [consumer("H", "*")]))
    assert other.peek(said).code == ResponseCode.SUCCESS
    assert peer.peek(asked[1]) is None
    for one in asked:
        assert (await peer.reply(one)).code == ResponseCode.SUCCESS
    clients = bench.tables.clients
    assert sorted(clients.producers) == sorted(f"P{n}" for n in range(400) if n not in (0, 7))
    assert sorted(clients.consumers) == sorted({f"G{n}" for n in range(200)} - {"G7"} | {"H"})
    # No request is in progress any more.
    assert peer.peek(peer.post(code, client_id="c", producer_group="P9")).code == ResponseCode.SUCCESS
    assert "P9" not in clients.producers


async def test_a_connection_lost_with_requests_in_line_leaves_nothing_behind(bench: Bench, peer: Peer) -> None:
    peer.post(RequestCode.HEART_BEAT, heartbeat(400, [consumer(f"G{n}", "a || b") for n in range(200)]))
    peer.post(RequestCode.UNREGISTER_CLIENT, client_id="c", producer_group="P7")
    await asyncio.sleep(0)
    peer.post(RequestCode.UNREGISTER_CLIENT, client_id="c", producer_group="P8")
    peer.connection.abort()
    await asyncio.sleep(0.01)
    assert not bench.tables.clients.producers
    assert (await bench.peer().ask(RequestCode.HEART_BEAT, heartbeat(1))).code == ResponseCode.SUCCESS


async def test_long_expressions_of_heartbeats_are_compiled_aside(broker: OpenBench, aside: list[str]) -> None:
    async with broker(enable_property_filter=True) as bench:
        peer = bench.peer()
        wanted = [" OR ".join(f"n = {n + number}" for n in range(300)) for number in range(20)]
        said = heartbeat(consumers=[consumer("G", *wanted, kind="SQL92")])
        assert (await peer.ask(RequestCode.HEART_BEAT, said)).code == ResponseCode.SUCCESS
        assert aside == ["_read"] + ["_compile"] * 20
        assert bench.tables.filters.find("T19", "G").compiled.matches({"n": "19"}.get)


async def test_references_are_followed_aside(bench: Bench, peer: Peer, aside: list[str]) -> None:
    text = heartbeat(consumers=[consumer("G", "a"), {"groupName": "H", "subscriptionDataSet": "?"}]).decode()
    text = text.replace('"?"', '{"$ref":"$.consumerDataSet[0].subscriptionDataSet"}')
    assert (await peer.ask(RequestCode.HEART_BEAT, text.encode())).code == ResponseCode.SUCCESS
    assert aside == ["_read"]
    assert bench.tables.clients.consumers["H"].subscriptions["T0"].codes == {97}
    shared = json.dumps({"clientID": "c", "a": [1] * 700, "b": ["?"] * 100}).replace('"?"', '{"$ref":"$.a"}')
    reply = await peer.ask(RequestCode.HEART_BEAT, shared.encode())
    assert (reply.code, "what references in a JSON body point at" in reply.remark) == (BUSY_LIMIT, True)
    assert bench.tables.refusals.counts == {"maxJsonReferredValues": 1}


@pytest.mark.over_limit("maxHeartbeatSize")
async def test_a_heartbeat_has_no_more_bytes_than_the_limit(broker: OpenBench) -> None:
    async with broker(max_heartbeat_size=1000) as bench:
        peer = bench.peer()
        assert (await peer.ask(RequestCode.HEART_BEAT, heartbeat().ljust(1000))).code == ResponseCode.SUCCESS
        text = "body of a heartbeat: 1001 bytes, at most 1000 are allowed; raise maxHeartbeatSize if that is meant"
        await refused(peer, RequestCode.HEART_BEAT, heartbeat().ljust(1001), text)


@pytest.mark.over_limit("maxJsonBodySize")
async def test_a_json_body_has_no_more_bytes_than_the_limit(broker: OpenBench) -> None:
    async with broker(max_json_body_size=1000) as bench:
        peer = bench.peer()
        lock = b'{"clientId":"c","consumerGroup":"G","mqSet":[]}'
        assert (await peer.ask(RequestCode.LOCK_BATCH_MQ, lock.ljust(1000))).code == ResponseCode.SUCCESS
        text = "JSON body of a request: 1001 bytes, at most 1000 are allowed; raise maxJsonBodySize if that is meant"
        for code in (RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ, RequestCode.CHECK_CLIENT_CONFIG):
            await refused(peer, code, lock.ljust(1001), text)


@pytest.mark.over_limit("maxJsonObjects")
async def test_a_body_holds_no_more_objects_than_the_limit(bench: Bench, peer: Peer) -> None:
    most = JSON_OBJECTS.default
    text = f"a large JSON body of a request: {most + 3} objects and arrays, at most {most} are allowed"
    await refused(peer, RequestCode.HEART_BEAT, b'{"clientID":"c","x":[' + b"[]," * most + b"[]]}", text)
    assert bench.tables.refusals.counts == {"maxJsonObjects": 1}


@pytest.mark.over_limit("maxGroupsPerHeartbeat")
async def test_a_heartbeat_has_no_more_groups_than_the_limit(broker: OpenBench) -> None:
    async with broker(max_groups_per_heartbeat=8) as bench:
        peer = bench.peer()
        said = heartbeat(7, [consumer("G", "*")])
        assert (await peer.ask(RequestCode.HEART_BEAT, said)).code == ResponseCode.SUCCESS
        text = "groups in a heartbeat: 9 groups, at most 8 are allowed; raise maxGroupsPerHeartbeat if that is meant"
        await refused(peer, RequestCode.HEART_BEAT, heartbeat(8, [consumer("H", "*")]), text)
        assert list(bench.tables.clients.consumers) == ["G"]


@pytest.mark.over_limit("maxSubscriptionsPerGroup")
async def test_a_group_subscribes_no_more_than_the_limit(broker: OpenBench) -> None:
    async with broker(max_subscriptions_per_group=3) as bench:
        peer = bench.peer()
        assert (await peer.ask(RequestCode.HEART_BEAT, heartbeat(0, [consumer("G", *"***")]))).code == 0
        text = (
            "subscriptions of group G: 4 subscriptions, at most 3 are allowed; raise maxSubscriptionsPerGroup if that"
            " is meant"
        )
        await refused(peer, RequestCode.HEART_BEAT, heartbeat(0, [consumer("G", *"****")]), text)
        assert len(bench.tables.clients.consumers["G"].subscriptions) == 3


def pull_by(expression: str, kind: str = "SQL92") -> dict[str, Any]:
    return {"subscription": expression, "expression_type": kind}


async def fill(bench: Bench, count: int, **properties: str) -> None:
    bench.tables.topics.put(TopicConfig("T", 1, 1), 1)
    peer = bench.peer()
    for number in range(count):
        assert (await peer.send("T", b"%d" % number, properties={"n": str(number), **properties})).code == 0


@pytest.mark.over_limit("maxFilterExpressionLength")
@pytest.mark.parametrize("kind", ["SQL92", "TAG"])
async def test_an_expression_has_no_more_characters_than_the_limit(broker: OpenBench, kind: str) -> None:
    async with broker(enable_property_filter=True, max_filter_expression_length=4000) as bench:
        await fill(bench, 1)
        peer = bench.peer()
        longest = "n = 0" + " " * 3995 if kind == "SQL92" else "a" * 4000
        assert (await peer.pull("T", **pull_by(longest, kind))).code in (0, 20)
        text = (
            "expression of a subscription: 4001 characters, at most 4000 are allowed; raise maxFilterExpressionLength"
            " if that is meant"
        )
        reply = await peer.pull("T", **pull_by(longest + " ", kind))
        assert (reply.code, reply.remark) == (BUSY_LIMIT, text)
        await refused(peer, RequestCode.HEART_BEAT, heartbeat(0, [consumer("G", longest + " ", kind=kind)]), text)
        assert bench.tables.refusals.counts == {"maxFilterExpressionLength": 2}


async def test_a_pull_looks_at_as_much_as_a_turn_allows_and_tells_how_far_it_got(
    broker: OpenBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(message_filter, "MAX_WORK", 100)

    async with broker(enable_property_filter=True) as bench:
        await fill(bench, 20)
        peer = bench.peer()
        many = " OR ".join(["n = 15", *["n = 99"] * 14])  # 30 terms for each message
        offset, replies = 0, []
        while offset < 20:
            reply = await peer.pull("T", offset, **pull_by(many))
            following = read_reply(11, reply).next_begin_offset
            assert 0 < following - offset <= 4
            replies.append((reply.code, offset, following))
            offset = following
        found = [(begin, end) for code, begin, end in replies if code == 0]
        assert len(found) == 1
        assert found[0][0] <= 15 < found[0][1]
        assert all(code in (0, ResponseCode.PULL_RETRY_IMMEDIATELY) for code, _, _ in replies)


async def test_many_pulls_by_expressions_are_all_answered(broker: OpenBench, aside: list[str]) -> None:
    async with broker(enable_property_filter=True) as bench:
        await fill(bench, 5)
        peers = [bench.peer() for _ in range(10)]
        texts = [" OR ".join([f"n = {n}", *["n = 99"] * 500]) for n in range(4)]
        asked = [(peer, n, peer.post_pull("T", **pull_by(texts[n]))) for peer in peers for n in range(4)]
        for peer, n, opaque in asked:
            reply = await peer.reply(opaque)
            assert reply.code == 0
            assert b"%d" % n in bytes(reply.body)
        assert set(aside) == {"_compile"}


async def test_a_held_pull_looks_at_what_comes_a_little_at_a_time(
    broker: OpenBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(message_filter, "MAX_WORK", 20)

    async with broker(enable_property_filter=True) as bench:
        await fill(bench, 1)
        peer, sender = bench.peer(), bench.peer()
        opaque = peer.post_pull("T", 1, **pull_by("n = 7"), sys_flag=6)
        posted = [sender.post_send("T", b"%d" % n, properties={"n": str(n)}) for n in range(1, 10)]
        for one in posted:
            await sender.reply(one)
        reply = await peer.reply(opaque)
        assert (reply.code, b"7" in bytes(reply.body)) == (0, True)


async def test_a_crowd_of_large_heartbeats_is_decoded_a_few_at_a_time(
    bench: Bench, aside: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    large = heartbeat(1_000)
    unserved = []
    run = type(ASIDE).run

    async def counted(self: Any, work: Callable[..., Any], *arguments: Any) -> Any:
        unserved.append(len(aside) - bench.tables.clients.members // 1_000)
        return await run(self, work, *arguments)

    monkeypatch.setattr(large_bodies, "DECODED", 3 * len(large))
    monkeypatch.setattr(type(ASIDE), "run", counted)
    replies = await asyncio.gather(*(bench.peer().ask(RequestCode.HEART_BEAT, large) for _ in range(20)))
    assert [one.code for one in replies] == [ResponseCode.SUCCESS] * 20
    assert sorted(set(unserved)) == [0, 1, 2]
