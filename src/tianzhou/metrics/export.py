"""Periodic export of metrics: to a collector over OTLP, or to the log (broker.md §24)."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Protocol

from tianzhou.metrics.collecting import Collector
from tianzhou.metrics.exposition import pieces
from tianzhou.metrics.families import Family

_log = logging.getLogger("tianzhou.metrics")


class Exports(Protocol):
    """Takes families elsewhere; called in a thread, with values that do not change any more."""

    def export(self, families: list[Family], now_ns: int) -> None:
        """Take them there.

        Raises:
            Exception: it failed; the next ones are tried all the same.
        """

    def close(self) -> None:
        """End it."""


class LogExport:
    """Writes every sample as a line of the log, at level INFO, to the logger `tianzhou.metrics`."""

    def __init__(self, common: dict[str, str]) -> None:
        self._common = common

    def export(self, families: list[Family], now_ns: int) -> None:
        """Write the lines."""
        for piece in pieces(families, self._common):
            for line in piece.decode().splitlines():
                if not line.startswith("#"):
                    _log.info("%s", line)

    def close(self) -> None:
        """Nothing to end."""


async def export_again_and_again(collector: Collector, target: Exports, interval_s: Callable[[], float]) -> None:
    """Export until cancelled; a failure ends it, so that its supervisor notes and repeats it.

    Args:
        collector: has the figures.
        target: where they go.
        interval_s: seconds between two exports.
    """
    while True:
        await asyncio.sleep(interval_s())
        families = await collector.families()
        await asyncio.to_thread(target.export, families, time.time_ns())
