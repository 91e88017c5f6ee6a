"""JSON bodies: what the golden frames do not show."""

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
from tianzhou.wire import bodies

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
    data = bodies.encode_heartbeat(heartbeat)
    assert data.decode() == (
        '{"clientID":"10.0.0.1@1#2","consumerDataSet":[{"consumeFromWhere":"CONSUME_FROM_LAST_OFFSET",'
        '"consumeType":"CONSUME_PASSIVELY","groupName":"CG","messageModel":"CLUSTERING","subscriptionDataSet":['
        '{"classFilterMode":false,"codeSet":[2598919,2598920],"expressionType":"TAG","subString":"TagA || TagB",'
        '"subVersion":1795250906044,"tagsSet":["TagA","TagB"],"topic":"T"}],"unitMode":false}],'
        '"heartbeatFingerprint":0,"producerDataSet":[{"groupName":"PG"}],"withoutSub":false}'
    )
    assert bodies.decode_heartbeat(data) == heartbeat


def test_enums_come_as_names_ordinals_and_deprecated_names() -> None:
    def read(**members: Any) -> ConsumerData:
        text = json.dumps({"clientID": "c", "consumerDataSet": [{"groupName": "g"} | members]})
        return bodies.decode_heartbeat(text.encode()).consumers[0]

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
    read = bodies.decode_topic_config
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
    check = bodies.ClientConfigCheck("c", "g", SubscriptionData("T", "a > 3", expression_type="SQL92"), "ns")
    assert bodies.decode_client_config_check(bodies.encode_client_config_check(check)) == check


# Routes


ROUTE = TopicRoute(
    [QueueData("b-a", 4, 4, 6)],
    [BrokerData("b-a", "DefaultCluster", {1: "10.0.0.2:10911", 0: "10.0.0.1:10911"})],
)


def test_a_route_in_both_dialects() -> None:
    standard = (
        '{"brokerDatas":[{"brokerAddrs":{"0":"10.0.0.1:10911","1":"10.0.0.2:10911"},"brokerName":"b-a",'
        '"cluster":"DefaultCluster","enableActingMaster":false}],"filterServerTable":{},'
        '"queueDatas":[{"brokerName":"b-a","perm":6,"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":4}]}'
    )
    assert bodies.encode_route(ROUTE, standard=True).decode() == standard
    dialect = standard.replace('{"0":', "{0:").replace(',"1":', ",1:")
    assert bodies.encode_route(ROUTE, standard=False).decode() == dialect
    assert bodies.decode_route(standard.encode()) == bodies.decode_route(dialect.encode()) == ROUTE


def test_optional_members_of_a_route() -> None:
    route = TopicRoute(
        [],
        [BrokerData("经纪", "c", {0: "h:1"}, enable_acting_master=True, zone_name="z")],
        "b-a:4;b-b:4",
        {"h:1": ["f1", "f2"]},
    )
    assert bodies.encode_route(route, standard=True).isascii()
    for standard in (True, False):
        assert bodies.decode_route(bodies.encode_route(route, standard)) == route
    assert bodies.decode_route(b"{}") == TopicRoute()


def test_the_old_name_of_the_system_flag_is_read() -> None:
    text = b'{"queueDatas":[{"brokerName":"b","perm":6,"readQueueNums":1,"writeQueueNums":1,"topicSynFlag":2}]}'
    assert bodies.decode_route(text).queue_datas == [QueueData("b", 1, 1, 6, 2)]


def test_cluster_information_has_bare_ids() -> None:
    info = ClusterInfo({"b-a": ROUTE.broker_datas[0]}, {"DefaultCluster": ["b-a"]})
    data = bodies.encode_cluster_info(info)
    assert b'"brokerAddrs":{0:"10.0.0.1:10911",1:' in data
    assert bodies.decode_cluster_info(data) == info


def test_member_groups() -> None:
    data = bodies.encode_member_group(BrokerData("b-a", "c", {0: "h:1"}))
    assert data == b'{"brokerMemberGroup":{"brokerAddrs":{0:"h:1"},"brokerName":"b-a","cluster":"c"}}'
    assert bodies.decode_member_group(data) == BrokerData("b-a", "c", {0: "h:1"})
    assert bodies.decode_member_group(b"{}") is None


# Topics and registration


def test_data_versions() -> None:
    version = DataVersion(7, 1700000000000, 2)
    data = b'{"counter":7,"stateVersion":2,"timestamp":1700000000000}'
    assert bodies.encode_data_version(version) == data
    assert bodies.decode_data_version(data) == version
    assert bodies.decode_data_version(b'{"counter":7,"timestamp":1}') == DataVersion(7, 1)


