"""Requests of admin tools: topics, groups, figures, configuration."""

from typing import Any

import pytest
from broker_bench import Bench, OpenBench, Peer

from tianzhou.broker.server import make_tables
from tianzhou.broker.settings import BrokerSettings
from tianzhou.model import MessageQueue, SubscriptionGroupConfig, TopicConfig
from tianzhou.settings import parse_properties
from tianzhou.store.settings import StoreSettings
from tianzhou.wire.bodies.groups import GROUP_LIST, SUBSCRIPTION_GROUP, SUBSCRIPTION_GROUP_TABLE, SUBSCRIPTION_GROUPS
from tianzhou.wire.bodies.offsets import BROKER_CONSUME_STATS, CONSUME_STATS, TOPIC_STATS
from tianzhou.wire.bodies.topics import TOPIC_CONFIG, TOPIC_CONFIGS, TOPIC_LIST, TOPIC_TABLE
from tianzhou.wire.json_dialect import loads


async def test_topics_are_made_changed_shown_and_deleted(bench: Bench, peer: Peer) -> None:
    assert (await peer.create_topic("orders", 3)).code == 0
    shown = TOPIC_CONFIG.loads((await peer.ask(351, topic="orders", lo=True)).body)
    assert shown == TopicConfig("orders", 3, 3, 6)
    version = bench.tables.topics.version
    assert (await peer.create_topic("orders", 3)).code == 0
    assert bench.tables.topics.version == version, "the same again is no change"
    await peer.create_topic("orders", 3, perm=4, attributes="+message.type=FIFO")
    table = TOPIC_TABLE.loads((await peer.ask(21)).body)
    assert table.topic_config_table["orders"] == TopicConfig("orders", 3, 3, 4, attributes={"message.type": "FIFO"})
    assert table.data_version == bench.tables.topics.version
    await peer.send("orders")
    bench.tables.offsets.commit("G", "orders", 0, 1, 1)
    assert (await peer.ask(215, topic="orders")).code == 0
    assert (await peer.ask(351, topic="orders")).code == 17
    assert bench.tables.offsets.committed("G", "orders", 0) is None
    assert bench.store.max_offset("orders", 0) == 0


@pytest.mark.parametrize(
    ("header", "code"),
    [
        ({"topic": "bad name"}, 29), ({"topic": "TBW102"}, 29), ({"topic": "rmq_sys_x"}, 29),
        ({"topic_filter_type": "ODD"}, 1), ({"attributes": "+colour=red"}, 1), ({"attributes": "-message.type"}, 1),
        ({"attributes": "+message.type=MIXED"}, 29), ({"perm": 99, "write_queue_nums": 0}, 0),
    ],
)  # fmt: skip
async def test_topics_that_cannot_be_made(bench: Bench, header: dict[str, Any], code: int) -> None:
    assert (await bench.peer().create_topic(**{"topic": "T", "queues": 3} | header)).code == code


async def test_system_topics_cannot_be_deleted(peer: Peer) -> None:
    for topic in ("TBW102", "DefaultCluster", "", "  "):
        assert (await peer.ask(215, topic=topic)).code == 29
    assert (await peer.ask(215, topic="never")).code == 0
    names = TOPIC_LIST.loads((await peer.ask(305)).body).topic_list
    assert {"TBW102", "SCHEDULE_TOPIC_XXXX", "BenchmarkTest"} <= set(names)


async def test_several_topics_are_one_change(bench: Bench) -> None:
    before = bench.tables.topics.version.counter
    configs = [TopicConfig("a", 1, 1), TopicConfig("b", 2, 2, attributes={"+message.type": "FIFO"})]
    assert (await bench.peer().ask(18, TOPIC_CONFIGS.dumps(configs))).code == 0
    assert bench.tables.topics.get("b").attributes == {"message.type": "FIFO"}
    assert bench.tables.topics.version.counter == before + 1


