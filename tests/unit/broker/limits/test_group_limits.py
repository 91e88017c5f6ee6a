"""Groups, their settings and their members above their limits."""

from __future__ import annotations

import json
from typing import Any

import pytest
from broker_bench import Bench, OpenBench, Peer

from tianzhou.model import ConsumerData, HeartbeatData
from tianzhou.wire.bodies.heartbeat import HEARTBEAT
from tianzhou.wire.codes import RequestCode, ResponseCode

REFUSED = ResponseCode.INVALID_PARAMETER


@pytest.mark.over_limit("maxGroups")
@pytest.mark.parametrize("door", ["200", "225", "343", "pull", "heartbeat"])
async def test_groups_come_to_an_end_at_every_door(bench: Bench, door: str) -> None:
    peer, groups = bench.peer(), bench.tables.groups
    await peer.create_topic("T")
    assert (await peer.create_group("G")).code == 0
    bench.settings.max_groups = len(groups.all())
    if door == "200":
        reply = await peer.create_group("more")
    elif door == "225":
        body = json.dumps({"groupConfigList": [{"groupName": "more"}]}).encode()
        reply = await peer.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, body)
    elif door == "343":
        reply = await peer.ask(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, group="more")
    elif door == "pull":
        reply = await peer.pull("T", consumer_group="more", sys_flag=4)
    else:
        reply = await peer.heartbeat("c", "T", group="more")
    assert (reply.code, reply.remark[:11]) == (REFUSED, "group more:")
    assert "more" not in groups
    assert (await peer.create_group("G", retryMaxTimes=3)).code == 0
    assert await peer.refused() == {"maxGroups": "1"}


@pytest.mark.over_limit("maxForbiddenTopics")
async def test_groups_are_forbidden_a_number_of_topics(broker: OpenBench) -> None:
    async with broker(max_forbidden_topics=2) as bench:
        peer, code = bench.peer(), RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN
        bench.tables.groups.find("G", 0)
        for topic, expected in (("A", 0), ("B", 0), ("C", REFUSED), ("B", 0)):
            await peer.create_topic(topic)
            assert (await peer.ask(code, group="G", topic=topic, readable=False)).code == expected
        assert bench.tables.groups.may_read("G", "C")
        assert (await peer.ask(code, group="G", topic="A", readable=True)).code == 0
        assert (await peer.ask(code, group="G", topic="C", readable=False)).code == 0


@pytest.mark.over_limit("maxMembersPerGroup")
@pytest.mark.over_limit("maxMembers")
@pytest.mark.parametrize(
    ("key", "name"), [("max_members_per_group", "maxMembersPerGroup"), ("max_members", "maxMembers")]
)
async def test_members_come_to_an_end(broker: OpenBench, key: str, name: str) -> None:
    async with broker(**{key: 2}) as bench:
        await bench.peer().create_topic("T")
        peers = [bench.peer() for _ in range(3)]
        replies = [await peer.heartbeat(f"c{n}", "T", group="G") for n, peer in enumerate(peers)]
        assert [reply.code for reply in replies] == [0, 0, REFUSED]
        assert f"raise {name}" in replies[2].remark
        assert len(bench.tables.clients.consumers["G"].clients) == 2
        assert (await peers[0].heartbeat("c0", "T", group="G")).code == 0
        peers[0].transport.lose()
        assert (await peers[2].heartbeat("c2", "T", group="G")).code == 0
        assert await peers[1].refused() == {name: "1"}


@pytest.mark.over_limit("maxGroupsPerConnection")
async def test_a_connection_is_a_member_of_a_number_of_groups_over_all_its_heartbeats(broker: OpenBench) -> None:
    async with broker(max_groups_per_connection=3) as bench:
        peer = bench.peer()
        replies = [await peer.heartbeat("c", producer=f"P{n}") for n in range(4)]
        assert [reply.code for reply in replies] == [0, 0, 0, REFUSED]
        await peer.ask(RequestCode.UNREGISTER_CLIENT, client_id="c", producer_group="P0")
        assert (await peer.heartbeat("c", producer="P3")).code == 0


async def test_a_group_too_many_does_not_end_the_clients_other_groups(bench: Bench, peer: Peer) -> None:
    await peer.create_topic("T")
    assert (await peer.heartbeat("c", "T", group="G", producer="P")).code == 0
    bench.settings.max_groups = len(bench.tables.groups.all())
    bench.clock.advance(100)
    said = HeartbeatData("c", ["P"], [ConsumerData(name) for name in ("more", "G")])
    reply = await peer.ask(RequestCode.HEART_BEAT, HEARTBEAT.dumps(said))
    assert (reply.code, reply.remark[:10]) == (REFUSED, "group more")
    bench.clock.advance(100)
    bench.parts.clients.sweep()
    assert not peer.transport.closed, "it has been heard of since"
    assert list(bench.tables.clients.consumers) == ["G"]
    assert bench.tables.clients.find_producer("c")


@pytest.mark.over_limit("maxGroupConfigBytes")
@pytest.mark.parametrize("code", [200, 225])
async def test_a_groups_configuration_has_a_size(broker: OpenBench, code: int) -> None:
    async with broker(max_group_config_bytes=2_000) as bench:
        peer, config = bench.peer(), {"groupName": "G", "attributes": {"a": "x" * 2_000}}
        value = config if code == 200 else {"groupConfigList": [config]}
        reply = await peer.ask(code, json.dumps(value).encode())
        assert (reply.code, "raise maxGroupConfigBytes" in reply.remark) == (REFUSED, True)
        assert "G" not in bench.tables.groups
        assert (await peer.create_group("G")).code == 0


@pytest.mark.over_limit("maxGroupConfigsBytes")
@pytest.mark.parametrize("code", [200, 225])
async def test_the_configurations_of_all_groups_have_a_size(bench: Bench, code: int) -> None:
    peer, groups = bench.peer(), bench.tables.groups
    before = groups.size

    def create(name: str, size: int) -> Any:
        config = {"groupName": name, "subscriptionDataSet": [{"topic": "x" * size}]}
        return peer.ask(code, json.dumps(config if code == 200 else {"groupConfigList": [config]}).encode())

    assert (await create("G", 2_000)).code == 0
    assert before + 2_000 < groups.size < before + 3_000
    bench.settings.max_group_configs_bytes = groups.size + 1_000
    for name, size in (("H", 1_000), ("G", 3_100)):
        reply = await create(name, size)
        assert (reply.code, "raise maxGroupConfigsBytes" in reply.remark) == (REFUSED, True)
    assert bench.tables.refusals.counts == {"maxGroupConfigsBytes": 2}
    assert ("H" in groups, len(groups.get("G").subscription_data_set[0]["topic"])) == (False, 2_000)
    # A change that shrinks a config is accepted even when all configs together exceed the limit.
    bench.settings.max_group_configs_bytes = 1
    assert (await create("G", 100)).code == 0
    assert (await peer.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, group_name="G", clean_offset=False)).code == 0
    assert groups.size == before
    reply = await peer.heartbeat("c", "T", group="more")
    assert (reply.code, "more" in groups) == (REFUSED, False)


async def test_a_producer_that_changes_its_id_leaves_nothing_behind(bench: Bench, peer: Peer) -> None:
    for n in range(5):
        await peer.heartbeat(f"c{n}", producer="P")
    clients = bench.tables.clients
    assert [n for n in range(5) if clients.find_producer(f"c{n}")] == [4]
    peer.transport.lose()
    assert (clients.find_producer("c4"), clients.members) == (None, 0)
