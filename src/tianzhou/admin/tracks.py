"""The consumption state of a message in each consumer group, in the terms of RocketMQ's tools (client.md §22). Pure."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from tianzhou.model import ConsumeType, MessageExt, MessageModel
from tianzhou.wire.bodies.clients import ConsumerConnection


class TrackType(enum.StrEnum):
    """Consumption states of a message in a group."""

    CONSUMED = "CONSUMED"
    CONSUMED_BUT_FILTERED = "CONSUMED_BUT_FILTERED"
    PULL = "PULL"
    NOT_CONSUME_YET = "NOT_CONSUME_YET"
    NOT_ONLINE = "NOT_ONLINE"
    CONSUME_BROADCASTING = "CONSUME_BROADCASTING"
    UNKNOWN = "UNKNOWN"


@dataclass(frozen=True, slots=True)
class MessageTrack:
    """The consumption state of a message in one group.

    Attributes:
        group: the consumer group.
        kind: the state.
        why: why the state is unknown; empty otherwise.
        consumer_offset: the group's next offset in the message's queue; None when it has none there.
    """

    group: str
    kind: TrackType
    why: str = ""
    consumer_offset: int | None = None


def track_of(
    message: MessageExt, group: str, members: ConsumerConnection | None, consumer_offset: int | None
) -> MessageTrack:
    """Return the consumption state of a message in a group.

    Args:
        message: the message.
        group: the group.
        members: connected members and their subscriptions; None when no member is connected.
        consumer_offset: the group's next offset in the message's queue; None when it has none.
    """
    return MessageTrack(group, _kind(message, members, consumer_offset), consumer_offset=consumer_offset)


def _kind(message: MessageExt, members: ConsumerConnection | None, consumer_offset: int | None) -> TrackType:
    if members is None or not members.connection_set:
        return TrackType.NOT_ONLINE
    if members.consume_type is ConsumeType.CONSUME_ACTIVELY:
        return TrackType.PULL
    if members.message_model is MessageModel.BROADCASTING:
        return TrackType.CONSUME_BROADCASTING
    if consumer_offset is None or consumer_offset <= message.queue_offset:
        return TrackType.NOT_CONSUME_YET
    subscription = members.subscription_table.get(message.topic)
    if subscription is not None and subscription.tags_set and message.tags not in subscription.tags_set:
        return TrackType.CONSUMED_BUT_FILTERED
    return TrackType.CONSUMED