async def test_topic_figures_list_every_queue(bench: Bench, peer: Peer) -> None:
    bench.tables.topics.put(TopicConfig("T", 3, 2), 1)
    await peer.send("T", queue_id=1)
    stats = TOPIC_STATS.loads((await peer.ask(202, topic="T")).body)
    assert {queue.queue_id: (one.min_offset, one.max_offset) for queue, one in stats.offset_table.items()} == {
        0: (0, 0), 1: (0, 1), 2: (0, 0),
    }  # fmt: skip
    queue = MessageQueue("T", "broker-a", 1)
    assert stats.offset_table[queue].last_update_timestamp == bench.records("T", 1)[0].store_timestamp
    assert (await peer.ask(202, topic="X")).code == 17


async def test_who_reads_a_topic_and_what_a_group_reads(bench: Bench, peer: Peer) -> None:
    await peer.heartbeat("c1", "T", expression="TagA", group="online")
    bench.tables.offsets.commit("past", "T", 0, 1, 1)
    bench.tables.offsets.commit("online", "T", 0, 1, 1)
    assert GROUP_LIST.loads((await peer.ask(300, topic="T")).body) == ["online", "past"]
    assert TOPIC_LIST.loads((await peer.ask(343, group="past")).body).topic_list == ["T"]
    shown = loads((await peer.ask(345, group="online", topic="T")).body)
    assert shown["subscriptionData"]["subString"] == "TagA"


async def test_groups_are_made_shown_and_deleted(bench: Bench, peer: Peer) -> None:
    config = SubscriptionGroupConfig("G", retry_max_times=5)
    assert (await peer.ask(200, SUBSCRIPTION_GROUP.dumps(config))).code == 0
    assert SUBSCRIPTION_GROUP.loads((await peer.ask(352, group="G")).body) == config
    others = [SubscriptionGroupConfig("H"), SubscriptionGroupConfig("I")]
    assert (await peer.ask(225, SUBSCRIPTION_GROUPS.dumps(others))).code == 0
    table = SUBSCRIPTION_GROUP_TABLE.loads((await peer.ask(201)).body)
    assert {"G", "H", "I", "TOOLS_CONSUMER"} <= set(table.subscription_group_table)
    bench.tables.offsets.commit("G", "T", 0, 1, 1)
    bench.tables.offsets.commit("H", "T", 0, 1, 1)
    await peer.ask(207, group_name="G")
    await peer.ask(207, group_name="H", clean_offset=True)
    assert "G" not in bench.tables.groups
    assert bench.tables.offsets.topics_of("G") == ["T"]
    assert bench.tables.offsets.topics_of("H") == []
    assert (await peer.ask(200, SUBSCRIPTION_GROUP.dumps(SubscriptionGroupConfig("bad name")))).code == 29
    bench.tables.topics.put(TopicConfig("T", 1, 1), 1)
    shut = await peer.ask(353, group="I", topic="T", readable=False)
    assert loads(shut.body) == {"group": "I", "readable": False, "topic": "T"}


async def test_asking_for_a_group_may_make_it(bench: Bench) -> None:
    assert (await bench.peer().ask(352, group="G")).code == 0
    bench.tables.groups.auto_create = False
    assert (await bench.peer().ask(352, group="H")).code == 26


async def test_how_far_a_group_is(bench: Bench, peer: Peer) -> None:
    bench.tables.topics.put(TopicConfig("T", 2, 2), 1)
    for _ in range(3):
        await peer.send("T")
    await peer.pull("T", 0, max_msg_nums=2)
    bench.tables.offsets.commit("G", "T", 0, 1, 1)
    bench.tables.offsets.commit("G", "gone", 0, 1, 1)
    queue = MessageQueue("T", "broker-a", 0)
    for fields in ({}, {"topic": "T"}, {"topic_list": "T;"}):
        stats = CONSUME_STATS.loads((await peer.ask(208, consumer_group="G", **fields)).body)
        assert len(stats.offset_table) == 2
        one = stats.offset_table[queue]
        assert (one.broker_offset, one.consumer_offset, one.pull_offset) == (3, 1, 2)
        assert one.last_timestamp == bench.records("T")[0].store_timestamp
    await peer.heartbeat("c1", "other")
    stats = CONSUME_STATS.loads((await peer.ask(208, consumer_group="G")).body)
    assert queue in stats.offset_table, "its pull brought the subscription along a moment ago"
    everyone = BROKER_CONSUME_STATS.loads((await peer.ask(317, is_order=False)).body)
    assert everyone.total_diff == 2
    bench.tables.clients.forget_pulls(bench.clock.now_ms() + 1)
    stats = CONSUME_STATS.loads((await peer.ask(208, consumer_group="G")).body)
    assert stats.offset_table == {}, "a group online is asked what it subscribes"
    everyone = BROKER_CONSUME_STATS.loads((await peer.ask(317, is_order=False)).body)
    assert everyone.total_diff == 0


