"""One well-formed request of every code, four kinds of credentials, and the detection of refusals by access control.

Requests can be sent in any order, because they delete objects that never existed and create ones with new names.
"""

from __future__ import annotations

import base64
import enum
import hashlib
import hmac
import json
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from tianzhou.access.needs import needs, plain_needs
from tianzhou.access.requests import AccessRequest
from tianzhou.access.resources import Need, Permission
from tianzhou.model.names import RETRY_PREFIX
from tianzhou.wire.bodies.dledger import PushRequest, StretchRequest, encode, stretch_fields
from tianzhou.wire.bodies.staging import ATTEMPTS, DECISION, AttemptList, BatchDecision
from tianzhou.wire.staging import StagedMessage, encode_unit

CLUSTER = "DefaultCluster"
TOPIC, GROUP, WRITER = "matrix-topic", "matrix-group", "matrix-writer"
SUBJECT, BARE = "matrix-subject", "matrix-bare"
"""Users for requests about users: one gets policies, the other never has any."""
BROKER, NAMESRV, BOTH, CLIENT, NOBODY = "broker", "name server", "both", "client", "nobody"
ACCOUNTS, USERS = "accounts", "users"
"""The kinds of access control: `aclEnable`, and `authenticationEnabled` with `authorizationEnabled`."""
SECRET = "matrix-secret"
ADMINISTRATOR, STRANGER = "administrator", "stranger"
_REFUSALS = {
    1: re.compile(
        r"No accessKey is configured|Check signature failed|No acl config for|Need admin permission"
        r"|No default permission|AclException|AuthenticationException"
    ),
    16: re.compile(
        r"username cannot be null|check signature failed|is not found\.|is disabled\.|has no permission to access"
        r"|authentication failed|authorization failed"
    ),
}
"""Patterns of refusals' remarks by response code: the texts of RocketMQ 4.x and 5.3."""


class Who(enum.StrEnum):
    """Credentials, from the weakest on."""

    UNSIGNED = "no credentials"
    FORGED = "wrong secret"
    STRANGER = "account without permission"
    PERMITTED = "account with permission"


class Asked(NamedTuple):
    """A request.

    Attributes:
        code: its code.
        to: the server with its handler.
        fields: header fields; `{n}` is replaced by a new number each time, in the body, too.
        body: its body.
        answer: code of our handler's reply to a permitted account, which may be an error of the handler.
        kind: its only kind of access control; empty for both.
        says: part of the remark of our reply.
    """

    code: int
    to: str = BROKER
    fields: Mapping[str, object] = {}
    body: bytes = b""
    answer: int = 0
    kind: str = ""
    says: str = ""

    def numbered(self, number: int) -> tuple[dict[str, str], bytes]:
        """Return fields and body with a number."""
        text = str(number)
        fields = {name: str(value).replace("{n}", text) for name, value in self.fields.items()}
        return fields, self.body.replace(b"{n}", text.encode())

    def is_answered(self, code: int, remark: str) -> bool:
        """Whether a reply is the handler's."""
        return code == self.answer and self.says in remark

    def served(self, port: str, kind: str) -> bool:
        """Whether one of our servers has a handler for it."""
        return port in {BOTH: (BROKER, NAMESRV)}.get(self.to, (self.to,)) and self.kind in ("", kind)


def _json(**members: object) -> bytes:
    return json.dumps(members).encode()


