# Written by scripts/facade; change what it is written from, then run it again.
"""Keyword arguments of clients as type checkers and editors see them."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from tianzhou.client.cluster.tls import Tls
    from tianzhou.client.consumer.allocation import AllocateStrategy
    from tianzhou.client.hooks import ConsumeHook, FilterHook, ForbiddenHook, SendHook, SharesChanged, StampHook
    from tianzhou.client.producer.outbox.outbox_store import OutboxStore
    from tianzhou.client.validation import CommitMode
    from tianzhou.clock import Clock
    from tianzhou.model import ConsumeFromWhere, MessageModel
    from tianzhou.remoting.client import RpcHook


class ClientKeywords(TypedDict, total=False):
    """Of `ClientOptions`, which documents them."""

    client_id: str | None
    namesrv_domain: str | None
    namesrv_domain_subgroup: str
    unit_name: str | None
    unit_mode: bool
    namespace: str | None
    namespace_v2: str | None
    vip_channel_enabled: bool
    rpc_hooks: Iterable[RpcHook]
    poll_name_server_interval_ms: int
    heartbeat_broker_interval_ms: int
    mq_client_api_timeout_ms: int
    connect_timeout_ms: int
    max_unpacked_body_bytes: int
    max_unpacked_bytes: int
    tls: Tls
    socks_proxy_config: str | Mapping[str, Mapping[str, str]] | None
    access_key: str | None
    secret_key: str | None
    security_token: str | None
    clock: Clock | None
    rng: random.Random | None


class ProducerKeywords(ClientKeywords, total=False):
    """Of `ProducerOptions`, which documents them."""

    trace: bool
    trace_topic: str | None
    trace_msg_batch_num: int
    access_channel: str
    send_msg_timeout_ms: int
    send_msg_max_timeout_per_request_ms: int | None
    retry_times_when_send_failed: int
    retry_another_broker_when_not_store_ok: bool
    durable: bool
    durable_timeout_ms: int
    retry_response_codes: Iterable[int]
    compress_msg_body_over_howmuch: int
    compress_level: int
    compress_type: str
    max_message_size: int
    create_topic_key: str
    default_topic_queue_nums: int
    queue_selector: str
    send_latency_fault_enable: bool
    latency_pauses: str
    start_detector_enable: bool
    detect_timeout_ms: int
    detect_interval_ms: int
    send_hooks: Iterable[SendHook]
    check_forbidden_hooks: Iterable[ForbiddenHook]
    stamp_hooks: Iterable[StampHook]
    auto_batch: bool
    batch_max_delay_ms: int
    batch_max_bytes: int
    total_batch_max_bytes: int
    enable_backpressure_for_async_mode: bool
    back_pressure_for_async_send_num: int
    back_pressure_for_async_send_size: int
    send_rate: float | None
    send_burst: float | None
    send_rate_bytes: float | None
    send_burst_bytes: float | None
    outbox: Path | str | OutboxStore | None
    outbox_max_bytes: int


class ConsumerKeywords(ClientKeywords, total=False):
    """Of `ConsumerOptions`, which documents them."""

    trace: bool
    trace_topic: str | None
    trace_msg_batch_num: int
    access_channel: str
    message_model: MessageModel
    consume_from_where: ConsumeFromWhere | None
    consume_timestamp_ms: int | None
    consume_timestamp: str | None
    allocate_message_queue_strategy: AllocateStrategy | None
    pull_batch_size: int
    local_offset_dir: Path | str | None
    instance_name: str
    filter_hooks: Iterable[FilterHook]
    consume_hooks: Iterable[ConsumeHook]


class PushKeywords(ConsumerKeywords, total=False):
    """Of `PushOptions`, which documents them."""

    queues_changed: SharesChanged | None
    orderly: bool
    consume_concurrency: int
    consume_message_batch_max_size: int
    consume_timeout_ms: int
    max_reconsume_times: int
    suspend_current_queue_time_ms: int
    pull_batch_size_in_bytes: int
    pull_interval_ms: int
    broker_suspend_max_time_ms: int
    pull_threshold_for_queue: int
    pull_threshold_for_topic: int
    pull_threshold_size_for_queue_bytes: int
    pull_threshold_size_for_topic_bytes: int
    consume_concurrently_max_span: int
    persist_consumer_offset_interval_ms: int
    commit: CommitMode
    await_termination_ms: int
    post_subscription_when_pull: bool


class ScheduleKeywords(ConsumerKeywords, total=False):
    """Of `PullOptions`, which documents them."""

    pull_timeout_ms: int
    topic_check_interval_ms: int


class PullKeywords(ScheduleKeywords, total=False):
    """Of `PullOptions`, which documents them."""

    queues_changed: SharesChanged | None
    auto_commit: bool
    auto_commit_interval_ms: int
