"""The maximum delay of timers in virtual time, by the work of a cluster's brokers."""

from __future__ import annotations

from collections.abc import Iterable

from tianzhou.broker.server import Broker
from tianzhou.testing import progress

STEPS = 128
"""Divisor of the whole advanced time: timers may be late by this fraction (1/128) of it."""
OURS_STEPS = 16
"""Divisor for timers of servers and clients: a chain of dependent actions takes up to 16 steps."""
COARSEST_S = 50.0
"""Maximum delay of timers of tests and handlers while hours pass, seconds."""
OURS_COARSEST_S = 600.0
"""Maximum delay of timers of servers and clients, seconds. Deliveries are always on time. A late check for silence
reads the received data first (`tianzhou.remoting.loop_stall`)."""
OPEN_COARSEST_S = 30.0
"""Maximum delay while a transaction is undecided, seconds: brokers check transactions as often."""
LOCKED_COARSEST_S = 25.0
"""Maximum delay while a consumer holds the lock of a queue, which it renews after 20 s and trusts for 30 s."""


def coarsest_s(brokers: Iterable[Broker], now_ms: int) -> float:
    """Return the maximum delay of timers of brokers and of their clients, seconds.

    Args:
        brokers: the running brokers.
        now_ms: present time of their locks.
    """
    coarsest = OURS_COARSEST_S
    for tables in (broker.tables for broker in brokers):
        if len(tables.transactions):
            return OPEN_COARSEST_S
        if any(tables.locks.held(group, now_ms) for group in tables.clients.consumers):
            coarsest = LOCKED_COARSEST_S
    return coarsest


def deliveries_s(brokers: Iterable[Broker], ahead_s: float) -> list[float]:
    """Return when delayed messages are due, in the time of a loop that is `ahead_s` ahead of the wall clock."""
    return [due_ms / 1000 + ahead_s for broker in brokers for due_ms in progress.next_due_ms(broker)]
