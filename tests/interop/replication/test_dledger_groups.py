"""DLedger groups of ours, of Apache's and mixed: election, replication and failover without loss (broker.md §19)."""

from __future__ import annotations

from pathlib import Path

import pytest
from group_load import Load, create_topic, equal_logs, stored
from groups import OURS, Links, group
from own import OwnBroker
from toolchain import SERVERS, ToolchainMissingError

from waiting import until

CUT_OFF_S = 15.0
"""Seconds within which a group of both kinds registers a new leader when its leader is cut off."""

MIXTURES = {
    f"two-of-ours-{SERVERS[0]}": (OURS, OURS, SERVERS[0]),
}
SLOW_MIXTURES = {
    f"one-of-ours-{SERVERS[1]}": (OURS, SERVERS[1], SERVERS[1]),
    "ours": (OURS, OURS, OURS),
    f"two-of-ours-{SERVERS[1]}": (OURS, OURS, SERVERS[1]),
    f"one-of-ours-{SERVERS[0]}": (OURS, SERVERS[0], SERVERS[0]),
}


@pytest.mark.at_once
@pytest.mark.parametrize(
    "kinds",
    [
        *(pytest.param(kinds, id=name) for name, kinds in MIXTURES.items()),
        *(pytest.param(kinds, id=name, marks=pytest.mark.slow) for name, kinds in SLOW_MIXTURES.items()),
    ],
)
def test_each_leader_in_turn_dies_and_nothing_acknowledged_is_lost(kinds: tuple[str, ...], tmp_path: Path) -> None:
    """Kill three leaders in turn under load, and restart each of them."""
    try:
        with group(tmp_path, kinds) as running:
            create_topic(running)
            with Load(running.namesrv) as load:
                until(lambda: len(load.acknowledged) > 100, "messages are acknowledged", within_s=60)
                for _ in range(3):
                    leader = running.leader()
                    running.members[leader].kill()
                    before = len(load.acknowledged)
                    running.leader(other_than=leader)
                    until(lambda n=before: len(load.acknowledged) > n + 100, "it goes on", within_s=60)
                    running.members[leader] = running.member(leader, running.kinds[leader])
                    running.members[leader].launch()
                    until(
                        lambda n=leader: running.members[n].address in running.registered().values(),
                        "it is back",
                        within_s=90,
                    )
            until(lambda: equal_logs(running), "all members have the same log", within_s=60)
            for member in running.members:
                if isinstance(member, OwnBroker):
                    until(
                        lambda a=member.address: set(load.acknowledged) <= set(stored(a)), "all is served", within_s=60
                    )
    except ToolchainMissingError as error:
        pytest.skip(str(error))


@pytest.mark.slow
def test_a_leader_that_is_cut_off_is_replaced_within_fifteen_seconds(tmp_path: Path) -> None:
    """Cut a leader off from the members, not from clients. A new leader registers within 15 s and serves 5 s later."""
    links = Links()
    try:
        with group(tmp_path, (OURS, OURS, SERVERS[0]), links=links) as running:
            create_topic(running)
            leader = running.leader()
            with Load(running.namesrv) as load:
                until(lambda: len(load.acknowledged) > 100, "messages are acknowledged", within_s=60)
                links.cut_off(leader)
                running.leader(other_than=leader, within_s=CUT_OFF_S)
                before = len(load.acknowledged)
                until(lambda: len(load.acknowledged) > before, "it goes on", within_s=5)
    except ToolchainMissingError as error:
        pytest.skip(str(error))
