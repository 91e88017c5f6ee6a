"""The broker's state, as one value for those who need several tables."""

from __future__ import annotations

from dataclasses import dataclass, field

from tianzhou.broker.delays.delay import DelayLedger
from tianzhou.broker.settings import BrokerSettings
from tianzhou.broker.staging.staging import StagingLedger
from tianzhou.broker.tables.broadcast_offsets import BroadcastOffsets
from tianzhou.broker.tables.clients import ClientTable
from tianzhou.broker.tables.consumer_filters import ConsumerFilters
from tianzhou.broker.tables.consumer_offsets import ConsumerOffsets
from tianzhou.broker.tables.groups import GroupTable
from tianzhou.broker.tables.locks import QueueLocks
from tianzhou.broker.tables.topics import TopicTable
from tianzhou.broker.transactions.transaction_metrics import TransactionMetrics
from tianzhou.broker.transactions.transactions import TransactionLedger
from tianzhou.limits import Bounds, Refusals


@dataclass(slots=True, frozen=True)
class Tables:
    """Settings and tables; each is changed in place by its owner, and none of them touches the world."""

    settings: BrokerSettings
    topics: TopicTable
    groups: GroupTable
    offsets: ConsumerOffsets
    clients: ClientTable
    locks: QueueLocks
    delays: DelayLedger
    filters: ConsumerFilters
    transactions: TransactionLedger = field(default_factory=TransactionLedger)
    staging: StagingLedger = field(default_factory=StagingLedger)
    transaction_metrics: TransactionMetrics = field(default_factory=TransactionMetrics)
    broadcasts: BroadcastOffsets = field(default_factory=BroadcastOffsets)
    bounds: Bounds = field(default_factory=Bounds)

    @property
    def refusals(self) -> Refusals:
        """What was refused because of limits."""
        return self.bounds.refusals
