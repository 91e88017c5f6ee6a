"""Admission of sends: checks of topic and queue, in Apache's order (broker.md §7.1)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tianzhou.broker.delays.delay import NO_TIMERS, wanted_level
from tianzhou.broker.replication.replication import Replication
from tianzhou.broker.settings import BrokerSettings
from tianzhou.broker.state import Tables
from tianzhou.broker.tables.groups import GroupTable
from tianzhou.broker.tables.topics import NOT_SENDABLE
from tianzhou.errors import BrokerError
from tianzhou.model import SubscriptionGroupConfig, TopicConfig, names
from tianzhou.model.name_rules import LONGEST_GROUP, topic_name_problem
from tianzhou.wire.codes import ResponseCode

_OWN = (names.STAGED_TOPIC, names.STAGED_OP_TOPIC, names.UNDELIVERABLE_TOPIC)
"""Topics that only the broker itself writes to."""
TIMERS = ("TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS")
"""Properties of RocketMQ 5's timer messages, which this broker does not support."""
UNIT_TOPIC = 0x1
UNIT_SUBSCRIPTION = 0x2
"""Bits of a topic's flag (store.md §15.2)."""


def added_properties(settings: BrokerSettings) -> dict[str, str]:
    """Return the properties that the broker adds to messages (broker.md §7.1)."""
    return {names.CLUSTER: settings.broker_cluster_name, **reply_marks(settings)}


def reply_marks(settings: BrokerSettings) -> dict[str, str]:
    """Return the fields of every reply to a send."""
    return {names.MSG_REGION: settings.region_id, names.TRACE_ON: "true" if settings.trace_on else "false"}


def multi_tag_flag(config: TopicConfig) -> int:
    """Return the system flag bit of messages with several tags; 0 when the topic's messages have one."""
    return 0x2 if config.topic_filter_type == "MULTI_TAG" else 0


def topic_sys_flag(unit_mode: bool, is_retry: bool) -> int:
    """Return the system flag of a topic that a send or heartbeat creates."""
    if not unit_mode:
        return 0
    return UNIT_SUBSCRIPTION if is_retry else UNIT_TOPIC


def needs_key(config: TopicConfig) -> bool:
    """Whether messages of a topic need a key, because of `cleanup.policy=COMPACTION`."""
    return config.attributes.get("cleanup.policy") == "COMPACTION"


def check_key(topic: str, properties: Mapping[str, str]) -> None:
    """Refuse a message without key for a topic that needs one.

    Args:
        topic: the topic.
        properties: properties of the message.

    Raises:
        BrokerError: MESSAGE_ILLEGAL.
    """
    if not properties.get(names.KEYS, "").strip():
        raise BrokerError(
            ResponseCode.MESSAGE_ILLEGAL,
            f"Required message key is missing: topic {topic} keeps the last message of each key"
            " (cleanup.policy=COMPACTION); set KEYS",
        )


def delay_level(properties: Mapping[str, str]) -> int:
    """Return the delay level that a message requests, 0 or below for none.

    Raises:
        BrokerError: the level is no number, or the message asks for a timer.
    """
    try:
        level = wanted_level(properties)
    except ValueError:
        raise BrokerError(
            ResponseCode.SYSTEM_ERROR, f"property DELAY={properties[names.DELAY]!r}: expected a delay level"
        ) from None
    timer = next((name for name in TIMERS if name in properties), None)
    if level <= 0 and timer is not None:
        raise BrokerError(ResponseCode.SYSTEM_ERROR, f"{timer}: {NO_TIMERS}")
    return level


def retry_group(groups: GroupTable, name: str, now_ms: int) -> SubscriptionGroupConfig:
    """Return the configuration of the group whose message is to be retried; create the group if allowed.

    Raises:
        BrokerError: SUBSCRIPTION_GROUP_NOT_EXIST.
        LimitExceeded: there are too many groups.
    """
    group = groups.find(name, now_ms)
    if group is None:
        raise BrokerError(
            ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
            f"subscription group not exist, {name} (autoCreateSubscriptionGroup is off)",
        )
    return group


def refuse_as_slave(replication: Replication, what: str) -> None:
    """Refuse a request at a slave that only a master serves.

    Args:
        replication: the broker's role.
        what: the master's action, for the error text.

    Raises:
        BrokerError: SLAVE_NOT_AVAILABLE.
    """
    if replication.is_slave:
        raise BrokerError(ResponseCode.SLAVE_NOT_AVAILABLE, f"this broker is a slave: {what} at its master")


class Admission:
    """Checks of topic and queue of sends, and creation of topics.

    Args:
        tables: the broker's state.
    """

    def __init__(self, tables: Tables) -> None:
        self._settings = tables.settings
        self._topics = tables.topics

    def topic_for(self, header: Any, now_ms: int) -> TopicConfig:
        """Return the topic of a send request; create it if allowed.

        Args:
            header: the request's header, see `tianzhou.wire.fields`.
            now_ms: wall-clock time.

        Raises:
            BrokerError: the send is not allowed; with Apache's response code.
        """
        settings = self._settings
        topic: str = header.topic
        config = self._topics.get(topic)
        if now_ms < settings.start_accept_send_request_time_stamp:
            raise BrokerError(
                ResponseCode.SYSTEM_ERROR,
                f"broker unable to service, until {settings.start_accept_send_request_time_stamp} "
                "(startAcceptSendRequestTimeStamp)",
            )
        if not settings.writable and config is not None and config.order:
            raise BrokerError(
                ResponseCode.NO_PERMISSION,
                f"the broker[{settings.broker_ip1}] sending message is forbidden",
            )
        problem = topic_name_problem(topic)
        if problem is not None and not self._is_long_retry_topic(topic):
            raise BrokerError(ResponseCode.INVALID_PARAMETER, problem)
        if topic in NOT_SENDABLE or topic in _OWN:
            raise BrokerError(ResponseCode.NO_PERMISSION, f"Sending message to topic[{topic}] is forbidden.")
        if config is None:
            config = self._topics.create_by_send(
                topic,
                header.default_topic,
                header.default_topic_queue_nums,
                now_ms,
                auto_create=settings.auto_create_topic_enable,
                sys_flag=topic_sys_flag(header.unit_mode, topic.startswith(names.RETRY_PREFIX)),
            )
        if config is None:
            raise BrokerError(
                ResponseCode.TOPIC_NOT_EXIST,
                f"topic[{topic}] not exist, apply first please!"
                " (autoCreateTopicEnable decides whether sending creates topics)",
            )
        return config

    def check_queue(self, config: TopicConfig, queue_id: int, remote: str) -> None:
        """Refuse a queue that the topic does not have; a negative id means any queue.

        Raises:
            BrokerError: INVALID_PARAMETER.
        """
        limit = max(config.write_queue_nums, config.read_queue_nums)
        if queue_id >= limit:
            raise BrokerError(
                ResponseCode.INVALID_PARAMETER,
                f"request queueId[{queue_id}] is illegal, topic[{config.topic_name}] has {config.read_queue_nums} "
                f"read and {config.write_queue_nums} write queues, producer: {remote}",
            )

    @staticmethod
    def _is_long_retry_topic(topic: str) -> bool:
        # A group's name may have 255 characters, and the store allows the same length for its retry topic.
        return (
            topic.startswith(names.RETRY_PREFIX)
            and len(topic) <= LONGEST_GROUP
            and names.NAME_PATTERN.fullmatch(topic) is not None
        )
