"""Tables of the header fields of every request and response: one line per code (wire.md §3, §4, §6 to §8, §10).

A line lists `name:type`, separated by spaces. Types: `s` text, `i` 32-bit, `l` 64-bit, `b` boolean, `e` boundary
(LOWER, UPPER). `!` marks a required field, `=value` a default other than None, `letter=name:type` a field with a
one-letter name on the wire. `[R]` and `[T]` add the fields of wire.md §1.14, `[S]` those of §11.1. An attribute is the
snake_case of the full name for all codes: `consumerGroup` is `consumer_group`, `a=producerGroup` is `producer_group`.

The structs are created at the first use: a process uses a dozen of these lines, and starts sooner.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from tianzhou._hot.headers import (
    Command,
    Int32,
    Int64,
    PullHeader,
    PullReplyHeader,
    SendHeader,
    SendHeaderV2,
    SendReplyHeader,
    header_fields,
)
from tianzhou.errors import HeaderFieldError
from tianzhou.wire.codes import request_name

__all__ = ["read_header", "read_reply", "reply_fields", "request_fields", "write_header", "write_reply"]

_SIGNED = "AccessKey:s Signature:s SecurityToken:s"
_RPC = "bname:s ns:s nsd:b oway:b ReqT:i"
_TOPIC_RPC = _RPC + " lo:b"

_SEND = """producerGroup:s! topic:s! defaultTopic:s! defaultTopicQueueNums:i! queueId:i! sysFlag:i!
    bornTimestamp:l! flag:i! properties:s reconsumeTimes:i=0 unitMode:b=false batch:b=false
    maxReconsumeTimes:i [T] [S]"""
_SEND_V2 = """a=producerGroup:s! b=topic:s! c=defaultTopic:s! d=defaultTopicQueueNums:i! e=queueId:i!
    f=sysFlag:i! g=bornTimestamp:l! h=flag:i! i=properties:s j=reconsumeTimes:i=0 k=unitMode:b=false
    l=maxReconsumeTimes:i m=batch:b=false n=bname:s ns:s nsd:b oway:b ReqT:i lo:b [S]"""
_PULL = """consumerGroup:s! topic:s! queueId:i! queueOffset:l! maxMsgNums:i! sysFlag:i! commitOffset:l!
    suspendTimeoutMillis:l! subscription:s subVersion:l! expressionType:s maxMsgBytes:i requestSource:i
    proxyFrowardClientId:s [T] [S]"""
_ACK = "consumerGroup:s! topic:s! queueId:i! extraInfo:s! offset:l!"
_TOPIC = """topic:s! defaultTopic:s! readQueueNums:i! writeQueueNums:i! perm:i! topicFilterType:s!
    topicSysFlag:i=0 order:b=false attributes:s force:b [T]"""
_BROKER = "brokerName:s! brokerAddr:s! clusterName:s! brokerId:l!"
_REPLICAS = "masterBrokerId:l masterAddress:s masterEpoch:i syncStateSetEpoch:i"
_HA_INFO = "masterHaAddress:s masterFlushOffset:l masterAddress:s"

REQUESTS: dict[int, str] = {
    # Data path, §3.1
    10: _SEND,
    310: _SEND_V2,
    320: _SEND_V2,
    324: _SEND,
    325: _SEND_V2,
    326: """producerGroup:s! topic:s! defaultTopic:s! defaultTopicQueueNums:i! queueId:i! sysFlag:i!
        bornTimestamp:l! flag:i! properties:s reconsumeTimes:i=0 unitMode:b=false bornHost:s! storeHost:s!
        storeTimestamp:l! [T]""",
    11: _PULL,
    361: _PULL,
    36: """offset:l! group:s! delayLevel:i! originMsgId:s originTopic:s unitMode:b=false
        maxReconsumeTimes:i [R]""",
    37: """topic:s producerGroup:s! tranStateTableOffset:l! commitLogOffset:l! commitOrRollback:i!
        fromTransactionCheck:b=false msgId:s! transactionId:s [R]""",
    39: "topic:s tranStateTableOffset:l! commitLogOffset:l! msgId:s transactionId:s offsetMsgId:s [R]",
    370: "producerGroup:s topic:s! recallHandle:s! [T]",
    200050: """consumerGroup:s! topic:s! queueId:i! maxMsgNums:i! invisibleTime:l! pollTime:l! bornTime:l=0
        initMode:i! expType:s exp:s order:b=false attemptId:s [T]""",
    200051: _ACK + " [T]",
    200052: "topic:s! queueId:i! maxMsgNums:i! consumerGroup:s! [T]",
    200053: _ACK + " invisibleTime:l! [T]",
    200054: "consumerGroup:s! topic:s! queueId:i! pollTime:l! bornTime:l! order:b=false attemptId:s [T]",
    200055: "consumerGroup:s! topic:s! queueId:i! [T]",
    # Client management, §3.2
    12: "topic:s! key:s! maxNum:i! beginTimestamp:l! endTimestamp:l! _UNIQUE_KEY_QUERY:b=false [T]",
    14: "consumerGroup:s! topic:s! queueId:i! setZeroIfNotFound:b [T]",
    15: "consumerGroup:s! topic:s! queueId:i! commitOffset:l! [T]",
    29: "topic:s! queueId:i! timestamp:l! boundaryType:e=LOWER [T]",
    30: "topic:s! queueId:i! committed:b=true [T]",
    31: "topic:s! queueId:i! [T]",
    32: "topic:s! queueId:i! [T]",
    33: "offset:l! topic:s [R]",
    34: "[R]",
    35: "clientID:s! producerGroup:s consumerGroup:s [R]",
    38: "consumerGroup:s! [R]",
    40: "consumerGroup:s! [R]",
    41: "[R]",
    42: "[R]",
    220: "topic:s! group:s! queueId:i=-1 offset:l=-1 timestamp:l! isForce:b! [T]",
    221: "topic:s! group:s! clientAddr:s [T]",
    307: "consumerGroup:s! clientId:s! jstackEnable:b=false [R]",
    309: "consumerGroup:s! clientId:s msgId:s brokerName:s topic:s topicSysFlag:i groupSysFlag:i [T]",
    # Topics, groups, statistics, §3.3
    17: _TOPIC,
    18: "[R]",
    513: _TOPIC,
    215: "topic:s! [T]",
    351: "topic:s! [T]",
    202: "topic:s! [T]",
    300: "topic:s! [T]",
    343: "group:s! [R]",
    345: "group:s! topic:s [T]",
    352: "group:s! [R]",
    207: "groupName:s! cleanOffset:b=false removeOffset:b=false [R]",
    353: "group:s! topic:s! readable:b [T]",
    203: "consumerGroup:s! [R]",
    204: "producerGroup:s! [R]",
    208: "consumerGroup:s! topic:s topicList:s [T]",
    317: "isOrder:b!",
    303: "topic:s! group:s! [T]",
    308: "filterGroups:s compareGroup:s! topic:s! [T]",
    222: "topic:s! group:s! queueId:i=-1 offset:l=-1 timestamp:l! isForce:b! [T]",
    223: "topic:s! group:s! clientAddr:s [T]",
    314: "srcGroup:s! destGroup:s! topic:s offline:b=false [R]",
    315: "statsName:s! statsKey:s!",
    321: "topic:s queueId:i=0 index:l=0 count:i=0 consumerGroup:s [T]",
    323: "msgId:s topic:s",
    354: "topic:s! checkStoreTime:l=0",
    355: "configType:s! typeName:s",
    # Configuration, runtime, replication, §3.4
    901: "clusterName:s! brokerName:s!",
    902: "configPath:s",
    903: "brokerName:s! brokerClusterName:s! brokerId:l!",
    904: """clusterName:s! brokerAddr:s! brokerName:s! brokerId:l epoch:i maxOffset:l confirmOffset:l
        heartbeatTimeoutMills:l electionPriority:i""",
    905: "minBrokerId:l brokerName:s minBrokerAddr:s offlineBrokerAddr:s haBrokerAddr:s",
    906: _HA_INFO,
    908: "masterFlushOffset:l!",
    1008: "masterAddress:s masterEpoch:i syncStateSetEpoch:i masterBrokerId:l",
    2004: "READ_AHEAD_MODE:s",
    50: """accessKey:s! secretKey:s whiteRemoteAddress:s admin:b defaultTopicPerm:s defaultGroupPerm:s
        topicPerms:s groupPerms:s""",
    51: "accessKey:s!",
    53: "globalWhiteAddrs:s! aclFileFullPath:s",
    3001: "username:s!",
    3002: "username:s!",
    3003: "username:s!",
    3004: "username:s!",
    3005: "filter:s",
    3006: "subject:s!",
    3007: "subject:s!",
    3008: "subject:s! policyType:s resource:s",
    3009: "subject:s!",
    3010: "subjectFilter:s resourceFilter:s",
    # Name server, §3.5
    100: "namespace:s! key:s! value:s!",
    101: "namespace:s! key:s!",
    102: "namespace:s! key:s!",
    219: "namespace:s!",
    103: """brokerName:s! brokerAddr:s! clusterName:s! haServerAddr:s! brokerId:l! heartbeatTimeoutMillis:l
        enableActingMaster:b compressed:b=false bodyCrc32:i=0 __ZONE_NAME:s""",
    104: _BROKER,
    105: "topic:s! acceptStandardJsonOnly:b=false __ZONE_NAME:s __ZONE_MODE:s [T]",
    205: "brokerName:s!",
    327: "brokerName:s!",
    216: "topic:s! clusterName:s [T]",
    217: "topic:s! [T]",
    224: "cluster:s!",
    322: _BROKER,
    # Controller, §3.6
    1001: "brokerName:s masterBrokerId:l masterEpoch:i invokeTime:l",
    1002: 'clusterName:s="" brokerName:s="" brokerId:l=-1 designateElect:b=false invokeTime:l',
    1003: "clusterName:s brokerName:s brokerId:l brokerAddress:s invokeTime:l",
    1004: "brokerName:s",
    1011: "clusterName:s brokerName:s! brokerControllerIdsToClean:s isCleanLivingBroker:b=false invokeTime:l",
    1012: "clusterName:s brokerName:s",
    1013: "clusterName:s brokerName:s appliedBrokerId:l registerCheckCode:s",
    # Tianzhou's own, docs/adr/0006
    31001: "writer:s! [R]",
    31002: """writer:s! batch:l! attempt:s! number:i! coordinator:s! bornTimestamp:l! last:b=false defaultTopic:s
        defaultTopicQueueNums:i=4 [R]""",
    31003: "[R]",
    31004: "everywhere:b=false [R]",
    31005: "[R]",
    31006: "[R]",
    31010: "offset:l! size:i! [R]",
}

_SENT = """msgId:s! queueId:i! queueOffset:l! transactionId:s batchUniqId:s recallHandle:s MSG_REGION:s
    TRACE_ON:b=true"""
_PULLED = """suggestWhichBrokerId:l! nextBeginOffset:l! minOffset:l! maxOffset:l! offsetDelta:l topicSysFlag:i
    groupSysFlag:i forbiddenType:i"""
_POPPED = "popTime:l! invisibleTime:l! reviveQid:i! restNum:l=0 startOffsetInfo:s msgOffsetInfo:s orderCountInfo:s"

REPLIES: dict[int, str] = {
    **dict.fromkeys((10, 310, 320, 324, 325), _SENT),
    **dict.fromkeys((11, 361), _PULLED),
    370: "msgId:s!",
    **dict.fromkeys((200050, 200052), _POPPED),
    200053: "popTime:l! invisibleTime:l! reviveQid:i!",
    200054: "hasMsg:b! pollingFull:b=false",
    200055: "pollingNum:i!",
    34: "IS_SUPPORT_HEART_BEAT_V2:b=false IS_SUB_CHANGE:b=false",
    **dict.fromkeys((14, 29, 30, 31), "offset:l!"),
    32: "timestamp:l!",
    12: "indexLastUpdateTimestamp:l! indexLastUpdatePhyoffset:l!",
    26: "version:s!",
    52: "version:s! allAclFileVersion:s brokerName:s! brokerAddr:s! clusterName:s!",
    906: _HA_INFO,
    101: "value:s",
    103: "haServerAddr:s masterAddr:s",
    205: "wipeTopicCount:i!",
    327: "addTopicCount:i!",
    322: "changed:b!",
    1001: "newSyncStateSetEpoch:i",
    1002: _REPLICAS,
    1003: "clusterName:s brokerName:s " + _REPLICAS,
    1004: "masterBrokerId:l masterAddress:s masterEpoch:i",
    1005: "group:s controllerLeaderId:s controllerLeaderAddress:s isLeader:b=false peers:s",
    1012: "clusterName:s brokerName:s nextBrokerId:l",
    1013: "clusterName:s brokerName:s",
    31002: "decided:b=false refused:i",
    31004: "published:b=false",
}


class Field(NamedTuple):
    """One header field.

    Attributes:
        attribute: its name in Python.
        wire: its name on the wire.
        kind: its type letter.
        required: whether its absence is an error.
        default: value of an absent optional field.
        name: its full name, which differs from `wire` for one-letter names.
    """

    attribute: str
    wire: str
    kind: str
    required: bool
    default: str | int | bool | None
    name: str


_LINE = re.compile(r"(?:(?P<letter>[a-n])=)?(?P<name>\w+):(?P<kind>[silbe])(?P<required>!?)(?:=(?P<default>\S+))?")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_TYPES: dict[str, Any] = {"s": str, "i": Int32, "l": Int64, "b": bool, "e": str}
_WANTED = {"i": "a whole number of 32 bits", "l": "a whole number of 64 bits"}
# The kinds that the hot path decodes into structs of its own.
_HOT_REQUESTS: dict[int, type[msgspec.Struct]] = {
    **dict.fromkeys((10, 324), SendHeader),
    **dict.fromkeys((310, 320, 325), SendHeaderV2),
    **dict.fromkeys((11, 361), PullHeader),
}
HOT_CODES = frozenset(_HOT_REQUESTS)
"""Request codes whose headers may arrive as a struct, without `Command.fields`."""
_HOT_REPLIES: dict[int, type[msgspec.Struct]] = {
    **dict.fromkeys((10, 310, 320, 324, 325), SendReplyHeader),
    **dict.fromkeys((11, 361), PullReplyHeader),
}


def _snake(name: str) -> str:
    if name.isupper():
        return name.strip("_").lower()
    return _HUMP.sub("_", name).lower()


def _default(kind: str, text: str | None) -> str | int | bool | None:
    if text is None:
        return None
    if kind == "b":
        return text == "true"
    return int(text) if kind in "il" else text.strip('"')


def _parse(line: str) -> tuple[Field, ...]:
    fields = []
    for token in line.replace("[R]", _RPC).replace("[T]", _TOPIC_RPC).replace("[S]", _SIGNED).split():
        match = _LINE.fullmatch(token)
        if match is None:
            raise ValueError(f"header table: cannot read {token!r}")
        name, letter, kind = match["name"], match["letter"], match["kind"]
        default = _default(kind, match["default"])
        fields.append(Field(_snake(name), letter or name, kind, bool(match["required"]), default, name))
    return tuple(fields)


class _Layout:
    """Fields of one code's header, and the struct that the header is decoded into."""

    def __init__(self, name: str, line: str, hot: type[msgspec.Struct] | None) -> None:
        self.fields = _parse(line)
        self.wire_names = {field.attribute: field.wire for field in self.fields}
        self.attributes = {field.wire: field.attribute for field in self.fields}
        self.switches = tuple(field for field in self.fields if field.kind in "be")
        # Hot structs reject unknown fields, so `_read` drops those first.
        self.known = frozenset(self.wire_names.values()) if hot else None
        self.struct = hot or msgspec.defstruct(
            name, [_member(field) for field in self.fields], rename=self.wire_names, kw_only=True, gc=False
        )


