"""JSON bodies: cases beyond the golden frames."""

from __future__ import annotations

import json
import struct
import zlib
from typing import Any

import pytest

from tianzhou.errors import ProtocolError
from tianzhou.model import (
    BrokerData,
    ClusterInfo,
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    DataVersion,
    HeartbeatData,
    MessageModel,
    MessageQueue,
    QueueData,
    SubscriptionData,
    SubscriptionGroupConfig,
    TopicConfig,
    TopicRoute,
)
from tianzhou.wire.bodies import clients, offsets
from tianzhou.wire.bodies.groups import (
    GROUP_LIST,
    SUBSCRIPTION_GROUP,
    SUBSCRIPTION_GROUP_TABLE,
    SUBSCRIPTION_GROUPS,
    SubscriptionGroupTable,
)
from tianzhou.wire.bodies.heartbeat import CLIENT_CONFIG_CHECK, HEARTBEAT, ClientConfigCheck
from tianzhou.wire.bodies.register import REGISTER_BODY, RegisterBody, RegisterCodec
from tianzhou.wire.bodies.route import CLUSTER_INFO, MEMBER_GROUP, ROUTE, STANDARD_ROUTE
from tianzhou.wire.bodies.tables import BROKER_STATS, KV_TABLE, BrokerStats, StatsSample
from tianzhou.wire.bodies.topics import DATA_VERSION, TOPIC_CONFIG, TOPIC_CONFIGS, TOPIC_LIST, TopicList, TopicTable

QUEUE = MessageQueue("T", "b-a", 0)
QUEUE_TEXT = '{"brokerName":"b-a","queueId":0,"topic":"T"}'


# Heartbeats


def test_a_heartbeat_reads_as_in_the_sheet() -> None:
    heartbeat = HeartbeatData(
        "10.0.0.1@1#2",
        ["PG"],
        [
            ConsumerData(
                "CG",
                subscription_data_set=[
                    SubscriptionData("T", "TagA || TagB", {"TagB", "TagA"}, {2598920, 2598919}, "TAG", 1795250906044)
                ],
            )
        ],
    )
    data = HEARTBEAT.dumps(heartbeat)
    assert data.decode() == (
        '{"clientID":"10.0.0.1@1#2","consumerDataSet":[{"consumeFromWhere":"CONSUME_FROM_LAST_OFFSET",'
        '"consumeType":"CONSUME_PASSIVELY","groupName":"CG","messageModel":"CLUSTERING","subscriptionDataSet":['
        '{"classFilterMode":false,"codeSet":[2598919,2598920],"expressionType":"TAG","subString":"TagA || TagB",'
        '"subVersion":1795250906044,"tagsSet":["TagA","TagB"],"topic":"T"}],"unitMode":false}],'
        '"heartbeatFingerprint":0,"producerDataSet":[{"groupName":"PG"}],"withoutSub":false}'
    )
    assert HEARTBEAT.loads(data) == heartbeat


def test_enums_come_as_names_ordinals_and_deprecated_names() -> None:
    def read(**members: Any) -> ConsumerData:
        text = json.dumps({"clientID": "c", "consumerDataSet": [{"groupName": "g"} | members]})
        return HEARTBEAT.loads(text.encode()).consumers[0]

    assert read(messageModel=0).message_model is MessageModel.BROADCASTING
    assert read(messageModel=1).message_model is MessageModel.CLUSTERING
    assert read(consumeType="CONSUME_POP").consume_type is ConsumeType.CONSUME_POP
    assert read(consumeFromWhere=4).consume_from_where is ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    assert read(consumeFromWhere=5).consume_from_where is ConsumeFromWhere.CONSUME_FROM_TIMESTAMP
    assert read(consumeFromWhere="CONSUME_FROM_MIN_OFFSET").consume_from_where is (
        ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    )
    assert read(consumeFromWhere=None) == ConsumerData("g")
    for wrong in ("6", "-1", '"SOMETIMES"', "[]", "{}"):
        with pytest.raises(ProtocolError, match=r"consumerDataSet\[0\]\.consumeFromWhere"):
            read(consumeFromWhere=json.loads(wrong))


