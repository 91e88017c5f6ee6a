"""The I/O of a DLedger group's node, which executes decisions of its `DLedgerMember` (broker.md §19, docs/adr/0015)."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from typing import Final, NamedTuple, Self

from tianzhou.clock import Clock
from tianzhou.errors import StoreError, TianzhouError
from tianzhou.remoting.client import RemotingClient
from tianzhou.remoting.connection import Connection
from tianzhou.remoting.server import RemotingServer
from tianzhou.repeats import Repeats
from tianzhou.replication.disk_fitness import DiskFitness
from tianzhou.replication.dledger.leading import STOPPED
from tianzhou.replication.dledger.member import DLedgerMember, Unsupported
from tianzhou.replication.dledger.node import NO_DOUBT
from tianzhou.replication.dledger.ready import HardState, NodeRole, Ready, RequestToSend, Standing
from tianzhou.replication.group_clients import answer_client
from tianzhou.replication.group_timings import timings_of
from tianzhou.replication.port_protection import UNPROTECTED, PortProtection
from tianzhou.replication.silent_peers import SilentPeers
from tianzhou.store.entries.entry_log import EntryLog
from tianzhou.store.flags import RunningFlag
from tianzhou.store.settings import parse_peers
from tianzhou.store.store import MessageStore
from tianzhou.supervision import start_owned
from tianzhou.wire.bodies import dledger
from tianzhou.wire.codes import DLedgerRequestCode, DLedgerResponseCode, ResponseCode
from tianzhou.wire.command import Command

BROKER_ADDRESS: Final = "brokerAddr"
"""Header field of our nodes' requests and heartbeat replies: the address where the node's broker serves clients."""
_TICK_S: Final = 0.02
_BEAT: Final = dledger.HeartBeatResponse

_log = logging.getLogger(__name__)


class _Ticket(NamedTuple):
    """The connection and the request that wait for an answer."""

    connection: Connection
    command: Command


class Peer(NamedTuple):
    """Another node, as this leader sees it.

    Attributes:
        id: `n1`.
        address: where it listens for nodes.
        position: log offset up to which it has confirmed this node's log.
        in_sync: whether it has all committed entries.
    """

    id: str
    address: str
    position: int
    in_sync: bool


class GroupNode:
    """A group's node, which listens for other nodes and applies decisions to the store; an async context manager.

    Args:
        store: store whose log consists of entries.
        clock: monotonic time.
        host: where to listen.
        broker_address: where this node's broker serves clients.
        chance: random numbers, at least 0 and below 1.
        protection: allowed addresses of members, which of them use TLS, and how this node connects to them.

    Attributes:
        group: name of the group.
        id: of this node, `n0`.
        number: of this node, 0.
        standing: role, term and leader now.
        halted: why it follows no further, with the remedy; empty when it follows.
        joined: as `DLedgerMember.joined`.
        why: why it does not lead any more, for the log.
        leads_ended: how often it has stopped leading or serving. Work that began before such an end is over, even when
            the node serves again in the same turn of the loop.
        leader_address: where the leader's broker serves clients; empty while it is unknown.
        changed: called when the standing has changed.
    """

    def __init__(
        self,
        store: MessageStore,
        clock: Clock,
        host: str,
        broker_address: str,
        chance: Callable[[], float] = random.random,
        protection: PortProtection = UNPROTECTED,
    ) -> None:
        assert store.entries is not None
        settings = store.settings
        self._store = store
        self._entries: EntryLog = store.entries
        self._clock = clock
        self._host = host
        self._broker_address = broker_address
        self._chance = chance
        self._peers = parse_peers(settings.d_leger_peers)
        self._protection = protection
        self._client = RemotingClient(clock=clock, hooks=protection.hooks, tls=protection.context)
        self._silence = SilentPeers(settings.d_leger_group, self._peers)
        self._stack = AsyncExitStack()
        self._member: DLedgerMember | None = None
        self._failed: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._syncing: asyncio.Task[None] | None = None
        # In the order of their start, which decides the order in which they are cancelled.
        self._calls: dict[asyncio.Task[None], None] = {}
        self._grown = self._fenced = self._stops = False
        self._addresses: dict[str, str] = {}
        self._complaints = Repeats(lines=10)
        self._bar = self._unfit = ""
        self._disk = DiskFitness(store, clock)
        self.group = settings.d_leger_group
        self.id = settings.d_leger_self_id
        self.number = int(self.id[1:])
        self.standing = Standing(NodeRole.CANDIDATE, 0, None, serving=False)
        self.halted = self._entries.identity.halted
        self.joined = False
        self.why = "the broker has just started"
        self.leads_ended = 0
        self.changed: Callable[[], None] | None = None

    async def __aenter__(self) -> Self:
        port = int(self._peers[self.id].rpartition(":")[2])
        await self._stack.enter_async_context(self._client)
        access = self._protection.access
        serve = self._serve if access is None else access.guarded(self._serve)
        server = RemotingServer(
            self._host,
            port,
            serve,
            clock=self._clock,
            port_setting="dLegerPeers",
            tls=self._protection.tls,
            check_address=self._protection.allowed.check,
        )
        await self._stack.enter_async_context(server)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    @property
    def group_id(self) -> str:
        """Identity of the group, 32 hexadecimal digits; empty when the node has none yet."""
        return self._entries.identity.group_id

    @property
    def addresses(self) -> dict[str, str]:
        """Addresses at which the nodes of the group listen for other nodes, by id."""
        return dict(self._peers)

    @property
    def leads(self) -> bool:
        """Whether this node leads and a quorum has confirmed it recently."""
        return self.standing.serving

    def still_leads(self) -> bool:
        """Whether this node leads at this moment.

        A process that was suspended learns only with its next tick that another node leads. This call runs the tick
        first, so that the node does not answer in that leader's place.
        """
        if self.leads and self._member is not None:
            self._step(self._member.tick)
        return self.leads

    @property
    def leader_address(self) -> str:
        """Address where the broker of the leading other node serves clients; empty while it is unknown."""
        return self._addresses.get(self.standing.leader or "", "")

    @property
    def broker_addresses(self) -> list[str]:
        """Known addresses where brokers of other nodes serve clients; the leader's first."""
        leader = self.leader_address
        return list(dict.fromkeys([leader] * bool(leader) + list(self._addresses.values())))

    def peers(self) -> list[Peer]:
        """Return the other nodes, as this leader sees them."""
        if self._member is None:
            return []
        entries, committed = self._entries, self._member.committed.index
        found = []
        for name in [name for name in self._peers if name != self.id]:
            lag = self._member.lag(name)
            index = -1 if lag is None else entries.end_index - lag
            position = entries.end_of(index) if 0 <= entries.begin_index <= index else 0
            found.append(Peer(name, self._peers[name], position, index >= committed))
        return found

    async def run(self) -> None:
        """Take part in the group until cancelled.

        Raises:
            OSError: the disk refuses a write; the caller runs the node again with the state on the disk.
            StoreError: the log is inconsistent or refuses an operation; the caller runs the node again too.
        """
        entries, settings = self._entries, self._store.settings
        term, vote = entries.terms.read()
        self._failed = asyncio.get_running_loop().create_future()
        self._member = DLedgerMember(
            self.group,
            self.id,
            list(self._peers),
            entries,
            HardState(term, vote),
            chance=self._chance,
            now_ms=self._now_ms(),
            timings=timings_of(settings),
            committed_index=entries.committed_index,
            impaired=bool(entries.loss.lost),
            doubted_from=NO_DOUBT if entries.loss.doubted_from is None else entries.loss.doubted_from,
            sync_entries=settings.sync_flush,
            synced_index=entries.index_before(self._store.flushed.value),
            preferred_leaders=settings.preferred_leaders,
            group_id=entries.identity.group_id,
            halted=entries.identity.halted,
            joining=entries.identity.joining,
            alone=entries.identity.alone,
        )
        self._unfit = ""
        self._member.bar(self._bar, self._now_ms())
        self._store.appended = self._note_growth
        self._watch_disk()
        try:
            self._tick()
            await self._failed
        finally:
            self._store.appended = None
            if self._syncing is not None:
                self._syncing.cancel()
            if self._timer is not None:
                self._timer.cancel()
            for call in self._calls:
                call.cancel()
            self._disk.close()
            self._member = None
            self._fence(fenced=False)
            self._stand(Standing(NodeRole.CANDIDATE, self.standing.term, None, serving=False), "this node has stopped")

    def bar(self, why: str) -> None:
        """Prevent this node from leading for a reason; an empty reason lets it lead."""
        self._bar = why
        if self._member is not None:
            self._step(partial(self._member.bar, why))

    @property
    def barred(self) -> str:
        """Why this node must not lead; empty when it may."""
        return self._bar if self._member is None else self._member.barred

    async def leave(self, limit_s: float) -> None:
        """Transfer leadership, and return once the other node serves; this node does not lead again.

        Returns at once when this node does not lead, or no other node can take over leadership.

        Args:
            limit_s: maximum seconds to wait.
        """
        until_s, member = self._clock.monotonic() + limit_s, self._member
        if member is None or len(self._peers) == 1:
            return
        led = self.standing.role is NodeRole.LEADER
        self._stops = True
        self._judge_fitness(member)
        while led and self._member is member and self._clock.monotonic() < until_s:
            if self.standing.role is NodeRole.LEADER and not member.can_hand_over:
                _log.warning("group %s: no member takes the lead over from %s, which stops", self.group, self.id)
                return
            if self.standing.role is not NodeRole.LEADER and self._is_led():
                _log.info("group %s: %s leads now, %s stops", self.group, self.standing.leader, self.id)
                return
            await asyncio.sleep(_TICK_S)

    def _is_led(self) -> bool:
        """Whether another node leads and has committed an entry of its term."""
        entries, index = self._entries, self._entries.committed_index
        known = self.standing.leader is not None and 0 <= entries.begin_index <= index
        return known and entries.term_at(index) == self.standing.term

    async def ready_to_serve(self) -> None:
        """Wait until all of the log is committed and dispatched to queues.

        Raises:
            StoreError: this node does not lead any more.
        """
        await self._entries.served()

    def _now_ms(self) -> int:
        return int(self._clock.monotonic() * 1000)

    # events

    def _tick(self) -> None:
        if self._member is not None:
            self._timer = asyncio.get_running_loop().call_later(_TICK_S, self._tick)
            self._judge_fitness(self._member)
            self._step(self._member.tick)

    def _judge_fitness(self, member: DLedgerMember) -> None:
        """Report to the member that it may not lead while this broker stops or its disk refuses writes."""
        leads = self.standing.role is NodeRole.LEADER
        why = "this broker is being stopped" if self._stops else self._disk.unfit(leads=leads)
        if why != self._unfit:
            text = f"shall not lead: {why}" if why else "may lead again"
            _log.log(logging.WARNING if not self._stops else logging.INFO, "group %s: %s %s", self.group, self.id, text)
            self._unfit = why
            self._step(partial(member.unfit, why))

    def _note_growth(self) -> None:
        if not self._grown:
            self._grown = True
            asyncio.get_running_loop().call_soon(self._tell_growth)

    def _tell_growth(self) -> None:
        self._grown = False
        if self._member is not None and self.standing.role is NodeRole.LEADER:
            self._step(self._member.appended)

    def _watch_disk(self) -> None:
        """Start the task that reports flushed entries to the member; start it again after each cut of the log."""
        if self._syncing is not None:
            # After a cut the flushed offset is smaller, and the task waits for an offset from before the cut.
            self._syncing.cancel()
        self._syncing = start_owned(self._follow_disk(), "group") if self._store.settings.sync_flush else None

    async def _follow_disk(self) -> None:
        flushed = self._store.flushed
        while self._member is not None:
            self._step(partial(self._member.synced, self._entries.index_before(flushed.value)))
            await flushed.reach(flushed.value + 1)

    # decisions of the member

    def _step(self, happened: Callable[[int], object]) -> None:
        """Report an event to the member, with the present time, and execute its decisions."""
        member = self._member
        if member is None or self._failed is None or self._failed.done():
            return
        try:
            happened(self._now_ms())
            while member.has_ready:
                self._do(member, member.ready())
            if member.handing_over is not self._fenced:
                self._fence(fenced=member.handing_over)
        except (OSError, StoreError, MemoryError) as error:
            # A decision that was made or executed only in part must not be answered. The node starts again with the
            # state on the disk.
            if isinstance(error, OSError):
                self._store.failures.append_refused(str(error))
            self._failed.set_exception(error)

    def _fence(self, *, fenced: bool) -> None:
        """Refuse puts while the next leader catches up, because it is elected only with all entries of this node."""
        self._fenced, flags = fenced, self._store.flags
        if fenced:
            flags.put_up(RunningFlag.FENCED, f"{self.id} hands the lead of the group {self.group} over; send again")
        else:
            flags.take_down(RunningFlag.FENCED)

    def _do(self, member: DLedgerMember, ready: Ready) -> None:
        entries = self._entries
        if ready.hard_state is not None:
            entries.terms.write(ready.hard_state.term, ready.hard_state.vote)
        if ready.keep is not None:
            keep = ready.keep
            entries.identity.write(keep.group_id, keep.halted, joining=keep.joining, alone=keep.alone)
        if ready.cut is not None:
            if ready.cut.whole_log:
                entries.clear()
            else:
                entries.cut_from(ready.cut.index)
            self._watch_disk()
        if ready.append is not None:
            entries.append_raw(ready.append.entries)
        if ready.committed is not None:
            entries.committed(ready.committed.index)
        if ready.standing is not None:
            self._stand(ready.standing)
        if ready.open_term:
            entries.lead(self.standing.term)
            opening = member.opening
            entries.append_opening(opening.term, self._clock.now_ms(), opening.group_id, opening.term_id)
            member.appended(self._now_ms())
        if ready.recovered:
            entries.mended()
            _log.warning("group %s: this node's log has got back what it lost", self.group)
        self.joined = member.joined
        self._note_halt(member.halted)
        for complaint in ready.complaints:
            # Any peer that reaches the port can provoke complaints, so they are limited.
            held = self._complaints.due(self.group, self._clock.monotonic())
            if held is not None:
                _log.warning("group %s: %s%s", self.group, complaint, f" ({held} more were left out)" if held else "")
        for send in ready.sends:
            call = start_owned(self._send(send), "group")
            self._calls[call] = None
            call.add_done_callback(self._calls.pop)
        for answer in ready.answers:
            assert isinstance(answer.ticket, _Ticket)
            # No node sends requests to a leader, so the leader learns its followers' broker addresses from replies.
            where = {BROKER_ADDRESS: self._broker_address} if isinstance(answer.response, _BEAT) else None
            body = dledger.encode(answer.response)
            reply = answer.ticket.command.reply(DLedgerResponseCode.SUCCESS, fields=where, body=body)
            answer.ticket.connection.send(reply)

    def _note_halt(self, halted: str) -> None:
        """Log, once, that this node follows no further, or that it follows again."""
        if halted == self.halted:
            return
        self.halted = halted
        if halted:
            _log.error("group %s: %s follows no further: %s", self.group, self.id, halted)
        else:
            _log.warning("group %s: %s follows the other members again", self.group, self.id)

    def _stand(self, standing: Standing, why: str = "") -> None:
        before, self.standing = self.standing, standing
        if standing == before:
            return
        same_lead = standing.role is before.role is NodeRole.LEADER and standing.term == before.term
        if before.role is NodeRole.LEADER and (not same_lead or (before.serving and not standing.serving)):
            if same_lead:
                self.why = "most of the group has not answered it for too long"
            else:
                self.why = why or f"{standing.leader or 'nobody'} leads in term {standing.term}"
            self.leads_ended += 1
            self._entries.follow(f"this broker is not the master of {self.group}: {self.why}")
        if standing.serving and not self._entries.leading:
            self._entries.lead(standing.term)
        _log.info(
            "group %s: %s is %s in term %d, leader %s",
            self.group, self.id, standing.role.value, standing.term, standing.leader or "unknown",
        )  # fmt: skip
        if self.changed is not None:
            self.changed()

    async def _send(self, send: RequestToSend) -> None:
        code = dledger.CODES[type(send.request)]
        fields = {BROKER_ADDRESS: self._broker_address}
        if isinstance(send.request, dledger.StretchRequest):
            fields |= dledger.stretch_fields(send.request)
        response: dledger.Response | Unsupported | None = None
        try:
            command = Command(code, fields=fields, body=dledger.encode(send.request))
            reply = await self._client.invoke(self._peers[send.peer], command, send.limit_ms)
            self._silence.answered(send.peer, self._clock.monotonic())
            if reply.code == DLedgerResponseCode.SUCCESS:
                response = dledger.decode(dledger.RESPONSES[code], reply.body)
                if response.code in STOPPED:
                    self._addresses.pop(send.peer, None)  # it has no copy of this group's records
                elif address := reply.fields.get(BROKER_ADDRESS):
                    self._addresses[send.peer] = address[:255]
            elif reply.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                response = Unsupported()
        except TianzhouError as error:
            self._silence.note(send.peer, error, self._clock.monotonic())
        if self._member is not None:
            self._step(partial(self._member.answered, send.number, response))

    # requests of other nodes and clients

    def _serve(self, connection: Connection, command: Command) -> Command | None:
        try:
            code = DLedgerRequestCode(command.code)
        except ValueError:
            text = f"request type {command.code} not supported at the port of a group's nodes (dLegerPeers)"
            return command.reply(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, text)
        if self._member is None:
            return command.reply(ResponseCode.SYSTEM_BUSY, "this node has not begun to take part in its group")
        if code is DLedgerRequestCode.STRETCH:
            request: dledger.Request = dledger.read_stretch(command.fields, command.body)
        else:
            request = dledger.decode(dledger.REQUESTS[code], command.body)
        if isinstance(
            request, dledger.MetadataRequest | dledger.AppendRequest | dledger.GetRequest | dledger.PullRequest
        ):
            body = dledger.encode(answer_client(self, self._entries, request))
            return command.reply(DLedgerResponseCode.SUCCESS, body=body)
        name = request.local_id
        is_own = request.group == self.group and (not self.group_id or request.group_id in {None, self.group_id})
        if name in self._peers and is_own and (address := command.fields.get(BROKER_ADDRESS)):
            self._addresses[name] = address[:255]
        self._step(partial(self._member.requested, _Ticket(connection, command), request))
        return None
