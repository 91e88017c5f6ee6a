"""A real name server over loopback, with requests of brokers, clients and tools."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
from name_server_desk import BROKER, Desk

from shared_loop import SharedLoop
from tianzhou.damaged_files import accept_lost_state, is_lost_state_accepted
from tianzhou.errors import ConfigError
from tianzhou.limits import CONFIG_UPDATE_BYTES
from tianzhou.model import DataVersion
from tianzhou.remoting.client import RemotingClient
from tianzhou.remoting.connection import Connection, Reply
from tianzhou.remoting.server import RemotingServer
from tianzhou.settings import parse_properties
from tianzhou.wire.bodies.route import MEMBER_GROUP, ROUTE
from tianzhou.wire.bodies.tables import KV_TABLE
from tianzhou.wire.bodies.topics import DATA_VERSION, TOPIC_LIST
from tianzhou.wire.codes import RequestCode
from tianzhou.wire.command import Command
from tianzhou.wire.fields import read_header, read_reply


async def test_the_three_forms_of_a_registration(tmp_path: Path) -> None:
    for form in ({"version": 479}, {"version": 407}, {"compressed": True}, {"compressed": True, "version": 407}):
        async with Desk(tmp_path) as desk:
            reply = await desk.register("T", "U", **form)  # type: ignore[arg-type]
            assert (reply.code, bytes(reply.body)) == (0, b"")
            route = await desk.route("T")
            assert [queue.read_queue_nums for queue in route.queue_datas] == [4]


async def test_a_body_with_another_checksum_is_refused(desk: Desk) -> None:
    reply = await desk.register("T", "U", crc=12345)
    assert (reply.code, reply.remark) == (1, "crc32 not match")
    assert (await desk.register("T", "U", crc=0)).code == 0  # zero: not checked


async def test_a_single_topic_of_a_new_broker_is_refused(desk: Desk) -> None:
    reply = await desk.register("T")
    assert (reply.code, reply.remark) == (1, "register broker failed")


async def test_a_missing_field_is_named_and_the_connection_stays(desk: Desk) -> None:
    reply = await desk.ask(RequestCode.REGISTER_BROKER, brokerName="b", clusterName="c", haServerAddr="h")
    assert reply.code == 1
    assert "brokerAddr" in str(reply.remark)
    reply = await desk.ask(
        RequestCode.QUERY_DATA_VERSION, brokerName="b", clusterName="c", brokerAddr="a", brokerId="master"
    )
    assert reply.code == 1
    assert "brokerId" in str(reply.remark)
    assert "master" in str(reply.remark)
    assert (await desk.ask(RequestCode.GET_BROKER_CLUSTER_INFO)).code == 0


async def test_route_dialects_by_version_and_by_wish(desk: Desk) -> None:
    await desk.register("T", "U")
    for version, fields, quoted in (
        (401, {}, True),
        (399, {}, False),
        (317, {"acceptStandardJsonOnly": "true"}, True),
        (317, {"acceptStandardJsonOnly": "false"}, False),
    ):
        reply = await desk.ask(105, topic="T", version=version, **fields)  # type: ignore[arg-type]
        assert (b'"brokerAddrs":{"0":"10.0.0.1:10911"}' in reply.body) is quoted
        assert (b'"brokerAddrs":{0:"10.0.0.1:10911"}' in reply.body) is not quoted


async def test_an_unknown_topic_is_answered_as_apache_does(desk: Desk) -> None:
    reply = await desk.ask(105, topic="nothing")
    assert reply.code == 17
    assert reply.remark == (
        "No topic route info in name server for the topic: nothing\n"
        "See https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
    )


async def test_requests_without_fields_answer_as_apache_5_3_3(desk: Desk) -> None:
    assert (await desk.ask(105)).code == 17
    for code in (104, 205, 216, 217, 224, 327, 102):
        assert (await desk.ask(code)).code == 0, code
    group = await desk.ask(901)
    assert (group.code, group.remark) == (0, "not set any response code")
    assert (await desk.ask(100)).remark == "namespace or key is null"
    assert [(await desk.ask(code)).code for code in (101, 219)] == [22, 22]
    unknown = await desk.ask(4711)
    assert (unknown.code, unknown.remark) == (3, " request type 4711 not supported")
    await desk.register("T", "U")
    of_brokers = await desk.ask(34)
    assert of_brokers.code == 3
    assert of_brokers.remark == (
        " request type 34 not supported: this is a name server, and HEART_BEAT is served by a broker;"
        " give its address, as 10.0.0.1:10911"
    )


async def test_a_closed_connection_unregisters_its_broker_at_once(desk: Desk) -> None:
    broker = RemotingClient()
    await desk.register("T", "U", client=broker)
    assert (await desk.route("T")) != 17
    await broker.close()
    for _ in range(500):
        if await desk.route("T") == 17:
            break
        await asyncio.sleep(0.01)
    assert await desk.route("T") == 17


async def test_a_silent_broker_is_gone_after_two_minutes_and_its_connection_closed(tmp_path: Path) -> None:
    async with Desk(tmp_path) as desk, RemotingClient() as broker:
        await desk.register("T", "U", client=broker)
        desk.clock.advance(110)
        await desk.register("X", "Y", address="10.0.0.2:10911", broker_name="broker-b")
        desk.clock.advance(11)
        desk.server.scan()
        assert await desk.route("T") == 17
        assert await desk.route("X") != 17
        for _ in range(500):
            if broker.connected(desk.address) is None:
                break
            await asyncio.sleep(0.01)
        assert broker.connected(desk.address) is None


def in_virtual_time(test: Coroutine[Any, Any, None]) -> None:
    with SharedLoop() as loop:
        loop.run(test)


@pytest.mark.runner.with_args(in_virtual_time)
@pytest.mark.parametrize(("settings", "interval_s"), [({}, 5), ({"scan_not_active_broker_interval": 10_000}, 10)])
async def test_the_search_for_silent_brokers_takes_its_interval_of_5x_or_4x(
    settings: dict[str, int], interval_s: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    searches: list[float] = []
    loop = asyncio.get_running_loop()
    async with Desk(tmp_path, **settings) as desk:
        monkeypatch.setattr(desk.server, "scan", lambda: searches.append(loop.time()))
        await asyncio.sleep(4 * interval_s)
    pauses_s = [after - before for before, after in itertools.pairwise(searches)]
    assert pauses_s == pytest.approx([interval_s] * len(pauses_s), abs=0.5)
    assert len(pauses_s) >= 2


async def test_a_wall_clock_that_is_set_unregisters_nobody(tmp_path: Path) -> None:
    async with Desk(tmp_path) as desk, RemotingClient() as broker:
        await desk.register("T", "U", client=broker)
        for step_ms in (3_600_000, -7_200_000):
            desk.clock.step_wall_clock(step_ms)
            desk.server.scan()
            assert await desk.route("T") != 17
        # Whether reset or not, a broker is removed after two minutes of silence.
        desk.clock.advance(121)
        desk.server.scan()
        assert await desk.route("T") == 17


async def test_heartbeats_and_version_queries_keep_a_broker(desk: Desk) -> None:
    await desk.register("T", "U")
    who = {"clusterName": "DefaultCluster", "brokerAddr": BROKER, "brokerName": "broker-a"}
    desk.clock.advance(100)
    assert (await desk.ask(904, **who)).code == 0
    desk.clock.advance(100)
    desk.server.scan()
    assert await desk.route("T") != 17
    same = DATA_VERSION.dumps(DataVersion(1, 1_700_000_000_000))
    for body, changed in ((same, False), (DATA_VERSION.dumps(DataVersion(2, 5)), True)):
        reply = await desk.ask(322, body, brokerId="0", **who)
        assert read_reply(322, reply).changed is changed
        assert DATA_VERSION.loads(reply.body) == DataVersion(1, 1_700_000_000_000)
    reply = await desk.ask(322, same, brokerId="0", **(who | {"brokerAddr": "other:1"}))
    assert read_reply(322, reply).changed is True
    assert reply.body == b""
    desk.clock.advance(100)
    desk.server.scan()
    assert await desk.route("T") != 17


async def test_permissions_topics_and_lists(desk: Desk) -> None:
    await desk.register("T", "U", "V")
    assert read_reply(205, await desk.ask(205, brokerName="broker-a")).wipe_topic_count == 3
    assert (await desk.route("T")).queue_datas[0].perm == 4
    assert read_reply(327, await desk.ask(327, brokerName="broker-a")).add_topic_count == 3
    assert (await desk.route("T")).queue_datas[0].perm == 6
    await desk.ask(216, topic="V", clusterName="DefaultCluster")
    listed = TOPIC_LIST.loads((await desk.ask(206)).body)
    assert sorted(listed.topic_list) == ["T", "U"]
    assert sorted(TOPIC_LIST.loads((await desk.ask(224, cluster="DefaultCluster")).body).topic_list) == [
        "T",
        "U",
    ]
    system = TOPIC_LIST.loads((await desk.ask(304)).body)
    assert (system.topic_list, system.broker_addr) == (["DefaultCluster", "broker-a"], BROKER)
    assert [bytes((await desk.ask(code)).body) for code in (311, 312, 313)] == [b'{"topicList":[]}'] * 3
    route = ROUTE.dumps(await desk.route("T"))
    assert (await desk.ask(217, route, topic="New")).code == 0
    assert (await desk.route("New")).queue_datas[0].broker_name == "broker-a"
    members = MEMBER_GROUP.loads((await desk.ask(901, clusterName="DefaultCluster", brokerName="broker-a")).body)
    assert members is not None
    assert members.broker_addrs == {0: BROKER}
    await desk.ask(104, clusterName="DefaultCluster", brokerName="broker-a", brokerAddr=BROKER, brokerId="0")
    assert bytes((await desk.ask(106)).body) == b'{"brokerAddrTable":{},"clusterAddrTable":{}}'


async def test_topic_lists_can_be_switched_off(tmp_path: Path) -> None:
    async with Desk(tmp_path, enable_topic_list=False, enable_all_topic_list=False) as desk:
        for code in (206, 311, 312, 313):
            reply = await desk.ask(code)
            assert (reply.code, reply.remark) == (1, "disable")


async def test_the_kv_configuration_survives_a_restart(tmp_path: Path) -> None:
    async with Desk(tmp_path) as desk:
        for key in ("colour", "shape"):
            await desk.ask(100, namespace="golden", key=key, value="red=1;日本")
        await desk.ask(102, namespace="golden", key="shape")
    async with Desk(tmp_path) as desk:
        assert read_reply(101, await desk.ask(101, namespace="golden", key="colour")).value == "red=1;日本"
        missing = await desk.ask(101, namespace="golden", key="shape")
        assert (missing.code, missing.remark) == (22, "No config item, Namespace: golden Key: shape")
        assert KV_TABLE.loads((await desk.ask(219, namespace="golden")).body) == {"colour": "red=1;日本"}
        assert (await desk.ask(219, namespace="none")).remark == "No config item, Namespace: none"
    assert json.loads((tmp_path / "kvConfig.json").read_text()) == {"configTable": {"golden": {"colour": "red=1;日本"}}}


async def test_a_damaged_kv_file_falls_back_to_its_backup_and_else_refuses_with_the_reason(tmp_path: Path) -> None:
    async with Desk(tmp_path) as desk:
        await desk.ask(100, namespace="n", key="k", value="1")
        await desk.ask(100, namespace="n", key="k", value="2")
    (tmp_path / "kvConfig.json").write_text('{"configTable":{"n"')
    async with Desk(tmp_path) as desk:
        assert read_reply(101, await desk.ask(101, namespace="n", key="k")).value == "1"
    assert [path.read_text() for path in tmp_path.glob("kvConfig.json.damaged-*")] == ['{"configTable":{"n"']
    (tmp_path / "kvConfig.json").write_bytes(bytes(30))
    for backup in ("[]", '{"configTable":null}', ""):
        (tmp_path / "kvConfig.json.bak").write_text(backup)
        with pytest.raises(ConfigError, match=r"kvConfig\.json.*kvConfig\.json\.bak.*--accept-lost-state"):
            async with Desk(tmp_path):
                pass
    accept_lost_state(tmp_path)
    for _ in range(2):
        async with Desk(tmp_path) as desk:
            assert (await desk.ask(101, namespace="n", key="k")).code == 22
    assert len(list(tmp_path.glob("kvConfig.json*.damaged-*"))) == 3
    assert not is_lost_state_accepted(tmp_path)


async def test_order_configuration_goes_to_brokers_and_when_switched_on_into_routes(tmp_path: Path) -> None:
    for enabled in (False, True):
        async with Desk(tmp_path, order_message_enable=enabled) as desk:
            await desk.ask(100, namespace="ORDER_TOPIC_CONFIG", key="T", value="broker-a:4")
            reply = await desk.register("T", "U")
            assert KV_TABLE.loads(reply.body) == {"T": "broker-a:4"}
            assert (await desk.route("T")).order_topic_conf == ("broker-a:4" if enabled else None)
            assert (await desk.route("U")).order_topic_conf is None
    async with Desk(tmp_path, return_order_topic_config_to_broker=False) as desk:
        assert (await desk.register("T", "U")).body == b""


async def test_the_configuration_is_shown_changed_and_rewritten_whole(desk: Desk, tmp_path: Path) -> None:
    shown = parse_properties(bytes((await desk.ask(319)).body).decode())
    assert shown["scanNotActiveBrokerInterval"] == "5000"
    assert shown["unRegisterBrokerQueueCapacity"] == "3000"
    reply = await desk.ask(318, b"enableAllTopicList=false\nnoSuchKey=1\n")
    assert reply.code == 0
    assert (await desk.ask(206)).code == 1
    written = parse_properties((tmp_path / "namesrv.properties").read_text())
    assert written == shown | {"enableAllTopicList": "false"}
    for key in ("kvConfigPath", "configStorePath", "configBlackList", "rocketmqHome"):
        reply = await desk.ask(318, f"orderMessageEnable=true\n{key}=/tmp/x\n".encode())
        assert (reply.code, reply.remark) == (16, "Can not update config in black list.")
    assert not desk.server.settings.order_message_enable
    reply = await desk.ask(318, b"waitSecondsForService=soon\n")
    assert reply.code == 1
    assert "waitSecondsForService" in str(reply.remark)
    assert (await desk.ask(318, b"\xff\xfe=1")).code == 1
    assert (await desk.ask(318)).code == 0
    reply = await desk.ask(318, b"#" * (CONFIG_UPDATE_BYTES.default + 1))
    assert (reply.code, f"{CONFIG_UPDATE_BYTES.default + 1} bytes" in (reply.remark or "")) == (29, True)


async def test_keys_without_effect_are_named_in_the_log_when_they_are_set(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert (await desk.ask(318, b"serverSocketBacklog=5\nserverWorkerThreads=3\nenableTopicList=false\n")).code == 0
    assert [record.getMessage() for record in caplog.records] == [
        (
            "configuration update: no effect: serverWorkerThreads: one event loop serves everything, there are"
            " no pools of threads or buffers to size"
        ),
        (
            "configuration update: no effect: serverSocketBacklog: sockets keep the system's sizes, and who"
            " does not read is always waited for"
        ),
    ]
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        for same in (b"orderMessageEnable=true\n", b"orderMessageEnable=false\n"):
            assert (await desk.ask(318, same)).code == 0
    assert not caplog.records


async def test_routes_can_be_held_back_after_the_start(tmp_path: Path) -> None:
    async with Desk(tmp_path, need_wait_for_service=True) as desk:
        await desk.register("T", "U")
        reply = await desk.ask(105, topic="T")
        assert (reply.code, reply.remark) == (1, "name server not ready")
        desk.clock.advance(45)
        assert await desk.route("T") != 17


async def test_zones_filter_routes_and_answer_in_the_old_dialect(desk: Desk) -> None:
    await desk.register("T", "U", zone_name="east")
    await desk.register("T", "U", broker_name="broker-b", address="10.0.0.9:10911", zone_name="west")
    assert len((await desk.route("T")).broker_datas) == 2
    zoned = {"__ZONE_MODE": "true", "__ZONE_NAME": "WEST"}
    route = await desk.route("T", **zoned)
    assert [queue.broker_name for queue in route.queue_datas] == ["broker-b"]
    assert b'{0:"10.0.0.9:10911"}' in (await desk.ask(105, topic="T", **zoned)).body
    assert len((await desk.route("T", __ZONE_NAME="west")).broker_datas) == 2


async def test_the_group_is_notified_when_its_smallest_id_changes(tmp_path: Path) -> None:
    told: asyncio.Queue[Command] = asyncio.Queue()

    def note(_connection: Connection, command: Command) -> Reply:
        told.put_nowait(command)
        return None

    async with (
        RemotingServer("127.0.0.1", 0, note) as slave,
        Desk(tmp_path, notify_min_broker_id_changed=True) as desk,
    ):
        address = f"127.0.0.1:{slave.port}"
        await desk.register("T", "U", address=address, broker_id=1)
        await desk.register("T", "U")
        command = await asyncio.wait_for(told.get(), 5)
        assert command.is_oneway
        assert command.code == 905
        header = read_header(command)
        assert (header.min_broker_id, header.min_broker_addr) == (0, BROKER)
        await desk.ask(104, clusterName="DefaultCluster", brokerName="broker-a", brokerAddr=BROKER, brokerId="0")
        header = read_header(await asyncio.wait_for(told.get(), 5))
        assert (header.min_broker_id, header.offline_broker_addr) == (1, BROKER)


async def test_a_static_topic_is_routed_with_its_mappings_in_both_dialects(desk: Desk) -> None:
    info = {"bname": "broker-a", "currIdMap": {0: 0, 1: 1}, "dirty": False, "epoch": 1, "topic": "T"}
    for compressed in (False, True):
        await desk.register("T", "U", compressed=compressed, mappings={"T": info})
        standard = bytes((await desk.ask(105, topic="T")).body)
        assert b'"topicQueueMappingByBroker":{"broker-a":{' in standard
        assert b'"currIdMap":{"0":0,"1":1}' in standard
        old = bytes((await desk.ask(105, topic="T", version=317)).body)
        assert b'"currIdMap":{0:0,1:1}' in old
        assert b"topicQueueMappingByBroker" not in (await desk.ask(105, topic="U")).body


async def test_binary_headers_are_understood(desk: Desk) -> None:
    await desk.register("T", "U")
    reply = await desk.client.invoke(desk.address, Command(105, fields={"topic": "T"}, serialize_type=1))
    assert ROUTE.loads(reply.body).broker_datas[0].broker_addrs == {0: BROKER}
    assert reply.serialize_type == 0
