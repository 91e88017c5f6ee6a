"""Requests of tools without a client library, field by field, in a fixed order, and the compared parts of replies."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from frames import Reply, call

BROKER, NAMESRV = "broker", "namesrv"
Shown = tuple[Any, ...]


class Raw(NamedTuple):
    """A request.

    Attributes:
        code: its code.
        to: `BROKER` or `NAMESRV`.
        fields: header fields.
        body: its body.
        only: compared part of the reply: `code`, or `all`.
    """

    code: int
    to: str = BROKER
    fields: Mapping[str, object] = {}
    body: bytes = b""
    only: str = "all"

    def __str__(self) -> str:
        shown = "-".join(f"{value}" for value in self.fields.values() if value != "")
        return re.sub(r"[^\w%-]+", "_", f"{self.code}-{self.to}-{shown or 'bare'}-{self.body.decode()[:20]}").strip(
            "-_"
        )


T, G = {"topic": "RawT"}, {"group": "RawG"}
TOPIC = {
    "topic": "RawT", "defaultTopic": "TBW102", "readQueueNums": 4, "writeQueueNums": 4, "perm": 6,
    "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false",
}  # fmt: skip
SEND = {
    "producerGroup": "RawP", "topic": "RawT", "defaultTopic": "TBW102", "defaultTopicQueueNums": 4, "queueId": 0,
    "sysFlag": 0, "bornTimestamp": 1, "flag": 0, "properties": "KEYS\x01k\x02UNIQ_KEY\x01u\x02TAGS\x01a\x02",
    "reconsumeTimes": 0, "unitMode": "false",
}  # fmt: skip
RESET = {**T, **G, "timestamp": -1, "isForce": "true"}

FILLED = [
    Raw(17, fields=TOPIC),
    Raw(17, fields={**TOPIC, "topicFilterType": "NONE"}, only="code"),
    Raw(17, fields={**TOPIC, "topic": "a b"}, only="code"),
    Raw(17, fields={**TOPIC, "topic": "TBW102"}, only="code"),
    Raw(17, fields={**TOPIC, "topic": "RawM", "attributes": "+message.type=MIXED"}, only="code"),
    Raw(17, fields={**TOPIC, "topic": "RawM", "attributes": "-message.type"}, only="code"),
    Raw(200, body=b'{"groupName":"RawG","retryQueueNums":1,"retryMaxTimes":16}'),
    Raw(352, fields=G),
    Raw(351, fields={**T, "lo": "true"}),
    Raw(351, fields={"topic": "RawNowhere", "lo": "true"}, only="code"),
    *(Raw(10, fields={**SEND, "queueId": number % 2}, body=b"hello", only="code") for number in range(4)),
    Raw(202, fields=T),
    Raw(202, fields={"topic": "RawNowhere"}, only="code"),
    Raw(30, fields={**T, "queueId": 0}),
    Raw(31, fields={**T, "queueId": 0}),
    Raw(30, fields={"topic": "RawNowhere", "queueId": 0}),
    Raw(31, fields={"topic": "RawNowhere", "queueId": 0}),
    Raw(32, fields={"topic": "RawNowhere", "queueId": 0}),
    Raw(29, fields={**T, "queueId": 0, "timestamp": 0}),
    Raw(29, fields={**T, "queueId": 0, "timestamp": 1 << 60}),
    Raw(29, fields={**T, "queueId": 0, "timestamp": 1 << 60, "boundaryType": "UPPER"}),
    Raw(29, fields={**T, "queueId": 3, "timestamp": 0}),
    # Fields of clients about logical queues and the intended broker have no effect for topics without a mapping.
    Raw(30, fields={**T, "queueId": 0, "lo": "true", "bname": "broker-z"}),
    Raw(31, fields={**T, "queueId": 0, "lo": "false"}),
    Raw(29, fields={**T, "queueId": 0, "timestamp": 0, "lo": "true", "bname": "__syslo__global__"}),
    Raw(15, fields={"consumerGroup": "RawG", **T, "queueId": 0, "commitOffset": 1}),
    Raw(15, fields={"consumerGroup": "RawG", **T, "queueId": 1, "commitOffset": 2}),
    Raw(15, fields={"consumerGroup": "RawNobody", **T, "queueId": 0, "commitOffset": 1}, only="code"),
    Raw(15, fields={"consumerGroup": "RawG", "topic": "RawNowhere", "queueId": 0, "commitOffset": 1}, only="code"),
    Raw(14, fields={"consumerGroup": "RawG", **T, "queueId": 0}),
    Raw(14, fields={"consumerGroup": "RawG", **T, "queueId": 2, "setZeroIfNotFound": "false"}, only="code"),
    Raw(12, fields={**T, "key": "nokey", "maxNum": 5, "beginTimestamp": 0, "endTimestamp": 1 << 60}),
    Raw(33, fields={"offset": 999_999}, only="code"),
    Raw(208, fields={"consumerGroup": "RawG"}),
    Raw(208, fields={"consumerGroup": "RawG", **T}),
    Raw(208, fields={"consumerGroup": "RawNobody"}),
    Raw(208, fields={"consumerGroup": "RawG", "topicList": "RawT;RawNowhere;"}),
    Raw(300, fields={"topic": "RawNowhere"}),
    Raw(343, fields=G),
    Raw(345, fields={**G, **T}),
    Raw(353, fields={**G, **T, "readable": "false"}),
    Raw(353, fields={**G, **T}),
    Raw(353, fields={**G, **T, "readable": "true"}),
    Raw(303, fields={"topic": "RawNowhere", **G}),
    Raw(308, fields={**T, "compareGroup": "RawG", "filterGroups": ""}),
    Raw(308, fields={**T, "compareGroup": "RawNobody", "filterGroups": "x"}),
    Raw(223, fields={**T, "group": "RawNobody"}, only="code"),
    Raw(307, fields={"consumerGroup": "RawG", "clientId": "nobody", "jstackEnable": "false"}),
    Raw(309, fields={"consumerGroup": "RawG", "clientId": "nobody", "msgId": "00"}, only="code"),
    Raw(203, fields={"consumerGroup": "RawG"}, only="code"),
    Raw(204, fields={"producerGroup": "RawP"}, only="code"),
    Raw(38, fields={"consumerGroup": "RawG"}, only="code"),
    Raw(321, fields={**T, "queueId": 0, "index": 0, "count": 2, "consumerGroup": "RawG"}),
    Raw(321, fields={**T, "queueId": 0, "index": 0, "count": 2}),
    Raw(321, fields={**T, "queueId": 0, "index": 99, "count": 2}, only="code"),
    Raw(321, fields={**T, "queueId": 9, "index": 0, "count": 2}),
    Raw(222, fields=RESET),
    Raw(222, fields={**RESET, "queueId": 1, "offset": 0}),
    Raw(222, fields={**RESET, "queueId": 1, "offset": 99}, only="code"),
    Raw(222, fields={**RESET, "queueId": 9, "offset": 0}),
    Raw(222, fields={**RESET, "queueId": 0}),
    Raw(222, fields={**RESET, "topic": "RawNowhere"}),
    Raw(222, fields={**RESET, "group": "RawNobody"}),
    Raw(15, fields={"consumerGroup": "RawG", **T, "queueId": 0, "commitOffset": 1}),
    Raw(14, fields={"consumerGroup": "RawG", **T, "queueId": 0}),
    Raw(314, fields={"srcGroup": "RawG", "destGroup": "RawClone", **T, "offline": "false"}),
    Raw(314, fields={"srcGroup": "RawNobody", "destGroup": "RawClone", **T}),
    Raw(208, fields={"consumerGroup": "RawClone", **T}),
    Raw(315, fields={"statsName": "TOPIC_PUT_NUMS", "statsKey": "RawNowhere"}),
    # Apache's own broker has no figures by account, and a group's lag is no figure of this kind.
    Raw(315, fields={"statsName": "COMMERCIAL_SEND_TIMES", "statsKey": "Owner@RawT@RawG@SEND_SUCCESS"}),
    Raw(315, fields={"statsName": "DLQ_PUT_NUMS", "statsKey": "Owner@RawT@RawG@SEND_BACK_TO_DLQ"}),
    Raw(315, fields={"statsName": "GROUP_GET_FALL_SIZE", "statsKey": "0@RawT@RawG"}),
    Raw(
        41,
        body=b'{"clientId":"c","consumerGroup":"RawG","mqSet":[{"brokerName":"broker-a","queueId":0,"topic":"RawT"}]}',
    ),
    Raw(
        41,
        body=b'{"clientId":"d","consumerGroup":"RawG","mqSet":[{"brokerName":"broker-a","queueId":0,"topic":"RawT"}]}',
    ),
    Raw(
        42,
        body=b'{"clientId":"c","consumerGroup":"RawG","mqSet":[{"brokerName":"broker-a","queueId":0,"topic":"RawT"}]}',
    ),
    Raw(25, body=b"brokerConfigPath=x\n", only="code"),
    Raw(25, body=b"noSuchKey=1\n"),
    Raw(2001, body=b"RawG=1000\n"),
    Raw(2003),
    Raw(2002, body=b"RawG"),
    Raw(2001, body=b"garbage"),
    Raw(2003),
    Raw(2004, fields={"READ_AHEAD_MODE": "0"}),
    Raw(2004, fields={"READ_AHEAD_MODE": "7"}),
    Raw(354, fields={**T, "checkStoreTime": 0}),
    Raw(370, fields={"producerGroup": "P", **T, "recallHandle": "x"}),
    Raw(905, fields={"minBrokerId": 0, "brokerName": "broker-a"}),
    Raw(906, fields={"masterHaAddress": "x"}),
    Raw(908, fields={"masterFlushOffset": 0}),
    Raw(215, fields={"topic": "RawNowhere"}),
    Raw(215, fields={"topic": "TBW102"}, only="code"),
    Raw(207, fields={"groupName": "RawG", "cleanOffset": "true"}),
    Raw(207, fields={"groupName": "RawNobody"}),
    Raw(343, fields=G),
    Raw(100, NAMESRV, {"namespace": "RawN", "key": "k", "value": "v"}),
    Raw(101, NAMESRV, {"namespace": "RawN", "key": "k"}),
    Raw(219, NAMESRV, {"namespace": "RawN"}),
    Raw(102, NAMESRV, {"namespace": "RawN", "key": "k"}),
    Raw(101, NAMESRV, {"namespace": "RawN", "key": "k"}),
    Raw(219, NAMESRV, {"namespace": "RawM"}),
    Raw(105, NAMESRV, {"topic": "RawT"}),
    Raw(105, NAMESRV, {"topic": "RawT", "acceptStandardJsonOnly": "true"}),
    Raw(105, NAMESRV, {"topic": "RawNowhere"}),
    Raw(106, NAMESRV),
    Raw(224, NAMESRV, {"cluster": "nowhere"}),
    Raw(205, NAMESRV, {"brokerName": "nobody"}),
    Raw(327, NAMESRV, {"brokerName": "nobody"}),
    Raw(304, NAMESRV),
    Raw(311, NAMESRV),
    Raw(901, NAMESRV, {"clusterName": "DefaultCluster", "brokerName": "broker-a"}),
    Raw(901, NAMESRV, {"clusterName": "DefaultCluster", "brokerName": "nobody"}),
    Raw(318, NAMESRV, body=b"kvConfigPath=x\n", only="code"),
    Raw(216, NAMESRV, {"topic": "RawNowhere"}),
]

_POP = "POP consumption is not served"
_USERS = "users are served with authenticationEnabled only"
_TIMER = "the timer wheel is not served"
DIFFERENT: dict[int, str] = {
    15: "a missing field is 29, as wire.md §7.3 says, also when it is the group",
    60: _TIMER,
    61: _TIMER,
    355: "there is no RocksDB",
    513: "static topics are not served",
    905: "there is no acting master; Apache's broker fails over the missing id",
    **dict.fromkeys((400, 401, 200050, 200051, 200052, 200053, 200054, 200055, 200056, 200151), _POP),
    **dict.fromkeys(range(3001, 3011), _USERS),
    **dict.fromkeys((*range(31001, 31007), 31010), "Tianzhou's own, which Apache's does not know"),
}
"""Codes whose bare request gets another reply than from Apache's broker, and the reasons."""


