"""The options that push and pull consumers share (client.md §8, §18)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from tianzhou.client.consumer.allocation import AllocateStrategy, Averagely, check_strategy
from tianzhou.client.hooks import ConsumeHook, FilterHook, SharesChanged
from tianzhou.client.tracing.options import TraceOptions
from tianzhou.client.validation import check_choice, check_number
from tianzhou.errors import ConfigError
from tianzhou.model import ConsumeFromWhere, MessageModel

DEFAULT_HISTORY_MS = 30 * 60_000
"""Default start of CONSUME_FROM_TIMESTAMP without a time: ms before the creation of the consumer."""
CONSUME_TIMESTAMP_DIGITS = 14


def local_time_ms(text: str) -> int:
    """Return the time of RocketMQ's `consumeTimestamp`, milliseconds since the epoch (client.md §8).

    Args:
        text: year, month, day, hour, minute and second, fourteen digits, in the local time of this machine.

    Raises:
        ConfigError: the text has another form.
    """
    try:
        if len(text) != CONSUME_TIMESTAMP_DIGITS or not (text.isascii() and text.isdecimal()):
            raise ValueError("fourteen digits are expected")
        return int(datetime.strptime(text, "%Y%m%d%H%M%S").astimezone().timestamp() * 1000)
    except (TypeError, ValueError, OverflowError) as error:
        raise ConfigError(
            f"consume_timestamp={text!r}: {error}; give year to second, such as '20210701080000', or milliseconds as "
            "consume_timestamp_ms"
        ) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOptions(TraceOptions):
    """The options of every consumer, besides those of `TraceOptions`.

    Args:
        message_model: whether the members of a group share the messages of their subscriptions, or each gets all.
        consume_from_where: position at which a group begins on queues without an offset. None is RocketMQ's default:
            the end of the queue, unless the broker answers 0 because the queue's first message is still in its memory.
        consume_timestamp_ms: the time for CONSUME_FROM_TIMESTAMP, milliseconds since the epoch; by default 30 minutes
            before the creation of the consumer.
        consume_timestamp: the same time in the form of RocketMQ's `setConsumeTimestamp`, `20210701080000`, in the local
            time of this machine.
        allocate_message_queue_strategy: strategy by which members share the queues, by default `Averagely()`; all
            members have to use the same.
        pull_batch_size: maximum messages of a pull.
        local_offset_dir: folder of the offsets for broadcasting; by default `~/.rocketmq_offsets`.
        instance_name: name of this member in that folder; it has to be the same after a restart.
        queues_changed: called after this member's share of a topic's queues changed, with the topic, all its queues and
            those of this member.
        filter_hooks: called with the messages of each pull, to remove messages that the consumer shall not get.
        consume_hooks: called before and after messages are consumed, see `tianzhou.client.hooks`.

    Raises:
        ConfigError: a value is out of its range.
    """

    message_model: MessageModel = MessageModel.CLUSTERING
    consume_from_where: ConsumeFromWhere | None = None
    consume_timestamp_ms: int | None = None
    consume_timestamp: str | None = None
    allocate_message_queue_strategy: AllocateStrategy | None = None
    pull_batch_size: int = 32
    local_offset_dir: Path | str | None = None
    instance_name: str = "DEFAULT"
    queues_changed: SharesChanged | None = None
    filter_hooks: Iterable[FilterHook] = ()
    consume_hooks: Iterable[ConsumeHook] = ()

    def __post_init__(self) -> None:
        TraceOptions.__post_init__(self)
        check_choice("message_model", self.message_model, MessageModel)
        if self.consume_from_where is not None:
            check_choice("consume_from_where", self.consume_from_where, ConsumeFromWhere)
        if self.consume_timestamp is not None:
            if self.consume_timestamp_ms is not None:
                raise ConfigError(
                    f"consume_timestamp={self.consume_timestamp!r} is given, and so is "
                    f"consume_timestamp_ms={self.consume_timestamp_ms}; leave one of them out"
                )
            object.__setattr__(self, "consume_timestamp_ms", local_time_ms(self.consume_timestamp))
            object.__setattr__(self, "consume_timestamp", None)  # so that a copy of the options has one of them
        check_number("pull_batch_size", self.pull_batch_size, 1, 1_024)
        check_strategy(self.strategy)
        for hooks in ("filter_hooks", "consume_hooks"):
            object.__setattr__(self, hooks, tuple(getattr(self, hooks)))  # reads a one-time iterable only once

    @property
    def is_broadcast(self) -> bool:
        """Whether each member gets all messages."""
        return self.message_model is MessageModel.BROADCASTING

    @property
    def begin_where(self) -> ConsumeFromWhere:
        """Position at which a group begins on queues without an offset: `consume_from_where` or its default."""
        return self.consume_from_where or ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET

    def begin_ms(self, made_ms: int) -> int:
        """Return the time for CONSUME_FROM_TIMESTAMP, milliseconds since the epoch.

        Args:
            made_ms: time of the consumer's creation, milliseconds since the epoch.
        """
        return made_ms - DEFAULT_HISTORY_MS if self.consume_timestamp_ms is None else self.consume_timestamp_ms

    @property
    def strategy(self) -> AllocateStrategy:
        """The strategy by which members share the queues."""
        return self.allocate_message_queue_strategy or Averagely()