_T, _G, _CG = {"topic": TOPIC}, {"group": GROUP}, {"consumerGroup": GROUP}
_QUEUE = {**_T, "queueId": 0}
_NEW = "made-{n}"
_MADE_TOPIC = {
    "topic": _NEW, "defaultTopic": "TBW102", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6,
    "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false",
}  # fmt: skip
_SEND = {
    "producerGroup": GROUP, "topic": TOPIC, "defaultTopic": "TBW102", "defaultTopicQueueNums": 1, "queueId": 0,
    "sysFlag": 0, "bornTimestamp": 1, "flag": 0, "properties": "TAGS\x01a\x02", "reconsumeTimes": 0,
    "unitMode": "false",
}  # fmt: skip
_SEND_V2 = dict(zip("abcdefghijk", _SEND.values(), strict=True))
_PULL = {
    **_CG, **_QUEUE, "queueOffset": 0, "maxMsgNums": 1, "sysFlag": 4, "commitOffset": 0, "suspendTimeoutMillis": 0,
    "subscription": "*", "subVersion": 0, "expressionType": "TAG",
}  # fmt: skip
_RESET = {**_T, **_G, "timestamp": -1, "isForce": "true"}
_LOCK = _json(clientId="c", consumerGroup=GROUP, mqSet=[{"brokerName": "broker-a", "queueId": 0, "topic": TOPIC}])
_CONSUMER = {
    "groupName": "matrix-online", "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
    "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET", "unitMode": False,
    "subscriptionDataSet": [
        {"classFilterMode": False, "topic": TOPIC, "subString": "*", "tagsSet": [], "codeSet": [], "subVersion": 1,
         "expressionType": "TAG"}
    ],
}  # fmt: skip
_GHOST = {"brokerName": "ghost", "brokerAddr": "127.0.0.1:9", "clusterName": CLUSTER, "brokerId": 0}
_ACK = {**_CG, **_QUEUE, "extraInfo": "0 0 1000 0 0 broker-a 0 0", "offset": 0}
_VERSION = {"counter": 1, "timestamp": 1}
_USER = _json(username=_NEW, password=SECRET, userType="Normal")
_ACL = _json(
    subject=f"User:{SUBJECT}",
    policies=[{"policyType": "Custom", "entries": [{"resource": "Topic:x", "actions": ["Pub"], "decision": "Allow"}]}],
)