async def test_runtime_figures_are_those_tools_read(bench: Bench, peer: Peer) -> None:
    await peer.send("T")
    await peer.send("T", properties={"UNIQ_KEY": "U", "DELAY": "3"})
    await peer.pull("T")
    figures = await peer.figures()
    assert (figures["brokerVersion"], figures["brokerVersionDesc"]) == ("479", "V5_3_3")
    assert (figures["msgPutTotalTodayNow"], figures["msgGetTotalTodayNow"]) == ("1", "1")
    assert figures["putMessageTimesTotal"] == "2"
    assert figures["scheduleMessageOffset_3"] == "0,1"
    assert all(len(figures[key].split(" ")) == 3 for key in figures if key.endswith("Tps") and key[0] in "pg")
    assert 0 <= float(figures["commitLogDiskRatio"]) <= 1
    assert int(figures["earliestMessageTimeStamp"]) == bench.records("T")[0].store_timestamp


async def test_every_key_is_shown_and_an_update_rewrites_the_whole_file(broker: OpenBench, tmp_path: Any) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("brokerName=broker-a\n")

    async with broker(broker_config_path=str(file)) as bench:
        peer = bench.peer()
        reply = await peer.ask(26)
        shown = parse_properties(bytes(reply.body).decode())
        assert (shown["brokerName"], shown["maxMessageSize"], shown["brokerIP1"]) == (
            "broker-a",
            "4194304",
            "127.0.0.1",
        )
        assert loads(reply.fields["version"].encode())["counter"] == 0
        update = b"maxMessageSize=100\nregionId=here\nnoSuchKey=1\n"
        assert (await peer.ask(25, update)).code == 0
        assert (bench.settings.region_id, bench.store_settings.max_message_size) == ("here", 100)
        written = parse_properties(file.read_text())
        assert set(written) == set(shown)
        assert written["regionId"] == "here"
        assert (await peer.send("T")).fields.get("MSG_REGION") or (await peer.send("T")).header.msg_region == "here"
        assert (await peer.ask(25, b"configBlackList=x\n")).code == 16
        assert (await peer.ask(25, b"brokerConfigPath=/x\n")).code == 16
        assert (await peer.ask(25, b"listenPort=many\n")).code == 1
        assert (await peer.ask(26)).fields["version"].startswith('{"counter":1,')


async def test_unknown_codes_are_answered_as_apache_does(bench: Bench) -> None:
    reply = await bench.peer().ask(4711)
    assert (reply.code, reply.remark) == (3, " request type 4711 not supported")


async def test_the_fast_port_does_not_pull(bench: Bench) -> None:
    from tianzhou.broker.router import NOT_ON_FAST_PORT

    fast = bench.parts.router.without(NOT_ON_FAST_PORT)
    assert bench.parts.router.codes - fast.codes == {11, 361}


def test_settings_decide_which_topics_there_are_from_the_start() -> None:
    settings = BrokerSettings(broker_name="b", auto_create_topic_enable=False, trace_topic_enable=True)
    topics = make_tables(settings, StoreSettings(timer_wheel_enable=False), 0).topics
    assert "TBW102" not in topics
    assert "RMQ_SYS_TRACE_TOPIC" in topics
    assert "rmq_sys_wheel_timer" not in topics
