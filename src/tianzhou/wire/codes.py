"""Codes and their names: requests, responses, languages, flags, versions (wire.md §1.5 to §1.7, §2, §3).

The enums validate nothing: a code that a peer invents is simply not a member.
"""

from __future__ import annotations

import enum
from typing import Final

from tianzhou._hot.headers import FLAG_ONEWAY as FLAG_ONEWAY
from tianzhou._hot.headers import FLAG_RESPONSE as FLAG_RESPONSE
from tianzhou._hot.headers import LANGUAGES
from tianzhou._hot.headers import VERSION as VERSION

COMMIT_OFFSET = 0x1
SUSPEND = 0x2
SUBSCRIPTION = 0x4
"""Bits of a pull's sysFlag (wire.md §6.1)."""

JSON = 0
"""Serialize type byte of a JSON header (wire.md §1.2)."""
ROCKETMQ = 1
"""Serialize type byte of a binary header (wire.md §1.3)."""

MAX_FRAME = 16_777_216
"""Maximum size of a frame in bytes, including its four length bytes (wire.md §1.8)."""
MAX_HEADER = 0xFFFFFF
"""Maximum size of a header in bytes: the length field has 24 bits (wire.md §1.1)."""

# Version ordinals (wire.md §1.6): two per release, 20 per minor release from 4.0.0 on.
V4_0_0 = 213
V3_0_7_SNAPSHOT = 28
V3_0_11 = 37
V3_1_8_SNAPSHOT = 62
V3_4_9 = 121
V4_9_3 = 399
V4_9_4 = 401
V5_0_0 = 413
AT_NEXT_START = "atNextStart"
"""Tianzhou's own field of `UPDATE_BROKER_CONFIG`: with `true`, the settings take effect at the next start."""
HIGHER_VERSION = 612
"""The highest ordinal; larger values are treated as this one."""

RESET_CLIENT_OFFSET_SINCE = V3_0_7_SNAPSHOT
"""First client version that understands the requests 220 and 221."""
RUNNING_INFO_SINCE = V3_1_8_SNAPSHOT
"""First client version that understands the requests 307 and 309."""
UNSIGNED_UNIQUE_KEY_QUERY_UNTIL = V4_9_3
"""Last caller version whose signatures do not cover `_UNIQUE_KEY_QUERY`."""
STANDARD_JSON_SINCE = V4_9_4
"""First caller version that gets route replies as standard JSON."""


def version_name(version: int) -> str:
    """Return the release of a version ordinal, as brokers show it: `V5_3_3` for 479 (wire.md §1.6)."""
    if version >= HIGHER_VERSION:
        return "HIGHER_VERSION"
    if version < V4_0_0 - 1:
        return _OLD_RELEASES.get(version, f"V3_{version}")
    # The snapshot of a release comes directly before it, so odd distances belong to the next release.
    steps, snapshot = divmod(version - V4_0_0 + 1, 2)
    minor, patch = divmod(steps, 10)
    name = f"V{4 + minor // 10}_{minor % 10}_{patch}"
    return name if snapshot else name + "_SNAPSHOT"


_OLD_RELEASES = {
    0: "V3_0_0_SNAPSHOT",
    V3_0_7_SNAPSHOT: "V3_0_7_SNAPSHOT",
    V3_0_11: "V3_0_11",
    V3_1_8_SNAPSHOT: "V3_1_8_SNAPSHOT",
    V3_4_9: "V3_4_9",
}


class LanguageCode(enum.IntEnum):
    """The language that a peer reports (wire.md §1.7)."""

    JAVA = 0
    CPP = 1
    DOTNET = 2
    PYTHON = 3
    DELPHI = 4
    ERLANG = 5
    RUBY = 6
    OTHER = 7
    HTTP = 8
    GO = 9
    PHP = 10
    OMS = 11
    RUST = 12
    NODE_JS = 13


