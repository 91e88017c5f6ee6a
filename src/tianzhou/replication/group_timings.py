"""Time limits and bounds of a group's node, from the broker's settings."""

from __future__ import annotations

from typing import Final

from tianzhou.replication.dledger.timings import Timings
from tianzhou.store.settings import StoreSettings

_BATCH_BYTES: Final = 4 << 10
"""Bytes of a batch of entries for Apache's nodes (`enableBatchPush`, broker.md §19.6)."""
_DEFAULTS: Final = Timings()


def timings_of(settings: StoreSettings) -> Timings:
    """Return the time limits and bounds that the settings request.

    A candidate waits for votes no longer than a follower waits for its leader. With short times, a node that is cut off
    would otherwise delay the next round of the others for DLedger's two seconds.
    """
    interval_ms, leak = settings.d_leger_heart_beat_time_interval_ms, settings.d_leger_max_heart_beat_leak
    return Timings(
        heartbeat_interval_ms=interval_ms,
        max_heartbeat_leak=leak,
        vote_wait_ms=min(_DEFAULTS.vote_wait_ms, interval_ms * leak),
        min_vote_interval_ms=settings.d_leger_min_vote_interval_ms,
        max_vote_interval_ms=settings.d_leger_max_vote_interval_ms,
        max_batch_push_bytes=_BATCH_BYTES if settings.enable_batch_push else 0,
    )
