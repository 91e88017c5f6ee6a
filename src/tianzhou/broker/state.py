"""The broker's state: its settings and tables in one value."""

from __future__ import annotations

from dataclasses import dataclass, field

from tianzhou.broker.delays.delay import DelayLedger
from tianzhou.broker.send_limits.table import SendLimitTable
from tianzhou.broker.settings import BrokerSettings
from tianzhou.broker.staging.staging import StagingLedger
from tianzhou.broker.tables.broadcast_offsets import BroadcastOffsets
from tianzhou.broker.tables.clients import ClientTable
from tianzhou.broker.tables.consumer_filters import ConsumerFilters
from tianzhou.broker.tables.consumer_offsets import ConsumerOffsetTable
from tianzhou.broker.tables.groups import GroupTable
from tianzhou.broker.tables.locks import QueueLockTable
from tianzhou.broker.tables.topics import BrokerTopicTable, system_topics
from tianzhou.broker.tables.void_positions import VoidPositions
from tianzhou.broker.transactions.transaction_metrics import TransactionMetrics
from tianzhou.broker.transactions.transactions import TransactionLedger
from tianzhou.broker.undeliverable.ledger import UndeliverableLedger
from tianzhou.filter import BloomFilter
from tianzhou.limits import Bounds, Refusals
from tianzhou.store.settings import StoreSettings, parse_delay_levels


@dataclass(slots=True, frozen=True)
class Tables:
    """Settings and tables. Each owner changes its table in place, and no table does I/O."""

    settings: BrokerSettings
    topics: BrokerTopicTable
    groups: GroupTable
    offsets: ConsumerOffsetTable
    clients: ClientTable
    locks: QueueLockTable
    delays: DelayLedger
    filters: ConsumerFilters
    transactions: TransactionLedger = field(default_factory=TransactionLedger)
    staging: StagingLedger = field(default_factory=StagingLedger)
    transaction_metrics: TransactionMetrics = field(default_factory=TransactionMetrics)
    broadcasts: BroadcastOffsets = field(default_factory=BroadcastOffsets)
    void_positions: VoidPositions = field(default_factory=VoidPositions)
    undeliverable: UndeliverableLedger = field(default_factory=UndeliverableLedger)
    bounds: Bounds = field(default_factory=Bounds)
    send_limits: SendLimitTable = field(default_factory=SendLimitTable)

    @property
    def refusals(self) -> Refusals:
        """Counts of requests refused by limits."""
        return self.bounds.refusals


def make_tables(settings: BrokerSettings, store_settings: StoreSettings, now_ms: int) -> Tables:
    """Return the empty tables of a broker before its files are loaded."""
    light = store_settings.enable_lmq
    bloom = BloomFilter(settings.max_error_rate_of_bloom_filter, settings.expect_consumer_num_use_filter)
    # Bitmaps have as many bits as the filter needs, independent of the configured length.
    store_settings.bit_map_length_consume_queue_ext = bloom.bits
    topics = system_topics(
        cluster=settings.broker_cluster_name,
        broker=settings.broker_name,
        auto_create=settings.auto_create_topic_enable,
        default_queues=settings.default_topic_queue_nums,
        cluster_topic=settings.cluster_topic_enable,
        broker_topic=settings.broker_topic_enable,
        trace_topic=settings.msg_trace_topic_name if settings.trace_topic_enable else None,
        revive_queues=settings.revive_queue_num,
        timer=store_settings.timer_wheel_enable,
    )
    bounds = Bounds(settings)
    return Tables(
        settings,
        BrokerTopicTable(topics, now_ms, light=light, bounds=bounds),
        GroupTable(
            auto_create=settings.auto_create_subscription_group,
            create_system=settings.enable_create_sys_group,
            now_ms=now_ms,
            light=light,
            bounds=bounds,
        ),
        ConsumerOffsetTable(settings.consumer_offset_update_version_step, light=light, bounds=bounds),
        ClientTable(bounds),
        QueueLockTable(bounds=bounds),
        DelayLedger(parse_delay_levels(store_settings.message_delay_level), settings.delay_offset_update_version_step),
        ConsumerFilters(bloom, now_ms, bounds),
        staging=StagingLedger(settings.broker_name, bounds=bounds),
        broadcasts=BroadcastOffsets(bounds),
        bounds=bounds,
        send_limits=SendLimitTable(bounds),
    )
