"""The options that push and pull consumers share (client.md §8, §18)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from tianzhou.client.consumer.allocation import AllocateStrategy, Averagely, check_strategy
from tianzhou.client.hooks import ConsumeHook, FilterHook
from tianzhou.client.options import ClientKeywords
from tianzhou.client.tracing.trace import TraceOptions
from tianzhou.client.validation import check_choice, check_number
from tianzhou.model import ConsumeFromWhere, MessageModel, MessageQueue

SharesChanged: TypeAlias = Callable[[str, list[MessageQueue], list[MessageQueue]], None]
"""Told of a topic, all its queues and those that are ours now."""


class ConsumerKeywords(ClientKeywords, total=False):
    """Keyword arguments of everything that consumes; see `ConsumerOptions`."""

    message_model: MessageModel
    consume_from_where: ConsumeFromWhere
    consume_timestamp_ms: int | None
    allocate_message_queue_strategy: AllocateStrategy | None
    pull_batch_size: int
    local_offset_dir: Path | str | None
    instance_name: str
    filter_hooks: Iterable[FilterHook]
    consume_hooks: Iterable[ConsumeHook]
    trace: bool
    trace_topic: str | None
    trace_msg_batch_num: int
    access_channel: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOptions:
    """What every consumer is told.

    Args:
        message_model: whether members that subscribe share the messages, or each gets all.
        consume_from_where: where a group begins on queues it has no offset of.
        consume_timestamp_ms: the time for CONSUME_FROM_TIMESTAMP, milliseconds since the epoch.
        allocate_message_queue_strategy: how members share the queues, by default `Averagely()`; all have to use the
            same.
        pull_batch_size: most messages asked for at once.
        local_offset_dir: where offsets are kept when broadcasting; by default `~/.rocketmq_offsets`.
        instance_name: names this member in that folder when broadcasting; keep it the same over restarts.
        queues_changed: called with a topic, all its queues and those that are ours, after our share has changed.
        filter_hooks: called with what each pull brings, to take out what nobody shall get.
        consume_hooks: called around the consuming of messages, see `tianzhou.client.hooks`.
        trace: note the same in the trace topic, see `tianzhou.client.tracing.trace`.
        trace_topic: the trace topic; by default `RMQ_SYS_TRACE_TOPIC`.
        trace_msg_batch_num: so many calls are noted in one message; 20 at most.
        access_channel: `LOCAL`, or `CLOUD` for the trace form of the cloud service.

    Raises:
        ConfigError: a value is out of its range.
    """

    message_model: MessageModel = MessageModel.CLUSTERING
    consume_from_where: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    consume_timestamp_ms: int | None = None
    allocate_message_queue_strategy: AllocateStrategy | None = None
    pull_batch_size: int = 32
    local_offset_dir: Path | str | None = None
    instance_name: str = "DEFAULT"
    queues_changed: SharesChanged | None = None
    filter_hooks: Iterable[FilterHook] = ()
    consume_hooks: Iterable[ConsumeHook] = ()
    trace: bool = False
    trace_topic: str | None = None
    trace_msg_batch_num: int = 10
    access_channel: str = "LOCAL"

    def __post_init__(self) -> None:
        check_choice("message_model", self.message_model, MessageModel)
        check_choice("consume_from_where", self.consume_from_where, ConsumeFromWhere)
        check_number("pull_batch_size", self.pull_batch_size, 1, 1_024)
        check_strategy(self.strategy)
        if self.trace:
            self.tracing.check()
        for hooks in ("filter_hooks", "consume_hooks"):
            object.__setattr__(self, hooks, tuple(getattr(self, hooks)))  # what can be read once is read here

    @property
    def is_broadcast(self) -> bool:
        """Whether each member gets all messages."""
        return self.message_model is MessageModel.BROADCASTING

    @property
    def tracing(self) -> TraceOptions:
        """How the consuming is traced, when it is."""
        return TraceOptions(self.trace_topic, self.trace_msg_batch_num, self.access_channel)

    @property
    def strategy(self) -> AllocateStrategy:
        """How members share the queues."""
        return self.allocate_message_queue_strategy or Averagely()
