"""Brokers that are avoided for a while after slow or failed sends (client.md §5.5).

Pure: time is an argument, milliseconds of any monotonic clock.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, NamedTuple


class Pauses(NamedTuple):
    """Times for which a producer avoids brokers.

    Attributes:
        steps_ms: minimum latencies of a send, for the pauses of the same index.
        pauses_ms: times in ms for which a broker with that latency is avoided.
        isolation_ms: latency in ms that a failed send counts as.
    """

    steps_ms: tuple[int, ...]
    pauses_ms: tuple[int, ...]
    isolation_ms: int

    def after(self, latency_ms: float) -> int:
        """Return the ms for which a broker is avoided after a send that took `latency_ms`."""
        index = bisect_right(self.steps_ms, latency_ms) - 1
        return self.pauses_ms[index] if index >= 0 else 0


PAUSES: Final[Mapping[str, Pauses]] = MappingProxyType(
    {
        "5.x": Pauses((50, 100, 550, 1800, 3000, 5000, 15000), (0, 0, 2000, 5000, 6000, 10000, 30000), 10_000),
        "4.x": Pauses((50, 100, 550, 1000, 2000, 3000, 15000), (0, 0, 30000, 60000, 120000, 180000, 600000), 30_000),
    }
)
"""Pauses of RocketMQ's clients, by their version."""


def pause_ms(latency_ms: float) -> int:
    """Return the ms for which a client of 5.x avoids a broker after a send that took `latency_ms`."""
    return PAUSES["5.x"].after(latency_ms)


@dataclass(slots=True)
class _Fault:
    latency_ms: float
    available_from_ms: float
    reachable: bool
    probe_ms: float = 0


class LatencyFaults:
    """The faults of brokers, from the results of sends.

    Args:
        enabled: whether faults are recorded; otherwise every broker is always available.
        detecting: whether a `Detector` probes brokers that did not answer.
        pauses: times for which slow and failed brokers are avoided.
    """

    def __init__(self, *, enabled: bool = True, detecting: bool = False, pauses: Pauses = PAUSES["5.x"]) -> None:
        self.enabled = enabled
        self.detecting = detecting
        self._pauses = pauses
        self._faults: dict[str, _Fault] = {}

    def record(
        self, broker_name: str, latency_ms: float, now_ms: float, *, isolate: bool = False, reachable: bool = True
    ) -> None:
        """Record the result of a send.

        Args:
            broker_name: the broker.
            latency_ms: duration of the send.
            now_ms: present time.
            isolate: whether the send failed; the broker is then avoided for ten seconds (ten minutes with the pauses of
                4.x) whatever the latency.
            reachable: whether the broker answered at all.
        """
        if not self.enabled:
            return
        pause = self._pauses.after(self._pauses.isolation_ms if isolate else latency_ms)
        fault = self._faults.get(broker_name)
        if fault is None:
            self._faults[broker_name] = _Fault(latency_ms, now_ms + pause, reachable)
            return
        fault.latency_ms = latency_ms
        # A fast success does not shorten a pause after a failure.
        if pause > 0:
            fault.available_from_ms = max(fault.available_from_ms, now_ms + pause)
        fault.reachable = reachable

    def is_available(self, broker_name: str, now_ms: float) -> bool:
        """Whether the broker's pause is over."""
        fault = self._faults.get(broker_name)
        return fault is None or now_ms >= fault.available_from_ms

    def is_reachable(self, broker_name: str) -> bool:
        """Whether the broker answered the last send or probe."""
        fault = self._faults.get(broker_name)
        return fault is None or fault.reachable

    def due(self, now_ms: float, interval_ms: float) -> list[str]:
        """Return the brokers to probe now; each is due again after the interval."""
        due = [name for name, fault in self._faults.items() if now_ms >= fault.probe_ms]
        for name in due:
            self._faults[name].probe_ms = now_ms + interval_ms
        return due

    def answered(self, broker_name: str) -> None:
        """Mark a broker as reachable, because it answered."""
        fault = self._faults.get(broker_name)
        if fault is not None:
            fault.reachable = True

    def forget(self, broker_name: str) -> None:
        """Drop a broker that no longer exists."""
        self._faults.pop(broker_name, None)