REQUESTS: tuple[Asked, ...] = (
    # Messages
    Asked(10, fields=_SEND, body=b"x"),
    Asked(310, fields=_SEND_V2, body=b"x"),
    Asked(
        320,
        fields={**_SEND_V2, "m": "true"},
        body=bytes.fromhex("00000017 00000000 00000000 00000000 00000001 78 0000"),
    ),
    Asked(
        324,
        fields={**_SEND, "properties": "REPLY_TO_CLIENT\x01nobody\x02"},
        body=b"x",
        answer=1,
        says="push reply message fail",
    ),
    Asked(
        325,
        fields={**_SEND_V2, "i": "REPLY_TO_CLIENT\x01nobody\x02"},
        body=b"x",
        answer=1,
        says="push reply message fail",
    ),
    Asked(11, fields={**_PULL, "queueOffset": 1 << 40}, answer=21),
    Asked(361, fields={**_PULL, "queueOffset": 1 << 40}, answer=21),
    Asked(36, fields={**_G, "offset": 1 << 40, "delayLevel": 0}, answer=1, says="look message by offset failed"),
    Asked(
        37,
        fields={
            **_T,
            "producerGroup": GROUP,
            "tranStateTableOffset": 0,
            "commitLogOffset": 1 << 40,
            "msgId": "u",
            "commitOrRollback": 12,
            "transactionId": "u",
        },
        answer=1,
        says="no half message is at",
    ),
    Asked(370, fields={**_T, "producerGroup": GROUP, "recallHandle": "x"}, answer=16, says="recall failed"),
    Asked(12, fields={**_T, "key": "nokey", "maxNum": 5, "beginTimestamp": 0, "endTimestamp": 1 << 60}, answer=22),
    Asked(33, fields={**_T, "offset": 1 << 40}, answer=1, says="can not find message"),
    Asked(29, fields={**_QUEUE, "timestamp": 0}),
    Asked(30, fields=_QUEUE),
    Asked(31, fields=_QUEUE),
    Asked(32, fields=_QUEUE),
    # Clients
    Asked(
        34,
        body=_json(clientID="c-{n}", producerDataSet=[{"groupName": "matrix-producers"}], consumerDataSet=[_CONSUMER]),
    ),
    Asked(46, body=_json(clientId="c", group=GROUP, subscriptionData=_CONSUMER["subscriptionDataSet"][0])),
    Asked(35, fields={"clientID": "nobody", **_CG}),
    Asked(38, fields=_CG, answer=1, says="no consumer for this group"),
    Asked(14, fields={**_QUEUE, **_CG, "setZeroIfNotFound": "true"}),
    Asked(15, fields={**_QUEUE, **_CG, "commitOffset": 0}),
    Asked(41, body=_LOCK),
    Asked(42, body=_LOCK),
    # Topics and groups
    Asked(17, fields=_MADE_TOPIC),
    Asked(
        18,
        body=_json(
            topicConfigList=[
                {
                    "topicName": _NEW,
                    "readQueueNums": 1,
                    "writeQueueNums": 1,
                    "perm": 6,
                    "order": False,
                    "topicFilterType": "SINGLE_TAG",
                    "topicSysFlag": 0,
                    "attributes": {},
                }
            ]
        ),
    ),
    Asked(513, NOBODY, _MADE_TOPIC, b"{}"),
    Asked(215, fields={"topic": "never-there"}),
    Asked(21),
    Asked(202, fields=_T),
    Asked(351, fields=_T),
    Asked(200, body=_json(groupName=_NEW, retryQueueNums=1, retryMaxTimes=16)),
    Asked(225, body=_json(groupConfigList=[{"groupName": _NEW, "retryQueueNums": 1, "retryMaxTimes": 16}])),
    Asked(207, fields={"groupName": "never-there"}),
    Asked(201),
    Asked(352, fields=_G),
    Asked(353, fields={**_G, **_T, "readable": "true"}),
    Asked(203, fields=_CG, answer=206),
    Asked(204, fields={"producerGroup": "nobody"}, answer=1, says="not exist"),
    Asked(208, fields={**_CG, **_T}),
    Asked(222, fields={**_RESET, "queueId": 0, "offset": 0}),
    Asked(223, fields={**_T, **_G}, answer=1, says="No Any Consumer online"),
    Asked(300, fields=_T),
    Asked(303, fields={**_T, **_G}),
    Asked(305),
    Asked(307, fields={**_CG, "clientId": "nobody", "jstackEnable": "false"}, answer=1, says="not online"),
    Asked(308, fields={**_T, "compareGroup": GROUP, "filterGroups": "matrix-others"}),
    Asked(
        309,
        fields={**_CG, **_T, "clientId": "nobody", "msgId": "7F00000100002A9F0000000000000000"},
        answer=1,
        says="not online",
    ),
    Asked(314, fields={"srcGroup": GROUP, "destGroup": "matrix-clone", **_T, "offline": "false"}),
    Asked(315, fields={"statsName": "TOPIC_PUT_NUMS", "statsKey": "never-there"}, answer=1, says="not exist"),
    Asked(317, fields={"isOrder": "false"}),
    Asked(321, fields={**_QUEUE, **_CG, "index": 0, "count": 2}),
    Asked(323, fields={**_T, "msgId": "7F00000100002A9F0000000000000000"}, answer=1, says="no message of TRANS"),
    Asked(328),
    Asked(343, fields=_G),
    Asked(345, fields={**_G, **_T}),
    Asked(354, fields={**_T, "checkStoreTime": 0}),
    Asked(355, NOBODY, {"configType": "topics;"}),
    Asked(402),
    # Settings, files and figures of a broker
    Asked(25, body=b"longPollingEnable=true\n"),
    Asked(26),
    Asked(28),
    Asked(306),
    Asked(316),
    Asked(329),
    Asked(2001, body=b"matrix-group=1000\n"),
    Asked(2002, body=b"never-there"),
    Asked(2003),
    Asked(2004, fields={"READ_AHEAD_MODE": "0"}),
    Asked(60, NOBODY),
    Asked(61, NOBODY),
    # Brokers among themselves
    Asked(43),
    Asked(45),
    Asked(901, NAMESRV, {"clusterName": CLUSTER, "brokerName": "broker-a"}),
    Asked(902, NOBODY, {"configPath": "/never/there"}),
    Asked(903, NOBODY, {"brokerName": "ghost", "brokerClusterName": CLUSTER, "brokerId": 0}),
    Asked(904, NAMESRV, _GHOST),
    Asked(905, fields={"minBrokerId": 0, "brokerName": "broker-a"}),
    Asked(906, fields={"masterHaAddress": "127.0.0.1:9"}),
    Asked(907),
    Asked(908, fields={"masterFlushOffset": 0}),
    Asked(1007, answer=1, says="controllerMode"),
    Asked(1008, fields={"masterAddress": "127.0.0.1:9", "masterEpoch": 1, "syncStateSetEpoch": 1}),
    # Accounts, users and policies
    Asked(50, fields={"accessKey": _NEW, "secretKey": SECRET, "admin": "false"}, kind=ACCOUNTS),
    Asked(51, fields={"accessKey": "never-there"}, answer=210, says="has been deleted failed", kind=ACCOUNTS),
    Asked(52, kind=ACCOUNTS),
    Asked(53, fields={"globalWhiteAddrs": "203.0.113.9", "aclFileFullPath": ""}, kind=ACCOUNTS),
    Asked(54, kind=ACCOUNTS),
    Asked(3001, BOTH, {"username": _NEW}, _USER, kind=USERS),
    Asked(3002, BOTH, {"username": SUBJECT}, _json(username=SUBJECT, userStatus="enable"), kind=USERS),
    Asked(3003, BOTH, {"username": "never-there"}, kind=USERS),
    Asked(3004, BOTH, {"username": SUBJECT}, kind=USERS),
    Asked(3005, BOTH, {"filter": SUBJECT}, kind=USERS),
    Asked(3006, BOTH, {"subject": f"User:{SUBJECT}"}, _ACL, kind=USERS),
    Asked(3007, BOTH, {"subject": f"User:{SUBJECT}"}, _ACL, kind=USERS),
    Asked(
        3008,
        BOTH,
        {"subject": f"User:{BARE}", "policyType": "Custom"},
        answer=16,
        says="The acl is not exist",
        kind=USERS,
    ),
    Asked(3009, BOTH, {"subject": f"User:{SUBJECT}"}, kind=USERS),
    Asked(3010, BOTH, {"subjectFilter": SUBJECT}, kind=USERS),
    # Name servers
    Asked(105, NAMESRV, _T),
    Asked(106, NAMESRV),
    Asked(100, NAMESRV, {"namespace": "matrix", "key": "k", "value": "v"}),
    Asked(101, NAMESRV, {"namespace": "matrix", "key": "never-there"}, answer=22),
    Asked(102, NAMESRV, {"namespace": "matrix", "key": "never-there"}),
    Asked(219, NAMESRV, {"namespace": "never-there"}, answer=22),
    Asked(
        103,
        NAMESRV,
        {**_GHOST, "haServerAddr": "127.0.0.1:8", "compressed": "false", "bodyCrc32": 0},
        _json(filterServerList=[], topicConfigSerializeWrapper={"dataVersion": _VERSION, "topicConfigTable": {}}),
    ),
    Asked(104, NAMESRV, {**_GHOST, "brokerName": "never-there"}),
    Asked(322, NAMESRV, _GHOST, _json(**_VERSION)),
    Asked(205, NAMESRV, {"brokerName": "never-there"}),
    Asked(327, NAMESRV, {"brokerName": "never-there"}),
    Asked(216, NAMESRV, {"topic": "never-there"}),
    Asked(217, NAMESRV, {"topic": _NEW}, _json(queueDatas=[], brokerDatas=[], filterServerTable={})),
    Asked(206, NAMESRV),
    Asked(224, NAMESRV, {"cluster": CLUSTER}),
    Asked(304, NAMESRV),
    Asked(311, NAMESRV),
    Asked(312, NAMESRV),
    Asked(313, NAMESRV),
    Asked(318, NAMESRV, body=b"orderMessageEnable=false\n"),
    Asked(319, NAMESRV),
    # Tianzhou's own
    Asked(31001, fields={"writer": WRITER}),
    Asked(
        31002,
        fields={
            "writer": WRITER,
            "batch": 0,
            "attempt": "0~{n}",
            "number": 0,
            "coordinator": "broker-a",
            "bornTimestamp": 1,
            "last": "true",
        },
        body=encode_unit([StagedMessage(TOPIC, 0, 0, 0, b"UNIQ_KEY\x01u\x02", b"x")]),
    ),
    Asked(31003, body=DECISION.dumps(BatchDecision(WRITER, 0, "broker-a"))),
    Asked(31004, body=DECISION.dumps(BatchDecision(WRITER, 0, "broker-a"))),
    Asked(31005, body=ATTEMPTS.dumps(AttemptList(WRITER, 0, "broker-a", ["0~never"]))),
    Asked(31006, body=ATTEMPTS.dumps(AttemptList(WRITER, 0, "broker-a", ["0~never"]))),
    Asked(31010, fields={"offset": 0, "size": 16}),
    Asked(31020, answer=16, kind=USERS, says="to super users alone"),
    Asked(31030, fields={"limit": "topic:never-there", "rate": 1, "burst": 1}),
    Asked(31031),
    # Served by clients
    Asked(39, CLIENT, {"tranStateTableOffset": 0, "commitLogOffset": 0}),
    Asked(40, CLIENT, _CG),
    Asked(220, CLIENT, _RESET),
    Asked(221, CLIENT, {**_T, **_G}),
    Asked(
        326,
        CLIENT,
        {**_SEND, "bornHost": "127.0.0.1:1", "storeHost": "127.0.0.1:2", "storeTimestamp": 1},
        b"x",
    ),
    # Not served
    *(Asked(code, NOBODY) for code in (13, 22, 23, 27, 47, 209, 210, 211, 212, 213, 214, 301, 302, 400, 401)),
    Asked(200050, NOBODY, {**_CG, **_QUEUE, "maxMsgNums": 1, "invisibleTime": 1000, "pollTime": 0, "initMode": 0}),
    Asked(200051, NOBODY, _ACK),
    Asked(200052, NOBODY, {**_CG, **_QUEUE, "maxMsgNums": 1}),
    Asked(200053, NOBODY, {**_ACK, "invisibleTime": 1000}),
    Asked(200054, NOBODY, {**_CG, **_QUEUE, "pollTime": 0, "bornTime": 0}),
    Asked(200055, NOBODY, {**_CG, **_QUEUE}),
    Asked(200056, NOBODY),
    Asked(200151, NOBODY, body=_json(brokerName="broker-a", acks=[])),
    *(
        Asked(code, NOBODY, {"clusterName": CLUSTER, "brokerName": "ghost"})
        for code in (*range(1001, 1007), *range(1009, 1014))
    ),
)
"""One for each code of `RequestCode`; the handler of `to` replies with `answer`."""

