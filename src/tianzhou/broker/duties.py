"""Tasks that a broker runs only while it is the master: delays, transactions, staged batches."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from tianzhou.broker.delays.delay_scheduler import DelayScheduler
from tianzhou.broker.messages.retry_queues import widen_to_stored
from tianzhou.broker.services import Services
from tianzhou.broker.staging.staging_publisher import StagingPublisher
from tianzhou.broker.transactions.transaction_checker import TransactionChecker
from tianzhou.broker.undeliverable.keeper import UndeliverableKeeper
from tianzhou.slices import in_turns

SHOWN_TOPICS = 10
"""Maximum topics that one log line names."""

_log = logging.getLogger(__name__)


class MasterDuties:
    """The master's tasks, which start and stop with the role; a member of a group may change roles many times.

    Args:
        services: the broker's services.
        transactions: checker of half messages.
        staging: publisher of staged batches.
    """

    def __init__(self, services: Services, transactions: TransactionChecker, staging: StagingPublisher) -> None:
        self._services = services
        self._transactions = transactions
        self._staging = staging
        self._undeliverable = UndeliverableKeeper(services)
        self._tasks: list[asyncio.Task[None]] = []
        self._begun = False

    async def begin(self, opened: Callable[[], None] | None = None) -> None:
        """Restore the ledgers from the log and start the tasks; to be awaited before requests are served.

        Args:
            opened: callback that makes the store accept messages, called once open transactions are known; None when
                the store accepts them already.
        """
        self._begun = True
        await self._lower_offsets()
        self._widen_retry_topics()
        await self._transactions.load()
        await self._undeliverable.load()
        if opened is not None:
            opened()
        await self._staging.load()
        own = self._services.supervisor.own
        self._tasks = [
            own("delays", DelayScheduler(self._services).run),
            own("transactions", self._transactions.run),
            own("staging", self._staging.run),
        ]

    async def _lower_offsets(self) -> None:
        services = self._services
        steps = services.tables.offsets.lower_to_ends(services.store.max_offset, services.clock.now_ms())
        if lowered := await in_turns(steps):
            _log.warning(
                "%d offsets of consumer groups were committed beyond the ends of their queues; they are lowered to "
                "these, so that nothing that comes there next is passed over",
                lowered,
            )

    def _widen_retry_topics(self) -> None:
        services = self._services
        if changed := widen_to_stored(services.tables, services.store, services.clock.now_ms()):
            _log.warning(
                "%d retry topics had messages in queues that no member reads; they have more read queues now: %s",
                len(changed),
                ", ".join(changed[:SHOWN_TOPICS]),
            )

    async def end(self) -> None:
        """Stop the tasks, and write their progress unless the store accepts no records."""
        if not self._begun:
            return
        self._begun = False
        tasks, self._tasks = self._tasks, []
        await self._services.supervisor.stop(*tasks)
        await self._staging.close()
        self._undeliverable.close()
        if self._services.store.writable:
            await self._transactions.close()
