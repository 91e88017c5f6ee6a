"""Connection counters: CHANNEL_ACTIVITY of request 315 (broker.md §20.1)."""

from __future__ import annotations

from tianzhou.broker.stats.stats import CLOSE, CONNECT, EXCEPTION, IDLE, BrokerStats
from tianzhou.clock import Clock
from tianzhou.remoting.connection import Connection


class Channels:
    """Counter of opened and closed connections.

    Args:
        stats: the broker's counters.
        clock: monotonic time, the connections' clock.
        idle_s: seconds without traffic after which the server closes a connection.
    """

    def __init__(self, stats: BrokerStats, clock: Clock, idle_s: float) -> None:
        self._stats = stats
        self._clock = clock
        self._idle_s = idle_s

    def connected(self, connection: Connection) -> None:
        """Count a new connection."""
        self._stats.count("CHANNEL_ACTIVITY", CONNECT)
        connection.on_close(self._closed)

    def _closed(self, connection: Connection) -> None:
        # Apache counts two events when a connection ends for another reason than the peer's close.
        if connection.broken:
            self._stats.count("CHANNEL_ACTIVITY", EXCEPTION)
        silent_s = self._clock.monotonic() - max(connection.last_read, connection.last_write)
        if 0 < self._idle_s <= silent_s:
            self._stats.count("CHANNEL_ACTIVITY", IDLE)
        self._stats.count("CHANNEL_ACTIVITY", CLOSE)