_MEMBER = {"group": "nobody", "leaderId": "n9", "localId": "n9", "remoteId": "n0", "term": 0}
_STRETCH = StretchRequest(
    commit_index=-1, count=0, end_index=-1, previous_index=-1, previous_term=-1, group="nobody", leader_id="n9",
    local_id="n9", remote_id="n0", term=0,
)  # fmt: skip
MEMBERS = "members"
TO_MEMBERS: tuple[Asked, ...] = (
    Asked(50000, MEMBERS, body=_json(**_MEMBER), answer=200),
    Asked(50001, MEMBERS, body=_json(**_MEMBER, body=""), answer=200),
    Asked(50002, MEMBERS, body=_json(**_MEMBER, beginIndex=0), answer=200),
    Asked(51001, MEMBERS, body=_json(**_MEMBER, ledgerEndIndex=-1, ledgerEndTerm=-1), answer=200),
    Asked(51002, MEMBERS, body=_json(**_MEMBER), answer=200),
    Asked(51003, MEMBERS, body=_json(**_MEMBER, beginIndex=0), answer=200),
    Asked(51004, MEMBERS, body=encode(PushRequest(group="nobody", local_id="n9", remote_id="n0", term=0)), answer=200),
    Asked(51005, MEMBERS, body=_json(**_MEMBER, transferId="n9", transfereeId="n9"), answer=200),
    Asked(31101, MEMBERS, body=_json(**_MEMBER, ledgerEndIndex=-1, ledgerEndTerm=-1), answer=200),
    Asked(31102, MEMBERS, stretch_fields(_STRETCH), answer=200),
)
"""One for each code of `DLedgerRequestCode`, about a group that the member does not know."""


