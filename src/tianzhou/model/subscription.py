"""Subscriptions and heartbeats of consumers (wire.md §7.1)."""

from __future__ import annotations

import enum
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field


class MessageModel(enum.Enum):
    """Whether the members of a group share the messages, or each member gets all of them."""

    CLUSTERING = "CLUSTERING"
    BROADCASTING = "BROADCASTING"


class ConsumeType(enum.Enum):
    """Way of consumption: active pulls, push (passive), or POP."""

    CONSUME_ACTIVELY = "CONSUME_ACTIVELY"
    CONSUME_PASSIVELY = "CONSUME_PASSIVELY"
    CONSUME_POP = "CONSUME_POP"


class ConsumeFromWhere(enum.Enum):
    """Where a group without committed offsets begins (client.md §16.3)."""

    CONSUME_FROM_LAST_OFFSET = "CONSUME_FROM_LAST_OFFSET"
    CONSUME_FROM_FIRST_OFFSET = "CONSUME_FROM_FIRST_OFFSET"
    CONSUME_FROM_TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


@dataclass(slots=True)
class SubscriptionData:
    """One topic of a group's subscription.

    Attributes:
        topic: the topic.
        sub_string: the expression; `*` selects all messages.
        tags_set: the tags of a tag expression.
        code_set: Java string hashes of those tags (store.md §0.2).
        expression_type: `TAG` or `SQL92`.
        sub_version: creation time of the subscription in ms; a subscription with a greater version replaces a smaller
            one.
    """

    topic: str
    sub_string: str = "*"
    tags_set: AbstractSet[str] = frozenset()
    code_set: AbstractSet[int] = frozenset()
    expression_type: str = "TAG"
    sub_version: int = 0
    class_filter_mode: bool = False


@dataclass(slots=True)
class ConsumerData:
    """A consumer group as a heartbeat reports it."""

    group_name: str
    consume_type: ConsumeType = ConsumeType.CONSUME_PASSIVELY
    message_model: MessageModel = MessageModel.CLUSTERING
    consume_from_where: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    subscription_data_set: list[SubscriptionData] = field(default_factory=list)
    unit_mode: bool = False


@dataclass(slots=True)
class HeartbeatData:
    """A heartbeat: the groups of one client process (wire.md §7.1)."""

    client_id: str
    producer_groups: list[str] = field(default_factory=list)
    consumers: list[ConsumerData] = field(default_factory=list)
    heartbeat_fingerprint: int = 0
    without_sub: bool = False
