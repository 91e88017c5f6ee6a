"""Collection of families in slices, so that a scrape of thousands of topics does not block the loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence

from tianzhou.metrics.exposition import pieces
from tianzhou.metrics.families import Family, Source, Steps, gauge, left_out

_log = logging.getLogger(__name__)
SlowSource = Callable[[], AsyncIterator[Family]]
"""Like `Source`, for figures that need an `await`."""


class Collector:
    """Collects the families of a server.

    Args:
        sources: return figures; a source that fails is logged and skipped.
        slow: the same, for figures that need an `await`.
        common: labels of all samples.
        monotonic: monotonic time, seconds.

    Attributes:
        common: the argument.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        slow: Sequence[SlowSource],
        common: Mapping[str, str],
        monotonic: Callable[[], float],
    ) -> None:
        self._sources, self._slow = sources, slow
        self.common = common
        self._monotonic = monotonic
        self._failed: dict[object, None] = {}

    async def families(self) -> list[Family]:
        """Return all families as of now."""
        began = self._monotonic()
        found: list[Family] = []
        for source in self._sources:
            try:
                await _drain(source(), found)
            except Exception:  # noqa: BLE001 - one unreadable figure must not lose the others
                self._note(source)
        for slow in self._slow:
            try:
                found += [family async for family in slow()]
            except Exception:  # noqa: BLE001 - as above
                self._note(slow)
        found.append(left_out(found))
        failed = float(len(self._failed))
        found.append(gauge("tianzhou_metrics_failed_sources", "Sources of figures that could not be read.", failed))
        took = self._monotonic() - began
        found.append(gauge("tianzhou_metrics_collection_seconds", "How long this collection took.", took))
        return found

    async def page(self) -> AsyncIterator[bytes]:
        """Yield the Prometheus page in pieces. The loop may serve other work between them."""
        families = await self.families()
        families.reverse()
        while families:
            # Free the families one by one: freeing all samples at once would take a tenth of a second.
            for piece in pieces([families.pop()], self.common):
                yield piece
                await asyncio.sleep(0)

    def _note(self, source: object) -> None:
        if source not in self._failed:
            self._failed[source] = None
            _log.exception("figures of %r cannot be read; they are left out of the metrics", source)


async def _drain(steps: Steps, found: list[Family]) -> None:
    for step in steps:
        if step is not None:
            found.append(step)
        await asyncio.sleep(0)