def is_refusal(code: int, remark: str) -> bool:
    """Whether a reply is access control's."""
    pattern = _REFUSALS.get(code)
    return pattern is not None and pattern.search(remark) is not None


def signed(fields: Mapping[str, str], body: bytes, name: str, secret: str = SECRET) -> dict[str, str]:
    """Return header fields with a signature (wire.md §11.1)."""
    named = {**fields, "AccessKey": name}
    content = "".join(value for _, value in sorted(named.items())).encode() + body
    digest = hmac.digest(secret.encode(), content, hashlib.sha1)
    return {**named, "Signature": base64.b64encode(digest).decode()}


class Credentials:
    """Accounts of one kind of access control: for each request one with exactly the permissions it needs.

    Args:
        kind: of access control.
        requests: the requests to be sent.

    Attributes:
        administrators: names of accounts with all permissions, when a request needs one.
    """

    def __init__(self, kind: str, requests: tuple[Asked, ...]) -> None:
        self.kind = kind
        self._names: dict[object, str] = {}
        self._of: dict[int, str] = {}
        for asked in requests:
            wanted = self._wanted(asked)
            self._of[asked.code] = self._names.setdefault(wanted, f"account-{len(self._names)}")

    def _wanted(self, asked: Asked) -> object:
        # New names are permitted by their prefix.
        fields, body = asked.numbered(0)
        request = AccessRequest(asked.code, fields, body)
        if self.kind == USERS:
            return needs(request, CLUSTER)
        need = plain_needs(request)
        return ADMINISTRATOR if need.admin else tuple(sorted(need.permissions.items()))

    def sign(self, asked: Asked, who: Who, fields: Mapping[str, str], body: bytes) -> dict[str, str]:
        """Return the header fields with the given credentials."""
        match who:
            case Who.UNSIGNED:
                return dict(fields)
            case Who.FORGED:
                return signed(fields, body, self.permitted(asked.code), "wrong-secret")
            case Who.STRANGER:
                return signed(fields, body, STRANGER)
            case Who.PERMITTED:
                return signed(fields, body, self.permitted(asked.code))

    def permitted(self, code: int) -> str:
        """Return the name of the account that may send a request."""
        name = self._of[code]
        return ADMINISTRATOR if self._names.get(ADMINISTRATOR) == name else name

    def accounts_file(self) -> str:
        """Return the text of `plain_acl.yml`."""
        accounts: list[dict[str, object]] = [
            {"accessKey": ADMINISTRATOR, "secretKey": SECRET, "whiteRemoteAddress": "", "admin": True},
            self._account(STRANGER, {}),
        ]
        for wanted, name in self._names.items():
            if wanted != ADMINISTRATOR:
                assert isinstance(wanted, tuple)
                accounts.append(self._account(name, dict(wanted)))
        # JSON is YAML.
        return json.dumps({"globalWhiteRemoteAddresses": [], "accounts": accounts}, indent=1)

    @staticmethod
    def _account(name: str, permissions: Mapping[str, Permission]) -> dict[str, object]:
        words = {resource: "PUB" if value is Permission.PUB else "SUB" for resource, value in permissions.items()}
        groups = {one.removeprefix(RETRY_PREFIX): word for one, word in words.items() if one.startswith(RETRY_PREFIX)}
        topics = {one: word for one, word in words.items() if not one.startswith(RETRY_PREFIX)}
        return {
            "accessKey": name, "secretKey": SECRET, "whiteRemoteAddress": "", "admin": False,
            "defaultTopicPerm": "DENY", "defaultGroupPerm": "DENY",
            "topicPerms": [f"{one}={word}" for one, word in topics.items()],
            "groupPerms": [f"{one}={word}" for one, word in groups.items()],
        }  # fmt: skip

    def making(self) -> Iterator[Asked]:
        """Yield the administrator's requests that create the other users and their policies."""
        if self.kind != USERS:
            return
        entries: dict[str, list[dict[str, object]]] = {STRANGER: [], SUBJECT: [], BARE: []}
        for wanted, name in self._names.items():
            assert isinstance(wanted, tuple)
            entries[name] = [self._entry(need) for need in wanted]
        for name, wanted in entries.items():
            user = _json(username=name, password=SECRET, userType="Normal")
            yield Asked(3001, BOTH, {"username": name}, user)
            if wanted:
                acl = _json(subject=f"User:{name}", policies=[{"policyType": "Custom", "entries": wanted}])
                yield Asked(3006, BOTH, {"subject": f"User:{name}"}, acl)

    @staticmethod
    def _entry(need: Need) -> dict[str, object]:
        resource = str(need.resource)
        if resource.endswith("made-0"):
            resource = resource.removesuffix("0") + "*"
        return {"resource": resource, "actions": [need.actions[0].value], "decision": "Allow"}