class ResponseCode(enum.IntEnum):
    """Code of a response (wire.md §2)."""

    SUCCESS = 0
    SYSTEM_ERROR = 1
    SYSTEM_BUSY = 2
    REQUEST_CODE_NOT_SUPPORTED = 3
    TRANSACTION_FAILED = 4
    FLUSH_DISK_TIMEOUT = 10
    SLAVE_NOT_AVAILABLE = 11
    FLUSH_SLAVE_TIMEOUT = 12
    MESSAGE_ILLEGAL = 13
    SERVICE_NOT_AVAILABLE = 14
    VERSION_NOT_SUPPORTED = 15
    NO_PERMISSION = 16
    TOPIC_NOT_EXIST = 17
    TOPIC_EXIST_ALREADY = 18
    PULL_NOT_FOUND = 19
    PULL_RETRY_IMMEDIATELY = 20
    PULL_OFFSET_MOVED = 21
    QUERY_NOT_FOUND = 22
    SUBSCRIPTION_PARSE_FAILED = 23
    SUBSCRIPTION_NOT_EXIST = 24
    SUBSCRIPTION_NOT_LATEST = 25
    SUBSCRIPTION_GROUP_NOT_EXIST = 26
    FILTER_DATA_NOT_EXIST = 27
    FILTER_DATA_NOT_LATEST = 28
    INVALID_PARAMETER = 29
    TRANSACTION_SHOULD_COMMIT = 200
    TRANSACTION_SHOULD_ROLLBACK = 201
    TRANSACTION_STATE_UNKNOW = 202
    TRANSACTION_STATE_GROUP_WRONG = 203
    NO_BUYER_ID = 204
    NOT_IN_CURRENT_UNIT = 205
    CONSUMER_NOT_ONLINE = 206
    CONSUME_MSG_TIMEOUT = 207
    NO_MESSAGE = 208
    POLLING_FULL = 209
    POLLING_TIMEOUT = 210
    BROKER_NOT_EXIST = 211
    BROKER_DISPATCH_NOT_COMPLETE = 212
    BROADCAST_CONSUMPTION = 213
    FLOW_CONTROL = 215
    NOT_LEADER_FOR_QUEUE = 501
    ILLEGAL_OPERATION = 604
    GO_AWAY = 1500
    RPC_UNKNOWN = -1000
    RPC_ADDR_IS_NULL = -1002
    RPC_SEND_TO_CHANNEL_FAILED = -1004
    RPC_TIME_OUT = -1006
    CONTROLLER_FENCED_MASTER_EPOCH = 2000
    CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH = 2001
    CONTROLLER_INVALID_MASTER = 2002
    CONTROLLER_INVALID_REPLICAS = 2003
    CONTROLLER_MASTER_NOT_AVAILABLE = 2004
    CONTROLLER_INVALID_REQUEST = 2005
    CONTROLLER_BROKER_NOT_ALIVE = 2006
    CONTROLLER_NOT_LEADER = 2007
    CONTROLLER_BROKER_METADATA_NOT_EXIST = 2008
    CONTROLLER_INVALID_CLEAN_BROKER_METADATA = 2009
    CONTROLLER_BROKER_NEED_TO_BE_REGISTERED = 2010
    CONTROLLER_MASTER_STILL_EXIST = 2011
    CONTROLLER_ELECT_MASTER_FAILED = 2012
    CONTROLLER_ALTER_SYNC_STATE_SET_FAILED = 2013
    CONTROLLER_BROKER_ID_INVALID = 2014
    CONTROLLER_JRAFT_INTERNAL_ERROR = 2015
    CONTROLLER_BROKER_LIVE_INFO_NOT_EXISTS = 2016
    USER_NOT_EXIST = 3001
    POLICY_NOT_EXIST = 3002


