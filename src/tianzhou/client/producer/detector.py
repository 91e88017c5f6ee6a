"""Probes of brokers that did not answer (client.md §5.5)."""

from __future__ import annotations

import asyncio
import logging

from tianzhou.client.cluster import rpc
from tianzhou.client.instance import ClientInstance
from tianzhou.client.producer.latency_faults import LatencyFaults
from tianzhou.errors import TianzhouError
from tianzhou.model import MessageQueue

_log = logging.getLogger(__name__)

ROUND_S = 3.0


class Detector:
    """A prober of slow brokers. It marks a broker as reachable again when the broker answers a probe.

    Args:
        instance: reaches the brokers.
        faults: known faults of brokers.
        timeout_ms: timeout of one probe.
        interval_ms: pause between two probes of a broker.
    """

    def __init__(self, instance: ClientInstance, faults: LatencyFaults, timeout_ms: int, interval_ms: int) -> None:
        self._instance = instance
        self._faults = faults
        self._timeout_ms = timeout_ms
        self._interval_ms = interval_ms
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the probes, when detection is enabled."""
        if self._faults.enabled and self._faults.detecting and self._task is None:
            self._task = self._instance.keep("asking slow brokers", self._run)

    def stop(self) -> None:
        """Stop the probes."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(ROUND_S)
            await self.detect()

    async def detect(self) -> None:
        """Probe each broker that is due."""
        routes = self._instance.routes
        now_ms = self._instance.clock.monotonic() * 1000
        for broker_name in self._faults.due(now_ms, self._interval_ms):
            address = routes.master(broker_name)
            if address is None:
                self._faults.forget(broker_name)
                continue
            topic = next(
                (t for t in routes.topics if any(b.broker_name == broker_name for b in routes.brokers_of(t))), None
            )
            if topic is None:
                continue
            try:
                await rpc.max_offset(
                    self._instance.remoting, address, MessageQueue(topic, broker_name, 0), self._timeout_ms
                )
            except TianzhouError as error:
                _log.debug("broker %s does not answer yet: %s", broker_name, error)
            else:
                self._faults.answered(broker_name)
