"""Services of a broker for its request handlers and tasks, in one value."""

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
        supervisor: supervisor of tasks and failures.
        address: the broker's address as clients use it, `host:port`.
        host: the address in records and message ids: 4 or 16 bytes, and the port.
        replication: its part in its group, the argument `part`; by default that of a master without slaves.
        turns: time allowance of slow requests.
        rng: source of randomness.
        access: access control; None allows all requests.
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