def _member(field: Field) -> Any:
    kind = _TYPES[field.kind]
    if field.required:
        return field.attribute, kind
    if field.default is None:
        return field.attribute, kind | None, None
    return field.attribute, kind, field.default


@functools.cache
def _request_layout(code: int) -> _Layout:
    return _Layout(f"Request{code}", REQUESTS.get(code, ""), _HOT_REQUESTS.get(code))


@functools.cache
def _reply_layout(code: int) -> _Layout:
    return _Layout(f"Reply{code}", REPLIES.get(code, ""), _HOT_REPLIES.get(code))


def request_fields(code: int) -> tuple[Field, ...]:
    """Return the header fields of a request code; empty when it has none."""
    return _request_layout(code).fields


def reply_fields(request_code: int) -> tuple[Field, ...]:
    """Return the header fields of the reply to a request code; empty when it has none."""
    return _reply_layout(request_code).fields


def text_fields(command: Command) -> dict[str, str]:
    """Return all header fields as text by wire name, for commands of all decoders."""
    if command.header is not None and not command.fields:
        return header_fields(command.header)
    return command.fields


class HotFields(Mapping[str, str]):
    """The fields of a hot request's header as text by wire name; each is converted when it is read.

    Args:
        code: the request code, one of `HOT_CODES`.
        header: the decoded header.
    """

    __slots__ = ("_attributes", "_header")

    def __init__(self, code: int, header: Any) -> None:
        self._attributes = _request_layout(code).attributes
        self._header = header

    def get(self, name: str, default: Any = None) -> Any:
        """Return the text of a field."""
        value = getattr(self._header, self._attributes.get(name, ""), None)
        if value is None:
            return default
        return value if value.__class__ is str else _text_of(value)

    def __getitem__(self, name: str) -> str:
        value = self.get(name)
        if value is None:
            raise KeyError(name)
        return str(value)

    def __iter__(self) -> Iterator[str]:
        return iter(header_fields(self._header))

    def __len__(self) -> int:
        return len(header_fields(self._header))


