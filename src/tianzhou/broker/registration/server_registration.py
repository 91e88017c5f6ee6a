"""Registration at one name server: at start, on every change of topics at once, and periodically (broker.md §4).

Each name server has a task of its own, so a slow name server does not delay the others.

A large table is sent completely once. Afterwards only changed topics are sent, as RocketMQ does, if the name server
confirms the last registration and retains topics that a registration does not list. Every period sends the complete
table again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final

from tianzhou.broker.registration.other_holder import OtherHolder
from tianzhou.broker.registration.registration_states import RegistrationState
from tianzhou.broker.registration.topic_bodies import TopicBodies
from tianzhou.broker.services import Services
from tianzhou.errors import ConfigError, TianzhouError
from tianzhou.model import DataVersion
from tianzhou.records.checksum import crc32
from tianzhou.remoting.client import RemotingClient
from tianzhou.remoting.connection import Connection
from tianzhou.settings import parse_properties
from tianzhou.watermark import Watermark
from tianzhou.wire.bodies.tables import KV_TABLE
from tianzhou.wire.bodies.topics import DATA_VERSION
from tianzhou.wire.codes import RequestCode, ResponseCode
from tianzhou.wire.command import Command
from tianzhou.wire.fields import read_reply, write_header
from tianzhou.wire.mastership import OTHER_MASTER, Mastership

SHORTEST_PERIOD_MS = 10_000
LONGEST_PERIOD_MS = 60_000
RETRY_S = 1.0
"""Pause after a registration that failed; RocketMQ would wait for the next period."""
SILENT_S: Final = 1.0
"""Seconds without an answer after which the broker no longer waits for a name server."""
MISSED_S: Final = 5.0
"""Seconds without an answer after which the log names a name server; the request itself waits longer."""
UNREGISTER_TIMEOUT_MS = 3_000
MANY_TOPICS = 1_000
"""Number of topics from which on only changed topics are registered."""
DROPS_UNLISTED = "deleteTopicWithBrokerRegistration"
"""Setting of a name server that drops topics which a registration does not list."""

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Registered:
    """Last registration at the name server: its version, and the topics changed since."""

    version: DataVersion
    changed: set[str] = field(default_factory=set)


class ServerRegistration:
    """Registration of a broker at one name server, repeated periodically.

    Args:
        address: address of the name server, `host:port`.
        services: the broker's services.
        client: client for requests to the name server.
        bodies: encoder of the topics.
        pair: detection of another broker of this one's name and id.
        requested: watermark with the number of the last request to register; advanced at each change.
        changed: callback after a change of the state.
    """

    def __init__(
        self,
        address: str,
        services: Services,
        client: RemotingClient,
        bodies: TopicBodies,
        pair: OtherHolder,
        requested: Watermark,
        changed: Callable[[], None],
    ) -> None:
        self.address = address
        self.state = RegistrationState()
        """State of the registration at the name server."""
        self._tables = services.tables
        self._broker_address = services.address
        self._replication = services.replication
        self._clock = services.clock
        self._supervisor = services.supervisor
        self._client = client
        self._bodies = bodies
        self._pair = pair
        self._requested = requested
        self._changed = changed
        self._connection: Connection | None = None
        self._registered: _Registered | None = None
        self._is_missed = False
        self._is_unreadable = False

    async def run(self) -> None:
        """Register until cancelled."""
        time = asyncio.get_running_loop().time
        periodic, due = False, 0.0
        while True:
            requested = self._requested.value
            up_to_date = await self._attempt(periodic=periodic)
            self.state.handled = requested
            self._changed()
            period = self._tables.settings.register_name_server_period
            period_s = min(max(period, SHORTEST_PERIOD_MS), LONGEST_PERIOD_MS) / 1000
            now = time()
            if periodic or now >= due:
                due = now + period_s
            expired = False
            try:
                async with asyncio.timeout_at(due if up_to_date else now + RETRY_S):
                    await self._requested.reach(requested + 1)
            except TimeoutError:
                expired = up_to_date
            # Send the complete table in each period even while topics change continuously. It repairs losses at the
            # name server and is this broker's heartbeat. asyncio may end the wait up to its clock's resolution before
            # `due`; an expired wait counts as due, or this loop would spin until the clock moves.
            periodic = expired or time() >= due

    async def _attempt(self, *, periodic: bool) -> bool:
        """Register once; return whether the name server is up to date. Note a missing answer."""
        loop = asyncio.get_running_loop()
        timers = [loop.call_later(SILENT_S, self._note_silent), loop.call_later(MISSED_S, self._note_missed)]
        try:
            # The query is a heartbeat, too (`forceRegister` is off).
            if periodic and not self._tables.settings.force_register and await self._knows(self._tables.topics.version):
                self._note_back()
                return True
            return await self._try_update(full=periodic)
        finally:
            for timer in timers:
                timer.cancel()

    def _note_silent(self) -> None:
        self.state.silent = True
        self._changed()

    def _note_missed(self) -> None:
        self._failed(f"no answer for {MISSED_S:g} s")

    async def _knows(self, version: DataVersion) -> bool:
        """Whether the name server has the topics of a version."""
        code, timeout_ms = RequestCode.QUERY_DATA_VERSION, self._tables.settings.register_broker_timeout_mills
        request = self._request(code, DATA_VERSION.dumps(version))
        try:
            reply = await self._client.invoke(self.address, request, timeout_ms)
            self.state.silent = False
            return reply.code == ResponseCode.SUCCESS and bool(reply.body) and not read_reply(code, reply).changed
        except TianzhouError:
            return False

    def topics_changed(self, topics: set[str]) -> None:
        """Note changed topics for the next registration.

        Args:
            topics: names of the topics; empty to send the complete table.
        """
        if not topics:
            self._registered = None
        elif self._registered is not None:
            self._registered.changed.update(topics)

    async def _try_update(self, *, full: bool) -> bool:
        """Run `_update`; note an unexpected error as a trouble and return False."""
        work = f"registration at {self.address}"
        try:
            accepted = await self._update(full=full)
        except Exception as error:  # noqa: BLE001 - the next attempt has to come
            self._supervisor.failed(work, error)
            self._registered = None
            self.state.registered = False
            return False
        if not self._is_unreadable:
            self._supervisor.well(work)
        return accepted

    async def _update(self, *, full: bool) -> bool:
        """Register changed topics, or all with `full`; return whether the name server accepted them."""
        topics = self._tables.topics
        registered = None if full or not self._is_connected() else self._registered
        if registered is not None and not registered.changed:
            return True
        if registered is not None and await self._accepts_changes(registered):
            body = self._bodies.of(registered.changed)
        else:
            body = await self._bodies.full()
        # There was no await since the body was encoded, so later changes are noted for the next registration.
        self._registered = _Registered(topics.version)
        accepted = await self._register(body, looks=full)
        self.state.registered = accepted
        if not accepted:
            self._registered = None
        return accepted

    def _request(self, code: RequestCode, body: bytes = b"", **fields: Any) -> Command:
        """Return a request about this broker with further header fields."""
        settings = self._tables.settings
        header = write_header(
            code,
            broker_name=settings.broker_name,
            broker_addr=self._broker_address,
            cluster_name=settings.broker_cluster_name,
            broker_id=self._replication.broker_id,
            **fields,
        )
        if code is RequestCode.REGISTER_BROKER:
            # A slave sends empty fields, by which the name server recognizes a Tianzhou broker.
            header |= (self._replication.mastership or Mastership()).as_fields()
        return Command(code, fields=header, body=body)

    def _is_connected(self, connection: Connection | None = None) -> bool:
        """Whether the last registration used the present connection, which must be `connection` unless that is None."""
        now = self._client.connected(self.address)
        return now is not None and now is self._connection and connection in {None, now}

    async def _accepts_changes(self, registered: _Registered) -> bool:
        """Whether the name server accepts a registration of the changed topics only."""
        topics = self._tables.topics
        connection = self._connection
        if (
            len(topics) < MANY_TOPICS
            or not registered.changed
            or connection is None
            or self._tables.settings.compressed_register
        ):
            return False
        known, keeps = await asyncio.gather(self._knows(registered.version), self._keeps_unlisted())
        still = self._registered is registered and self._is_connected(connection)
        return known and keeps and still and len(registered.changed) < len(topics) // 2

    async def _keeps_unlisted(self) -> bool:
        """Whether the name server retains topics that a registration does not list; False when that is unknown."""
        timeout_ms = self._tables.settings.register_broker_timeout_mills
        try:
            reply = await self._client.invoke(self.address, Command(RequestCode.GET_NAMESRV_CONFIG), timeout_ms)
            settings = parse_properties(bytes(reply.body).decode("utf-8", "replace"), source=self.address)
        except (TianzhouError, ConfigError):
            return False
        return reply.code == ResponseCode.SUCCESS and settings.get(DROPS_UNLISTED, "false").strip().lower() == "false"

    async def _register(self, body: bytes, *, looks: bool) -> bool:
        """Register; return whether the name server accepted it.

        Args:
            body: topics and data version.
            looks: whether to read the route before the registration changes it, to detect another broker with this
                one's name and id. Registrations of changed topics skip this.
        """
        settings, address = self._tables.settings, self.address
        broker_id = self._replication.broker_id
        command = self._request(
            RequestCode.REGISTER_BROKER,
            body,
            ha_server_addr=self._replication.ha_address,
            enable_acting_master=False,
            compressed=settings.compressed_register,
            body_crc32=crc32(body),
        )
        try:
            # The name server serves the requests of a connection in their order, so the registration need not wait.
            _, reply = await asyncio.gather(
                self._pair.look(address) if looks or not self.state.registered else asyncio.sleep(0),
                self._client.invoke(address, command, settings.register_broker_timeout_mills),
            )
        except TianzhouError as error:
            self._failed(str(error))
            return False
        self.state.silent = False
        accepted = reply.code == ResponseCode.SUCCESS
        self._pair.answered(address, reply.fields.get(OTHER_MASTER), accepted=accepted, broker_id=broker_id)
        if not accepted:
            self._failed(f"code {reply.code}: {reply.remark}")
            return False
        self._note_back()
        self._watch_connection()
        named = read_reply(RequestCode.REGISTER_BROKER, reply)
        if named.master_addr:
            self._replication.master_named(named.master_addr, named.ha_server_addr or "")
        try:
            self._apply_order(reply)
        except (TianzhouError, TypeError, ValueError, AttributeError) as error:
            # The name server accepted the registration, but its list of ordered topics is not applied.
            self._is_unreadable = True
            self._supervisor.failed(f"registration at {address}", error, "its list of ordered topics is passed over")
        else:
            self._is_unreadable = False
        return True

    def _failed(self, why: str) -> None:
        level = logging.DEBUG if self._is_missed else logging.WARNING
        self._is_missed = True
        _log.log(level, "name server %s has not registered this broker: %s; trying again", self.address, why)

    def _note_back(self) -> None:
        """Log that the name server has this broker after a registration was missed."""
        if self._is_missed:
            self._is_missed = False
            _log.warning("name server %s knows this broker again", self.address)

    def _watch_connection(self) -> None:
        # A name server drops a broker whose connection is closed, so register again before the next period.
        connection = self._client.connected(self.address)
        if connection is not None and self._connection is not connection:
            self._connection = connection
            connection.on_close(self._connection_lost)

    def _connection_lost(self, connection: Connection) -> None:
        if self._connection is connection:
            self._connection = None
            self._registered = None
            self._requested.advance(self._requested.value + 1)

    def _apply_order(self, reply: Command) -> None:
        """Set the order flags of topics from the name server's list."""
        if not reply.body:
            return
        ordered = KV_TABLE.loads(reply.body)
        topics = self._tables.topics
        changed = [
            replace(config, order=name in ordered)
            for name, config in topics.all().items()
            if config.order != (name in ordered)
        ]
        topics.put_all(changed, self._clock.now_ms())

    def forget(self) -> None:
        """Drop the last registration and its connection, so that the connection's close does not register again."""
        self._connection = None
        self._registered = None

    async def unregister(self) -> None:
        """Unregister at the name server; a failure is logged."""
        try:
            request = self._request(RequestCode.UNREGISTER_BROKER)
            await self._client.invoke(self.address, request, UNREGISTER_TIMEOUT_MS)
        except (TianzhouError, OSError, ValueError) as error:
            _log.warning("name server %s has not unregistered this broker: %s", self.address, error)
