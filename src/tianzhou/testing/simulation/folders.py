"""Exchanges of whole folders by an operator: older copies, empty folders, folders of another log.

One member at a time gets another folder, while the disks of all other members have every committed entry. So a majority
does not change its folders. The operator watches the member until it has the group's log again. It resets a member that
follows no further, or does not start, with an empty folder.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Final

from tianzhou.broker.replication.group import GroupReplication
from tianzhou.store.entries.entry_log import EntryLog
from tianzhou.testing.simulation.faults import COPY, EMPTY, FOREIGN, LIFE, OLDER
from tianzhou.testing.simulation.history import Exchanged, Fault, History, Joined
from tianzhou.testing.simulation.servers import BrokerOn
from tianzhou.testing.simulation.strangers import Stranger

_LOOK_S: Final = 0.1
_WAIT_S: Final = 20.0
"""Maximum virtual seconds that the operator waits until a folder may be exchanged."""


class FolderExchanges:
    """Restarts members with other folders; see the module.

    Args:
        root: folder for the copies.
        rng: source of random numbers.
        history: records the events.
        brokers: the members by machine.

    Attributes:
        exchanged: members that have not joined again, and the kinds of their folders.
        stranger: fills the foreign folder; None without one.
    """

    def __init__(self, root: Path, rng: Random, history: History, brokers: Mapping[str, BrokerOn]) -> None:
        self._root = root
        self._rng = rng
        self._history = history
        self._brokers = brokers
        self._copies: dict[str, Path] = {}
        self._foreign: dict[str, Path] = {}
        self._reached = -1
        self.exchanged: dict[str, str] = {}
        self.stranger: Stranger | None = None

    def back_up(self, name: str) -> None:
        """Copy the folder of a member, whether it runs or not."""
        if name not in self.exchanged:
            target = self._root / f"copy of {name} {len(self._copies)}"
            shutil.copytree(self._brokers[name].machine.folder, target)
            self._copies[name] = target

    async def estrange(self, name: str, kind: str, stranger: Stranger) -> None:
        """Have a stranger fill a folder for a member.

        Args:
            name: the member.
            kind: one of `faults.FOREIGN`.
            stranger: fills the folder.
        """
        self.stranger = stranger
        source = None
        if kind == LIFE:
            source = self._root / "before the other life"
            shutil.copytree(self._brokers[name].machine.folder, source)
        folder = await stranger.live(source)
        if folder is not None:
            self._foreign[name] = folder

    async def exchange(self, name: str, kind: str, down_s: float, *, hasty: bool) -> None:
        """Restart a member with another folder, unless the other members may lack entries that it has.

        Args:
            name: the member.
            kind: one of `faults.KINDS`.
            down_s: virtual seconds until the member is started.
            hasty: whether the member is killed and loses its folder at once; otherwise it is stopped and checked first.
        """
        if self._source(name, kind) is None and kind != EMPTY:
            return
        server = self._brokers[name]
        if not await self._settled():
            self._history.add(Fault, f"{name} keeps its folder")
            return
        if hasty:
            self._reached = self._committed()
            server.machine.die(power=False)
        else:
            await server.stop()
            settled = await self._settled(without=name)
            if server.machine.process is not None or not settled:
                server.start()
                return
            self._reached = self._committed()
        source = self._source(name, kind)
        if source is None:
            server.machine.empty()
        else:
            server.machine.exchange(source)
        self._note(name, kind)
        await asyncio.sleep(down_s)
        server.start()

    async def watch(self) -> None:
        """Watch members with other folders, and reset each one that halts, until cancelled."""
        while True:
            await asyncio.sleep(_LOOK_S)
            for name in list(self.exchanged):
                server = self._brokers[name]
                why = str(server.failure or "") if server.broker is None else _node_of(server).node.halted
                if why:
                    self._history.add(Fault, f"{name} is reset: {why}")
                    await server.stop()
                    if server.machine.process is None:
                        server.machine.empty()
                        self._note(name, EMPTY)
                        server.start()
                elif self._has_joined(server):
                    del self.exchanged[name]
                    self._history.add(Joined, name)

    def _note(self, name: str, kind: str) -> None:
        self.exchanged[name] = kind
        self._history.add(Exchanged, name, kind)

    def _source(self, name: str, kind: str) -> Path | None:
        """Return the folder to copy; None for an empty one, or when there is none to copy."""
        if kind == OLDER:
            return self._copies.get(name)
        if kind == COPY:
            # The copy is of a running member, in its present state.
            others = [other for other in self._brokers if other != name]
            return self._brokers[self._rng.choice(others)].machine.folder
        return self._foreign.get(name) if kind in FOREIGN else None

    async def _settled(self, without: str = "") -> bool:
        loop = asyncio.get_running_loop()
        limit_s = loop.time() + _WAIT_S
        while self.exchanged or not _agree([one for name, one in self._brokers.items() if name != without]):
            if loop.time() > limit_s:
                return False
            await asyncio.sleep(_LOOK_S)
        return True

    def _committed(self) -> int:
        logs = [_entries(server) for server in self._brokers.values() if server.broker is not None]
        return max(log.committed_index for log in logs)

    def _has_joined(self, server: BrokerOn) -> bool:
        others = [one for one in self._brokers.values() if one is not server and one.broker is not None]
        if server.broker is None or not others:
            return False
        mine, theirs = _entries(server), max((_entries(one) for one in others), key=lambda log: log.committed_index)
        if mine.identity.group_id != theirs.identity.group_id or mine.identity.joining:
            return False
        index = min(mine.committed_index, theirs.committed_index)
        if index < self._reached or index < max(mine.begin_index, theirs.begin_index, 0):
            return False
        return mine.entry(index) == theirs.entry(index)


def _node_of(server: BrokerOn) -> GroupReplication:
    assert server.broker is not None
    replication = server.broker.replication
    assert isinstance(replication, GroupReplication)
    return replication


def _entries(server: BrokerOn) -> EntryLog:
    assert server.broker is not None
    entries = server.broker.store.entries
    assert entries is not None
    return entries


def _agree(servers: list[BrokerOn]) -> bool:
    """Whether all members follow one leader in one term, and have all committed entries on their disks."""
    leading = [server for server in servers if server.leads]
    if len(leading) != 1 or any(server.broker is None for server in servers):
        return False
    standing, newest = _node_of(leading[0]).node.standing, _entries(leading[0]).committed_index
    for server in servers:
        node, entries = _node_of(server).node, _entries(server)
        if node.halted or node.standing.leader != standing.leader or node.standing.term != standing.term:
            return False
        if not entries.identity.group_id or entries.identity.joining:
            return False
        if entries.loss.lost or entries.loss.doubted_from is not None or entries.committed_index < newest:
            return False
        assert server.broker is not None
        store = server.broker.store
        if store.settings.sync_flush and entries.index_before(store.flushed.value) < newest:
            return False
    return newest >= 0