def _text_of(value: object) -> str:
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


def read_header(command: Command) -> Any:
    """Return the header of a request with typed attributes; the module's docstring describes their names.

    Raises:
        HeaderFieldError: a required field is missing, or a field does not have its type.
    """
    if command.header is not None:
        return command.header
    return _read(_request_layout(command.code), command.fields, request_name(command.code))


def read_reply(request_code: int, command: Command) -> Any:
    """Return the header of the reply to a request of this code; see `read_header`.

    Raises:
        HeaderFieldError: a required field is missing, or a field does not have its type.
    """
    layout = _reply_layout(request_code)
    # The decoder guesses the kind of a hot reply from its first field. Only here is the request code known.
    if command.header.__class__ is layout.struct:
        return command.header
    return _read(layout, text_fields(command), f"reply to {request_name(request_code)}")


def write_header(code: int, **values: Any) -> dict[str, str]:
    """Return the header fields of a request by wire name, as text; omit None values.

    Raises:
        TypeError: the code has no field of that name.
    """
    return _write(_request_layout(code), values, request_name(code))


def write_reply(request_code: int, **values: Any) -> dict[str, str]:
    """Return the header fields of the reply to a request; see `write_header`.

    Raises:
        TypeError: the reply has no field of that name.
    """
    return _write(_reply_layout(request_code), values, f"reply to {request_name(request_code)}")


