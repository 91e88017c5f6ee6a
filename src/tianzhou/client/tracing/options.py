"""The options of message trace, which producers and consumers share (client.md §20.2)."""

from __future__ import annotations

from dataclasses import dataclass

from tianzhou.errors import ConfigError

ACCESS_CHANNELS = ("LOCAL", "CLOUD")


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceOptions:
    """How sends or calls of handlers are noted, see `tianzhou.client.tracing.trace`.

    Args:
        trace: whether they are noted at all.
        trace_topic: where the records go; by default `RMQ_SYS_TRACE_TOPIC`.
        trace_msg_batch_num: most sends or calls noted in one message; above 20 is 20.
        access_channel: `LOCAL`, or `CLOUD` for the form and topics of the cloud service.

    Raises:
        ConfigError: a value is out of its range.
    """

    trace: bool = False
    trace_topic: str | None = None
    trace_msg_batch_num: int = 10
    access_channel: str = "LOCAL"

    def __post_init__(self) -> None:
        if not self.trace:
            return
        if (channel := self.access_channel) not in ACCESS_CHANNELS:
            raise ConfigError(f"access_channel {channel!r} is unknown; use one of {', '.join(ACCESS_CHANNELS)}")
        if (count := self.trace_msg_batch_num) < 1:
            raise ConfigError(f"trace_msg_batch_num is {count}; it has to be at least 1 (20 is the most used)")