def test_reading_is_lenient_and_names_what_it_cannot_read() -> None:
    read = TOPIC_CONFIG.loads
    loose = (
        b'{"topicName":7,"perm":"6","order":"TRUE","readQueueNums":4.0,"writeQueueNums":"8",'
        b'"more":[1],"attributes":null}'
    )
    assert read(loose) == TopicConfig("7", 4, 8, 6, order=True)
    assert read(b'{"topicName":"T","order":1}').order is True
    assert read(b"{'topicName':'T',attributes:{'a':1,'b':true,'c':null}}").attributes == {"a": "1", "b": "true"}
    for text, path in (
        ("{}", r"TopicConfig: member 'topicName'"),
        ('{"topicName":null}', r"TopicConfig: member 'topicName'"),
        ("[]", r"TopicConfig: \[\] is not an object"),
        ('{"topicName":["T"]}', r"TopicConfig\.topicName: \['T'\] is not text"),
        ('{"topicName":"T","perm":"six"}', r"TopicConfig\.perm: 'six' is not an integer"),
        ('{"topicName":"T","perm":1.5}', r"TopicConfig\.perm: 1\.5"),
        ('{"topicName":"T","perm":1e999}', r"TopicConfig\.perm|JSON"),
        ('{"topicName":"T","order":"maybe"}', r"TopicConfig\.order: 'maybe' is not true or false"),
        ('{"topicName":"T","order":7}', r"TopicConfig\.order"),
        ('{"topicName":"T","attributes":"%s"}' % ("x" * 500), r"TopicConfig\.attributes: 'x{70,80}\.\.\. is not"),
    ):
        with pytest.raises(ProtocolError, match=path):
            read(text.encode())


def test_client_configuration_checks() -> None:
    check = ClientConfigCheck("c", "g", SubscriptionData("T", "a > 3", expression_type="SQL92"), "ns")
    assert CLIENT_CONFIG_CHECK.loads(CLIENT_CONFIG_CHECK.dumps(check)) == check


# Routes


FOUND = TopicRoute(
    [QueueData("b-a", 4, 4, 6)],
    [BrokerData("b-a", "DefaultCluster", {1: "10.0.0.2:10911", 0: "10.0.0.1:10911"})],
)


def test_a_route_in_both_dialects() -> None:
    standard = (
        '{"brokerDatas":[{"brokerAddrs":{"0":"10.0.0.1:10911","1":"10.0.0.2:10911"},"brokerName":"b-a",'
        '"cluster":"DefaultCluster","enableActingMaster":false}],"filterServerTable":{},'
        '"queueDatas":[{"brokerName":"b-a","perm":6,"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":4}]}'
    )
    assert STANDARD_ROUTE.dumps(FOUND).decode() == standard
    dialect = standard.replace('{"0":', "{0:").replace(',"1":', ",1:")
    assert ROUTE.dumps(FOUND).decode() == dialect
    assert ROUTE.loads(standard.encode()) == ROUTE.loads(dialect.encode()) == FOUND


def test_optional_members_of_a_route() -> None:
    route = TopicRoute(
        [],
        [BrokerData("经纪", "c", {0: "h:1"}, enable_acting_master=True, zone_name="z")],
        "b-a:4;b-b:4",
        {"h:1": ["f1", "f2"]},
    )
    assert STANDARD_ROUTE.dumps(route).isascii()
    for codec in (STANDARD_ROUTE, ROUTE):
        assert ROUTE.loads(codec.dumps(route)) == route
    assert ROUTE.loads(b"{}") == TopicRoute()


def test_the_old_name_of_the_system_flag_is_read() -> None:
    text = b'{"queueDatas":[{"brokerName":"b","perm":6,"readQueueNums":1,"writeQueueNums":1,"topicSynFlag":2}]}'
    assert ROUTE.loads(text).queue_datas == [QueueData("b", 1, 1, 6, 2)]


def test_cluster_information_has_bare_ids() -> None:
    info = ClusterInfo({"b-a": FOUND.broker_datas[0]}, {"DefaultCluster": ["b-a"]})
    data = CLUSTER_INFO.dumps(info)
    assert b'"brokerAddrs":{0:"10.0.0.1:10911",1:' in data
    assert CLUSTER_INFO.loads(data) == info


def test_member_groups() -> None:
    data = MEMBER_GROUP.dumps(BrokerData("b-a", "c", {0: "h:1"}))
    assert data == b'{"brokerMemberGroup":{"brokerAddrs":{0:"h:1"},"brokerName":"b-a","cluster":"c"}}'
    assert MEMBER_GROUP.loads(data) == BrokerData("b-a", "c", {0: "h:1"})
    assert MEMBER_GROUP.loads(b"{}") is None


