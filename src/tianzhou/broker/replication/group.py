"""A member of a DLedger group: master while it leads, slave while it does not (broker.md §19.9)."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from typing import Final, Self

from tianzhou.broker.registration.master_lookup import living_master
from tianzhou.broker.registration.name_servers import CurrentNameServers
from tianzhou.broker.replication.member_tables import BROKER_PERMISSION
from tianzhou.broker.replication.metadata_sync import MetadataSync
from tianzhou.broker.replication.replication import LOOK_EVERY_S, AllWritten, Duties, Replication
from tianzhou.broker.replication.table_answers import COMPLETE, SERVING, TERM
from tianzhou.broker.replication.table_requests import TableRequests, Wrap, with_sure_offsets
from tianzhou.broker.replication.tables_log import NOTE, TablesLog
from tianzhou.broker.replication.tables_log import WORK as TABLES_IN_LOG
from tianzhou.broker.settings import BrokerSettings
from tianzhou.broker.state import Tables
from tianzhou.clock import Clock
from tianzhou.errors import StoreError
from tianzhou.remoting.client import RemotingClient
from tianzhou.remoting.gates.access_control import AccessControl
from tianzhou.replication.group_node import GroupNode
from tianzhou.replication.group_timings import timings_of
from tianzhou.replication.port_protection import UNPROTECTED, PortProtection
from tianzhou.store.store import MessageStore
from tianzhou.supervision import Supervisor
from tianzhou.watermark import Watermark
from tianzhou.wire.bodies.replication import HaClient as HaClientStatus
from tianzhou.wire.bodies.replication import HaConnection, HaStatus
from tianzhou.wire.mastership import Mastership

_PERIOD_S: Final = 0.5
"""Seconds between two copies of the leader's tables; commits of this time are lost when the leader fails."""
_LEAVE_S: Final = 3.0
"""Maximum seconds that a stop waits until another member leads."""

_log = logging.getLogger(__name__)


