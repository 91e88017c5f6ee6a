"""Members of a DLedger group, observed from outside: leadership, service, and reported committed entries."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from unittest.mock import patch

from tianzhou.replication.dledger.member import DLedgerMember
from tianzhou.replication.dledger.ready import NodeRole, Ready, Standing
from tianzhou.replication.group_node import GroupNode
from tianzhou.store.entries.entry_log import EntryLog
from tianzhou.testing.simulation.history import Agreed, Foreign, Halted, History, Leads, Serves
from tianzhou.testing.simulation.processes import here

STRANGER: Final = "stranger"
"""The machine of a member of another group, or of another life of the group, on its own network."""


@contextmanager
def members_noted(history: History) -> Iterator[None]:
    """Record every leadership, every entry that a member reports as committed, and every member that halts.

    Entries that the stranger appends are recorded as foreign ones.

    Args:
        history: records the events.
    """
    stand, carry_out, committed, note_halt = GroupNode._stand, GroupNode._do, EntryLog.committed, GroupNode._note_halt
    forks: list[int] = []

    def noted_stand(node: GroupNode, standing: Standing, why: str = "") -> None:
        before = node.standing
        stand(node, standing, why)
        name, elected = _runs(), standing.role is NodeRole.LEADER and before.role is not NodeRole.LEADER
        if not name:
            return
        if name != STRANGER:
            _note_standing(history, name, node, before)
        elif elected:
            # All entries after this one are the stranger's own.
            forks.append(node._entries.end_index)

    def noted_vote(node: GroupNode, member: DLedgerMember, ready: Ready) -> None:
        carry_out(node, member, ready)
        process = here()
        vote = None if ready.hard_state is None else ready.hard_state.vote
        if process is not None and process.on_vote is not None and vote not in {None, node.id}:
            process.on_vote(str(vote))

    def noted_commit(entries: EntryLog, index: int) -> None:
        before = entries.committed_index
        committed(entries, index)
        group, name = entries._settings.d_leger_group, _runs()
        if not name:
            return
        for number in range(max(before + 1, entries.begin_index, 0), entries.committed_index + 1):
            content = _content(entries, number)
            if name != STRANGER:
                history.add(Agreed, group, name, number, content)
            elif forks and number > forks[0]:
                history.add(Foreign, number, content)

    def noted_halt(node: GroupNode, halted: str) -> None:
        before = node.halted
        note_halt(node, halted)
        name = _runs()
        if name not in {"", STRANGER} and halted != before:
            history.add(Halted, name, halted)

    with (
        patch.object(GroupNode, "_stand", noted_stand),
        patch.object(GroupNode, "_do", noted_vote),
        patch.object(GroupNode, "_note_halt", noted_halt),
        patch.object(EntryLog, "committed", noted_commit),
    ):
        yield


def _note_standing(history: History, name: str, node: GroupNode, before: Standing) -> None:
    standing = node.standing
    if standing.role is NodeRole.LEADER and (before.role is not NodeRole.LEADER or before.term != standing.term):
        foreign = sum(content in history.foreign for content in _contents(node._entries)) if history.foreign else 0
        history.add(Leads, node.group, standing.term, name, foreign)
    if standing.serving != before.serving or (standing.serving and standing.term != before.term):
        history.add(Serves, node.group, standing.term if standing.serving else before.term, name, standing.serving)


def _runs() -> str:
    """Return the machine of the process whose code runs; empty when the process has died, or without one."""
    process = here()
    return "" if process is None or process.ended else process.host.name


def _content(entries: EntryLog, index: int) -> str:
    return hashlib.blake2b(entries.entry(index), digest_size=8).hexdigest()


def _contents(entries: EntryLog) -> Iterator[str]:
    """Yield the digest of each entry of a log."""
    if entries.begin_index >= 0:
        for index in range(entries.begin_index, entries.end_index + 1):
            yield _content(entries, index)