def test_a_topic_config_with_mapping_detail() -> None:
    config = TopicConfig("T", 4, 4, attributes={"message.type": "FIFO"})
    assert bodies.encode_topic_config(config) == (
        b'{"attributes":{"message.type":"FIFO"},"order":false,"perm":6,"readQueueNums":4,'
        b'"topicFilterType":"SINGLE_TAG","topicName":"T","topicSysFlag":0,"writeQueueNums":4}'
    )
    detail = {"topic": "T", "currIdMap": {0: 0}}
    assert b'"mappingDetail":{"currIdMap":{0:0},"topic":"T"}' in bodies.encode_topic_config(config, detail)
    assert bodies.decode_topic_config(bodies.encode_topic_config(config, detail)) == config
    configs = [config, TopicConfig("U")]
    assert bodies.decode_topic_config_list(bodies.encode_topic_config_list(configs)) == configs
    assert bodies.decode_topic_config_list(b"{}") == []


def test_topic_lists() -> None:
    assert bodies.encode_topic_list(["a"], "h:1") == b'{"brokerAddr":"h:1","topicList":["a"]}'
    assert bodies.decode_topic_list(b'{"topicList":["a","b"]}') == bodies.TopicList(["a", "b"])


TABLE = bodies.TopicTable({"T": TopicConfig("T", 5, 4, 6)}, DataVersion(0, 1))


def test_the_reference_vector_of_the_compressed_form() -> None:
    vector = bytes.fromhex(
        "0000002c7b22636f756e746572223a302c22737461746556657273696f6e223a302c2274696d657374616d70223a317d0000000100"
        "000015542035203420362053494e474c455f544147207b7d000000025b5d00000000"
    )
    body = bodies.RegisterBody(TABLE, [])
    packed = bodies.encode_register_body(body, compressed=True, version=479)
    assert zlib.decompress(packed) == vector
    assert bodies.decode_register_body(packed, compressed=True, version=479) == body
    # 5.3.3 with compressedRegister says `compressed=false`.
    assert bodies.decode_register_body(packed, compressed=False, version=479) == body
    for cut in range(len(vector)):
        with pytest.raises(ProtocolError, match=r"register body|JSON|DataVersion"):
            bodies.decode_register_body(zlib.compress(vector[:cut]), compressed=True, version=479)


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("version", [407, 479])
def test_registration_comes_back(compressed: bool, version: int) -> None:
    modern = version == 479
    table = bodies.TopicTable(
        {
            "T": TopicConfig("T", 5, 4, 6, attributes={"message.type": "FIFO", "x": "a b"} if modern else {}),
            "%RETRY%g": TopicConfig("%RETRY%g", 1, 1),
        },
        DataVersion(3, 5, 7 if modern else 0),
        topic_queue_mapping_info_map={"S": {"topic": "S", "currIdMap": {0: 1}}} if modern else {},
    )
    body = bodies.RegisterBody(table, ["f:1"])
    data = bodies.encode_register_body(body, compressed, version)
    assert bodies.decode_register_body(data, compressed, version) == body
    plain = zlib.decompress(data) if compressed else data
    assert (b"stateVersion" in plain) is modern
    assert (b"attributes" in plain) is (modern and not compressed)


def test_registrations_of_old_brokers_and_without_body() -> None:
    assert bodies.decode_register_body(b"") == bodies.RegisterBody()
    bare = b'{"topicConfigTable":{"T":{"topicName":"T","perm":6,"readQueueNums":5,"writeQueueNums":4}}}'
    assert bodies.decode_register_body(bare).table.topic_config_table == TABLE.topic_config_table
    assert bodies.decode_register_body(b"{}") == bodies.RegisterBody()


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
            bodies.decode_register_body(data, compressed=True)


# Groups


