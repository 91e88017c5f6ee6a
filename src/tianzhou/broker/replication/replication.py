"""A broker's part in its group: the master that slaves copy from, or a slave (broker.md §17)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from typing import Final, Protocol, Self

from tianzhou.broker.rebuilt_note import rebuilt_tables
from tianzhou.broker.replication.metadata_sync import WORK as TABLES
from tianzhou.broker.replication.metadata_sync import MetadataSync
from tianzhou.broker.replication.slave_reports import DURABILITY, REPEAT_S, HaltedSlaves, difference, report_fields
from tianzhou.broker.replication.table_answers import REBUILT, SERVING, START
from tianzhou.broker.replication.table_requests import Wrap
from tianzhou.broker.settings import BrokerSettings
from tianzhou.broker.state import Tables
from tianzhou.clock import Clock
from tianzhou.errors import ConfigError, LimitExceeded, TianzhouError
from tianzhou.model import TopicConfig, names
from tianzhou.records.walk import LogEntry
from tianzhou.remoting.client import RemotingClient
from tianzhou.remoting.gates.access_control import AccessControl
from tianzhou.remoting.users.user_store import UserStore
from tianzhou.replication.ha_client import WORK, SlaveHaClient
from tianzhou.replication.ha_server import HaServer
from tianzhou.replication.port_protection import UNPROTECTED, PortProtection
from tianzhou.store.store import MessageStore
from tianzhou.supervision import Supervisor
from tianzhou.wire.bodies.replication import HaClient as HaClientStatus
from tianzhou.wire.bodies.replication import HaConnection, HaStatus
from tianzhou.wire.codes import RequestCode, ResponseCode
from tianzhou.wire.command import Command
from tianzhou.wire.fields import write_header
from tianzhou.wire.mastership import Mastership

DEFAULT_HA_PORT: Final = 10_912
"""Default of `haListenPort`, which means the port above the main one (broker.md §3.1)."""

_READER: Final = "TOOLS_CONSUMER"
"""Group with which RocketMQ's tools read messages; it exists at every broker."""
_WITH_SUBSCRIPTION: Final = 4
_READ_LIMIT_MS: Final = 10_000
LOOK_EVERY_S: Final = 3.0
"""Seconds between two requests to the name servers of a slave without a master."""

_log = logging.getLogger(__name__)


class Duties(Protocol):
    """Tasks that a broker runs only while it is the master."""

    async def begin(self, opened: Callable[[], None] | None = None) -> None:
        """Start the tasks; call `opened` once the store may accept messages."""
        ...

    async def end(self) -> None:
        """Stop."""
        ...


class AllWritten(Protocol):
    """The table files of the broker.

    Attributes:
        older: names of files with older content than the last write, because a file was damaged.
    """

    older: list[str]

    async def all_written(self) -> None:
        """Return once the files have all changes made so far.

        Raises:
            StoreError: a file cannot be written.
        """


