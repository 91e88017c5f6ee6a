"""Reserved names: property keys, topics, groups and their prefixes (wire.md §4.10, §12)."""

from __future__ import annotations

import re

KEYS = "KEYS"
TAGS = "TAGS"
WAIT = "WAIT"
DELAY = "DELAY"
UNIQ_KEY = "UNIQ_KEY"
RETRY_TOPIC = "RETRY_TOPIC"
REAL_TOPIC = "REAL_TOPIC"
REAL_QID = "REAL_QID"
TRAN_MSG = "TRAN_MSG"
PGROUP = "PGROUP"
MIN_OFFSET = "MIN_OFFSET"
MAX_OFFSET = "MAX_OFFSET"
ORIGIN_MESSAGE_ID = "ORIGIN_MESSAGE_ID"
RECONSUME_TIME = "RECONSUME_TIME"
MAX_RECONSUME_TIMES = "MAX_RECONSUME_TIMES"
CONSUME_START_TIME = "CONSUME_START_TIME"
MSG_REGION = "MSG_REGION"
TRACE_ON = "TRACE_ON"
CLUSTER = "CLUSTER"
INSTANCE_ID = "INSTANCE_ID"
TRANSACTION_ID = "__transactionId__"
CORRELATION_ID = "CORRELATION_ID"
REPLY_TO_CLIENT = "REPLY_TO_CLIENT"
TTL = "TTL"
MSG_TYPE = "MSG_TYPE"
START_DELIVER_TIME = "__STARTDELIVERTIME"
REPLY_TYPE = "reply"
"""The MSG_TYPE of replies (wire.md §4.8)."""
ARRIVE_TIME = "ARRIVE_TIME"
PUSH_REPLY_TIME = "PUSH_REPLY_TIME"
POP_CK = "POP_CK"
INNER_NUM = "INNER_NUM"
INNER_BASE = "INNER_BASE"
INNER_MULTI_DISPATCH = "INNER_MULTI_DISPATCH"
INNER_MULTI_QUEUE_OFFSET = "INNER_MULTI_QUEUE_OFFSET"
SHARDING_KEY = "__SHARDINGKEY"
DLQ_ORIGIN_TOPIC = "DLQ_ORIGIN_TOPIC"
DLQ_ORIGIN_MESSAGE_ID = "DLQ_ORIGIN_MESSAGE_ID"
CRC32 = "__CRC32#"

CONTENT_TYPE = "content_type"
"""Media type of a body that was sent as a value: a user property, and a name that SQL92 filters can use."""

RETRY_PREFIX = "%RETRY%"
DLQ_PREFIX = "%DLQ%"
LMQ_PREFIX = "%LMQ%"
SYSTEM_PREFIX = "rmq_sys_"
AUTO_CREATE_TOPIC = "TBW102"
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_HALF_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
CHECK_MAX_TIME_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
"""Topic of undecided half messages that reached the maximum number of transaction checks."""
ORDER_TOPIC_CONFIG = "ORDER_TOPIC_CONFIG"
STAGED_TOPIC = "rmq_sys_STAGED_TOPIC"
"""Topic of staged messages without a decision. Apache's broker treats every `rmq_sys_` topic as a system topic."""
STAGED_OP_TOPIC = "rmq_sys_STAGED_OP_TOPIC"
"""Topic of the decisions about staged messages."""
UNDELIVERABLE_TOPIC = "rmq_sys_UNDELIVERABLE"
"""Messages that a broker has set aside because it cannot deliver them (docs/adr/0029)."""
STAGING_NAMESPACE = "TIANZHOU_STAGING"
"""Namespace of KV entries: the brokers that decide staged batches, and the group that may put such entries."""

SPECIAL = frozenset({MSG_TYPE, TRAN_MSG, START_DELIVER_TIME})
"""Properties that change how a producer sends a message."""

REPLY_TOPIC_SUFFIX = "_REPLY_TOPIC"

MASTER_ID = 0
NAME_PATTERN = re.compile(r"[%|a-zA-Z0-9_-]+")


def retry_topic(group: str) -> str:
    """Return the topic that holds a group's messages to retry."""
    return RETRY_PREFIX + group


def dead_letter_topic(group: str) -> str:
    """Return the topic that holds a group's messages after their last retry failed."""
    return DLQ_PREFIX + group


def reply_topic(cluster: str) -> str:
    """Return the topic for replies to requests through a cluster."""
    return cluster + REPLY_TOPIC_SUFFIX


# wire.md §4.10: keys of the system; user code may not set them through the client.
RESERVED = frozenset(
    {
        "KEYS", "TAGS", "WAIT", "DELAY", "RETRY_TOPIC", "REAL_TOPIC", "REAL_QID", "TRAN_MSG", "PGROUP", "MIN_OFFSET",
        "MAX_OFFSET", "BUYER_ID", "ORIGIN_MESSAGE_ID", "TRANSFER_FLAG", "CORRECTION_FLAG", "MQ2_FLAG",
        "RECONSUME_TIME", "MSG_REGION", "TRACE_ON", "UNIQ_KEY", "EXTEND_UNIQ_INFO", "MAX_RECONSUME_TIMES",
        "CONSUME_START_TIME", "TRAN_PREPARED_QUEUE_OFFSET", "TRANSACTION_CHECK_TIMES",
        "CHECK_IMMUNITY_TIME_IN_SECONDS", "INSTANCE_ID", "CORRELATION_ID", "REPLY_TO_CLIENT", "TTL", "ARRIVE_TIME",
        "PUSH_REPLY_TIME", "CLUSTER", "MSG_TYPE", "POP_CK", "POP_CK_OFFSET", "1ST_POP_TIME", "__SHARDINGKEY",
        "PROPERTY_FORWARD_QUEUE_ID", "REDIRECT", "INNER_MULTI_DISPATCH", "INNER_MULTI_QUEUE_OFFSET", "TRACE_CONTEXT",
        "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS", "TIMER_OUT_MS", "TIMER_ENQUEUE_MS",
        "TIMER_DEQUEUE_MS", "TIMER_ROLL_TIMES", "TIMER_DEL_UNIQKEY", "INNER_NUM", "INNER_BASE", "DUP_INFO",
        "DLQ_ORIGIN_TOPIC", "DLQ_ORIGIN_MESSAGE_ID", "__CRC32#", "__transactionId__", "__STARTDELIVERTIME",
        "__BORNHOST", "BORN_TIMESTAMP", "__RMQ.TRANSIENT.TOPIC_SYS_FLAG", "__RMQ.TRANSIENT.GROUP_SYS_FLAG",
    }
)  # fmt: skip
