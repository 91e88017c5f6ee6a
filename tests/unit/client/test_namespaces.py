"""Names inside a namespace (client.md §21, wire.md §12)."""

import pytest

from tianzhou.client.cluster.identity import endpoint_namespace, name_server_addresses, vip_address
from tianzhou.client.namespaces.namespaces import unwrap, wrap
from tianzhou.client.namespaces.reply_names import answer_inside
from tianzhou.client.namespaces.request_names import running_info_outside
from tianzhou.wire.bodies.clients import RUNNING_INFO, ConsumerRunningInfo
from tianzhou.wire.codes import RequestCode
from tianzhou.wire.command import Command


@pytest.mark.parametrize(
    ("name", "wrapped"),
    [
        ("orders", "ns%orders"),
        ("%RETRY%group", "%RETRY%ns%group"),
        ("%DLQ%group", "%DLQ%ns%group"),
        ("other%orders", "ns%other%orders"),
        ("nsorders", "ns%nsorders"),
    ],
)
def test_names_are_wrapped_once_and_unwrapped(name, wrapped) -> None:
    assert wrap("ns", name) == wrapped
    assert wrap("ns", wrapped) == wrapped
    assert unwrap("ns", wrapped) == name
    assert unwrap("ns", name) == name
    assert unwrap("another", wrapped) == wrapped
    assert wrap(None, name) == unwrap("", name) == name


@pytest.mark.parametrize(
    "name",
    ["TBW102", "RMQ_SYS_TRACE_TOPIC", "SCHEDULE_TOPIC_XXXX", "rmq_sys_x", "CID_RMQ_SYS_TRANS", "BenchmarkTest", ""],
)
def test_what_is_the_systems_stays(name) -> None:
    assert wrap("ns", name) == name


def test_an_address_may_name_the_namespace() -> None:
    assert endpoint_namespace("http://MQ_INST_1234_abc.mq.example:9876") == "MQ_INST_1234_abc"
    assert endpoint_namespace("MQ_INST_1234_abc.mq.example:9876") == "MQ_INST_1234_abc"
    assert endpoint_namespace(["MQ_INST_1_a.example:1"]) == "MQ_INST_1_a"
    assert endpoint_namespace("127.0.0.1:9876") is None
    assert endpoint_namespace(None) is None
    assert name_server_addresses("http://MQ_INST_1234_abc.mq.example:9876") == ["MQ_INST_1234_abc.mq.example:9876"]


def test_the_fast_port_is_two_below() -> None:
    assert vip_address("10.0.0.1:10911") == "10.0.0.1:10909"


def test_handlers_times_are_reported_by_the_servers_names_and_read_by_the_users() -> None:
    inside = {"handler:orders": "cpuMs=1 wallMs=1 messages=1 runsIn=loop", "cores": "2"}
    outside = running_info_outside("shop", ConsumerRunningInfo(user_consumer_info=inside))
    assert outside.user_consumer_info.keys() == {"handler:shop%orders", "cores"}
    reply = Command(0, body=RUNNING_INFO.dumps(outside))
    answer_inside("shop", RequestCode.GET_CONSUMER_RUNNING_INFO, reply)
    assert RUNNING_INFO.loads(reply.body).user_consumer_info == inside


def test_a_member_that_reports_no_table_of_its_own_is_read() -> None:
    reply = Command(0, body=b'{"userConsumerInfo":null}')
    answer_inside("shop", RequestCode.GET_CONSUMER_RUNNING_INFO, reply)
    assert RUNNING_INFO.loads(reply.body).user_consumer_info == {}