# Topics and registration


def test_data_versions() -> None:
    version = DataVersion(7, 1700000000000, 2)
    data = b'{"counter":7,"stateVersion":2,"timestamp":1700000000000}'
    assert DATA_VERSION.dumps(version) == data
    assert DATA_VERSION.loads(data) == version
    assert DATA_VERSION.loads(b'{"counter":7,"timestamp":1}') == DataVersion(7, 1)


def test_a_topic_config_with_mapping_detail() -> None:
    config = TopicConfig("T", 4, 4, attributes={"message.type": "FIFO"})
    assert TOPIC_CONFIG.dumps(config) == (
        b'{"attributes":{"message.type":"FIFO"},"order":false,"perm":6,"readQueueNums":4,'
        b'"topicFilterType":"SINGLE_TAG","topicName":"T","topicSysFlag":0,"writeQueueNums":4}'
    )
    detail = b',"mappingDetail":{"currIdMap":{0:0},"topic":"T"}}'
    assert TOPIC_CONFIG.loads(TOPIC_CONFIG.dumps(config)[:-1] + detail) == config
    config.attributes = {"b": "1", "a": "2"}
    assert b'{"a":"2","b":"1"}' in TOPIC_CONFIG.dumps(config)
    configs = [config, TopicConfig("U")]
    assert TOPIC_CONFIGS.loads(TOPIC_CONFIGS.dumps(configs)) == configs
    assert TOPIC_CONFIGS.loads(b"{}") == []


def test_topic_lists() -> None:
    assert TOPIC_LIST.dumps(TopicList(["a"], "h:1")) == b'{"brokerAddr":"h:1","topicList":["a"]}'
    assert TOPIC_LIST.loads(b'{"topicList":["a","b"]}') == TopicList(["a", "b"])


TABLE = TopicTable({"T": TopicConfig("T", 5, 4, 6)}, DataVersion(0, 1))


def test_the_reference_vector_of_the_compressed_form() -> None:
    vector = bytes.fromhex(
        "0000002c7b22636f756e746572223a302c22737461746556657273696f6e223a302c2274696d657374616d70223a317d0000000100"
        "000015542035203420362053494e474c455f544147207b7d000000025b5d00000000"
    )
    body = RegisterBody(TABLE, [])
    codec = RegisterCodec(compressed=True)
    packed = codec.dumps(body)
    assert zlib.decompress(packed) == vector
    assert codec.loads(packed) == body
    # 5.3.3 with compressedRegister sends `compressed=false`.
    assert REGISTER_BODY.loads(packed) == body
    for cut in range(len(vector)):
        with pytest.raises(ProtocolError, match=r"register body|JSON|DataVersion"):
            codec.loads(zlib.compress(vector[:cut]))


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("version", [407, 412, 413, 479])
def test_registration_comes_back(compressed: bool, version: int) -> None:
    modern = version >= 413  # 5.0.0
    table = TopicTable(
        {
            "T": TopicConfig("T", 5, 4, 6, attributes={"message.type": "FIFO", "x": "a b"} if modern else {}),
            "%RETRY%g": TopicConfig("%RETRY%g", 1, 1),
        },
        DataVersion(3, 5, 7 if modern else 0),
        topic_queue_mapping_info_map={"S": {"topic": "S", "currIdMap": {0: 1}}} if modern else {},
    )
    body = RegisterBody(table, ["f:1"])
    codec = RegisterCodec(version, compressed)
    data = codec.dumps(body)
    assert codec.loads(data) == body
    plain = zlib.decompress(data) if compressed else data
    assert (b"stateVersion" in plain) is modern
    assert (b"attributes" in plain) is (modern and not compressed)


def test_registrations_of_old_brokers_and_without_body() -> None:
    assert REGISTER_BODY.loads(b"") == RegisterBody()
    bare = b'{"topicConfigTable":{"T":{"topicName":"T","perm":6,"readQueueNums":5,"writeQueueNums":4}}}'
    assert REGISTER_BODY.loads(bare).table.topic_config_table == TABLE.topic_config_table
    assert REGISTER_BODY.loads(b"{}") == RegisterBody()