class RequestCode(enum.IntEnum):
    """Code of a request (wire.md §3). RocketMQ declares those of §3.7, but no server serves them."""

    # Data path, §3.1
    SEND_MESSAGE = 10
    PULL_MESSAGE = 11
    CONSUMER_SEND_MSG_BACK = 36
    END_TRANSACTION = 37
    CHECK_TRANSACTION_STATE = 39
    SEND_MESSAGE_V2 = 310
    SEND_BATCH_MESSAGE = 320
    SEND_REPLY_MESSAGE = 324
    SEND_REPLY_MESSAGE_V2 = 325
    PUSH_REPLY_MESSAGE_TO_CLIENT = 326
    LITE_PULL_MESSAGE = 361
    RECALL_MESSAGE = 370
    QUERY_ASSIGNMENT = 400
    SET_MESSAGE_REQUEST_MODE = 401
    GET_ALL_MESSAGE_REQUEST_MODE = 402
    POP_MESSAGE = 200050
    ACK_MESSAGE = 200051
    PEEK_MESSAGE = 200052
    CHANGE_MESSAGE_INVISIBLETIME = 200053
    NOTIFICATION = 200054
    POLLING_INFO = 200055
    POP_ROLLBACK = 200056
    BATCH_ACK_MESSAGE = 200151

    # Client management, §3.2
    QUERY_MESSAGE = 12
    QUERY_CONSUMER_OFFSET = 14
    UPDATE_CONSUMER_OFFSET = 15
    SEARCH_OFFSET_BY_TIMESTAMP = 29
    GET_MAX_OFFSET = 30
    GET_MIN_OFFSET = 31
    GET_EARLIEST_MSG_STORETIME = 32
    VIEW_MESSAGE_BY_ID = 33
    HEART_BEAT = 34
    UNREGISTER_CLIENT = 35
    GET_CONSUMER_LIST_BY_GROUP = 38
    NOTIFY_CONSUMER_IDS_CHANGED = 40
    LOCK_BATCH_MQ = 41
    UNLOCK_BATCH_MQ = 42
    CHECK_CLIENT_CONFIG = 46
    RESET_CONSUMER_CLIENT_OFFSET = 220
    GET_CONSUMER_STATUS_FROM_CLIENT = 221
    GET_CONSUMER_RUNNING_INFO = 307
    CONSUME_MESSAGE_DIRECTLY = 309

    # Topics, groups, statistics, §3.3
    UPDATE_AND_CREATE_TOPIC = 17
    UPDATE_AND_CREATE_TOPIC_LIST = 18
    GET_ALL_TOPIC_CONFIG = 21
    UPDATE_AND_CREATE_SUBSCRIPTIONGROUP = 200
    GET_ALL_SUBSCRIPTIONGROUP_CONFIG = 201
    GET_TOPIC_STATS_INFO = 202
    GET_CONSUMER_CONNECTION_LIST = 203
    GET_PRODUCER_CONNECTION_LIST = 204
    DELETE_SUBSCRIPTIONGROUP = 207
    GET_CONSUME_STATS = 208
    DELETE_TOPIC_IN_BROKER = 215
    INVOKE_BROKER_TO_RESET_OFFSET = 222
    INVOKE_BROKER_TO_GET_CONSUMER_STATUS = 223
    UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST = 225
    QUERY_TOPIC_CONSUME_BY_WHO = 300
    QUERY_CONSUME_TIME_SPAN = 303
    GET_SYSTEM_TOPIC_LIST_FROM_BROKER = 305
    CLEAN_EXPIRED_CONSUMEQUEUE = 306
    QUERY_CORRECTION_OFFSET = 308
    CLONE_GROUP_OFFSET = 314
    VIEW_BROKER_STATS_DATA = 315
    CLEAN_UNUSED_TOPIC = 316
    GET_BROKER_CONSUME_STATS = 317
    QUERY_CONSUME_QUEUE = 321
    RESUME_CHECK_HALF_MESSAGE = 323
    GET_ALL_PRODUCER_INFO = 328
    DELETE_EXPIRED_COMMITLOG = 329
    QUERY_TOPICS_BY_CONSUMER = 343
    QUERY_SUBSCRIPTION_BY_CONSUMER = 345
    GET_TOPIC_CONFIG = 351
    GET_SUBSCRIPTIONGROUP_CONFIG = 352
    UPDATE_AND_GET_GROUP_FORBIDDEN = 353
    CHECK_ROCKSDB_CQ_WRITE_PROGRESS = 354
    EXPORT_ROCKSDB_CONFIG_TO_JSON = 355
    UPDATE_AND_CREATE_STATIC_TOPIC = 513

    # Configuration, runtime, replication, §3.4
    UPDATE_BROKER_CONFIG = 25
    GET_BROKER_CONFIG = 26
    GET_BROKER_RUNTIME_INFO = 28
    GET_ALL_CONSUMER_OFFSET = 43
    GET_ALL_DELAY_OFFSET = 45
    UPDATE_AND_CREATE_ACL_CONFIG = 50
    DELETE_ACL_CONFIG = 51
    GET_BROKER_CLUSTER_ACL_INFO = 52
    UPDATE_GLOBAL_WHITE_ADDRS_CONFIG = 53
    GET_BROKER_CLUSTER_ACL_CONFIG = 54
    GET_TIMER_CHECK_POINT = 60
    GET_TIMER_METRICS = 61
    GET_BROKER_MEMBER_GROUP = 901
    ADD_BROKER = 902
    REMOVE_BROKER = 903
    BROKER_HEARTBEAT = 904
    NOTIFY_MIN_BROKER_ID_CHANGE = 905
    EXCHANGE_BROKER_HA_INFO = 906
    GET_BROKER_HA_STATUS = 907
    RESET_MASTER_FLUSH_OFFSET = 908
    GET_BROKER_EPOCH_CACHE = 1007
    NOTIFY_BROKER_ROLE_CHANGED = 1008
    UPDATE_COLD_DATA_FLOW_CTR_CONFIG = 2001
    REMOVE_COLD_DATA_FLOW_CTR_CONFIG = 2002
    GET_COLD_DATA_FLOW_CTR_INFO = 2003
    SET_COMMITLOG_READ_MODE = 2004
    AUTH_CREATE_USER = 3001
    AUTH_UPDATE_USER = 3002
    AUTH_DELETE_USER = 3003
    AUTH_GET_USER = 3004
    AUTH_LIST_USER = 3005
    AUTH_CREATE_ACL = 3006
    AUTH_UPDATE_ACL = 3007
    AUTH_DELETE_ACL = 3008
    AUTH_GET_ACL = 3009
    AUTH_LIST_ACL = 3010

    # Name server, §3.5
    PUT_KV_CONFIG = 100
    GET_KV_CONFIG = 101
    DELETE_KV_CONFIG = 102
    REGISTER_BROKER = 103
    UNREGISTER_BROKER = 104
    GET_ROUTEINFO_BY_TOPIC = 105
    GET_BROKER_CLUSTER_INFO = 106
    WIPE_WRITE_PERM_OF_BROKER = 205
    GET_ALL_TOPIC_LIST_FROM_NAMESERVER = 206
    DELETE_TOPIC_IN_NAMESRV = 216
    REGISTER_TOPIC_IN_NAMESRV = 217
    GET_KVLIST_BY_NAMESPACE = 219
    GET_TOPICS_BY_CLUSTER = 224
    GET_SYSTEM_TOPIC_LIST_FROM_NS = 304
    GET_UNIT_TOPIC_LIST = 311
    GET_HAS_UNIT_SUB_TOPIC_LIST = 312
    GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST = 313
    UPDATE_NAMESRV_CONFIG = 318
    GET_NAMESRV_CONFIG = 319
    QUERY_DATA_VERSION = 322
    ADD_WRITE_PERM_OF_BROKER = 327

    # Controller, §3.6; prefixed where another code has the same name, or where the name would be too general
    CONTROLLER_ALTER_SYNC_STATE_SET = 1001
    CONTROLLER_ELECT_MASTER = 1002
    CONTROLLER_REGISTER_BROKER = 1003
    CONTROLLER_GET_REPLICA_INFO = 1004
    CONTROLLER_GET_METADATA_INFO = 1005
    CONTROLLER_GET_SYNC_STATE_DATA = 1006
    UPDATE_CONTROLLER_CONFIG = 1009
    GET_CONTROLLER_CONFIG = 1010
    CLEAN_BROKER_DATA = 1011
    CONTROLLER_GET_NEXT_BROKER_ID = 1012
    CONTROLLER_APPLY_BROKER_ID = 1013

    # Declared but unserved, §3.7
    QUERY_BROKER_OFFSET = 13
    GET_TOPIC_CONFIG_LIST = 22
    GET_TOPIC_NAME_LIST = 23
    TRIGGER_DELETE_FILES = 27
    GET_CLIENT_CONFIG = 47
    SUSPEND_CONSUMER = 209
    RESUME_CONSUMER = 210
    RESET_CONSUMER_OFFSET_IN_CONSUMER = 211
    RESET_CONSUMER_OFFSET_IN_BROKER = 212
    ADJUST_CONSUMER_THREAD_POOL = 213
    WHO_CONSUME_THE_MESSAGE = 214
    REGISTER_FILTER_SERVER = 301
    REGISTER_MESSAGE_FILTER_CLASS = 302

    # Tianzhou's own (docs/adr/0006): far from RocketMQ's codes, and within the 16 bits of a code in binary headers
    STAGING_STATE = 31001
    STAGE_MESSAGES = 31002
    DECIDE_BATCH = 31003
    PUBLISH_BATCH = 31004
    SETTLE_ATTEMPTS = 31005
    DISCARD_ATTEMPTS = 31006
    READ_LOG = 31010
    """Read bytes of the commit log, between brokers of a group (docs/adr/0016)."""
    READ_USERS = 31020
    """Read users with passwords and policies; a slave sends it to its master (docs/adr/0024)."""
    UPDATE_SEND_LIMITS = 31030
    """Set or delete limits of senders (docs/adr/0031)."""
    READ_SEND_LIMITS = 31031
    """Read limits of senders and the number of rejected sends; slaves send it, too."""


