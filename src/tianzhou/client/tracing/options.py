"""The options of message trace, which producers and consumers share (client.md §20.2)."""

from __future__ import annotations

from dataclasses import dataclass

from tianzhou.errors import ConfigError

ACCESS_CHANNELS = ("LOCAL", "CLOUD")


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceOptions:
    """Options of the trace of sends and handler calls, see `tianzhou.client.tracing.trace`.

    Args:
        trace: whether sends and handler calls are traced.
        trace_topic: topic of the records; by default `RMQ_SYS_TRACE_TOPIC`.
        trace_msg_batch_num: maximum number of sends or calls in one trace message; values above 20 mean 20.
        access_channel: `LOCAL`, or `CLOUD` for the format and topics of the cloud service.

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
