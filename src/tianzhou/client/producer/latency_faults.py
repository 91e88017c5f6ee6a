"""Brokers that are avoided for a while after slow or failed sends (client.md §5.5).

Pure: time is an argument, milliseconds of any monotonic clock.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

LATENCY_STEPS_MS = (50, 100, 550, 1800, 3000, 5000, 15000)
"""Latency of a send from which the pause of the same index below applies."""

PAUSE_MS = (0, 0, 2000, 5000, 6000, 10000, 30000)
"""For how long a broker that was that slow is avoided."""

ISOLATION_LATENCY_MS = 10_000
"""The latency a failed send counts as."""


def pause_ms(latency_ms: float) -> int:
    """For how long a broker is avoided after a send that took `latency_ms`."""
    index = bisect_right(LATENCY_STEPS_MS, latency_ms) - 1
    return PAUSE_MS[index] if index >= 0 else 0


@dataclass(slots=True)
class _Fault:
    latency_ms: float
    available_from_ms: float
    reachable: bool
    probe_ms: float = 0


class LatencyFaults:
    """The faults of brokers, as sends have met them.

    Args:
        enabled: off, nothing is remembered and every broker is fit for use.
        detecting: a `Detector` probes brokers that did not answer.
    """

    def __init__(self, *, enabled: bool = True, detecting: bool = False) -> None:
        self.enabled = enabled
        self.detecting = detecting
        self._faults: dict[str, _Fault] = {}

    def record(
        self, broker_name: str, latency_ms: float, now_ms: float, *, isolate: bool = False, reachable: bool = True
    ) -> None:
        """Remember how a send went.

        Args:
            broker_name: where it was sent.
            latency_ms: how long it took.
            now_ms: the present.
            isolate: it failed; the broker is avoided for ten seconds whatever the latency.
            reachable: whether the broker answered at all.
        """
        if not self.enabled:
            return
        pause = pause_ms(ISOLATION_LATENCY_MS if isolate else latency_ms)
        fault = self._faults.get(broker_name)
        if fault is None:
            self._faults[broker_name] = _Fault(latency_ms, now_ms + pause, reachable)
            return
        fault.latency_ms = latency_ms
        # A quick success does not shorten a pause that a failure has started.
        if pause > 0:
            fault.available_from_ms = max(fault.available_from_ms, now_ms + pause)
        fault.reachable = reachable

    def is_available(self, broker_name: str, now_ms: float) -> bool:
        """Whether the broker's pause is over."""
        fault = self._faults.get(broker_name)
        return fault is None or now_ms >= fault.available_from_ms

    def is_reachable(self, broker_name: str) -> bool:
        """Whether the broker answered the last time."""
        fault = self._faults.get(broker_name)
        return fault is None or fault.reachable

    def due(self, now_ms: float, interval_ms: float) -> list[str]:
        """The brokers to probe now; each is due again after the interval."""
        due = [name for name, fault in self._faults.items() if now_ms >= fault.probe_ms]
        for name in due:
            self._faults[name].probe_ms = now_ms + interval_ms
        return due

    def answered(self, broker_name: str) -> None:
        """The broker answers again."""
        fault = self._faults.get(broker_name)
        if fault is not None:
            fault.reachable = True

    def forget(self, broker_name: str) -> None:
        """The broker is gone for good."""
        self._faults.pop(broker_name, None)
