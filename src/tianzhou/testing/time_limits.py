"""How fast virtual time may go, for what the brokers of a cluster have to do."""

from __future__ import annotations

from collections.abc import Iterable

from tianzhou.broker.server import Broker
from tianzhou.testing import progress

STEPS = 128
"""Timers are late by at most this fraction (1/128) of the whole time that passes."""
OURS_STEPS = 16
"""The same for those of servers and clients: things that lead to one another happen in up to 16 steps."""
COARSEST_S = 50.0
"""How late timers of tests and handlers may fire while hours pass."""
OURS_COARSEST_S = 600.0
"""The same for those of servers and clients, as far as nobody sees it: what is due for delivery comes in time. Who
comes late to look for silence hears first what has arrived (`tianzhou.remoting.loop_stall`)."""
OPEN_COARSEST_S = 30.0
"""The same while a transaction waits for its decision: brokers ask as often."""
LOCKED_COARSEST_S = 25.0
"""The same while a consumer holds the lock of a queue, which it renews after 20 s and trusts for 30 s."""


def coarsest_s(brokers: Iterable[Broker], now_ms: int) -> float:
    """How late their timers, and those of their clients, may be.

    Args:
        brokers: those that run.
        now_ms: the time their locks go by.
    """
    coarsest = OURS_COARSEST_S
    for tables in (broker.tables for broker in brokers):
        if len(tables.transactions):
            return OPEN_COARSEST_S
        if any(tables.locks.held(group, now_ms) for group in tables.clients.consumers):
            coarsest = LOCKED_COARSEST_S
    return coarsest


def deliveries_s(brokers: Iterable[Broker], ahead_s: float) -> list[float]:
    """When delayed messages are due, in the time of a loop that is so far ahead of the wall clock."""
    return [due_ms / 1000 + ahead_s for broker in brokers for due_ms in progress.next_due_ms(broker)]
