"""Time limits and bounds of a member; the defaults are DLedger's (broker.md §19.1, §19.6)."""

from __future__ import annotations

from dataclasses import dataclass

from tianzhou.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Timings:
    """Time limits and bounds of a member.

    Attributes:
        heartbeat_interval_ms: time between two heartbeats of a leader.
        max_heartbeat_leak: number of intervals without the leader after which a follower starts an election. A leader
            without a quorum's answers for as long steps down.
        min_vote_interval_ms: minimum time between two elections of a candidate.
        max_vote_interval_ms: maximum time between them; the time is random.
        min_take_leadership_vote_interval_ms: minimum time while it takes over leadership.
        max_take_leadership_vote_interval_ms: maximum time while it takes over leadership.
        vote_wait_ms: time that a candidate waits for votes, with up to `max_vote_interval_ms` more at random.
        request_limit_ms: time after which a reply is of no use.
        max_push_time_out_ms: time after which entries without a reply are sent again.
        commit_interval_ms: time between two commit messages of an idle leader.
        ask_again_ms: time before a node that was not ready gets the request again. A failed compare is repeated after
            ten times as long.
        leadership_transfer_wait_timeout_ms: time that the next leader may take to reach the leader's end.
        preferred_leader_interval_ms: time between two checks of a leader whether a preferred node could lead.
        max_leadership_transfer_wait_index: maximum number of entries that the next leader may lack.
        max_pending_requests: maximum number of entries without a quorum; a leader refuses more appends.
        max_pushes: maximum number of outstanding requests with entries for one follower.
        max_push_bytes: maximum bytes of them.
        stretch_bytes: bytes of one stretch.
        max_batch_push_bytes: bytes of a batch for Apache's nodes; 0 sends one entry per request.
        peer_push_throttle_bytes: lag above which a follower gets at most `peer_push_quota_bytes` a second, unless it
            lacks fewer than `throttled_entries`.
        peer_push_quota_bytes: bytes per second for a throttled follower.
        throttled_entries: minimum number of missing entries of a throttled follower.
        waiting_pushes: maximum number of requests that a follower holds until earlier ones arrive.
        waiting_push_bytes: maximum bytes of them.
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
        """Time that a follower waits for its leader, and a leader for a quorum."""
        return self.heartbeat_interval_ms * self.max_heartbeat_leak