class GroupReplication(Replication):
    """Replication of a member whose role the group decides; an async context manager.

    Args:
        store: the message store, whose log consists of entries.
        settings: the broker's settings.
        clock: source of time.
        port: the broker's main port.
        reopen: callback that reopens the store.
        protection: protection of the port for the group's members.
        chance: returns random numbers, at least 0 and below 1.

    Attributes:
        node: this member's node in the group.
        log: the tables in the group's log; None for a member that polls its leader.
    """

    def __init__(
        self,
        store: MessageStore,
        settings: BrokerSettings,
        clock: Clock,
        port: int,
        reopen: Callable[[], None] = lambda: None,
        protection: PortProtection = UNPROTECTED,
        chance: Callable[[], float] = random.random,
    ) -> None:
        super().__init__(store, settings, clock, port, reopen, protection)
        self.is_slave = True
        address = f"{settings.broker_ip1}:{port}"
        self._changes = Watermark()
        self.node = GroupNode(store, clock, settings.bind_address, address, chance, protection)
        self.log: TablesLog | None = None
        self._sync: MetadataSync | None = None

    async def __aenter__(self) -> Self:
        return self

    def keep_tables(self, tables: Tables, files: AllWritten, access: AccessControl | None) -> None:
        """Synchronize the tables with the group's log."""
        super().keep_tables(tables, files, access)
        period_s = lambda: self._settings.flush_consumer_offset_interval / 1000  # noqa: E731
        self.log = TablesLog(tables, self._store, files, self._users, self._clock, period_s)
        if self._users is not None:
            self._users.follows = lambda: self.is_slave and bool(self._refused())
            self._users.agrees = self._agrees

    @property
    def broker_id(self) -> int:
        """0 for the leader; the number in `dLegerSelfId` and one more for the others.

        A leader that was blocked for long may have lost the lead before its role changes. It must not register as
        master in place of the present leader.
        """
        return 0 if not self.is_slave and self.node.still_leads() else self.node.number + 1

    @property
    def near_master(self) -> bool:
        """Whether another member leads and this member receives its heartbeats."""
        return self.is_slave and self.node.standing.leader not in {None, self.node.id}

    @property
    def refuses_pulls(self) -> bool:
        """Whether this broker serves no pulls: its log may differ from the group's, or slaves must not be read."""
        return bool(self._unsure()) or super().refuses_pulls

    def _unsure(self) -> str:
        """Return why the log and the tables of this member may differ from the group's; empty when they agree."""
        if self.node.halted:
            return f"this member of the group {self.node.group} follows no further: {self.node.halted}"
        if not self.node.joined:
            return (
                f"this member of the group {self.node.group} has not heard from a leader since its start, so its "
                "offsets may be those of another folder; ask the leader"
            )
        return ""

    @property
    def corrects_offsets(self) -> bool:
        """Whether this member leads. Followers learn commits later, and after a start they know none."""
        return not self.is_slave

    @property
    def holders(self) -> list[str]:
        """Addresses of other members' brokers, the leader's first."""
        return self.node.broker_addresses + ([self.master] if self.master else [])

    def master_named(self, address: str, ha_address: str) -> None:
        """Note the master's address.

        It is used only for a leader of Apache's, because Tianzhou's leaders send their broker address to the group.
        """
        self.master = address

    async def begin(
        self,
        supervisor: Supervisor,
        tables: Tables,
        client: RemotingClient,
        register: Callable[[], None],
        duties: Duties,
    ) -> None:
        """Start the node in the group; the role follows its elections."""

        def master() -> str:
            return (self.node.leader_address or self.master) if self.near_master else ""

        self._know_topics(tables)
        if self.log is not None:
            log = self.log
            log.load()
            supervisor.own(TABLES_IN_LOG, lambda: log.run(supervisor))
            supervisor.own(NOTE, lambda: log.keep_note(supervisor))
        # Consumers commit at the master that they know until they learn of another one, so note own commits.
        tables.offsets.own = {}
        if self._is_alone:
            self.node.bar(f"name servers have not been asked whether {self.node.group} has another master")
            supervisor.own("other masters of the group", lambda: self._watch_other_masters(client))
        await self._stack.enter_async_context(self.node)
        supervisor.own("group", self.node.run)
        supervisor.own("role in the group", lambda: self._follow_role(tables, register, duties))
        store = self._store
        term = lambda: self.node.standing.term  # noqa: E731
        tables_of_leader = MetadataSync(
            tables, client, self._clock, master, store, _PERIOD_S, store.queues, term, self.log, self._users
        )
        self._sync = tables_of_leader
        supervisor.own("tables of the leader", lambda: tables_of_leader.run(supervisor.troubles))

    @property
    def _is_alone(self) -> bool:
        """Whether this member is the only one of its list and name servers may know other masters."""
        settings = self._settings
        return len(self.node.addresses) == 1 and bool(settings.namesrv_addr or CurrentNameServers(settings).looked_up)

    async def _watch_other_masters(self, client: RemotingClient) -> None:
        """Prevent a member that is alone in its list from leading beside another living master of its name."""
        node, settings, servers = self.node, self._settings, CurrentNameServers(self._settings)
        address, asked = f"{settings.broker_ip1}:{self._broker_port}", False
        while True:
            await servers.refresh()
            found = await living_master(client, servers.addresses, settings.broker_name, address)
            if found is None and not asked:
                # No name server answers, so wait for members that are missing in the list.
                await asyncio.sleep(timings_of(self._store.settings).leader_wait_ms / 1000)
            if found is not None or not asked:
                other, server = found or ("", "")
                node.bar(
                    f"dLegerPeers of this broker ({address}) names {node.id} alone, and {other} is the living master "
                    f"of {settings.broker_name}, as name server {server} has it; give all members one list"
                    if other
                    else ""
                )
            asked = True
            await asyncio.sleep(LOOK_EVERY_S)

    async def _follow_role(self, tables: Tables, register: Callable[[], None], duties: Duties) -> None:
        """Switch to master while the node leads and all entries are committed, to slave otherwise."""
        node = self.node
        registered_under, ended = node.standing.leader, node.leads_ended
        node.changed = lambda: self._changes.advance(self._changes.value + 1)
        while True:
            change, leader = self._changes.value, node.standing.leader
            if not self.is_slave and (not node.leads or node.leads_ended != ended):
                self.is_slave = True
                tables.offsets.own = {}
                if self.log is not None:
                    self.log.end_term()
                await duties.end()
                _log.warning("this broker is not the master of %s any more: %s", node.group, node.why)
                register()
            elif leader != registered_under:
                register()
            if node.leads and self.is_slave:
                ended = node.leads_ended
                if await self._become_master(duties):
                    tables.offsets.own = None
                    register()
            registered_under = leader
            await self._changes.reach(change + 1)

    async def _become_master(self, duties: Duties) -> bool:
        """Start the master's tasks; return whether this node still leads afterwards."""
        node, term, ended = self.node, self.node.standing.term, self.node.leads_ended

        def opened() -> None:
            # Another member may have been elected meanwhile.
            if not node.leads or node.leads_ended != ended:
                raise StoreError(f"the lead of {node.group} in term {term} is over")
            self._store.flags.opened()

        try:
            await node.ready_to_serve()
            if self.log is not None:
                await self.log.caught_up()
            await duties.begin(opened)
            if self.log is not None and node.leads and node.leads_ended == ended:
                self.log.begin_term(term)
        except StoreError as error:
            _log.warning("this broker does not become the master: %s", error)
            await duties.end()
            return False
        self.is_slave = False
        _log.info("this broker is the master of %s now (term %d)", node.group, term)
        return True

    @property
    def mastership(self) -> Mastership | None:
        """The group's name, members, identity and the term in which this member leads; None while it does not lead."""
        node = self.node
        if self.is_slave:
            return None
        return Mastership(node.group, frozenset(node.addresses), node.standing.term, node.group_id)

    async def leave(self) -> None:
        """Transfer the lead before this member stops; it serves until the other member leads."""
        await self.node.leave(_LEAVE_S)

    def around(self, wrap: Wrap) -> Wrap:
        """Return the wrapper of the router's handlers.

        Answers to changes of tables wait for a majority. A member whose folder may be of another group returns no
        offsets.
        """
        wrap = with_sure_offsets(wrap, self._unsure)
        return wrap if self.log is None else TableRequests(self.log, self._refused).around(wrap)

    def _agrees(self) -> bool:
        """Whether this member has the tables of the present leader, by a snapshot in the log of the leader's term."""
        return self.near_master and self.log is not None and self.log.agreed_term == self.node.standing.term

    def _refused(self) -> str:
        """Return why this member refuses changes of tables; empty when it accepts them."""
        if not self.is_slave or (self.near_master and self._sync is not None and self._sync.leader_is_apache):
            return ""
        leader = self.node.leader_address
        where = f"the leader, {leader}" if leader and self.near_master else "the leader, once the group has elected one"
        return f"this broker does not lead the DLedger group {self.node.group}: send the request to {where}"

    def setting_changed(self, keys: set[str]) -> None:
        """Log a changed broker permission, which the members share."""
        if self.log is not None and BROKER_PERMISSION in keys and not self.is_slave:
            self.log.member.note_setting()

    def table_fields(self) -> dict[str, str]:
        """Return the header fields of answers with a complete table, with the term of the group."""
        serving = not self.is_slave and self.node.still_leads()
        complete = self.log is not None and self.log.complete
        return super().table_fields() | {
            SERVING: "true" if serving else "false",
            COMPLETE: "true" if complete else "false",
            TERM: str(self.node.standing.term),
        }

    def runtime_info(self) -> dict[str, str]:
        """Return the runtime figures with this member's state in its group, which Apache's brokers lack."""
        node = self.node
        return super().runtime_info() | {
            "dLegerGroup": node.group,
            "dLegerSelfId": node.id,
            "dLegerRole": node.standing.role.value,
            "dLegerTerm": str(node.standing.term),
            "dLegerLeaderId": node.standing.leader or "",
            "dLegerGroupId": node.group_id,
            "dLegerHalted": node.halted or node.barred,
        }

    def status(self) -> HaStatus:
        """Return the state of the copies (907)."""
        end, node = self._store.end_offset, self.node
        if self.is_slave:
            client = HaClientStatus(master_addr=node.leader_address or None, max_offset=end)
            return HaStatus(master=False, ha_client_runtime_info=client)
        connections = [
            HaConnection(
                addr=peer.address,
                diff=max(end - peer.position, 0),
                in_sync=peer.in_sync,
                slave_ack_offset=peer.position,
                transfer_from_where=peer.position,
            )
            for peer in node.peers()
        ]
        return HaStatus(
            master_commit_log_max_offset=end,
            in_sync_slave_nums=sum(connection.in_sync for connection in connections),
            ha_connection_info=connections,
        )
