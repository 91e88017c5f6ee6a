"""The time to the next election after our leader loses the connection to our node and an Apache node."""

from __future__ import annotations

from random import Random

import pytest
from loaded_group import LoadedGroup

from seeds import seeds

MOST_MS = 12_000
"""Maximum ms to a new leader: six seconds to miss the leader, at most three for a round of votes, and an election."""


@pytest.mark.parametrize("seed", seeds(6, 34, 30))
def test_the_two_others_have_a_leader_soon_whosever_log_is_longer(seed: int) -> None:
    rng = Random(seed)
    group = LoadedGroup(rng)
    group.network.run_until(12_000 + rng.randint(0, 7000))
    leader = group.leader()
    for node in group.nodes:
        if node is not leader:
            group.network.cuts |= {(leader.name, node.name), (node.name, leader.name)}
    assert group.next_leader_ms(leader, limit_ms=60_000) <= MOST_MS
