"""Services of a broker: what its request handlers and tasks work with, as one value."""

from __future__ import annotations

import random
from dataclasses import InitVar, dataclass, field

from tianzhou.broker.replication.replication import Replication
from tianzhou.broker.state import Tables
from tianzhou.broker.stats.stats import BrokerStats
from tianzhou.clock import Clock
from tianzhou.remoting.gates.access_gate import AccessGate
from tianzhou.remoting.turns import Turns
from tianzhou.store.store import MessageStore
from tianzhou.supervision import Supervisor


@dataclass(slots=True)
class Services:
    """State, store and time of one broker.

    Attributes:
        tables: settings and tables.
        store: the message store.
        stats: counters.
        clock: wall-clock and monotonic time.
        supervisor: learns of failing work.
        address: the broker's address as clients use it, `host:port`.
        host: the same as records and message ids hold it: 4 or 16 bytes, and the port.
        replication: its part in its group, the argument `part`; by default that of a master without slaves.
        turns: allowance of requests that take long.
        rng: source of randomness.
        access: decides who may ask for what; None where everybody may.
    """

    tables: Tables
    store: MessageStore
    stats: BrokerStats
    clock: Clock
    supervisor: Supervisor
    address: str
    host: tuple[bytes, int]
    part: InitVar[Replication | None] = None
    replication: Replication = field(init=False)
    turns: Turns = field(init=False)
    rng: random.Random = field(default_factory=random.Random)
    access: AccessGate | None = None

    def __post_init__(self, part: Replication | None) -> None:
        self.replication = part or Replication(self.store, self.tables.settings, self.clock, self.host[1])
        self.turns = Turns(monotonic=self.clock.monotonic)
