"""Times and bounds of a member; the defaults are DLedger's (broker.md §19.1, §19.6)."""

from __future__ import annotations

from dataclasses import dataclass

from tianzhou.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Timings:
    """Times and bounds of a member.

    Attributes:
        heartbeat_interval_ms: a leader says this often that it is there.
        max_heartbeat_leak: so many intervals without the leader and a follower looks for another one; a leader that
            a quorum has not answered for as long stops to lead.
        min_vote_interval_ms: least time from one election of a candidate to its next.
        max_vote_interval_ms: the most; in between by chance.
        min_take_leadership_vote_interval_ms: the least while it takes leadership over.
        max_take_leadership_vote_interval_ms: the most.
        vote_wait_ms: so long a candidate waits for answers, and up to `max_vote_interval_ms` more by chance.
        request_limit_ms: an answer that took longer is of no use.
        max_push_time_out_ms: entries without an answer are sent again after this time.
        commit_interval_ms: an idle leader says this often what is committed.
        ask_again_ms: a node that was not ready is asked again after this time, and a compare that failed is repeated
            after this many times ten.
        leadership_transfer_wait_timeout_ms: so long who shall lead may take to reach the leader's end.
        preferred_leader_interval_ms: this often a leader looks whether a preferred one could lead.
        max_leadership_transfer_wait_index: entries that who shall lead may be behind.
        max_pending_requests: entries without a quorum above which a leader accepts no more.
        max_pushes: requests with entries that one follower may have outstanding.
        max_push_bytes: bytes of them.
        stretch_bytes: bytes of one stretch.
        max_batch_push_bytes: bytes of a batch for Apache's nodes; 0 sends every entry by itself.
        peer_push_throttle_bytes: a follower that is further behind than this gets no more than `peer_push_quota_bytes`
            a second, unless fewer than `throttled_entries` are missing.
        peer_push_quota_bytes: see there.
        throttled_entries: see there.
        waiting_pushes: requests that a follower keeps because earlier ones have not come.
        waiting_push_bytes: bytes of them.
    """

    heartbeat_interval_ms: int = 2000
    max_heartbeat_leak: int = 3
    min_vote_interval_ms: int = 300
    max_vote_interval_ms: int = 1000
    min_take_leadership_vote_interval_ms: int = 30
    max_take_leadership_vote_interval_ms: int = 100
    vote_wait_ms: int = 2000
    request_limit_ms: int = 3000
    max_push_time_out_ms: int = 1000
    commit_interval_ms: int = 1000
    ask_again_ms: int = 50
    leadership_transfer_wait_timeout_ms: int = 1000
    preferred_leader_interval_ms: int = 1000
    max_leadership_transfer_wait_index: int = 1000
    max_pending_requests: int = 10_000
    max_pushes: int = 1000
    max_push_bytes: int = 8 << 20
    stretch_bytes: int = 256 << 10
    max_batch_push_bytes: int = 0
    peer_push_throttle_bytes: int = 300 << 20
    peer_push_quota_bytes: int = 20 << 20
    throttled_entries: int = 1000
    waiting_pushes: int = 1000
    waiting_push_bytes: int = 64 << 20

    def __post_init__(self) -> None:
        for name in ("heartbeat_interval_ms", "max_heartbeat_leak", "min_vote_interval_ms", "request_limit_ms"):
            if getattr(self, name) <= 0:
                raise ConfigError(f"{name} is {getattr(self, name)}; it has to be above 0")
        for least, most in (
            ("min_vote_interval_ms", "max_vote_interval_ms"),
            ("min_take_leadership_vote_interval_ms", "max_take_leadership_vote_interval_ms"),
        ):
            if getattr(self, least) >= getattr(self, most):
                raise ConfigError(
                    f"{least} is {getattr(self, least)}, not below {most}, which is {getattr(self, most)}"
                )

    @property
    def leader_wait_ms(self) -> int:
        """So long a follower waits for its leader, and a leader for a quorum."""
        return self.heartbeat_interval_ms * self.max_heartbeat_leak
