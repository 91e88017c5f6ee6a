"""Permissions that each request needs, for accounts of 4.x and for users of 5.3."""

from __future__ import annotations

import json

import pytest

from tianzhou.access.body_names import BY_BODY
from tianzhou.access.needs import ROWS, needs, plain_needs
from tianzhou.access.requests import AccessRequest
from tianzhou.access.resources import Need
from tianzhou.errors import TianzhouError
from tianzhou.remoting.gates.admin_gate import DANGEROUS
from tianzhou.wire.codes import DLedgerRequestCode, RequestCode, request_name

HEARTBEAT = json.dumps(
    {
        "clientID": "c", "producerDataSet": [{"groupName": "p"}],
        "consumerDataSet": [{"groupName": "g", "subscriptionDataSet": [{"topic": "t"}, {"topic": "%RETRY%g"}]}],
    }
).encode()  # fmt: skip
LOCK = b'{"consumerGroup":"g","clientId":"c","mqSet":[{"topic":"t","brokerName":"b","queueId":0}]}'
GROUP = b'{"groupName":"g","retryQueueNums":1}'


def asked(code: int, body: bytes = b"", **fields: str) -> AccessRequest:
    return AccessRequest(code, fields, body)


ROUTE = "Pub {0} or Sub {0} or Get {0} or Create {0} or Update {0} or Delete {0}"


def text_of(need: Need) -> str:
    text = f"{'|'.join(need.actions)} {need.resource}"
    same = need.instead is not None and need.instead.resource == need.resource
    return f"{text} or {text_of(need.instead)}" if need.instead is not None and same else text


def shown(request: AccessRequest) -> list[str]:
    return [text_of(need) for need in needs(request, "C")]


def plainly(request: AccessRequest) -> str:
    need = plain_needs(request, "C")
    return "admin" if need.admin else ", ".join(f"{value.name} {name}" for name, value in need.permissions.items())


@pytest.mark.parametrize("code", [*RequestCode, *DLedgerRequestCode], ids=lambda code: f"{code.name}-{int(code)}")
def test_every_request_code_has_a_row(code: int) -> None:
    assert int(code) in ROWS, f"{request_name(code)} ({int(code)}) has no row: say in ROWS who may"


@pytest.mark.parametrize("code", sorted(DANGEROUS))
def test_what_only_this_machine_may_without_accounts_takes_more_than_an_account(code: int) -> None:
    assert ROWS[code].plain == "admin"
    assert ROWS[code].policy != "account"


@pytest.mark.parametrize("code", sorted(ROWS))
def test_every_row_can_be_read_and_asks_for_nothing_of_what_is_not_there(code: int) -> None:
    plain_needs(asked(code), "C")
    needs(asked(code), "C")