def test_compressed_registrations_that_lie_are_refused() -> None:
    def packed(*sections: bytes) -> bytes:
        return zlib.compress(b"".join(sections))

    for data in (
        b"no zlib",
        packed(struct.pack(">i", 2**31 - 1)),
        packed(struct.pack(">i", -1)),
        packed(bytes(4), struct.pack(">i", 2**31 - 1)),
        packed(bytes(4), struct.pack(">i", 1), struct.pack(">i", 5), b"T 5 4"),
        packed(bytes(4), struct.pack(">i", 1), struct.pack(">i", 11), b"T x 4 6 TAG"),
        zlib.compress(bytes(80 << 20)),
    ):
        with pytest.raises(ProtocolError):
            RegisterCodec(compressed=True).loads(data)


# Groups


def test_groups() -> None:
    config = SubscriptionGroupConfig("CG")
    assert SUBSCRIPTION_GROUP.dumps(config).decode() == (
        '{"attributes":{},"brokerId":0,"consumeBroadcastEnable":true,"consumeEnable":true,"consumeFromMinEnable":true,'
        '"consumeMessageOrderly":false,"consumeTimeoutMinute":15,"groupName":"CG","groupRetryPolicy":'
        '{"type":"CUSTOMIZED"},"groupSysFlag":0,"notifyConsumerIdsChangedEnable":true,"retryMaxTimes":16,'
        '"retryQueueNums":1,"whichBrokerWhenConsumeSlowly":1}'
    )
    full = SubscriptionGroupConfig(
        "G",
        attributes={"a": "b"},
        group_retry_policy={"customizedRetryPolicy": {"next": [1000, 5000]}, "type": "CUSTOMIZED"},
        subscription_data_set=[{"expression": "*", "expressionType": "TAG", "topic": "T", "version": 1}],
    )
    for group in (config, full):
        assert SUBSCRIPTION_GROUP.loads(SUBSCRIPTION_GROUP.dumps(group)) == group
    listed = SUBSCRIPTION_GROUPS.dumps([config, full])
    assert SUBSCRIPTION_GROUPS.loads(listed) == [config, full]
    table = SubscriptionGroupTable({"CG": config}, DataVersion(1, 2, 3), {"CG": {"T": 4}})
    assert SUBSCRIPTION_GROUP_TABLE.loads(SUBSCRIPTION_GROUP_TABLE.dumps(table)) == table
    assert GROUP_LIST.loads(GROUP_LIST.dumps(["a", "b"])) == ["a", "b"]
    # As 4.9 sends it.
    assert SUBSCRIPTION_GROUP.loads(b'{"groupName":"CG","retryMaxTimes":3}').retry_max_times == 3


# Offsets


def test_offset_tables_in_their_three_shapes() -> None:
    table = {QUEUE: 5, MessageQueue("T", "b-a", 1): 6}
    bare = offsets.OFFSET_TABLE.dumps(table)
    assert bare.decode().startswith('{"offsetTable":{' + QUEUE_TEXT + ":5,")
    listed = offsets.OFFSET_LIST.dumps({QUEUE: 5})
    assert listed == b'{"offsetTable":[{"brokerName":"b-a","offset":5,"queueId":0,"topic":"T"}]}'
    text = json.dumps({"offsetTable": {QUEUE_TEXT: 5}}).encode()
    assert offsets.OFFSET_TABLE.loads(bare) == table
    assert offsets.OFFSET_TABLE.loads(listed) == offsets.OFFSET_TABLE.loads(text) == {QUEUE: 5}
    assert offsets.OFFSET_TABLE.loads(offsets.CLIENT_OFFSETS.dumps(table)) == table
    assert offsets.OFFSET_TABLE.loads(b"{}") == offsets.OFFSET_TABLE.loads(b"") == {}
    for wrong in ('{"offsetTable":{"T":1}}', '{"offsetTable":{7:1}}', '{"offsetTable":[1]}', '{"offsetTable":[{}]}'):
        with pytest.raises(ProtocolError, match="offset table"):
            offsets.OFFSET_TABLE.loads(wrong.encode())


