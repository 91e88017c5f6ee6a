"""Members of a DLedger group, seen from outside: who leads and serves, and which entries each says are committed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from tianzhou.replication.dledger.member import Member
from tianzhou.replication.dledger.ready import Ready, Role, Standing
from tianzhou.replication.group_node import GroupNode
from tianzhou.store.entries.entry_log import EntryLog
from tianzhou.testing.simulation.history import Agreed, History, Leads, Serves
from tianzhou.testing.simulation.processes import here


@contextmanager
def members_noted(history: History) -> Iterator[None]:
    """Note every leadership, and every entry that a member says is committed.

    Args:
        history: gets them.
    """
    stand, carry_out, committed = GroupNode._stand, GroupNode._do, EntryLog.committed

    def noted_stand(node: GroupNode, standing: Standing, why: str = "") -> None:
        before = node.standing
        stand(node, standing, why)
        process = here()
        if process is None or process.ended:
            return
        name = process.host.name
        if standing.role is Role.LEADER and (before.role is not Role.LEADER or before.term != standing.term):
            history.add(Leads, node.group, standing.term, name)
        if standing.serving != before.serving or (standing.serving and standing.term != before.term):
            history.add(Serves, node.group, standing.term if standing.serving else before.term, name, standing.serving)

    def noted_vote(node: GroupNode, member: Member, ready: Ready) -> None:
        carry_out(node, member, ready)
        process = here()
        vote = None if ready.hard_state is None else ready.hard_state.vote
        if process is not None and process.on_vote is not None and vote not in {None, node.id}:
            process.on_vote(str(vote))

    def noted_commit(entries: EntryLog, index: int) -> None:
        before = entries.committed_index
        committed(entries, index)
        process = here()
        if process is None or process.ended:
            return
        group, name = entries._settings.d_leger_group, process.host.name
        for number in range(max(before + 1, entries.begin_index, 0), entries.committed_index + 1):
            content = hashlib.blake2b(entries.entry(number), digest_size=8).hexdigest()
            history.add(Agreed, group, name, number, content)

    with (
        patch.object(GroupNode, "_stand", noted_stand),
        patch.object(GroupNode, "_do", noted_vote),
        patch.object(EntryLog, "committed", noted_commit),
    ):
        yield