class Replication:
    """Serves slaves at the HA port, or follows the master that name servers name; an async context manager.

    Args:
        store: the message store.
        settings: the broker's settings.
        clock: source of time.
        port: the broker's main port.
        reopen: callback that reopens the store.
        protection: protection of the HA port, and TLS and credentials of a slave's connection to its master.

    Attributes:
        master: address of a slave's master; empty while it is unknown, and at a master.
        is_slave: whether this broker is a slave.
        other_holder: address of another living broker of this one's name and id; empty while there is none.
        master_flush_offset: end of the master's log at the master's start, as a slave received it; 0 when unknown.
        halted_slaves: slaves of this master that copy nothing until an operator decides.
    """

    def __init__(
        self,
        store: MessageStore,
        settings: BrokerSettings,
        clock: Clock,
        port: int,
        reopen: Callable[[], None] = lambda: None,
        protection: PortProtection = UNPROTECTED,
    ) -> None:
        self._store = store
        self._protection = protection
        self._settings = settings
        self._clock = clock
        self._broker_port = port
        self._start_ms = clock.now_ms()
        self._users: UserStore | None = None
        self._stack = AsyncExitStack()
        self._server: HaServer | None = None
        self._follower = SlaveHaClient(
            store, clock, lambda: self._ha_master, reopen, protection.context, settings.broker_config_path
        )
        self.is_slave = store.settings.broker_role == "SLAVE"
        self._ha_master_is_fixed = self.is_slave and store.settings.ha_master_address != ""
        self._ha_master = store.settings.ha_master_address if self._ha_master_is_fixed else ""
        self.master = self.other_holder = ""
        self.master_flush_offset = 0
        self._look_for_master: Callable[[], None] = lambda: None
        self.halted_slaves = HaltedSlaves()
        self._durability_of_master: str | None = store.settings.durability

    async def __aenter__(self) -> Self:
        if not self.is_slave:
            above, port = self._broker_port + 1, self._store.settings.ha_listen_port
            if port not in {DEFAULT_HA_PORT, above}:
                self._server = await self._listen(port)
                return self
            try:
                self._server = await self._listen(above)
            except ConfigError:
                # The port was not configured, and slaves learn the port from name servers, so take a free one.
                self._server = await self._listen(0)
                _log.warning("port %d is taken; slaves are served at %d (haListenPort)", above, self._server.port)
        return self

    async def _listen(self, port: int) -> HaServer:
        server = HaServer(self._store, self._clock, self._settings.bind_address, port, self._protection)
        return await self._stack.enter_async_context(server)

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    def keep_tables(self, tables: Tables, files: AllWritten, access: AccessControl | None) -> None:
        """Set the tables to synchronize with the other brokers of this name; to be called before `begin`.

        Args:
            tables: the broker's tables, loaded.
            files: write the tables.
            access: access control with the user store; None without access control.
        """
        self._users = None if access is None else access.users

    @property
    def mastership(self) -> Mastership | None:
        """The grounds of this broker's mastership, for name servers; None while it is not the master."""
        return None if self.is_slave else Mastership()

    async def leave(self) -> None:
        """Let another broker become the master before this one stops; only members of a DLedger group can."""

    @property
    def broker_id(self) -> int:
        """Id of this broker among the brokers of its name, 0 for the master."""
        return self._settings.broker_id

    @property
    def ha_address(self) -> str:
        """Address at which the broker serves slaves, `host:port`."""
        port = self._broker_port + 1 if self._server is None else self._server.port
        return f"{self._settings.broker_ip2 or self._settings.broker_ip1}:{port}"

    async def begin(
        self,
        supervisor: Supervisor,
        tables: Tables,
        client: RemotingClient,
        register: Callable[[], None],
        duties: Duties,
    ) -> None:
        """Start as master or slave; to be awaited before requests are served.

        Args:
            supervisor: owns the tasks.
            tables: tables that a slave makes equal to the master's.
            client: client for requests to the master.
            register: callback that registers at the name servers, whose answers name the master.
            duties: tasks that only a master runs.
        """
        if not self.is_slave:
            tables.offsets.own = None
            await duties.begin()
            return

        if self.refuses_pulls:
            _log.info(
                "slaveReadEnable=false: this slave serves no pulls, not even while its master is away; "
                "set slaveReadEnable=true to have consumers read from it then"
            )
        self._look_for_master = register
        broken: asyncio.Queue[LogEntry] = asyncio.Queue()
        self._follower.broken_at_master = broken.put_nowait
        tables.offsets.own = {}

        async def look() -> None:
            while True:
                await asyncio.sleep(LOOK_EVERY_S)
                if not self.near_master:
                    register()

        async def have_read() -> None:
            while True:
                await self._have_read(client, await broken.get())

        supervisor.own("looking for the master", look)
        supervisor.own("reports to the master", lambda: self._report_halts(client))
        supervisor.own("broken records of the master", have_read)
        supervisor.own(WORK, lambda: self._follower.run(supervisor))
        # Copy no tables from a master whose log differs: it is away, or has lost records that groups read here.
        master = lambda: self.master if self.agrees_with_master else ""  # noqa: E731
        folder = self._store.settings.root / "config"
        tables_of_master = MetadataSync(
            tables, client, self._clock, master, self._store, users=self._users, folder=folder,
            copying=lambda: self._follower.following, heard=self._compare_durability,
        )  # fmt: skip
        self._know_topics(tables, tables_of_master.note_topic_of_log)
        supervisor.own(TABLES, lambda: tables_of_master.run(supervisor.troubles))

    def _compare_durability(self, fields: Mapping[str, str]) -> None:
        """Warn once for each value of the master's `durability` that differs from this slave's."""
        theirs = fields.get(DURABILITY)
        if theirs != self._durability_of_master:
            self._durability_of_master = theirs
            if line := difference(self._store.settings.durability, theirs):
                _log.warning("%s", line)

    async def _report_halts(self, client: RemotingClient) -> None:
        """Report to the master that this slave has halted or copies again, until cancelled."""
        reported, last_s, refused = "", 0.0, ("", "")
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            halted, master, now_s = self._follower.halted, self.master, self._clock.monotonic()
            is_due = halted != reported or (halted and now_s - last_s >= REPEAT_S)
            if not master or not is_due or refused == (master, halted):
                continue
            fields = report_fields(f"{self._settings.broker_ip1}:{self._broker_port}", halted)
            command = Command(RequestCode.EXCHANGE_BROKER_HA_INFO, fields=fields)
            with suppress(TianzhouError):  # the master is away, and is tried again
                reply = await client.invoke(master, command, _READ_LIMIT_MS)
                reported, last_s = halted, now_s
                if reply.code != ResponseCode.SUCCESS:
                    refused = master, halted  # Apache's brokers before 5.0, or the slave's account may not

    async def _have_read(self, client: RemotingClient, entry: LogEntry) -> None:
        """Pull a message at the master, where its record is broken.

        A Tianzhou master then notices the broken record and fetches it from this slave.
        """
        code = RequestCode.PULL_MESSAGE
        fields = write_header(
            code, consumer_group=_READER, topic=entry.topic, queue_id=entry.queue_id,
            queue_offset=entry.queue_offset, max_msg_nums=1, sys_flag=_WITH_SUBSCRIPTION, commit_offset=0,
            suspend_timeout_millis=0, subscription="*", sub_version=0,
        )  # fmt: skip
        try:
            await client.invoke(self.master, Command(code, fields=fields), _READ_LIMIT_MS)
        except TianzhouError as error:
            _log.warning("the broken record at %d of the master's log is not read there: %s", entry.offset, error)

    def _know_topics(self, tables: Tables, note: Callable[[str], None] = lambda topic: None) -> None:
        """Add topics that are only in the log to the topic table.

        Args:
            tables: tables of this broker.
            note: callback with each such topic.
        """
        from_log: set[str] = set()

        def know(topic: str, queue_id: int) -> None:
            # The master may go away before its topics are copied, and acknowledged messages must be served.
            config = tables.topics.get(topic)
            if config is None:
                # Use the maximum number of queues: clients know the route and pull queues that had no message yet.
                few = topic.startswith((names.RETRY_PREFIX, names.DLQ_PREFIX))
                count = 1 if few else self._settings.default_topic_queue_nums
                config = TopicConfig(topic, count, count)
                from_log.add(topic)
                note(topic)
            count, written = queue_id + 1, config.write_queue_nums
            if topic in from_log:
                # This slave may become the master, so the topic needs as many write queues as read queues.
                written = max(written, count)
            found = replace(config, read_queue_nums=max(config.read_queue_nums, count), write_queue_nums=written)
            with suppress(LimitExceeded):
                tables.topics.put(found, self._clock.now_ms())

        self._store.copy.on_new_queue = know

    def master_named(self, address: str, ha_address: str) -> None:
        """Note the master that a name server names in the answer to a registration.

        Args:
            address: address of the master.
            ha_address: address at which the master serves slaves; ignored when `haMasterAddress` is set.
        """
        if self._ha_master_is_fixed:
            ha_address = self._ha_master
        if self.is_slave and (address, ha_address) != (self.master, self._ha_master):
            if address:
                _log.info("the master is %s, its HA port %s", address, ha_address)
            else:
                _log.warning("no master is registered; what this slave has is served")
            self.master, self._ha_master = address, ha_address
            self._follower.master_changed()

    def master_reported(self, flush_offset: int | None) -> None:
        """Ask the name servers for the master at once, because a broker has reported one (906).

        Any peer can send such a request. A slave that trusted it could be made to copy another log.

        Args:
            flush_offset: end of the master's log at the master's start.
        """
        if self.is_slave:
            self.master_flush_offset = self.master_flush_offset or flush_offset or 0
            self._look_for_master()

    @property
    def refuses_pulls(self) -> bool:
        """Whether this broker is a slave that serves no pulls because of `slaveReadEnable` (broker.md §17.4)."""
        return self.is_slave and not self._settings.slave_read_enable

    @property
    def holders(self) -> list[str]:
        """Addresses of other brokers that are known to have this log, the most reliable first."""
        return [self.master] if self.master else []

    @property
    def near_master(self) -> bool:
        """Whether this is a slave that follows a master, so that groups should read from the master."""
        return self._follower.following is not None

    @property
    def corrects_offsets(self) -> bool:
        """Whether this broker corrects a consumer's offset outside a queue to the queue's bounds.

        A slave may be late: its master, or a master that returns, has messages that the slave lacks. So a slave
        corrects offsets with `offsetCheckInSlave` only (broker.md §9.4).
        """
        return not self.is_slave or self._store.settings.offset_check_in_slave

    @property
    def agrees_with_master(self) -> bool:
        """Whether this is a slave whose log is a prefix of its master's log."""
        following = self._follower.following
        return following is not None and following.agrees

    def table_fields(self) -> dict[str, str]:
        """Return the header fields of answers with a complete table: this broker's role, start and durability."""
        serving = "false" if self.is_slave else "true"
        rebuilt = {REBUILT: "true"} if rebuilt_tables(self._store.settings.root) else {}
        return {SERVING: serving, START: str(self._start_ms), DURABILITY: self._store.settings.durability, **rebuilt}

    def around(self, wrap: Wrap) -> Wrap:
        """Return the wrapper of the router's handlers: here `wrap` itself."""
        return wrap

    def setting_changed(self, keys: set[str]) -> None:
        """Note that a request has changed settings."""

    def runtime_info(self) -> dict[str, str]:
        """Return the figures of runtime info (28) about copies and other masters, which `admin.copy_faults` reads."""
        figures = {"otherMaster": self.other_holder} if self.other_holder else {}
        if self._store.settings.durability:
            figures[DURABILITY] = self._store.settings.durability
        if not self.is_slave:
            figures |= self.halted_slaves.figures(self._clock.monotonic())
        if self._follower.halted:
            figures["haHalted"] = self._follower.halted
        if self._server is not None and self._store.settings.broker_role == "SYNC_MASTER":
            slaves, end = self._server.slaves, self._store.end_offset
            wanted = max(1 + slaves.needed(end), self._store.settings.min_in_sync_replicas)
            figures |= {"haCopiesWanted": str(wanted), "haCopiesInSync": str(1 + slaves.in_sync(end))}
        return figures

    def status(self) -> HaStatus:
        """Return the state of the copies (907)."""
        store, end = self._store, self._store.end_offset
        if self.is_slave:
            following = self._follower.following
            client = HaClientStatus(
                ha_halted=self._follower.halted or None,
                master_addr=self._ha_master or None,
                max_offset=end,
                last_read_timestamp=0 if following is None else self._ms_ago(following.heard_s),
                last_write_timestamp=0 if following is None else self._ms_ago(following.reported_s),
                transferred_byte_in_second=0 if following is None else following.rate(self._clock.monotonic()),
                master_flush_offset=self.master_flush_offset,
            )
            return HaStatus(master=False, ha_client_runtime_info=client)
        slaves = () if self._server is None else self._server.slaves.connected
        connections = [
            HaConnection(
                addr=slave.address,
                diff=end - slave.acked,
                in_sync=end - slave.acked < store.settings.ha_max_gap_not_in_sync,
                slave_ack_offset=slave.acked,
                transfer_from_where=slave.sent,
                transferred_byte_in_second=slave.rate(self._clock.monotonic()),
            )
            for slave in slaves
            if slave.acked >= 0
        ]
        return HaStatus(
            master_commit_log_max_offset=end,
            in_sync_slave_nums=sum(connection.in_sync for connection in connections),
            ha_connection_info=connections,
        )

    def _ms_ago(self, monotonic_s: float) -> int:
        return self._clock.now_ms() - int((self._clock.monotonic() - monotonic_s) * 1000)
