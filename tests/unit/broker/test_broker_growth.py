"""What peers make grow is refused above its limit, counted, and leaves what is there as it was."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from broker_bench import Bench, OpenBench, Peer
from staging_talk import STAGE, message, stage

from tianzhou.broker.state_files import StateFiles
from tianzhou.broker.stats.stats import BrokerStats
from tianzhou.limits import FIGURES, Bounds
from tianzhou.model import ConsumerData, HeartbeatData, MessageQueue
from tianzhou.wire.bodies.clients import LOCK_REQUEST, LOCKED_QUEUES, LockRequest
from tianzhou.wire.bodies.heartbeat import HEARTBEAT
from tianzhou.wire.codes import RequestCode, ResponseCode
from tianzhou.wire.command import Command

REFUSED = ResponseCode.INVALID_PARAMETER


def create_group(peer: Peer, group: str, **members: Any) -> Any:
    body = json.dumps({"groupName": group} | members).encode()
    return peer.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body)


def system_topics(bench: Bench) -> int:
    return len(bench.tables.topics)


@pytest.mark.over_limit("maxTopics")
@pytest.mark.parametrize("door", ["17", "18", "send", "heartbeat", "staged"])
async def test_topics_come_to_an_end_at_every_door(broker: OpenBench, door: str) -> None:
    async with broker() as bench:
        peer, topics = bench.peer(), bench.tables.topics
        bench.settings.max_topics = len(topics) + 1
        assert (await peer.create_topic("orders")).code == 0
        if door == "17":
            reply = await peer.create_topic("more")
        elif door == "18":
            config = {"topicName": "more", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}
            body = json.dumps({"topicConfigList": [config | {"topicName": "orders", "perm": 4}, config]}).encode()
            reply = await peer.ask(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body)
            assert topics.get("orders").perm == 6, "all or nothing"
        elif door == "send":
            reply = await peer.send("more")
        elif door == "heartbeat":
            reply = await peer.heartbeat("c", "orders", group="more")
        else:
            reply = await stage(peer, "a", [message("m", topic="more")])
        assert reply.code == REFUSED
        assert "at most" in reply.remark
        assert "raise maxTopics" in reply.remark
        assert "more" not in topics
        assert await peer.refused() == {"maxTopics": "1"}
        # What is there is served on, and may be changed and deleted.
        assert (await peer.send("orders")).code == 0
        assert (await peer.create_topic("orders", 4)).code == 0
        await peer.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic="orders")
        assert (await peer.create_topic("more")).code == 0


@pytest.mark.over_limit("maxQueues")
async def test_all_topics_together_have_a_number_of_queues(broker: OpenBench) -> None:
    async with broker() as bench:
        peer, topics = bench.peer(), bench.tables.topics
        bench.settings.max_queues = topics.queues + 10
        assert (await peer.create_topic("orders", 8)).code == 0
        assert (await peer.create_topic("bills", 3)).code == REFUSED
        assert (await peer.create_topic("orders", 11)).code == REFUSED
        assert (await peer.create_topic("orders", 7)).code == 0
        assert (await peer.create_topic("bills", 3)).code == 0
        await peer.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic="orders")
        assert (await peer.create_topic("more", 7)).code == 0
        assert await peer.refused() == {"maxQueues": "2"}


@pytest.mark.parametrize("code", [200, 225])
async def test_a_group_has_no_more_retry_queues_than_a_topic_may_have(broker: OpenBench, code: int) -> None:
    async with broker() as bench:
        peer, config = bench.peer(), {"groupName": "G", "retryQueueNums": 2**31 - 1}
        value = config if code == 200 else {"groupConfigList": [config]}
        reply = await peer.ask(code, json.dumps(value).encode())
        told = (
            "retryQueueNums of group G: 2147483647 queues, at most 65535 are allowed; "
            "raise maxQueuesPerTopic if that is meant"
        )
        assert (reply.code, reply.remark) == (REFUSED, told)
        assert "G" not in bench.tables.groups


async def test_files_with_endless_queues_are_taken_with_as_many_as_may_be(
    broker: OpenBench, tmp_path: Any, caplog: Any
) -> None:
    async with broker() as bench:
        folder = tmp_path / "config"
        folder.mkdir()
        group = {"groupName": "G", "retryQueueNums": 2**31 - 1}
        (folder / "subscriptionGroup.json").write_text(json.dumps({"subscriptionGroupTable": {"G": group}}))
        topic = {"topicName": "T", "readQueueNums": 2**31 - 1, "writeQueueNums": 4, "perm": 6}
        (folder / "topics.json").write_text(json.dumps({"topicConfigTable": {"T": topic}}))
        with caplog.at_level(logging.WARNING):
            files = StateFiles(bench.tables, folder)
            files.load()
        assert "topic T has more queues" in caplog.text
        assert "group G has too many retry queues" in caplog.text
        peer = bench.peer()
        assert (await peer.heartbeat("c", "T", group="G")).code == 0
        assert bench.tables.topics.get("%RETRY%G").read_queue_nums == 65_535
        assert bench.tables.topics.get("T").read_queue_nums == 65_535
        assert bench.tables.topics.get("T").write_queue_nums == 4
        files.close()


@pytest.mark.over_limit("maxGroups")
@pytest.mark.parametrize("door", ["200", "225", "343", "pull", "heartbeat"])
async def test_groups_come_to_an_end_at_every_door(broker: OpenBench, door: str) -> None:
    async with broker() as bench:
        peer, groups = bench.peer(), bench.tables.groups
        await peer.create_topic("T")
        assert (await create_group(peer, "G")).code == 0
        bench.settings.max_groups = len(groups.all())
        if door == "200":
            reply = await create_group(peer, "more")
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
        assert (await create_group(peer, "G", retryMaxTimes=3)).code == 0
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


async def test_a_group_too_many_does_not_end_the_clients_other_groups(broker: OpenBench) -> None:
    async with broker() as bench:
        peer = bench.peer()
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


@pytest.mark.over_limit("maxGroupConfigBytes")
@pytest.mark.parametrize("code", [200, 225])
async def test_a_groups_configuration_has_a_size(broker: OpenBench, code: int) -> None:
    async with broker(max_group_config_bytes=2_000) as bench:
        peer, config = bench.peer(), {"groupName": "G", "attributes": {"a": "x" * 2_000}}
        value = config if code == 200 else {"groupConfigList": [config]}
        reply = await peer.ask(code, json.dumps(value).encode())
        assert (reply.code, "raise maxGroupConfigBytes" in reply.remark) == (REFUSED, True)
        assert "G" not in bench.tables.groups
        assert (await create_group(peer, "G")).code == 0


@pytest.mark.over_limit("maxGroupConfigsBytes")
@pytest.mark.parametrize("code", [200, 225])
async def test_the_configurations_of_all_groups_have_a_size(broker: OpenBench, code: int) -> None:
    async with broker() as bench:
        peer, groups = bench.peer(), bench.tables.groups
        before = groups.size

        def create(name: str, size: int) -> Any:
            config = {"groupName": name, "attributes": {"a": "x" * size}}
            return peer.ask(code, json.dumps(config if code == 200 else {"groupConfigList": [config]}).encode())

        assert (await create("G", 2_000)).code == 0
        assert before + 2_000 < groups.size < before + 3_000
        bench.settings.max_group_configs_bytes = groups.size + 1_000
        for name, size in (("H", 1_000), ("G", 3_100)):
            reply = await create(name, size)
            assert (reply.code, "raise maxGroupConfigsBytes" in reply.remark) == (REFUSED, True)
        assert bench.tables.refusals.counts == {"maxGroupConfigsBytes": 2}
        assert ("H" in groups, len(groups.get("G").attributes["a"])) == (False, 2_000)
        # What makes it smaller is taken even when all together are too large already.
        bench.settings.max_group_configs_bytes = 1
        assert (await create("G", 100)).code == 0
        assert (await peer.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, group_name="G", clean_offset=False)).code == 0
        assert groups.size == before
        reply = await peer.heartbeat("c", "T", group="more")
        assert (reply.code, "more" in groups) == (REFUSED, False)


async def test_a_producer_that_changes_its_id_leaves_nothing_behind(broker: OpenBench) -> None:
    async with broker() as bench:
        peer = bench.peer()
        for n in range(5):
            await peer.heartbeat(f"c{n}", producer="P")
        clients = bench.tables.clients
        assert [n for n in range(5) if clients.find_producer(f"c{n}")] == [4]
        peer.transport.lose()
        assert (clients.find_producer("c4"), clients.members) == (None, 0)


@pytest.mark.over_limit("maxConsumerOffsets")
@pytest.mark.parametrize("door", ["15", "pull", "314", "222"])
async def test_offsets_come_to_an_end_at_every_door(broker: OpenBench, door: str) -> None:
    async with broker() as bench:
        peer = bench.peer()
        await peer.create_topic("T", 4)
        await create_group(peer, "G")
        await create_group(peer, "H")

        def commit(queue_id: int, group: str = "G") -> Any:
            return peer.ask(
                RequestCode.UPDATE_CONSUMER_OFFSET, consumer_group=group, topic="T", queue_id=queue_id, commit_offset=7
            )

        assert [(await commit(n)).code for n in range(2)] == [0, 0]
        # Where several are wanted there is room for one: all or nothing.
        bench.settings.max_consumer_offsets = 2 if door in ("15", "pull") else 3
        if door == "15":
            reply = await commit(2)
        elif door == "pull":
            reply = await peer.pull("T", queue_id=2, sys_flag=5, commit_offset=7)
        elif door == "314":
            reply = await peer.ask(
                RequestCode.CLONE_GROUP_OFFSET, src_group="G", dest_group="H", topic="T", offline=True
            )
        else:
            reply = await peer.ask(
                RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, group="H", topic="T", timestamp=-1, is_force=True
            )
        assert reply.code == REFUSED
        assert "raise maxConsumerOffsets" in reply.remark
        assert not bench.tables.offsets.reset_waits("H", "T", 0)
        assert not bench.tables.offsets.queues("H", "T")
        assert (await commit(1)).code == 0
        await peer.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic="T")
        await peer.create_topic("T", 4)
        assert (await commit(2)).code == 0


@pytest.mark.over_limit("maxBroadcastOffsets")
async def test_offsets_of_broadcast_consumers_come_to_an_end(broker: OpenBench) -> None:
    async with broker(max_broadcast_offsets=2) as bench:
        peer = bench.peer()
        await peer.create_topic("T")

        def pull(client: str) -> Any:
            fields = {"request_source": 1, "proxy_froward_client_id": client}
            return peer.pull("T", 1, consumer_group="G", sys_flag=4, **fields)

        codes = [(await pull(f"c{n}")).code for n in range(3)]
        assert codes[2] == REFUSED
        assert REFUSED not in codes[:2]
        assert (await pull("c1")).code != REFUSED
        assert await peer.refused() == {"maxBroadcastOffsets": "1"}
        bench.clock.advance(1_000)
        bench.parts.housekeeping.commit_broadcasts()
        assert (await pull("c2")).code != REFUSED


async def test_a_full_table_of_offsets_does_not_stop_the_brokers_own_work(broker: OpenBench) -> None:
    async with broker() as bench:
        peer, tables = bench.peer(), bench.tables
        await peer.create_topic("T")
        bench.settings.max_consumer_offsets = 0
        await peer.pull("T", 1, sys_flag=4, request_source=1, proxy_froward_client_id="c")
        bench.parts.housekeeping.sweep()
        assert await peer.refused() == {"maxConsumerOffsets": "1"}
        tables.offsets.commit("own", "T", 0, 5, 1, bounded=False)
        assert tables.offsets.committed("own", "T", 0) == 5


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
        assert len(bench.tables.filters._complained) <= 3


@pytest.mark.over_limit("maxPulledSubscriptionCharacters")
async def test_what_pulls_bring_along_is_not_remembered_without_end(broker: OpenBench) -> None:
    async with broker() as bench:
        peer = bench.peer()
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


@pytest.mark.over_limit("maxFigures")
def test_figures_by_what_peers_write_come_to_an_end_and_totals_go_on() -> None:
    stats = BrokerStats(0)
    stats.bounds = Bounds()
    stats.bounds.settings = type("Settings", (), {"max_figures": 3})
    for n in range(5):
        stats.got("T", f"G{n}").add(0, 2, 100)
        stats.count("SNDBCK_PUT_NUMS", f"T{n}@G")
    assert stats.get_count == 10
    assert (
        sum(name == "GROUP_GET_NUMS" for name, *_ in stats.items())
        + sum(name == "SNDBCK_PUT_NUMS" for name, *_ in stats.items())
        == 3
    )
    assert stats.bounds.refusals.counts == {FIGURES.name: 7}
    stats.got("T", "G0").add(0, 1, 100)
    assert stats.gets["T", "G0"].count == 3


def lock(peer: Peer, group: str, *numbers: int, client: str = "c") -> Any:
    queues = [MessageQueue("T", "broker-a", number) for number in numbers]
    return peer.ask(RequestCode.LOCK_BATCH_MQ, LOCK_REQUEST.dumps(LockRequest(client, group, queues)))


@pytest.mark.over_limit("maxLocksPerGroup")
@pytest.mark.over_limit("maxLocks")
@pytest.mark.parametrize(("key", "name"), [("max_locks_per_group", "maxLocksPerGroup"), ("max_locks", "maxLocks")])
async def test_locks_of_who_never_registered_come_to_an_end_and_go_with_time(
    broker: OpenBench, key: str, name: str
) -> None:
    async with broker(**{key: 2}) as bench:
        peer = bench.peer()
        assert (await lock(peer, "G", 0, 1)).code == 0
        reply = await lock(peer, "G", 2, 1)
        assert (reply.code, f"raise {name}" in reply.remark) == (REFUSED, True)
        assert [one.queue_id for one in LOCKED_QUEUES.loads((await lock(peer, "G", 0, 1)).body)] == [0, 1]
        bench.clock.advance(61)
        assert [one.queue_id for one in LOCKED_QUEUES.loads((await lock(peer, "G", 2, 3)).body)] == [2, 3]
        assert (await peer.ask(RequestCode.UNLOCK_BATCH_MQ, LOCK_REQUEST.dumps(
            LockRequest("c", "G", [MessageQueue("T", "broker-a", 3)])
        ))).code == 0  # fmt: skip
        assert (await lock(peer, "G", 4)).code == 0
        assert await peer.refused() == {name: "1"}
        bench.clock.advance(61)
        bench.parts.housekeeping.sweep()
        assert not bench.tables.locks._groups


async def test_groups_that_lock_nothing_leave_nothing(broker: OpenBench) -> None:
    async with broker() as bench:
        peer = bench.peer()
        for n in range(5):
            assert (await lock(peer, f"G{n}")).code == 0
        assert not bench.tables.locks._groups


@pytest.mark.over_limit("maxLongPolls")
async def test_more_pulls_than_may_wait_are_told_to_try_again(broker: OpenBench) -> None:
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


@pytest.mark.over_limit("maxRequestsPerClient")
async def test_a_client_that_answers_nothing_is_not_asked_without_end(broker: OpenBench) -> None:
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


@pytest.mark.over_limit("maxColdReadLimits")
async def test_limits_of_cold_reads_come_to_an_end(broker: OpenBench) -> None:
    async with broker(max_cold_read_limits=2) as bench:
        peer, code = bench.peer(), RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG
        assert (await peer.ask(code, b"A=1\nB=2\n")).code == 0
        assert (await peer.ask(code, b"B=3\nC=4\n")).code == REFUSED
        assert (await peer.ask(code, b"B=3\nC=" + b"9" * 4_000)).code == 0


@pytest.mark.over_limit("maxReplyBytes")
async def test_a_reply_no_frame_can_carry_is_refused_and_the_connection_stays(
    broker: OpenBench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with broker() as bench:
        peer = bench.peer()

        def huge(_connection: Any, command: Command) -> Command:
            return command.reply(0, body=b"x" * (16 << 20))

        bench.parts.router._table[RequestCode.GET_ALL_TOPIC_CONFIG] = huge
        with caplog.at_level(logging.WARNING):
            replies = [await peer.ask(RequestCode.GET_ALL_TOPIC_CONFIG) for _ in range(2)]
        assert [reply.code for reply in replies] == [REFUSED, REFUSED]
        assert replies[0].remark.startswith("the reply to request 21: 16777")
        assert caplog.text.count("refused: the reply to request 21") == 1, "once a minute"
        assert await peer.refused() == {"maxReplyBytes": "2"}
