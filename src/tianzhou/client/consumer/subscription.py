"""Subscriptions: expressions, tag checks, and the first offset of a new group (client.md §9.2, §12.3, §16.3). Pure."""

from __future__ import annotations

import enum
from collections.abc import Collection

from tianzhou.errors import ClientError, FilterSyntaxError
from tianzhou.filter import check_whole
from tianzhou.model import ConsumeFromWhere, SubscriptionData, names
from tianzhou.wire.hashing import java_hash

ALL = "*"
TAG = "TAG"
SQL92 = "SQL92"


def tag_subscription(topic: str, expression: str | None, version_ms: int) -> SubscriptionData:
    """Return a subscription by tags.

    Args:
        topic: the topic.
        expression: tags joined by `||`; `*`, empty or None for all messages.
        version_ms: creation time of the subscription; a later one replaces an earlier one.

    Raises:
        ClientError: the expression has no tag.
    """
    if expression is None or expression.strip() in {"", ALL}:
        return SubscriptionData(topic, ALL, sub_version=version_ms)
    tags = [tag for part in expression.split("||") if (tag := part.strip())]
    if not tags:
        raise ClientError(
            f"tag expression {expression!r} of topic {topic} names no tag; write 'A || B', or '*' for all messages"
        )
    return SubscriptionData(topic, expression, set(tags), {java_hash(tag) for tag in tags}, TAG, sub_version=version_ms)


def sql_subscription(topic: str, expression: str, version_ms: int) -> SubscriptionData:
    """Return a subscription by an SQL92 expression over properties; the broker needs `enablePropertyFilter=true`.

    The client compiles the expression, too, because not every broker reports errors. RocketMQ's broker treats a pull
    with a wrong expression as a pull of all messages.

    Raises:
        ClientError: the expression is blank or wrong; the error names the position.
    """
    if not expression.strip():
        raise ClientError(f"the SQL expression of topic {topic} is blank; leave it out to get all messages")
    try:
        check_whole(expression)
    except FilterSyntaxError as error:
        raise ClientError(f"the SQL expression {expression!r} of topic {topic} is wrong: {error}") from None
    return SubscriptionData(topic, expression, expression_type=SQL92, sub_version=version_ms)


def build_subscription(
    topic: str, tags: str | None = ALL, sql: str | None = None, *, version_ms: int = 0
) -> SubscriptionData:
    """Return a subscription by tags, or by `sql` when that is given.

    Raises:
        ClientError: both are given, or the expression is empty of meaning.
    """
    if sql is None:
        return tag_subscription(topic, tags, version_ms)
    if tags not in {None, "", ALL}:
        raise ClientError(f"topic {topic} is subscribed by tags {tags!r} and by SQL; use TAGS in the SQL instead")
    return sql_subscription(topic, sql, version_ms)


def tag_wanted(wanted: Collection[str], tag: str | None) -> bool:
    """Whether a message's tag is wanted. The broker compares only hashes, which can collide."""
    return not wanted or tag in wanted


class Begin(enum.Enum):
    """The request that returns a queue's first offset."""

    MAX_OFFSET = enum.auto()
    AT_TIMESTAMP = enum.auto()


def first_offset(where: ConsumeFromWhere, stored: int | None, topic: str) -> int | Begin:
    """Return the offset at which a group begins on a queue, or the request that returns it (client.md §16.3).

    Args:
        where: the group's position for queues without an offset.
        stored: its stored offset; None without one.
        topic: the queue's topic. Retry topics are read from their beginning, or at CONSUME_FROM_TIMESTAMP from the end.
    """
    if stored is not None:
        return stored
    retry = topic.startswith(names.RETRY_PREFIX)
    match where:
        case ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET:
            return 0
        case ConsumeFromWhere.CONSUME_FROM_TIMESTAMP:
            return Begin.MAX_OFFSET if retry else Begin.AT_TIMESTAMP
        case ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET:
            return 0 if retry else Begin.MAX_OFFSET


def original_topic(topic: str, properties: dict[str, str], group: str) -> str:
    """Return the topic that a delivered message was sent to; the original topic of a retried one (client.md §13.2)."""
    if topic == names.retry_topic(group):
        return properties.get(names.RETRY_TOPIC, topic)
    return topic
