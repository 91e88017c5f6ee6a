"""A group's times follow the settings (broker.md §19.1)."""

from __future__ import annotations

from tianzhou.replication.dledger.timings import Timings
from tianzhou.replication.group_timings import timings_of
from tianzhou.store.settings import StoreSettings


def test_the_defaults_are_dledgers() -> None:
    assert timings_of(StoreSettings()) == Timings()


def test_with_short_times_an_election_waits_for_nobody_longer_than_for_a_leader() -> None:
    settings = StoreSettings(
        d_leger_heart_beat_time_interval_ms=250, d_leger_min_vote_interval_ms=50, d_leger_max_vote_interval_ms=200
    )
    times = timings_of(settings)
    assert times.vote_wait_ms == times.leader_wait_ms == 750
