"""Periodic work of a broker except writing files (broker.md §3.3, §25)."""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime

from tianzhou.broker.handlers.clients import ClientHandler
from tianzhou.broker.services import Services
from tianzhou.errors import LimitExceeded
from tianzhou.slices import start_in_turns

SWEEP_MS = 10_000
PROTECT_MS = 180_000

_log = logging.getLogger(__name__)


class Housekeeping:
    """Periodic sweeps of silent clients, counters and offsets.

    Args:
        services: the broker's services.
        clients: handler that closes silent connections.
    """

    def __init__(self, services: Services, clients: ClientHandler) -> None:
        self._tables = services.tables
        self._store = services.store
        self._stats = services.stats
        self._clock = services.clock
        self._clients = clients

    def follow_settings(self) -> None:
        """Apply settings of the counters."""
        settings, stats = self._tables.settings, self._stats
        stats.by_queue = settings.enable_detail_stat
        stats.by_level = settings.enable_schedule_message_stats
        stats.forgets = settings.auto_delete_unused_stats
        idle_minutes = settings.max_stats_idle_time_in_minutes
        # As in RocketMQ, ten minutes or less mean half an hour, the period of its check.
        stats.idle_ms = None if idle_minutes < 0 else (idle_minutes if idle_minutes > 10 else 30) * 60_000

    def sweep(self) -> None:
        """Close silent connections, drop expired entries, sample counters and commit broadcast offsets.

        The sweep also applies the settings of the counters and of the read-ahead.
        """
        self._clients.sweep()
        now = self._clock.now_ms()
        self._tables.clients.forget_pulls(now - self._tables.settings.subscription_expired_timeout)
        self._tables.locks.sweep(int(self._clock.monotonic() * 1000))
        self.commit_broadcasts()
        self.follow_settings()
        if not self._store.settings.data_read_ahead_enable:
            self._store.read_ahead(wanted=False)
        # Use the machine's local calendar, as operators do.
        day = datetime.fromtimestamp(now / 1000, UTC).astimezone().toordinal()
        start_in_turns(self._stats.sampling(now, day))

    def commit_broadcasts(self) -> None:
        """Commit the offset of the slowest broadcast consumer of each group."""
        tables, now = self._tables, self._clock.now_ms()
        for group, topic, queue_id, offset in tables.broadcasts.sweep(
            int(self._clock.monotonic() * 1000),
            tables.clients.is_member,
            away_ms=tables.settings.broadcast_offset_expire_second * 1000,
            silent_ms=tables.settings.broadcast_offset_expire_max_second * 1000,
        ):
            if tables.offsets.committed(group, topic, queue_id) != offset:
                with suppress(LimitExceeded):  # counted; the others' are committed
                    tables.offsets.commit(group, topic, queue_id, offset, now)

    def protect(self) -> None:
        """Disable groups that lag so far behind that they read from the disk (broker.md §25)."""
        tables, settings = self._tables, self._tables.settings
        if not settings.disable_consume_if_consumer_read_slowly:
            self._stats.behind.clear()
            return
        limit = settings.consumer_fallbehind_threshold
        slow: dict[str, int] = {}
        for (_, group, _), behind in self._stats.behind.items():
            if behind > limit:
                slow[group] = max(behind, slow.get(group, 0))
        for name, behind in slow.items():
            config = tables.groups.get(name)
            if config is not None and config.consume_enable:
                tables.groups.put(replace(config, consume_enable=False), self._clock.now_ms())
                _log.warning(
                    "group %s may not consume any more: it reads %d bytes behind the end of the log,"
                    " consumerFallbehindThreshold=%d (disableConsumeIfConsumerReadSlowly); set its consumeEnable to"
                    " true when it may again",
                    name, behind, limit,
                )  # fmt: skip
        # Drop the lag of a disabled group, so that it is measured anew when the group is enabled again.
        for place in [place for place in self._stats.behind if place[1] in slow]:
            del self._stats.behind[place]
