"""A member whose `dLegerPeers` names itself alone does not lead while other members live, and leads when they
are dead.
"""

from __future__ import annotations

import time
from pathlib import Path

from group_load import Load, await_caught_up, create_topic, stored
from groups import OURS, QUICK_ELECTIONS, Group, group
from own import OwnBroker, asked

from waiting import until

SOME_S = 10
"""Seconds for which the member with the wrong list runs beside the others."""


def with_peers(running: Group, number: int, peers: str) -> OwnBroker:
    """Stop a member and start it again with another list."""
    member = running.members[number]
    assert isinstance(member, OwnBroker)
    member.stop()
    member.conf["dLegerPeers"] = peers
    member.launch()
    return member


def test_a_member_alone_in_its_list_takes_no_message_while_others_live(tmp_path: Path) -> None:
    with group(tmp_path, (OURS,) * 3) as running:
        create_topic(running)
        with Load(running.namesrv) as load:
            until(lambda: len(load.acknowledged) > 50, "some are acknowledged")
            # The leader itself, because clients send to its address.
            number = running.leader()
            alone = with_peers(running, number, running.peers.split(";")[number])
            before = len(load.acknowledged)
            time.sleep(SOME_S)
            assert len(load.acknowledged) > before + 50
            assert running.sends(alone.address) is None
            leader = running.leader(other_than=number)
            code, status = asked(running.namesrv, "status")
            assert code == 1
            (fault,) = [one for one in status["faults"] if one["kind"] == "member-follows-no-further"]
            assert "dLegerPeers of this" in fault["reason"]
            assert running.members[leader].address in fault["reason"] or f"n{leader}" in fault["reason"]
            lines = [line for line in alone.console().splitlines() if f"n{number} does not lead" in line]
            assert len(lines) == 1, lines
            with_peers(running, number, running.peers)
            await_caught_up(running, number)
        await_caught_up(running, number)
        for member in running.members:
            found = stored(member.address)
            assert set(load.acknowledged) <= set(found)


def test_the_last_member_leads_alone_when_the_others_are_gone(tmp_path: Path) -> None:
    with group(tmp_path, (OURS,) * 3, QUICK_ELECTIONS) as running:
        create_topic(running)
        number = running.leader()
        for other, member in enumerate(running.members):
            if other != number:
                member.kill()
        began_s = time.monotonic()
        alone = with_peers(running, number, running.peers.split(";")[number])
        until(lambda: running.sends(alone.address, "orders"), "the last member leads", within_s=60)
        print(f"the last member led {time.monotonic() - began_s:.1f} s after the order to stop it")
