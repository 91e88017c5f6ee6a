"""Subscriptions and filter expressions above their limits."""

from __future__ import annotations

from typing import Any

import pytest
from broker_bench import Bench, OpenBench, Peer

from broker_probe import BrokerProbe
from tianzhou.wire.codes import RequestCode, ResponseCode

REFUSED = ResponseCode.INVALID_PARAMETER


@pytest.mark.over_limit("maxSubscriptionCharacters")
async def test_what_all_members_subscribe_has_a_length(broker: OpenBench) -> None:
    async with broker(max_subscription_characters=1_000) as bench:
        first, second = bench.peer(), bench.peer()
        clients = bench.tables.clients
        assert (await first.heartbeat("c1", "T", group="G", expression="a" * 500)).code == 0
        reply = await second.heartbeat("c2", "T", group="H", expression="b" * 500)
        assert (reply.code, reply.remark[:24]) == (REFUSED, "subscriptions of group H")
        assert "H" not in clients.consumers
        assert (await first.heartbeat("c1", "T", group="G", expression="a" * 501, version=2)).code == 0
        first.transport.lose()
        assert clients.subscribed_size == 0
        assert (await second.heartbeat("c2", "T", group="H", expression="b" * 500)).code == 0
        await second.ask(RequestCode.UNREGISTER_CLIENT, client_id="c2", consumer_group="H")
        assert (clients.subscribed_size, clients.members) == (0, 0)


async def test_what_members_of_a_group_share_counts_once(bench: Bench) -> None:
    clients = bench.tables.clients
    peers = [bench.peer() for _ in range(4)]
    for n, peer in enumerate(peers[:3]):
        await peer.heartbeat(f"c{n}", "T", group="G", expression="a || b")
        assert clients.subscribed_size == 107
    await peers[3].heartbeat("c3", "T", group="G", expression="b")
    assert clients.subscribed_size == 107 + 102
    await peers[0].heartbeat("c0", "T", group="G", expression="b", version=2)
    assert clients.subscribed_size == 107 + 102
    for peer, left in zip(peers, (107 + 102, 107 + 102, 102, 0), strict=True):
        peer.transport.lose()
        assert clients.subscribed_size == left


@pytest.mark.over_limit("maxConsumerFilters")
@pytest.mark.over_limit("maxConsumerFilterCharacters")
@pytest.mark.parametrize(
    ("key", "most", "name"),
    [
        ("max_consumer_filters", 2, "maxConsumerFilters"),
        ("max_consumer_filter_characters", 11, "maxConsumerFilterCharacters"),
    ],
)
async def test_announced_expressions_come_to_an_end(broker: OpenBench, key: str, most: int, name: str) -> None:
    async with broker(enable_property_filter=True, **{key: most}) as bench:
        peer = bench.peer()
        for topic in "ABC":
            await peer.create_topic(topic)

        def announce(group: str, expression: str = "a > 1", version: int = 1) -> Any:
            return peer.heartbeat("c", "A", group=group, expression=expression, kind="SQL92", version=version)

        assert [(await announce(group)).code for group in ("G", "H")] == [0, 0]
        reply = await announce("I")
        assert (reply.code, f"raise {name}" in reply.remark) == (REFUSED, True)
        assert bench.tables.filters.find("A", "I") is None
        assert (await announce("G", "a > 2", 2)).code == 0
        assert bench.tables.filters.find("A", "G").expression == "a > 2"
        bench.tables.filters.forget_topic("A")
        assert (await announce("I", version=2)).code == 0


async def test_wrong_expressions_do_not_pile_up(broker: OpenBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tianzhou.broker.tables.consumer_filters.MOST_COMPLAINTS", 3)

    async with broker(enable_property_filter=True) as bench:
        peer = bench.peer()
        for n in range(10):
            await peer.heartbeat("c", f"T{n}", expression="a >", kind="SQL92")
        assert BrokerProbe(tables=bench.tables).complained_groups <= 3


@pytest.mark.over_limit("maxPulledSubscriptionCharacters")
async def test_what_pulls_bring_along_is_not_remembered_without_end(bench: Bench, peer: Peer) -> None:
    await peer.create_topic("T")
    long = " || ".join(f"tag{n}" for n in range(5_000))
    clients = bench.tables.clients
    for n in range(120):
        assert (await peer.pull("T", consumer_group=f"G{n}", subscription=long)).code != REFUSED
    known = [n for n in range(120) if clients.subscription(f"G{n}", "T")]
    assert 0 < len(known) < 120
    assert known == list(range(len(known)))
    assert int((await peer.refused())["maxPulledSubscriptionCharacters"]) == 120 - len(known)
    bench.clock.advance(3_600)
    bench.parts.housekeeping.sweep()
    await peer.pull("T", consumer_group="G119", subscription=long)
    assert clients.subscription("G119", "T")
