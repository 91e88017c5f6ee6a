"""A pull that was checked, and what it asks of the store (broker.md §9)."""

from __future__ import annotations

from typing import Any

import msgspec

from tianzhou.broker.messages.message_filter import Selection
from tianzhou.model import SubscriptionGroupConfig, TopicConfig
from tianzhou.store.results import ReadRequest
from tianzhou.wire.command import Command


class PullRequest(msgspec.Struct):
    """A pull that may be served.

    Attributes:
        command: the request.
        header: its fields.
        group: who pulls.
        topic: of the queue.
        selection: which records are wanted; changes with the group's subscription.
        reading: what is read next for it.
    """

    command: Command
    header: Any
    group: SubscriptionGroupConfig
    topic: TopicConfig
    selection: Selection
    reading: ReadRequest


def reading_of(header: Any, selection: Selection) -> ReadRequest:
    """What a pull with these fields reads first."""
    codes, accept, accept_unit, _ = selection
    return ReadRequest(
        header.topic, header.queue_id, header.queue_offset, max(header.max_msg_nums, 1), codes, accept, accept_unit
    )
