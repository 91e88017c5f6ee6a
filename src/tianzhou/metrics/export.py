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
    """Exporter of families; called in a thread, with values that do not change any more."""

    def export(self, families: list[Family], now_ns: int) -> None:
        """Export the families.

        Raises:
            Exception: the export failed; later families are exported nevertheless.
        """

    def close(self) -> None:
        """Close the exporter."""


class LogExport:
    """Exporter that logs every sample as a line at level INFO, to the logger `tianzhou.metrics`."""

    def __init__(self, common: dict[str, str]) -> None:
        self._common = common

    def export(self, families: list[Family], now_ns: int) -> None:
        """Write the log lines."""
        for piece in pieces(families, self._common):
            for line in piece.decode().splitlines():
                if not line.startswith("#"):
                    _log.info("%s", line)

    def close(self) -> None:
        """Do nothing: a log needs no close."""


async def export_again_and_again(collector: Collector, target: Exports, interval_s: Callable[[], float]) -> None:
    """Export until cancelled. A failure ends the export, and its supervisor notes and restarts it.

    Args:
        collector: collects the families.
        target: receives the families.
        interval_s: returns the seconds between two exports.
    """
    while True:
        await asyncio.sleep(interval_s())
        families = await collector.families()
        await asyncio.to_thread(target.export, families, time.time_ns())
