"""Every request code with every field hostile: generated from the tables of the protocol, by a seed.

The generator does not depend on the meaning of a code. Header fields come from `wire.fields`, bodies from examples of
each kind. Each request replaces one value by a hostile one. Frames are built by hand, because `encode` refuses some
values.
"""

from __future__ import annotations

import json
import random
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tianzhou.wire.codes import RequestCode
from tianzhou.wire.command import Command
from tianzhou.wire.fields import request_fields

TOPIC = "hostile-topic"
"""A topic that the requests may change or delete."""
GROUP = "hostile-group"
RPC_FIELDS = frozenset({"bname", "ns", "nsd", "oway", "ReqT", "lo"})
"""Fields of most codes; the longest texts are not sent in each of them."""
MEBIBYTE = 1 << 20

PATHS = ("..", ".", "../../outside", "a/../../../outside", "C:\\x", "~", "%2e%2e/outside", "//", "outside\0")
"""Texts that are paths to other folders, in addition to the absolute path of the folder `outside`."""
ODD = (
    "", " ", "\0", "a\nb: c", "\r\nX: y", "\x1b]0;title\x07\x1b[2J", "\x01\x02", "‮gnp", "\ud800", "\udc80 half",
    "\U0010ffff", "$ref", '{"$ref":"$"}', '"', "'; --", "${HOME}", "%s%n", "null", "x" * 300, "%RETRY%" + "y" * 300,
)  # fmt: skip
NUMBERS = (
    "-1", "0", "2147483647", "-2147483648", "2147483648", "9223372036854775807", "-9223372036854775808",
    "99999999999999999999", "1e9", "NaN", "0x10", " 7", "\u0663", "", "-", "7" * 5_000,
)  # fmt: skip
SWITCHES = ("", "TRUE", "yes", "\0", "2")
DEEP = 300
EDGES: tuple[Any, ...] = (-1, 0, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63), 10**30, 1e308, True)

_GIVEN = {
    "topic": TOPIC, "defaultTopic": "TBW102", "topicFilterType": "SINGLE_TAG", "namespace": "HOSTILE", "key": "k",
    "value": "v", "brokerName": "hostile-broker", "clusterName": "HostileCluster", "brokerAddr": "10.255.0.1:1",
    "haServerAddr": "10.255.0.1:2", "msgId": "00" * 16, "statsName": "TOPIC_PUT_NUMS", "statsKey": TOPIC,
}  # fmt: skip
_SUBSCRIPTION = {
    "topic": TOPIC, "subString": "*", "tagsSet": ["a"], "codeSet": [1], "subVersion": 1, "expressionType": "TAG",
    "classFilterMode": False,
}  # fmt: skip
_CONSUMER = {
    "groupName": GROUP, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
    "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET", "subscriptionDataSet": [_SUBSCRIPTION], "unitMode": False,
}  # fmt: skip
_TOPIC = {
    "topicName": TOPIC, "readQueueNums": 1, "writeQueueNums": 1, "perm": 6, "topicFilterType": "SINGLE_TAG",
    "topicSysFlag": 0, "order": False, "attributes": {"+message.type": "NORMAL"},
}  # fmt: skip
_GROUP = {
    "groupName": GROUP, "consumeEnable": True, "retryQueueNums": 1, "retryMaxTimes": 16, "brokerId": 0,
    "whichBrokerWhenConsumeSlowly": 1,
    "groupRetryPolicy": {"type": "CUSTOMIZED", "customizedRetryPolicy": {"next": [1]}},
    "attributes": {}, "subscriptionDataSet": [{"topic": TOPIC, "subString": "*"}],
}  # fmt: skip
_LOCK = {
    "clientId": "hostile-client", "consumerGroup": GROUP, "onlyThisBroker": False,
    "mqSet": [{"topic": TOPIC, "brokerName": "broker-a", "queueId": 0}],
}  # fmt: skip
_DECISION = {
    "writer": "hostile-writer", "batch": 0, "coordinator": "broker-a",
    "attempts": [{"name": "0~a", "units": {"broker-a": 1}}],
}  # fmt: skip
_GIVEN_UP = {"writer": "hostile-writer", "batch": 0, "coordinator": "broker-a", "attempts": ["0~a"]}
_VERSION = {"counter": 1, "timestamp": 1, "stateVersion": 0}

