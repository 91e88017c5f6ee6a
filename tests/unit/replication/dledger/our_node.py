"""A node of ours in a simulated group: executes its `DLedgerMember`'s requests, and may lose power in the middle."""

from __future__ import annotations

from typing import Any

from group_checks import Checks
from group_network import Network
from memory_log import MemoryLog

from tianzhou.records.entry import HEADER_SIZE
from tianzhou.replication.dledger.member import DLedgerMember
from tianzhou.replication.dledger.node import NO_DOUBT
from tianzhou.replication.dledger.ready import HardState, Keep, NodeRole, Ready
from tianzhou.replication.dledger.timings import Timings
from tianzhou.wire.bodies.dledger import TransferRequest


class PowerLost(Exception):
    """The node stops here."""


class OurNode:
    """A node; `sync` means that it acknowledges only entries on the disk."""

    def __init__(
        self, name: str, peers: list[str], network: Network, checks: Checks, timings: Timings, *, sync: bool = False
    ) -> None:
        self.name = name
        self.alive = False
        self.life = 0
        self.network = network
        self.checks = checks
        self.timings = timings
        self.sync = sync
        self.peers = peers
        self.tears = False
        """Whether the last entries may be half written after a power failure."""
        self.doubted_from = NO_DOUBT
        self.fragile = 0.0
        """Probability of a power failure in the middle of a `Ready`."""
        self.hard_state = HardState()
        self.keep = Keep("")
        self.log = MemoryLog()
        self.disk: list[bytes] = []
        self.checkpoint = -1
        self.impaired = self.was_impaired = False
        """Whether it lacks lost entries; the second one, whether it did at its last start."""
        self.replaced = False
        """Whether its folder was replaced, and it does not have all committed entries again."""
        self.complaints: list[str] = []
        self.pending: list[tuple[int, int, bytes]] = []
        self._syncing = False
        self.member: DLedgerMember
        network.hosts[name] = self
        self.restart()

    # The machine

    def restart(self) -> None:
        self.alive = True
        self.member = DLedgerMember(
            "group", self.name, self.peers, self.log, self.hard_state, chance=self.network.rng.random,
            now_ms=self.network.now_ms, timings=self.timings, committed_index=self.checkpoint, impaired=self.impaired,
            doubted_from=self.doubted_from, sync_entries=self.sync, synced_index=self.log.end_index,
            group_id=self.keep.group_id, halted=self.keep.halted, joining=self.keep.joining, alone=self.keep.alone,
        )  # fmt: skip
        self.disk = list(self.log.raw)
        self.was_impaired = self.impaired
        self.reached = self.checkpoint
        self._syncing = False
        life = self.life

        def tick() -> None:
            if self.alive and self.life == life:
                self.network.at(10, tick)
                self.tick()

        self.network.at(1, tick)
        self._carry_out()

    def crash(self, *, power: bool) -> None:
        """End the process; with a power failure, data that is not on the disk is lost, too."""
        self.alive = False
        self.life += 1
        self.pending = []
        rng = self.network.rng
        # The checkpoint is written from time to time, for entries on the disk.
        stored = self.log.begin_index + self._equal(self.disk) - 1 if self.sync else self.log.end_index
        self.checkpoint = min(rng.choice((self.checkpoint, min(self.reached, stored))), self.doubted_from - 1)
        if not power or not self.log.raw:
            self.log = MemoryLog(self.log.raw)
            return
        if self.sync:
            equal = self._equal(self.disk)
            whole = equal == len(self.disk)
            # Cut entries may reappear, or a part of the entries appended since.
            rest = self.log.raw[: rng.randint(equal, len(self.log.raw))] if whole or rng.random() < 0.5 else self.disk
            self.log = MemoryLog(rest)
        else:
            synced = max(len(self.log.raw) - 20, 1)
            left = rng.randint(synced, len(self.log.raw))
            self.impaired = True
            self.doubted_from = min(self.doubted_from, self.log.begin_index + synced)
            kept = self.log.raw[:left]
            for n in range(synced, left) if self.tears else ():
                if rng.random() < 0.2:
                    kept[n] = kept[n][:HEADER_SIZE] + bytes(len(kept[n]) - HEADER_SIZE)
            self.log = MemoryLog(kept)
        self.checkpoint = min(self.checkpoint, self.log.end_index, self.doubted_from - 1)

    def _equal(self, raw: list[bytes]) -> int:
        """Return the number of leading entries that equal the log's."""
        equal = 0
        while equal < min(len(raw), len(self.log.raw)) and raw[equal] == self.log.raw[equal]:
            equal += 1
        return equal

    def tick(self) -> None:
        self.member.tick(self.network.now_ms)
        self._carry_out()

    def requested(self, ticket: object, request: Any) -> None:
        self.member.requested(ticket, request, self.network.now_ms)
        self._carry_out()

    # The shell

    def _carry_out(self) -> None:
        try:
            while self.alive and self.member.has_ready:
                self._do(self.member.ready())
        except PowerLost:
            self.crash(power=True)
            life = self.life
            self.network.at(self.network.rng.randint(50, 3000), lambda: self._again(life))
        else:
            self._sync_later()

    def _again(self, life: int) -> None:
        if not self.alive and self.life == life:
            self.restart()

    def _may_fail(self) -> None:
        if self.fragile and self.network.rng.random() < self.fragile:
            raise PowerLost

    def _do(self, ready: Ready) -> None:
        self._may_fail()
        if ready.hard_state is not None:
            self.hard_state = ready.hard_state
            self._may_fail()
        if ready.keep is not None:
            self.keep = ready.keep
            self._may_fail()
        if ready.cut is not None:
            self.log.cut(ready.cut)
            self._may_fail()
        if ready.append is not None:
            self.log.append(ready.append)
            self._may_fail()
        if ready.recovered:
            self.impaired, self.doubted_from = False, NO_DOUBT
        self.complaints += ready.complaints
        if ready.committed is not None:
            self.reached = ready.committed.index
            self.checks.committed(self.name, self.log, ready.committed)
        if ready.standing is not None:
            standing = ready.standing
            self.checks.standing(self.name, standing, self.log)
            if standing.role is not NodeRole.LEADER:
                self.pending = []
        if ready.committed is not None:
            self._acknowledge(ready.committed.index)
        for answer in ready.answers:
            answer.ticket(answer.response)  # type: ignore[operator]
        for send in ready.sends:
            self.network.ask(
                self.name, send.peer, send.request, send.limit_ms,
                lambda reply, number=send.number: self._answered(number, reply),
            )  # fmt: skip
        if ready.open_term and self.member.standing.role is NodeRole.LEADER:
            self.log.open_term(self.member.opening, self.network.now_ms)
            self.member.appended(self.network.now_ms)

    def _answered(self, number: int, reply: Any) -> None:
        self.member.answered(number, reply, self.network.now_ms)
        self._carry_out()

    def _acknowledge(self, index: int) -> None:
        done = [item for item in self.pending if item[0] <= index]
        self.pending = [item for item in self.pending if item[0] > index]
        for at, term, body in done:
            self.checks.acknowledged(at, term, body)

    def _sync_later(self) -> None:
        if not self.sync or self._syncing or not self.alive or self.disk == self.log.raw:
            return
        self._syncing = True
        raw, life = list(self.log.raw), self.life

        def done() -> None:
            if not self.alive or self.life != life:
                return
            self._syncing = False
            equal = self._equal(raw)
            self.disk = raw
            if equal and self.log.raw:
                self.member.synced(self.log.begin_index + equal - 1, self.network.now_ms)
            self._carry_out()
            self._sync_later()

        self.network.at(self.network.rng.randint(1, 30), done)

    # Requests of clients

    def propose(self, body: bytes) -> bool:
        """Append an entry, if this node accepts it."""
        if not self.alive or self.member.refusal() is not None:
            return False
        term = self.member.standing.term
        self.pending.append((self.log.add(term, body), term, body))
        self.member.appended(self.network.now_ms)
        self._carry_out()
        return True

    def expire(self, count: int) -> None:
        """Drop entries at the beginning, but only committed ones."""
        begin = min(self.log.begin_index + count, self.member.committed.index)
        if self.alive and self.log.raw and begin > self.log.begin_index and not self._syncing:
            self.log.expire(begin)
            self.disk = list(self.log.raw)

    def hand_over(self, peer: str) -> None:
        """Transfer the leadership, as an administrator."""
        if self.alive:
            request = TransferRequest(
                group="group", remote_id=self.name, term=self.member.standing.term, transfer_id=self.name,
                transferee_id=peer,
            )  # fmt: skip
            self.requested(lambda _: None, request)

    @property
    def committed_index(self) -> int:
        return self.member.committed.index

    @property
    def current_term(self) -> int:
        return self.member.standing.term

    @property
    def leader(self) -> str | None:
        return self.member.standing.leader

    @property
    def role(self) -> NodeRole:
        return self.member.standing.role

    def described(self) -> str:
        log, member = self.log, self.member
        return (
            f"{member.standing} log {log.begin_index}..{log.end_index} of {log.end_term} committed "
            f"{self.committed_index} impaired {member.impaired} {self.complaints[-2:]}"
        )
