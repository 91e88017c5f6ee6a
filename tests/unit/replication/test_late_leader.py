"""A stopped and resumed leader process notices the lost leadership at its first check, before its next tick."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from group_of_one import group_store
from member_desk import Desk

from broker_probe import NodeProbe
from tianzhou.broker.replication.group import GroupReplication
from tianzhou.replication.dledger.ready import NodeRole
from tianzhou.replication.group_node import GroupNode
from tianzhou.testing.clock import VirtualClock, run
from tianzhou.wire.bodies.dledger import StretchRequest, StretchResponse

PEERS = "n0-127.0.0.1:1;n1-127.0.0.1:2;n2-127.0.0.1:3"


async def late(folder: Path) -> None:
    clock, desk = VirtualClock(), Desk()
    desk.elect()
    for index in (-1, 0):
        desk.reply(desk.sent(StretchRequest, "n1")[-1], StretchResponse(index=index, end_index=index))
    assert desk.member.standing.serving
    async with group_store(folder, d_leger_peers=PEERS) as store:
        node = GroupNode(store, clock, "127.0.0.1", "127.0.0.1:9")
        NodeProbe(node).take_part_as(desk.member)
        assert node.still_leads()
        clock.advance(60)
        # No task has run since.
        assert node.leads
        assert not node.still_leads()
        assert not node.leads
        assert node.standing.role is NodeRole.CANDIDATE


def test_a_lead_that_is_over_ends_when_somebody_asks(tmp_path: Path) -> None:
    run(late(tmp_path))


@pytest.mark.parametrize(("leads", "broker_id"), [(True, 0), (False, 2)])
def test_a_master_that_leads_no_more_registers_as_a_slave(leads: bool, broker_id: int) -> None:
    replication: Any = GroupReplication.__new__(GroupReplication)
    replication.is_slave = False
    replication.node = SimpleNamespace(number=1, still_leads=lambda: leads)
    assert replication.broker_id == broker_id