BODIES: dict[int, Any] = {
    RequestCode.HEART_BEAT: {
        "clientID": "hostile-client", "producerDataSet": [{"groupName": "hostile-producer"}],
        "consumerDataSet": [_CONSUMER], "heartbeatFingerprint": 0, "isWithoutSub": False,
    },
    RequestCode.CHECK_CLIENT_CONFIG: {"clientId": "c", "group": GROUP, "subscriptionData": _SUBSCRIPTION},
    RequestCode.LOCK_BATCH_MQ: _LOCK,
    RequestCode.UNLOCK_BATCH_MQ: _LOCK,
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: {"topicConfigList": [_TOPIC]},
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: _GROUP,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: {"groupConfigList": [_GROUP]},
    RequestCode.REGISTER_BROKER: {
        "filterServerList": ["10.255.0.1:3"],
        "topicConfigSerializeWrapper": {
            "dataVersion": _VERSION, "topicConfigTable": {TOPIC: _TOPIC, "hostile-other": _TOPIC},
            "topicQueueMappingInfoMap": {TOPIC: {"bname": "hostile-broker", "currIdMap": {"0": 0}, "topic": TOPIC}},
        },
    },
    RequestCode.REGISTER_TOPIC_IN_NAMESRV: {
        "queueDatas": [{"brokerName": "hostile-broker", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}],
        "brokerDatas": [{"brokerName": "hostile-broker", "brokerAddrs": {"0": "10.255.0.1:1"}, "cluster": "c"}],
    },
    RequestCode.QUERY_DATA_VERSION: _VERSION,
    RequestCode.DECIDE_BATCH: _DECISION,
    RequestCode.PUBLISH_BATCH: _DECISION,
    RequestCode.SETTLE_ATTEMPTS: _GIVEN_UP,
    RequestCode.DISCARD_ATTEMPTS: _GIVEN_UP,
}  # fmt: skip
"""JSON bodies: an example for each code with a body; each of its leaves is made hostile in turn."""

_LINES = (
    b"hostileKey=1\n", b"".join(b"brokerNamr%d=1\n" % n for n in range(2_000)), b"=\n", b"a\0b=c\n",
    b"hostile\\u000aKey=x\\ny\n", b"\xff=\xfe\n", b"k" * 5_000 + b"=v\n",
)  # fmt: skip
TEXTS: dict[int, tuple[bytes, ...]] = {
    RequestCode.UPDATE_BROKER_CONFIG: _LINES,
    RequestCode.UPDATE_NAMESRV_CONFIG: _LINES,
    RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG: (*_LINES, b"../../outside=1\n", b"hostile-group=" + b"9" * 4_000),
    RequestCode.REMOVE_COLD_DATA_FLOW_CTR_CONFIG: (b"../../outside", b"x" * MEBIBYTE, b"\xff\n"),
    RequestCode.STAGE_MESSAGES: (
        b"\0" * 24, b"\xff" * 24, struct.pack(">iiiiHH", 0, 0, 0, 2**31 - 1, 65_535, 65_535),
        struct.pack(">iiiiHH", 0, 0, 0, 1, 13, 0) + b"../../outsideb",
    ),
    RequestCode.SEND_BATCH_MESSAGE: (
        struct.pack(">iiiii", 2**31 - 1, 0, 0, 0, 2**31 - 1), struct.pack(">iiiii", -1, -1, -1, -1, -1), b"\xff" * 64,
    ),
    RequestCode.REGISTER_BROKER: (
        zlib.compress(b"\0" * (8 * MEBIBYTE)), zlib.compress(struct.pack(">ii", 2, 0x7B7D0000)), b"\x78\x9c\xff",
        zlib.compress(struct.pack(">i2si", 2, b"{}", 1) + struct.pack(">i", 17) + b"../../x 1 1 6 A B"),
    ),
}  # fmt: skip
"""Bodies that are not JSON, by the codes that read them."""