def test_groups() -> None:
    config = SubscriptionGroupConfig("CG")
    assert bodies.encode_subscription_group(config).decode() == (
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
        assert bodies.decode_subscription_group(bodies.encode_subscription_group(group)) == group
    listed = bodies.encode_subscription_group_list([config, full])
    assert bodies.decode_subscription_group_list(listed) == [config, full]
    table = bodies.SubscriptionGroupTable({"CG": config}, DataVersion(1, 2, 3), {"CG": {"T": 4}})
    assert bodies.decode_subscription_group_table(bodies.encode_subscription_group_table(table)) == table
    assert bodies.decode_group_list(bodies.encode_group_list(["a", "b"])) == ["a", "b"]
    # As 4.9 sends it.
    assert bodies.decode_subscription_group(b'{"groupName":"CG","retryMaxTimes":3}').retry_max_times == 3


# Offsets


def test_offset_tables_in_their_three_shapes() -> None:
    offsets = {QUEUE: 5, MessageQueue("T", "b-a", 1): 6}
    bare = bodies.encode_offset_table(offsets)
    assert bare.decode().startswith('{"offsetTable":{' + QUEUE_TEXT + ":5,")
    listed = bodies.encode_offset_list({QUEUE: 5})
    assert listed == b'{"offsetTable":[{"brokerName":"b-a","offset":5,"queueId":0,"topic":"T"}]}'
    text = json.dumps({"offsetTable": {QUEUE_TEXT: 5}}).encode()
    assert bodies.decode_offset_table(bare) == offsets
    assert bodies.decode_offset_table(listed) == bodies.decode_offset_table(text) == {QUEUE: 5}
    assert bodies.decode_offset_table(bodies.encode_offset_table(offsets, "messageQueueTable")) == offsets
    assert bodies.decode_offset_table(b"{}") == bodies.decode_offset_table(b"") == {}
    for wrong in ('{"offsetTable":{"T":1}}', '{"offsetTable":{7:1}}', '{"offsetTable":[1]}', '{"offsetTable":[{}]}'):
        with pytest.raises(ProtocolError, match="offset table"):
            bodies.decode_offset_table(wrong.encode())


def test_offsets_of_clients_groups_and_levels() -> None:
    status = {"c1": {QUEUE: 5}}
    assert bodies.decode_consumer_status(bodies.encode_consumer_status(status)) == status
    consumers = bodies.ConsumerOffsets({"T@G": {0: 5, 1: 6}}, DataVersion(1, 2))
    assert bodies.encode_consumer_offsets(consumers) == (
        b'{"dataVersion":{"counter":1,"stateVersion":0,"timestamp":2},"offsetTable":{"T@G":{0:5,1:6}}}'
    )
    assert bodies.decode_consumer_offsets(bodies.encode_consumer_offsets(consumers)) == consumers
    old = bodies.ConsumerOffsets({"T@G": {0: 5}})
    assert bodies.encode_consumer_offsets(old) == b'{"offsetTable":{"T@G":{0:5}}}'
    assert bodies.decode_consumer_offsets(b'{"offsetTable":{"T@G":{"0":5}}}') == old
    delays = bodies.DelayOffsets({1: 100, 2: 7})
    assert bodies.encode_delay_offsets(delays) == b'{"offsetTable":{1:100,2:7}}'
    assert bodies.decode_delay_offsets(bodies.encode_delay_offsets(delays)) == delays
    corrections = bodies.encode_correction_offsets({0: 4})
    assert corrections == b'{"correctionOffsets":{0:4}}'
    assert bodies.decode_correction_offsets(corrections) == {0: 4}


def test_statistics_as_in_the_sheet() -> None:
    stats = bodies.TopicStats({QUEUE: bodies.TopicOffset(0, 4, 0)})
    assert bodies.encode_topic_stats(stats).decode() == (
        '{"offsetTable":{' + QUEUE_TEXT + ':{"lastUpdateTimestamp":0,"maxOffset":4,"minOffset":0}},"topicPutTps":0.0}'
    )
    progress = bodies.ConsumeStats({QUEUE: bodies.QueueProgress(10, 5)})
    assert bodies.encode_consume_stats(progress).decode() == (
        '{"consumeTps":0.0,"offsetTable":{'
        + QUEUE_TEXT
        + ':{"brokerOffset":10,"consumerOffset":5,"lastTimestamp":0,"pullOffset":0}}}'
    )
    everything = bodies.BrokerConsumeStats([{"CG": [progress]}], "h:1", 5, 3)
    assert bodies.decode_broker_consume_stats(bodies.encode_broker_consume_stats(everything)) == everything
    # 4.9 leaves members out.
    old = b'{"consumeTps":0,"offsetTable":{' + QUEUE_TEXT.encode() + b':{"brokerOffset":10,"consumerOffset":5}}}'
    assert bodies.decode_consume_stats(old) == progress


def test_time_spans_and_queue_units() -> None:
    spans = [bodies.QueueTimeSpan(QUEUE, 1, 2, 3, 4)]
    assert bodies.decode_time_spans(bodies.encode_time_spans(spans)) == spans
    units = bodies.QueueUnits(
        [bodies.QueueUnit(1, 101, -5, eval=True, bit_map="b", msg="m")], 0, 10, "f", SubscriptionData("T")
    )
    assert bodies.decode_queue_units(bodies.encode_queue_units(units)) == units
    assert bodies.encode_queue_units(bodies.QueueUnits()) == b'{"maxQueueIndex":0,"minQueueIndex":0}'


# Clients


def test_consumer_ids_and_locks() -> None:
    assert bodies.encode_consumer_ids(["id1", "id2"]) == b'{"consumerIdList":["id1","id2"]}'
    assert bodies.decode_consumer_ids(b'{"consumerIdList":["id1"]}') == ["id1"]
    assert bodies.decode_consumer_ids(b"") == []
    request = bodies.LockRequest("c1", "CG", [QUEUE])
    assert bodies.encode_lock_request(request).decode() == (
        '{"clientId":"c1","consumerGroup":"CG","mqSet":[' + QUEUE_TEXT + '],"onlyThisBroker":false}'
    )
    assert bodies.decode_lock_request(bodies.encode_lock_request(request)) == request
    assert bodies.encode_locked_queues([QUEUE]).decode() == '{"lockOKMQSet":[' + QUEUE_TEXT + "]}"
    assert bodies.decode_locked_queues(bodies.encode_locked_queues([QUEUE])) == [QUEUE]
    with pytest.raises(ProtocolError, match=r"mqSet\[0\]"):
        bodies.decode_lock_request(b'{"clientId":"c","consumerGroup":"g","mqSet":[{"topic":"T"}]}')


def test_connections() -> None:
    connection = bodies.Connection("c", "10.0.0.9:50000", "JAVA", 479)
    consumers = bodies.ConsumerConnection(
        [connection],
        {"T": SubscriptionData("T")},
        ConsumeType.CONSUME_POP,
        MessageModel.BROADCASTING,
        ConsumeFromWhere.CONSUME_FROM_TIMESTAMP,
    )
    assert bodies.decode_consumer_connection(bodies.encode_consumer_connection(consumers)) == consumers
    assert bodies.encode_producer_connection([connection]) == (
        b'{"connectionSet":[{"clientAddr":"10.0.0.9:50000","clientId":"c","language":"JAVA","version":479}]}'
    )
    assert bodies.decode_producer_connection(bodies.encode_producer_connection([connection])) == [connection]
    table = {"g": [bodies.ProducerInfo("c", "/10.0.0.9:5", "GO", 317, 5)]}
    assert bodies.decode_producer_table(bodies.encode_producer_table(table)) == table


def test_running_information() -> None:
    info = bodies.ConsumerRunningInfo(
        {"PROP_CONSUME_TYPE": "CONSUME_PASSIVELY"},
        [SubscriptionData("T")],
        {QUEUE: bodies.ProcessQueueInfo(5, cached_msg_size_in_mib=1, dropped=True)},
        {QUEUE: {"droped": False}},
        {"T": bodies.ConsumeStatus(consume_ok_tps=1.5, consume_rt=2.0)},
        {"k": "v"},
        "stack",
    )
    data = bodies.encode_running_info(info)
    for name in ("cachedMsgSizeInMiB", "droped", "consumeOKTPS", "consumeRT", "pullTPS", "mqPopTable"):
        assert name in data.decode()
    assert bodies.decode_running_info(data) == info
    shared = data.decode().replace('"mqTable":{' + QUEUE_TEXT, '"mqTable":{{"$ref":"$.mqPopTable.null"}')
    assert bodies.decode_running_info(shared.encode()) == info


def test_direct_consumption() -> None:
    result = bodies.DirectConsumption("CR_LATER", remark="no")
    assert bodies.encode_direct_consumption(result) == (
        b'{"autoCommit":true,"consumeResult":"CR_LATER","order":false,"remark":"no","spentTimeMills":0}'
    )
    assert bodies.decode_direct_consumption(bodies.encode_direct_consumption(result)) == result
    assert bodies.decode_direct_consumption(b'{"consumeResult":4}').consume_result == "CR_THROW_EXCEPTION"


def test_assignments() -> None:
    query = bodies.AssignmentQuery("c", "CG", "T")
    assert bodies.decode_assignment_query(bodies.encode_assignment_query(query)) == query
    assignments = [bodies.Assignment(QUEUE, "POP"), bodies.Assignment(QUEUE, attachments={"a": "b"})]
    assert bodies.decode_assignments(bodies.encode_assignments(assignments)) == assignments
    assert bodies.decode_assignments(bodies.encode_assignments([])) == []
    assert bodies.decode_assignments(b"{}") is None
    mode = bodies.MessageRequestMode("T", "CG", "POP", 4)
    assert bodies.decode_message_request_mode(bodies.encode_message_request_mode(mode)) == mode


# Tables


def test_tables() -> None:
    assert bodies.encode_kv_table({"b": "1", "a": "2"}) == b'{"table":{"b":"1","a":"2"}}'
    assert bodies.decode_kv_table(b'{"table":{"b":1,"a":"2"}}') == {"b": "1", "a": "2"}
    assert bodies.decode_kv_table(b"") == {}
    stats = bodies.BrokerStats(bodies.StatsSample(12, 0.2, 1.0))
    assert bodies.decode_broker_stats(bodies.encode_broker_stats(stats)) == stats
