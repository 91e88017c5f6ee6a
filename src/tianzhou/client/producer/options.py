"""The options of producers (client.md §4 to §6)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tianzhou.client.hooks import ForbiddenHook, SendHook, StampHook
from tianzhou.client.producer.latency_faults import PAUSES
from tianzhou.client.producer.outbox.outbox_store import OutboxStore
from tianzhou.client.retry import RETRY_ON_OTHER_BROKER
from tianzhou.client.tracing.options import TraceOptions
from tianzhou.client.validation import MAX_MESSAGE_SIZE, check_compression, check_number, check_rate, check_word
from tianzhou.model import names

MIB = 1024 * 1024
IN_TURN, BY_LATENCY = "round-robin", "latency"
"""Values of `queue_selector`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerOptions(TraceOptions):
    """The options of a producer, under RocketMQ's names, besides those of `TraceOptions`.

    Args:
        send_msg_timeout_ms: timeout of one send with all its attempts.
        send_msg_max_timeout_per_request_ms: timeout of one attempt while another one remains; None for none.
        retry_times_when_send_failed: maximum further attempts, on another broker where there is one. When the answer to
            an attempt was lost, the next attempt stores the message twice; both copies have the same unique key.
        retry_another_broker_when_not_store_ok: whether to retry also when flush or replication was not confirmed.
        durable: whether only SEND_OK is an acknowledgement. After any other answer the send is retried, on another
            broker where there is one, until `durable_timeout_ms`, and then raises; see
            `tianzhou.client.producer.durable` and docs/howto/zero-loss.md.
        durable_timeout_ms: with `durable`, timeout of one send with all its attempts, instead of `send_msg_timeout_ms`;
            longer than an election of a group takes.
        retry_response_codes: response codes after which the send is retried; `tianzhou.client.RETRY_CODES_4X` are those
            of RocketMQ's 4.x clients, which do not retry after SYSTEM_BUSY.
        compress_msg_body_over_howmuch: bodies of this many bytes or more are compressed.
        compress_level: 0 to 9.
        compress_type: `ZLIB`, `LZ4` or `ZSTD`; consumers before RocketMQ 5 support only ZLIB.
        max_message_size: maximum size of a body in bytes; brokers have a limit of their own.
        create_topic_key: the topic whose route and permission a topic that does not exist yet gets.
        default_topic_queue_nums: number of queues of a topic that is created by sending to it.
        queue_selector: choice of the queue for a message without a queue, a selector and a sharding key: `round-robin`,
            all queues in turn, or `latency`, the queues of the broker with the lowest mean answer time.
        send_latency_fault_enable: whether to avoid brokers for a while that were slow or failed.
        latency_pauses: with the above, times for which slow brokers are avoided: `5.x`, 2 s after 550 ms, or `4.x`, 30
            s after 550 ms, as RocketMQ's clients of these versions do.
        start_detector_enable: with the above, whether to probe brokers that did not answer.
        detect_timeout_ms: timeout of one probe.
        detect_interval_ms: pause between two probes of a broker.
        send_hooks: called before and after each attempt, see `tianzhou.client.hooks`.
        check_forbidden_hooks: called before each attempt; an error of a hook prevents the attempt.
        stamp_hooks: called with each message before the first attempt; the returned properties are stored with it.
        auto_batch: whether messages wait a moment and are sent together. Messages with a timeout of their own, delayed
            ones, requests, replies and parts of transactions are sent alone.
        batch_max_delay_ms: maximum ms that a message waits, 1 to 30,000.
        batch_max_bytes: a batch of more bytes is sent at once, 1 to 2 MiB.
        total_batch_max_bytes: maximum bytes of waiting messages; above it, messages are sent alone.
        enable_backpressure_for_async_mode: whether senders wait while too many messages or bytes are in flight.
        back_pressure_for_async_send_num: maximum messages in flight, at least 10.
        back_pressure_for_async_send_size: maximum bytes of bodies in flight, at least 1 MiB.
        send_rate: maximum number of messages a second of this producer, over all topics; one-way sends, batches and
            sends of the outbox count as well. A send waits for its turn, and raises RateLimited when its timeout would
            pass first. None for any number.
        send_burst: maximum number of messages at once, after a time without sends; by default `send_rate`, at least 1.
        send_rate_bytes: maximum number of bytes of bodies a second, as they are sent; None for any number.
        send_burst_bytes: maximum number of bytes at once; by default `send_rate_bytes`.
        outbox: a folder, the URL of a Redis (`redis://host:6379/0`) or an `OutboxStore`. Messages that no broker
            accepts now are stored there, and sent in order when one does, see `tianzhou.client.producer.outbox`. `send`
            then returns the status KEPT_IN_OUTBOX. Sends of one queue or one sharding key wait for each other. Not for
            requests, replies and transactions. Off by default.
        outbox_max_bytes: maximum bytes of waiting messages in the outbox; above it `send` raises OutboxFull.

    Raises:
        ConfigError: a value is out of its range.
    """

    send_msg_timeout_ms: int = 3_000
    send_msg_max_timeout_per_request_ms: int | None = None
    retry_times_when_send_failed: int = 2
    retry_another_broker_when_not_store_ok: bool = False
    durable: bool = False
    durable_timeout_ms: int = 30_000
    retry_response_codes: Iterable[int] = RETRY_ON_OTHER_BROKER
    compress_msg_body_over_howmuch: int = 4_096
    compress_level: int = 5
    compress_type: str = "ZLIB"
    max_message_size: int = MAX_MESSAGE_SIZE
    create_topic_key: str = names.AUTO_CREATE_TOPIC
    default_topic_queue_nums: int = 4
    queue_selector: str = IN_TURN
    send_latency_fault_enable: bool = False
    latency_pauses: str = "5.x"
    start_detector_enable: bool = False
    detect_timeout_ms: int = 200
    detect_interval_ms: int = 2_000
    send_hooks: Iterable[SendHook] = ()
    check_forbidden_hooks: Iterable[ForbiddenHook] = ()
    stamp_hooks: Iterable[StampHook] = ()
    auto_batch: bool = False
    batch_max_delay_ms: int = 10
    batch_max_bytes: int = 32 * 1024
    total_batch_max_bytes: int = 32 * MIB
    enable_backpressure_for_async_mode: bool = False
    back_pressure_for_async_send_num: int = 10_000
    back_pressure_for_async_send_size: int = 100 * MIB
    send_rate: float | None = None
    send_burst: float | None = None
    send_rate_bytes: float | None = None
    send_burst_bytes: float | None = None
    outbox: Path | str | OutboxStore | None = None
    outbox_max_bytes: int = 256 * MIB

    def __post_init__(self) -> None:
        TraceOptions.__post_init__(self)
        check_compression(self.compress_type, self.compress_level)
        check_number("send_msg_timeout_ms", self.send_msg_timeout_ms, 1)
        check_number("durable_timeout_ms", self.durable_timeout_ms, 1)
        check_number("retry_times_when_send_failed", self.retry_times_when_send_failed, 0)
        check_word("queue_selector", self.queue_selector, (IN_TURN, BY_LATENCY))
        check_word("latency_pauses", self.latency_pauses, tuple(PAUSES))
        if self.auto_batch:
            check_number("batch_max_delay_ms", self.batch_max_delay_ms, 1, 30_000)
            check_number("batch_max_bytes", self.batch_max_bytes, 1, 2 * MIB)
            check_number("total_batch_max_bytes", self.total_batch_max_bytes, 1)
        if self.enable_backpressure_for_async_mode:
            check_number("back_pressure_for_async_send_num", self.back_pressure_for_async_send_num, 10)
            check_number("back_pressure_for_async_send_size", self.back_pressure_for_async_send_size, MIB)
        check_rate("send_rate", self.send_rate, "send_burst", self.send_burst)
        check_rate("send_rate_bytes", self.send_rate_bytes, "send_burst_bytes", self.send_burst_bytes)
        for hooks in ("send_hooks", "check_forbidden_hooks", "stamp_hooks"):
            object.__setattr__(self, hooks, tuple(getattr(self, hooks)))  # reads a one-time iterable only once

    @property
    def limit_ms(self) -> int:
        """Timeout of one send with all its attempts, unless the send has one of its own."""
        return self.durable_timeout_ms if self.durable else self.send_msg_timeout_ms