_MANY_SUBSCRIPTIONS = {"topic": TOPIC, "subString": " OR ".join(f"a{n} > {n}" for n in range(20_000))}
BIG: dict[int, tuple[Any, ...]] = {
    RequestCode.HEART_BEAT: (
        {"clientID": "c", "producerDataSet": [{"groupName": f"p{n}"} for n in range(60_000)], "consumerDataSet": []},
        {
            "clientID": "c", "producerDataSet": [], "a": [_SUBSCRIPTION] * 40,
            "consumerDataSet": [{**_CONSUMER, "subscriptionDataSet": {"$ref": "$.a"}}] * 600,
        },
        {
            "clientID": "c", "producerDataSet": [],
            "consumerDataSet": [_CONSUMER | {"subscriptionDataSet": [_SUBSCRIPTION | _MANY_SUBSCRIPTIONS]}],
        },
    ),
    RequestCode.CHECK_CLIENT_CONFIG: (
        {"clientId": "c", "subscriptionData": _SUBSCRIPTION | _MANY_SUBSCRIPTIONS | {"expressionType": "SQL92"}},
    ),
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: ({"topicConfigList": [{"$ref": "$.a"}] * 20_000, "a": [_TOPIC] * 200},),
    RequestCode.LOCK_BATCH_MQ: (
        _LOCK | {"mqSet": [{"topic": TOPIC, "brokerName": "broker-a", "queueId": n} for n in range(50_000)]},
    ),
}  # fmt: skip
"""Bodies that are long but well-formed."""


EXAMPLES = frozenset(map(int, BODIES)) | frozenset(map(int, TEXTS))
"""Codes with an example body here."""


def _deep(depth: int, opening: str, closing: str) -> bytes:
    return (opening * depth + "1" + closing * depth).encode()


ANY_BODY: tuple[bytes, ...] = (
    b"", b"\0", b"{", b"[]", b"null", b"1", b'"', b"{}", b"\xff\xfe\xfd" * 50, b'{"a":', b'{"$ref":"$"}',
    b'[{"$ref":".."},{"$ref":"$[0]"}]', _deep(DEEP, '{"a":', "}"), _deep(100_000, "[", ""), _deep(DEEP, "[", "]"),
    b'{"' + b"k" * MEBIBYTE + b'":1}', b'["' + b"x" * MEBIBYTE + b'"]', b'{"a":' + b"9" * 5_000 + b"}",
    b'{"a":[' + b"1," * 5_000 + b'1],"b":[' + b'{"$ref":"$.a"},' * 3_000 + b"1]}",
    b"{" + b",".join(b"%d:%d" % (n, n) for n in range(30_000)) + b"}",
    b'{"clientID":1,"clientID":{},"topicConfigTable":[],"x":"\\ud800"}', b"\x1f\x8b" + b"\0" * 100,
)  # fmt: skip
"""Bodies for every code, also those without a body."""


@dataclass(frozen=True, slots=True)
class Hostile:
    """One request.

    Attributes:
        code: its code.
        what: description of the hostile part, for the report of a failure.
        fields: header fields.
        body: the body.
        binary: whether the header has RocketMQ's own format instead of JSON.
    """

    code: int
    what: str
    fields: dict[str, str]
    body: bytes = b""
    binary: bool = False

    def frame(self, opaque: int) -> bytes:
        """Return the encoded request."""
        header = _binary_header(self, opaque) if self.binary else _json_header(self, opaque)
        return (
            struct.pack(">iI", 4 + len(header) + len(self.body), self.binary << 24 | len(header)) + header + self.body
        )


def _json_header(request: Hostile, opaque: int) -> bytes:
    return json.dumps(
        {
            "code": request.code, "language": "JAVA", "version": 479, "opaque": opaque, "flag": 0,
            "extFields": request.fields, "serializeTypeCurrentRPC": "JSON",
        }
    ).encode()  # fmt: skip


def _binary_header(request: Hostile, opaque: int) -> bytes:
    parts = []
    for name, text in request.fields.items():
        key, value = name.encode(), text.encode("utf-8", "surrogatepass")
        parts.append(struct.pack(">h", len(key)) + key + struct.pack(">i", len(value)) + value)
    fields = b"".join(parts)
    return struct.pack(">hBhiiii", request.code & 0x7FFF, 0, 479, opaque, 0, 0, len(fields)) + fields


def usual_fields(code: int) -> dict[str, str]:
    """Return typical header fields of a code."""
    found = {}
    for field in request_fields(code):
        if field.name in _GIVEN:
            found[field.wire] = _GIVEN[field.name]
        elif field.name.lower().endswith("group") or field.name == "groupName":
            found[field.wire] = GROUP
        elif field.required:
            found[field.wire] = {"s": "hostile", "b": "false", "e": "LOWER"}.get(field.kind, "1")
    if "sysFlag" in {field.name for field in request_fields(code)}:
        found[next(field.wire for field in request_fields(code) if field.name == "sysFlag")] = "0"
    return found