def _write(layout: _Layout, values: dict[str, Any], what: str) -> dict[str, str]:
    fields = {}
    names = layout.wire_names
    for attribute, value in values.items():
        if attribute not in names:
            raise TypeError(f"{what} has no header field {attribute!r}; it has {', '.join(names) or 'none'}")
        if value is None:
            continue
        if value.__class__ is str:
            fields[names[attribute]] = value
        elif value is True or value is False:
            fields[names[attribute]] = "true" if value else "false"
        else:
            fields[names[attribute]] = str(value)
    return fields


def _read(layout: _Layout, fields: dict[str, str], what: str) -> Any:
    if layout.known is not None:
        fields = {name: text for name, text in fields.items() if name in layout.known}
    for field in layout.switches:
        text = fields.get(field.wire)
        if text is not None:
            fields = {**fields, field.wire: _switch(field.kind, text)}
    try:
        return msgspec.convert(fields, layout.struct, strict=False)
    except msgspec.ValidationError:
        return _read_carefully(layout, fields, what)


def _switch(kind: str, text: str) -> str:
    # As in Java: any other text than the one word has the other value (wire.md §1.4).
    if kind == "b":
        return "true" if text.lower() == "true" else "false"
    return "UPPER" if text.upper() == "UPPER" else "LOWER"


_WHOLE = re.compile(r"[+-]?[0-9]{1,19}")


def _read_carefully(layout: _Layout, fields: dict[str, str], what: str) -> Any:
    """Convert fields that Java accepts and the fast conversion does not. Raise an error that names a wrong field."""
    values: dict[str, str | int] = {}
    for field in layout.fields:
        text = fields.get(field.wire)
        # An empty number counts as absent, as Java leaves such a field at null.
        if text is None or (text == "" and field.kind in "il" and not field.required):
            if field.required:
                raise HeaderFieldError(f"{what}: header field {_shown(field)} is missing")
            continue
        value = int(text) if field.kind in "il" and _WHOLE.fullmatch(text) else text
        try:
            msgspec.convert(value, _TYPES[field.kind], strict=False)
        except msgspec.ValidationError:
            raise HeaderFieldError(
                f"{what}: header field {_shown(field)} is {text[:80]!r}; expected {_WANTED[field.kind]}"
            ) from None
        values[field.wire] = value
    return msgspec.convert(values, layout.struct, strict=False)


def _shown(field: Field) -> str:
    return field.wire if field.wire == field.name else f"{field.wire} ({field.name})"