@pytest.mark.parametrize(
    ("request_", "plain", "policy"),
    [
        (asked(310, a="g", b="t", topic="other"), "PUB t", ["Pub Topic:t"]),
        (asked(100, namespace="TIANZHOU_STAGING", key="coordinator-7", value="broker-a"),
         "SUB %RETRY%TIANZHOU_STAGING", ["Sub Group:TIANZHOU_STAGING"]),
        (asked(100, namespace="TIANZHOU_STAGING", key="coordinator-", value="x"), "admin", ["Update Cluster:C"]),
        (asked(100, namespace="TIANZHOU_STAGING", value="x"), "admin", ["Update Cluster:C"]),
        (asked(100, namespace="ORDER_TOPIC_CONFIG", key="t", value="x"), "admin", ["Create|Update Topic:t"]),
        (asked(102, namespace="ORDER_TOPIC_CONFIG", key="t"), "admin", ["Delete|Update Topic:t"]),
        (asked(102, namespace="ORDER_TOPIC_CONFIG"), "admin", ["Update Cluster:C"]),
        (asked(100, namespace="OTHER", key="t", value="x"), "admin", ["Update Cluster:C"]),
        (asked(216, topic="t"), "admin", ["Delete Topic:t"]),
        (asked(33, offset="0", topic="t"), "SUB t", ["Get Topic:t"]),
        (asked(33, offset="0"), "", []),
        (asked(102, namespace="TIANZHOU_STAGING", key="coordinator-7"), "admin", ["Update Cluster:C"]),
        (asked(101, namespace="TIANZHOU_STAGING", key="coordinator-7"), "", []),
        (asked(101, namespace="ORDER_TOPIC_CONFIG", key="t"), "", ["Create|Update|Get Topic:t"]),
        (asked(320, a="g", b="t"), "PUB t", ["Pub Topic:t"]),
        (asked(10, topic="t", b="other"), "PUB t", ["Pub Topic:t"]),
        (asked(310, a="x", b="%RETRY%g"), "SUB %RETRY%g", ["Sub Group:g"]),
        (asked(325, a="g", b="C_REPLY_TOPIC"), "", []),
        (asked(325, a="g", b="t"), "PUB t", ["Pub Topic:t"]),
        (asked(310, a="g", b="C_REPLY_TOPIC"), "PUB C_REPLY_TOPIC", ["Pub Topic:C_REPLY_TOPIC"]),
        (asked(11, topic="t", consumerGroup="g"), "SUB t, SUB %RETRY%g", ["Sub Topic:t", "Sub Group:g"]),
        (asked(11, topic="%RETRY%g", consumerGroup="g"), "SUB %RETRY%g", ["Sub Group:g"]),
        (asked(34, HEARTBEAT), "SUB t, SUB %RETRY%g", ["Sub Topic:t", "Sub Group:g"]),
        (asked(41, LOCK), "SUB t, SUB %RETRY%g", ["Sub Topic:t", "Sub Group:g"]),
        (asked(15, topic="t", consumerGroup="g"), "SUB %RETRY%g, SUB t", ["Sub|Update Topic:t", "Sub|Update Group:g"]),
        (asked(35, clientID="c", producerGroup="p"), "", []),
        (asked(37, producerGroup="p"), "", []),
        (asked(37, producerGroup="p", topic="t"), "PUB t", ["Pub Topic:t"]),
        (asked(37, producerGroup="p", topic="RMQ_SYS_TRANS_HALF_TOPIC"), "", []),
        (asked(10, topic="RMQ_SYS_TRANS_HALF_TOPIC"), "PUB RMQ_SYS_TRANS_HALF_TOPIC",
         ["Pub Topic:RMQ_SYS_TRANS_HALF_TOPIC"]),
        (asked(105, topic="t"), "", [ROUTE.format("Topic:t")]),
        (asked(105, topic="C_REPLY_TOPIC"), "", []),
        (asked(105, topic="TBW102"), "", []),
        (asked(325, a="g", b="TBW102"), "PUB TBW102", ["Pub Topic:TBW102"]),
        (asked(105, topic="other_REPLY_TOPIC"), "", [ROUTE.format("Topic:other_REPLY_TOPIC")]),
        (asked(105, topic="%RETRY%g"), "", [ROUTE.format("Group:g")]),
        (asked(200, GROUP), "admin", ["Create Group:g"]),
        (asked(208, consumerGroup="g", topicList="t;u;"), "", ["Get Group:g", "Get Topic:t", "Get Topic:u"]),
        (asked(308, compareGroup="g", filterGroups="h,i", topic="t"), "",
         ["Get Topic:t", "Get Group:g", "Get Group:h", "Get Group:i"]),
        (asked(314, srcGroup="g", destGroup="h", topic="t"), "admin",
         ["Get Group:g", "Update Group:h", "Update Topic:t"]),
        (asked(104, clusterName="other"), "admin", ["Update Cluster:C"]),
        (asked(4711, topic="t"), "admin", ["All Cluster:C"]),
    ],
    ids=lambda value: f"{value.code}-{sorted(value.fields.items())}" if isinstance(value, AccessRequest) else None,
)  # fmt: skip
def test_what_a_request_needs(request_: AccessRequest, plain: str, policy: list[str]) -> None:
    assert plainly(request_) == plain
    assert shown(request_) == policy


@pytest.mark.parametrize("code", sorted(BY_BODY))
def test_a_body_that_cannot_be_read_is_refused(code: int) -> None:
    with pytest.raises(TianzhouError):
        needs(asked(code, b"\xff{"), "C")


def test_a_body_that_was_read_before_is_not_read_again() -> None:
    class Consumer:
        group_name, subscription_data_set = "g", ()

    class Heartbeat:
        consumers = (Consumer,)

    request = AccessRequest(34, {}, b"not looked at", decoded=Heartbeat)
    assert shown(request) == ["Sub Group:g"]