def requests(code: int, outside: str, seed: int) -> list[Hostile]:
    """Return all hostile requests of a code, in an order that depends on the seed.

    Args:
        code: the code.
        outside: absolute path of a folder that must not be touched.
        seed: seed of the order.
    """
    made = [Hostile(code, "nothing", {}), Hostile(code, "usual", usual_fields(code))]
    made += [Hostile(code, f"without {name}", without(usual_fields(code), name)) for name in usual_fields(code)]
    made += _field_requests(code, outside)
    made += _body_requests(code, outside)
    random.Random(f"{seed} {code}").shuffle(made)
    return made


def small(request: Hostile) -> bool:
    """Whether a request is small enough to send a thousand of them."""
    return len(request.body) + sum(map(len, request.fields.values())) < 10_000


def without(fields: dict[str, str], name: str) -> dict[str, str]:
    """Return the fields without one."""
    return {key: value for key, value in fields.items() if key != name}


def _field_requests(code: int, outside: str) -> Iterator[Hostile]:
    usual = usual_fields(code)
    for field in request_fields(code):
        texts: tuple[str, ...] = NUMBERS if field.kind in "il" else SWITCHES if field.kind in "be" else (
            outside, *PATHS, *ODD
        )  # fmt: skip
        if field.name in RPC_FIELDS:
            texts = texts[:4]
        elif field.kind == "s":
            texts = (*texts, "z" * MEBIBYTE)
        for text in texts:
            yield Hostile(code, f"{field.name}={text[:40]!r}", usual | {field.wire: text})
        if field.kind == "s" and field.name not in RPC_FIELDS:
            yield Hostile(code, f"binary {field.name}", usual | {field.wire: "\ud800\0/.."}, binary=True)


def _body_requests(code: int, outside: str) -> Iterator[Hostile]:
    usual = usual_fields(code)
    for number, body in enumerate((*ANY_BODY, *TEXTS.get(code, ()))):
        yield Hostile(code, f"body {number} {body[:24]!r}", usual, body)
        if number >= len(ANY_BODY):
            yield Hostile(code, f"compressed body {number}", usual | {"compressed": "true", "batch": "true"}, body)
    for number, value in enumerate(BIG.get(code, ())):
        yield Hostile(code, f"big body {number}", usual, json.dumps(value).encode())
    if code in BODIES:
        for what, value in spoiled(BODIES[code], outside):
            body = json.dumps(value).encode()
            yield Hostile(code, f"body {what}", usual, body)


def spoiled(example: Any, outside: str) -> Iterator[tuple[str, Any]]:
    """Yield the example with one hostile value, and its description."""
    for path, leaf in _leaves(example):
        texts = (outside, *PATHS, *ODD, "z" * MEBIBYTE) if isinstance(leaf, str) else ()
        for hostile in (*texts, *EDGES, None, [], {}, ["x"], {"$ref": "$"}, json.loads(_deep(DEEP, '{"a":', "}"))):
            yield f"{'.'.join(map(str, path))}={str(hostile)[:40]!r}", _replaced(example, path, hostile)
    for path, leaf in _leaves(example):
        if isinstance(leaf, str) and path and isinstance(path[-1], str):
            yield f"{path} under another name", _replaced(example, (*path[:-1], "../" + path[-1]), leaf)


def _leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    if path:
        yield path, value
    for key, inner in items:
        yield from _leaves(inner, (*path, key))


def _replaced(value: Any, path: tuple[Any, ...], leaf: Any) -> Any:
    if not path:
        return leaf
    first, *rest = path
    if isinstance(value, dict):
        return value | {first: _replaced(value.get(first), tuple(rest), leaf)}
    return [*value[:first], _replaced(value[first], tuple(rest), leaf), *value[first + 1 :]]


class Watched:
    """A request that records whether its body is read."""

    def __init__(self, command: Command) -> None:
        self._command = command
        self.read = False

    def __getattr__(self, name: str) -> Any:
        self.read |= name == "body"
        return getattr(self._command, name)