def test_offsets_of_clients_groups_and_levels() -> None:
    status = {"c1": {QUEUE: 5}}
    assert offsets.CONSUMER_STATUS.loads(offsets.CONSUMER_STATUS.dumps(status)) == status
    consumers = offsets.ConsumerOffsets({"T@G": {0: 5, 1: 6}}, DataVersion(1, 2))
    assert offsets.CONSUMER_OFFSETS.dumps(consumers) == (
        b'{"dataVersion":{"counter":1,"stateVersion":0,"timestamp":2},"offsetTable":{"T@G":{0:5,1:6}}}'
    )
    assert offsets.CONSUMER_OFFSETS.loads(offsets.CONSUMER_OFFSETS.dumps(consumers)) == consumers
    old = offsets.ConsumerOffsets({"T@G": {0: 5}})
    assert offsets.CONSUMER_OFFSETS.dumps(old) == b'{"offsetTable":{"T@G":{0:5}}}'
    assert offsets.CONSUMER_OFFSETS.loads(b'{"offsetTable":{"T@G":{"0":5}}}') == old
    delays = offsets.DelayOffsets({1: 100, 2: 7})
    assert offsets.DELAY_OFFSETS.dumps(delays) == b'{"offsetTable":{1:100,2:7}}'
    assert offsets.DELAY_OFFSETS.loads(offsets.DELAY_OFFSETS.dumps(delays)) == delays
    corrections = offsets.CORRECTION_OFFSETS.dumps({0: 4})
    assert corrections == b'{"correctionOffsets":{0:4}}'
    assert offsets.CORRECTION_OFFSETS.loads(corrections) == {0: 4}


def test_statistics_as_in_the_sheet() -> None:
    stats = offsets.TopicStats({QUEUE: offsets.TopicOffset(0, 4, 0)})
    assert offsets.TOPIC_STATS.dumps(stats).decode() == (
        '{"offsetTable":{' + QUEUE_TEXT + ':{"lastUpdateTimestamp":0,"maxOffset":4,"minOffset":0}},"topicPutTps":0.0}'
    )
    progress = offsets.ConsumeStats({QUEUE: offsets.QueueProgress(10, 5)})
    assert offsets.CONSUME_STATS.dumps(progress).decode() == (
        '{"consumeTps":0.0,"offsetTable":{'
        + QUEUE_TEXT
        + ':{"brokerOffset":10,"consumerOffset":5,"lastTimestamp":0,"pullOffset":0}}}'
    )
    everything = offsets.BrokerConsumeStats([{"CG": [progress]}], "h:1", 5, 3)
    assert offsets.BROKER_CONSUME_STATS.loads(offsets.BROKER_CONSUME_STATS.dumps(everything)) == everything
    # 4.9 leaves members out.
    old = b'{"consumeTps":0,"offsetTable":{' + QUEUE_TEXT.encode() + b':{"brokerOffset":10,"consumerOffset":5}}}'
    assert offsets.CONSUME_STATS.loads(old) == progress


def test_time_spans_and_queue_units() -> None:
    spans = [offsets.QueueTimeSpan(QUEUE, 1, 2, 3, 4)]
    assert offsets.TIME_SPANS.loads(offsets.TIME_SPANS.dumps(spans)) == spans
    units = offsets.QueueUnits(
        [offsets.QueueUnit(1, 101, -5, eval=True, bit_map="b", msg="m")], 0, 10, "f", SubscriptionData("T")
    )
    assert offsets.QUEUE_UNITS.loads(offsets.QUEUE_UNITS.dumps(units)) == units
    assert offsets.QUEUE_UNITS.dumps(offsets.QueueUnits()) == b'{"maxQueueIndex":0,"minQueueIndex":0}'


# Clients


def test_consumer_ids_and_locks() -> None:
    assert clients.CONSUMER_IDS.dumps(["id1", "id2"]) == b'{"consumerIdList":["id1","id2"]}'
    assert clients.CONSUMER_IDS.loads(b'{"consumerIdList":["id1"]}') == ["id1"]
    assert clients.CONSUMER_IDS.loads(b"") == []
    request = clients.LockRequest("c1", "CG", [QUEUE])
    assert clients.LOCK_REQUEST.dumps(request).decode() == (
        '{"clientId":"c1","consumerGroup":"CG","mqSet":[' + QUEUE_TEXT + '],"onlyThisBroker":false}'
    )
    assert clients.LOCK_REQUEST.loads(clients.LOCK_REQUEST.dumps(request)) == request
    assert clients.LOCKED_QUEUES.dumps([QUEUE]).decode() == '{"lockOKMQSet":[' + QUEUE_TEXT + "]}"
    assert clients.LOCKED_QUEUES.loads(clients.LOCKED_QUEUES.dumps([QUEUE])) == [QUEUE]
    with pytest.raises(ProtocolError, match=r"mqSet\[0\]"):
        clients.LOCK_REQUEST.loads(b'{"clientId":"c","consumerGroup":"g","mqSet":[{"topic":"T"}]}')


