"""A cache of processed ids in front of a database. It saves transactions and makes no decisions."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from tianzhou.client.consumer.push.idempotence import Claim, ProcessedIds
from tianzhou.clock import Clock

T = TypeVar("T")
_log = logging.getLogger(__name__)

PAUSE_S = 30.0
"""Seconds during which a failed cache is not asked, because each call may wait for its timeout."""
CLAIM_MS = 1_000
"""Milliseconds for which the cache claims an id that it did not know. No member waits for such a claim."""


class FirstCache:
    """A cache of ids whose transactions are committed.

    Only ids that are `Claim.DONE` count. The database decides about all others, so a cache that fails, forgets or is
    slow to learn costs one transaction for each duplicate.

    Args:
        ids: the store of the cache.
        clock: source of time.
    """

    def __init__(self, ids: ProcessedIds, clock: Clock) -> None:
        self._ids = ids
        self._clock = clock
        self._lock = threading.Lock()
        self._failed = False
        self._asked_again_s = 0.0
        self.blocking = ids.blocking
        """Whether calls wait for a disk or a network."""

    def done(self, ids: Iterable[str]) -> frozenset[str]:
        """Return the ids that the cache knows as processed."""
        now_ms = self._clock.now_ms()
        return frozenset(id_ for id_ in ids if self._ask(self._ids.claim, id_, now_ms, CLAIM_MS) is Claim.DONE)

    def note(self, expiries_ms: Mapping[str, int]) -> None:
        """Note ids whose transaction is committed.

        Args:
            expiries_ms: when each id expires, milliseconds since the epoch.
        """
        now_ms = self._clock.now_ms()
        for id_, until_ms in expiries_ms.items():
            window_ms = until_ms - now_ms
            if window_ms > 0:
                self._ask(self._ids.finish, id_, now_ms, window_ms)

    def _ask(self, call: Callable[..., T], *arguments: Any) -> T | None:
        if self._failed and self._clock.monotonic() < self._asked_again_s:
            return None
        try:
            answer = call(*arguments)
        except Exception as error:  # noqa: BLE001 - a cache may fail in any way, and no failure matters
            with self._lock:
                was_failing, self._failed = self._failed, True
                self._asked_again_s = self._clock.monotonic() + PAUSE_S
            if not was_failing:
                _log.warning(
                    "the cache of @once (%s) failed: %s: %s; the database decides alone, and the cache is asked again"
                    " every %.0f s",
                    type(self._ids).__name__,
                    type(error).__name__,
                    error,
                    PAUSE_S,
                )
            return None
        if self._failed:
            with self._lock:
                was_failing, self._failed = self._failed, False
            if was_failing:
                _log.info("the cache of @once (%s) answers again", type(self._ids).__name__)
        return answer