class DLedgerRequestCode(enum.IntEnum):
    """Code of a request between the nodes of a DLedger group (broker.md §19.8); the last two are Tianzhou's own."""

    METADATA = 50000
    APPEND = 50001
    GET = 50002
    VOTE = 51001
    HEART_BEAT = 51002
    PULL = 51003
    PUSH = 51004
    LEADERSHIP_TRANSFER = 51005

    PRE_VOTE = 31101
    STRETCH = 31102


class DLedgerResponseCode(enum.IntEnum):
    """Member `code` of an answer between the nodes of a DLedger group (broker.md §19.8)."""

    SUCCESS = 200
    TIMEOUT = 300
    METADATA_ERROR = 301
    NETWORK_ERROR = 302
    UNSUPPORTED = 303
    UNKNOWN_GROUP = 400
    UNKNOWN_MEMBER = 401
    UNEXPECTED_MEMBER = 402
    EXPIRED_TERM = 403
    NOT_LEADER = 404
    NOT_FOLLOWER = 405
    INCONSISTENT_STATE = 406
    INCONSISTENT_TERM = 407
    INCONSISTENT_INDEX = 408
    INCONSISTENT_LEADER = 409
    INDEX_OUT_OF_RANGE = 410
    UNEXPECTED_ARGUMENT = 411
    REPEATED_REQUEST = 412
    REPEATED_PUSH = 413
    DISK_ERROR = 414
    DISK_FULL = 415
    TERM_NOT_READY = 416
    FALL_BEHIND_TOO_MUCH = 417
    TAKE_LEADERSHIP_FAILED = 418
    INDEX_LESS_THAN_LOCAL_BEGIN = 419
    REQUEST_WITH_EMPTY_BODYS = 420
    PUSH_REQUEST_IS_FULL = 421
    INTERNAL_ERROR = 500
    TERM_CHANGED = 501
    WAIT_QUORUM_ACK_TIMEOUT = 502
    LEADER_PENDING_FULL = 503
    ILLEGAL_MEMBER_STATE = 504
    LEADER_NOT_READY = 505
    LEADER_TRANSFERRING = 506