def test_connections() -> None:
    connection = clients.Connection("c", "10.0.0.9:50000", "JAVA", 479)
    consumers = clients.ConsumerConnection(
        [connection],
        {"T": SubscriptionData("T")},
        ConsumeType.CONSUME_POP,
        MessageModel.BROADCASTING,
        ConsumeFromWhere.CONSUME_FROM_TIMESTAMP,
    )
    assert clients.CONSUMER_CONNECTION.loads(clients.CONSUMER_CONNECTION.dumps(consumers)) == consumers
    assert clients.PRODUCER_CONNECTION.dumps([connection]) == (
        b'{"connectionSet":[{"clientAddr":"10.0.0.9:50000","clientId":"c","language":"JAVA","version":479}]}'
    )
    assert clients.PRODUCER_CONNECTION.loads(clients.PRODUCER_CONNECTION.dumps([connection])) == [connection]
    table = {"g": [clients.ProducerInfo("c", "/10.0.0.9:5", "GO", 317, 5)]}
    assert clients.PRODUCER_TABLE.loads(clients.PRODUCER_TABLE.dumps(table)) == table


def test_running_information() -> None:
    info = clients.ConsumerRunningInfo(
        {"PROP_CONSUME_TYPE": "CONSUME_PASSIVELY"},
        [SubscriptionData("T")],
        {QUEUE: clients.ProcessQueueInfo(5, cached_msg_size_in_mib=1, dropped=True)},
        {QUEUE: {"droped": False}},
        {"T": clients.ConsumeStatus(consume_ok_tps=1.5, consume_rt=2.0)},
        {"k": "v"},
        "stack",
    )
    data = clients.RUNNING_INFO.dumps(info)
    for name in ("cachedMsgSizeInMiB", "droped", "consumeOKTPS", "consumeRT", "pullTPS", "mqPopTable"):
        assert name in data.decode()
    assert clients.RUNNING_INFO.loads(data) == info
    shared = data.decode().replace('"mqTable":{' + QUEUE_TEXT, '"mqTable":{{"$ref":"$.mqPopTable.null"}')
    assert clients.RUNNING_INFO.loads(shared.encode()) == info


def test_direct_consumption() -> None:
    result = clients.DirectConsumption("CR_LATER", remark="no")
    assert clients.DIRECT_CONSUMPTION.dumps(result) == (
        b'{"autoCommit":true,"consumeResult":"CR_LATER","order":false,"remark":"no","spentTimeMills":0}'
    )
    assert clients.DIRECT_CONSUMPTION.loads(clients.DIRECT_CONSUMPTION.dumps(result)) == result
    assert clients.DIRECT_CONSUMPTION.loads(b'{"consumeResult":4}').consume_result == "CR_THROW_EXCEPTION"


def test_assignments() -> None:
    query = clients.AssignmentQuery("c", "CG", "T")
    assert clients.ASSIGNMENT_QUERY.loads(clients.ASSIGNMENT_QUERY.dumps(query)) == query
    assignments = [clients.Assignment(QUEUE, "POP"), clients.Assignment(QUEUE, attachments={"a": "b"})]
    assert clients.ASSIGNMENTS.loads(clients.ASSIGNMENTS.dumps(assignments)) == assignments
    assert clients.ASSIGNMENTS.loads(clients.ASSIGNMENTS.dumps([])) == []
    assert clients.ASSIGNMENTS.loads(b"{}") is None
    mode = clients.MessageRequestMode("T", "CG", "POP", 4)
    assert clients.MESSAGE_REQUEST_MODE.loads(clients.MESSAGE_REQUEST_MODE.dumps(mode)) == mode


# Tables


def test_tables() -> None:
    assert KV_TABLE.dumps({"b": "1", "a": "2"}) == b'{"table":{"b":"1","a":"2"}}'
    assert KV_TABLE.loads(b'{"table":{"b":1,"a":"2"}}') == {"b": "1", "a": "2"}
    assert KV_TABLE.loads(b"") == {}
    stats = BrokerStats(StatsSample(12, 0.2, 1.0))
    assert BROKER_STATS.loads(BROKER_STATS.dumps(stats)) == stats