def asked(request: Raw, addresses: Mapping[str, str]) -> Shown:
    """Return a server's reply in a comparable form."""
    reply = call(addresses[request.to], request.code, dict(request.fields), request.body, timeout=30)
    if request.only == "code":
        return (reply.code,)
    return reply.code, fields_of(reply, addresses), body_of(reply, addresses)


def fields_of(reply: Reply, addresses: Mapping[str, str]) -> dict[str, str]:
    """Return header fields without those that differ from server to server."""
    return {name: _named(value, addresses) for name, value in reply.fields.items() if name != "version"}


def body_of(reply: Reply, addresses: Mapping[str, str]) -> Any:
    """Return the body as JSON values, without order and times."""
    text = _named(reply.body.decode("utf-8", "replace"), addresses)
    text = re.sub(r"([{,])(\{[^{}]*\}):", lambda match: match[1] + json.dumps(match[2]) + ":", text)
    text = re.sub(r"([{,])(\d+):", r'\1"\2":', text)
    try:
        return _sorted(json.loads(text)) if text else None
    except ValueError:
        return text


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _sorted(one) for key, one in value.items()}
    if isinstance(value, list):
        return sorted((_sorted(one) for one in value), key=repr)
    if isinstance(value, float) or (isinstance(value, int) and value > 1_500_000_000_000):
        return "a time or a rate"
    return value


def _named(text: str, addresses: Mapping[str, str]) -> str:
    for name, address in addresses.items():
        text = text.replace(address, f"<{name}>")
    return text