OF_NAME_SERVERS: Final[frozenset[int]] = frozenset(
    {
        RequestCode.PUT_KV_CONFIG, RequestCode.GET_KV_CONFIG, RequestCode.DELETE_KV_CONFIG,
        RequestCode.REGISTER_BROKER, RequestCode.UNREGISTER_BROKER, RequestCode.GET_ROUTEINFO_BY_TOPIC,
        RequestCode.GET_BROKER_CLUSTER_INFO, RequestCode.WIPE_WRITE_PERM_OF_BROKER,
        RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, RequestCode.DELETE_TOPIC_IN_NAMESRV,
        RequestCode.REGISTER_TOPIC_IN_NAMESRV, RequestCode.GET_KVLIST_BY_NAMESPACE,
        RequestCode.GET_TOPICS_BY_CLUSTER, RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS,
        RequestCode.GET_UNIT_TOPIC_LIST, RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST,
        RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST, RequestCode.UPDATE_NAMESRV_CONFIG,
        RequestCode.GET_NAMESRV_CONFIG, RequestCode.QUERY_DATA_VERSION, RequestCode.ADD_WRITE_PERM_OF_BROKER,
    }
)  # fmt: skip
"""Requests that name servers serve and brokers do not (wire.md §3.5)."""
OF_BOTH: Final[frozenset[int]] = frozenset({RequestCode.GET_BROKER_MEMBER_GROUP, RequestCode.BROKER_HEARTBEAT})
"""Requests that both kinds of server serve."""


def server_of(code: int) -> str:
    """Return the kind of server that serves a request, "name server" or "broker"; empty for both or an unknown code."""
    if code in OF_NAME_SERVERS:
        return "name server"
    return "broker" if code in _REQUEST_NAMES and code not in OF_BOTH else ""


def language_name(code: int) -> str:
    """Return the name of a language code; OTHER for an unknown code."""
    return LANGUAGES[code] if 0 <= code < len(LANGUAGES) else "OTHER"


_REQUEST_NAMES = {int(member): member.name for member in RequestCode}


def request_name(code: int) -> str:
    """Return the name of a request code for people; `request 4711` for an unknown code."""
    return _REQUEST_NAMES.get(code) or f"request {code}"
