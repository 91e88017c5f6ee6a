"""Registration at name servers: at start, on every change of topics at once, and periodically (broker.md §4).

A large table is sent whole once, and then only the topics that changed, as RocketMQ does, but only where nothing can be
lost by it: to a name server that confirms the last registration, and that keeps topics which a registration does not
list. Every period sends the whole table again.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field, replace
from typing import Any

from tianzhou.broker.registration.name_servers import NameServers
from tianzhou.broker.registration.other_master import OtherMaster
from tianzhou.broker.services import Services
from tianzhou.broker.tables.topic_json_cache import TopicJsonCache
from tianzhou.broker.tables.topics import READ_WRITE
from tianzhou.errors import ConfigError, ConnectFailed, TianzhouError
from tianzhou.model import DataVersion, TopicConfig
from tianzhou.model.names import MASTER_ID
from tianzhou.records.checksum import crc32
from tianzhou.remoting.client import RemotingClient
from tianzhou.remoting.connection import Connection
from tianzhou.settings import parse_properties
from tianzhou.slices import in_turns
from tianzhou.watermark import Watermark
from tianzhou.wire.bodies.register import (
    RegisterBody,
    RegisterCodec,
    encode_registered_topic,
    join_register_body,
)
from tianzhou.wire.bodies.tables import KV_TABLE
from tianzhou.wire.bodies.topics import DATA_VERSION, TopicTable
from tianzhou.wire.codes import RequestCode, ResponseCode
from tianzhou.wire.command import Command
from tianzhou.wire.fields import read_reply, write_header
from tianzhou.wire.mastership import OTHER_MASTER

SHORTEST_PERIOD_MS = 10_000
LONGEST_PERIOD_MS = 60_000
RETRY_S = 1.0
"""Pause after a round in which a registration failed; RocketMQ would wait for the next period."""
UNREGISTER_TIMEOUT_MS = 3_000
MANY_TOPICS = 1_000
"""Topics from which on only changed ones are registered."""
DROPS_UNLISTED = "deleteTopicWithBrokerRegistration"
"""Setting of a name server: topics that a registration does not list are gone."""

_log = logging.getLogger(__name__)


def registered_topic(config: TopicConfig, broker_permission: int) -> TopicConfig:
    """A topic as it is registered: a broker that is not read-write reduces every permission."""
    if broker_permission == READ_WRITE:
        return config
    perm = config.perm & broker_permission
    return TopicConfig(config.topic_name, config.read_queue_nums, config.write_queue_nums, perm)


@dataclass(slots=True)
class _Registered:
    """Last registration at a name server: its version, and the topics changed since."""

    version: DataVersion
    changed: set[str] = field(default_factory=set)


class Registrar:
    """Registers this broker at every name server, and unregisters it at the stop.

    Args:
        services: of the broker.
        client: reaches the name servers.
        names: the name servers.
    """

    def __init__(self, services: Services, client: RemotingClient, names: NameServers) -> None:
        tables = self._tables = services.tables
        self._client = client
        self._address = services.address
        self._replication = services.replication
        self._clock = services.clock
        self._names = names
        self._hold_ms = services.store.settings.disappear_time_after_start
        self._supervisor = services.supervisor
        self._requested = Watermark(1)
        self._done = Watermark(0)
        self._ready = asyncio.Event()
        self._connections: dict[str, Connection] = {}
        self._failing: set[str] = set()
        self._unreadable: set[str] = set()
        self._registered: dict[str, _Registered] = {}
        self._topic_json = TopicJsonCache(self._text)
        self._json_permission = tables.settings.broker_permission
        self._cached_body: tuple[object, bytes] = (None, b"")
        self._pair = OtherMaster(services, client)
        tables.topics.listeners.append(self._topics_changed)

    async def ready(self) -> None:
        """Return once every name server that can be reached knows this broker."""
        await self._ready.wait()

    @property
    def registered(self) -> bool:
        """Whether a name server knows this broker; True where there is none to know it."""
        known = (address not in self._failing for address in self._names.addresses)
        return self._ready.is_set() and (any(known) or not self._names.addresses)

    def request(self) -> None:
        """Register as soon as possible, because the last registration is out of date."""
        self._requested.advance(self._requested.value + 1)

    def register_again(self) -> None:
        """Register everything as soon as possible although nothing changed, because of what the answers say."""
        self._registered.clear()
        self.request()

    async def settled(self, timeout_s: float = 3.0) -> bool:
        """Wait until the registrations requested so far are done; False after `timeout_s`."""
        if not self._names.addresses and not self._names.looked_up:
            return True
        try:
            async with asyncio.timeout(timeout_s):
                await self._done.reach(self._requested.value)
        except TimeoutError:
            return False
        return True

    async def run(self) -> None:
        """Register until cancelled."""
        if self._hold_ms > 0:
            hold_ms, self._hold_ms = self._hold_ms, 0
            await asyncio.sleep(hold_ms / 1000)
        time = asyncio.get_running_loop().time
        periodic, due = False, 0.0
        while True:
            requested = self._requested.value
            all_registered = await self._round(periodic=periodic)
            self._done.advance(requested)
            period = self._tables.settings.register_name_server_period
            period_s = min(max(period, SHORTEST_PERIOD_MS), LONGEST_PERIOD_MS) / 1000
            now = time()
            if periodic or now >= due:
                due = now + period_s
            expired = False
            try:
                async with asyncio.timeout_at(due if all_registered else now + RETRY_S):
                    await self._requested.reach(requested + 1)
            except TimeoutError:
                expired = all_registered
                self.request()
            # Also where changes never cease, or one of several name servers is away: the whole table repairs what is
            # lost at another, and is this broker's sign of life, too. asyncio may end the wait up to its clock's
            # resolution before `due`; an expired wait counts as due, or this loop would spin until the clock moves.
            periodic = expired or time() >= due

    async def _round(self, *, periodic: bool) -> bool:
        """Register at every name server; whether all of them are up to date now."""
        if not self._names.addresses:
            await self._names.refresh()
        addresses = self._names.addresses
        if not addresses:
            if self._names.looked_up:
                return False
            self._ready.set()
            return True
        if periodic and not self._tables.settings.force_register and await self._all_know(addresses):
            return True
        outcomes = await asyncio.gather(*(self._try_update(address, full=periodic) for address in addresses))
        if any(outcome is True for outcome in outcomes) and all(outcome is not False for outcome in outcomes):
            self._ready.set()
        return all(outcome is True for outcome in outcomes)

    async def _all_know(self, addresses: list[str]) -> bool:
        """Whether every name server has the present topics; the query is a heartbeat, too (`forceRegister` is off)."""
        version = self._tables.topics.version
        return all(await asyncio.gather(*(self._knows(address, version) for address in addresses)))

    async def _knows(self, address: str, version: DataVersion) -> bool:
        """Whether a name server has the topics of a version."""
        code, timeout_ms = RequestCode.QUERY_DATA_VERSION, self._tables.settings.register_broker_timeout_mills
        try:
            reply = await self._client.invoke(address, self._request(code, DATA_VERSION.dumps(version)), timeout_ms)
            return reply.code == ResponseCode.SUCCESS and bool(reply.body) and not read_reply(code, reply).changed
        except TianzhouError:
            return False

    # one name server

    def _topics_changed(self, topics: list[str]) -> None:
        """Note changed topics; after a deletion or an unnamed change the whole table is due."""
        known = self._tables.topics.all()
        if topics and all(topic in known for topic in topics):
            for registered in self._registered.values():
                registered.changed.update(topics)
        else:
            self._registered.clear()

    async def _try_update(self, address: str, *, full: bool) -> bool | None:
        """As `_update`; what goes wrong with one name server does not concern the others."""
        work = f"registration at {address}"
        try:
            outcome = await self._update(address, full=full)
        except Exception as error:  # noqa: BLE001 - see above
            self._supervisor.failed(work, error)
            self._registered.pop(address, None)
            return False
        if address not in self._unreadable:
            self._supervisor.well(work)
        return outcome

    async def _update(self, address: str, *, full: bool) -> bool | None:
        """Register changed topics, or all with `full`, at one name server; returns as `_register`."""
        topics = self._tables.topics
        registered = None if full or not self._is_connected(address) else self._registered.get(address)
        if registered is not None and not registered.changed:
            return True
        if registered is not None and await self._accepts_changes(address, registered):
            some = [topic for topic in map(topics.all().get, registered.changed) if topic is not None]
            body = join_register_body(topics.version, map(self._text, some))
        else:
            body = await self._full_body()
        # No await since the body was made: what changes from now on is not in it.
        self._registered[address] = _Registered(topics.version)
        outcome = await self._register(address, body, looks=full)
        if outcome is not True:
            self._registered.pop(address, None)
        return outcome

    def _request(self, code: RequestCode, body: bytes = b"", **fields: Any) -> Command:
        """A request about this broker, with further fields of its header."""
        settings = self._tables.settings
        header = write_header(
            code,
            broker_name=settings.broker_name,
            broker_addr=self._address,
            cluster_name=settings.broker_cluster_name,
            broker_id=self._replication.broker_id,
            **fields,
        )
        if code is RequestCode.REGISTER_BROKER and (mastership := self._replication.mastership) is not None:
            header |= mastership.as_fields()
        return Command(code, fields=header, body=body)

    def _is_connected(self, address: str, connection: Connection | None = None) -> bool:
        """Whether the last registration went over the present connection, which has to be `connection` unless None."""
        now = self._client.connected(address)
        return now is not None and now is self._connections.get(address) and connection in {None, now}

    async def _accepts_changes(self, address: str, registered: _Registered) -> bool:
        """Whether a registration of the changed topics alone is enough for a name server."""
        topics = self._tables.topics
        connection = self._connections.get(address)
        if (
            len(topics) < MANY_TOPICS
            or not registered.changed
            or connection is None
            or self._tables.settings.compressed_register
        ):
            return False
        known, keeps = await asyncio.gather(self._knows(address, registered.version), self._keeps_unlisted(address))
        still = self._registered.get(address) is registered and self._is_connected(address, connection)
        return known and keeps and still and len(registered.changed) < len(topics) // 2

    async def _keeps_unlisted(self, address: str) -> bool:
        """Whether the name server keeps topics that a registration does not list; False when that is unknown."""
        timeout_ms = self._tables.settings.register_broker_timeout_mills
        try:
            reply = await self._client.invoke(address, Command(RequestCode.GET_NAMESRV_CONFIG), timeout_ms)
            settings = parse_properties(bytes(reply.body).decode("utf-8", "replace"), source=address)
        except (TianzhouError, ConfigError):
            return False
        return reply.code == ResponseCode.SUCCESS and settings.get(DROPS_UNLISTED, "false").strip().lower() == "false"

    def _text(self, topic: TopicConfig) -> bytes:
        return encode_registered_topic(registered_topic(topic, self._json_permission))

    async def _full_body(self) -> bytes:
        """Body with all topics; a large table is encoded in turns."""
        topics, settings = self._tables.topics, self._tables.settings
        if settings.broker_permission != self._json_permission:
            self._json_permission = settings.broker_permission
            self._topic_json.forget()
        if not settings.compressed_register:
            await in_turns(self._topic_json.refresh(topics.all()))
        cache_key = topics.version, self._json_permission, settings.compressed_register
        if self._cached_body[0] != cache_key:
            if settings.compressed_register:
                registered = {name: registered_topic(one, self._json_permission) for name, one in topics.all().items()}
                body = RegisterCodec(compressed=True).dumps(RegisterBody(TopicTable(registered, topics.version)))
            else:
                body = join_register_body(topics.version, self._topic_json.all(topics.all()))
            self._cached_body = cache_key, body
        return self._cached_body[1]

    async def _register(self, address: str, body: bytes, *, looks: bool) -> bool | None:
        """Register at one name server: True accepted, False refused, None unreachable.

        Args:
            address: of the name server.
            body: topics and data version.
            looks: whether a master reads from the route, before the registration changes it, whether another one has
                its place. Registrations of changed topics do without.
        """
        settings = self._tables.settings
        is_master = self._replication.broker_id == MASTER_ID
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
                self._pair.look(address) if is_master and looks else asyncio.sleep(0),
                self._client.invoke(address, command, settings.register_broker_timeout_mills),
            )
        except ConnectFailed as error:
            self._failed(address, str(error))
            return None
        except TianzhouError as error:
            self._failed(address, str(error))
            return False
        self._pair.answered(address, reply.fields.get(OTHER_MASTER), is_master=is_master)
        if reply.code != ResponseCode.SUCCESS:
            self._failed(address, f"code {reply.code}: {reply.remark}")
            return False
        if address in self._failing:
            self._failing.discard(address)
            _log.info("name server %s knows this broker again", address)
        self._watch_connection(address)
        named = read_reply(RequestCode.REGISTER_BROKER, reply)
        if named.master_addr:
            self._replication.master_named(named.master_addr, named.ha_server_addr or "")
        try:
            self._apply_order(reply)
        except (TianzhouError, TypeError, ValueError, AttributeError) as error:
            # It has accepted the registration; only which topics are ordered stays as it was.
            self._unreadable.add(address)
            self._supervisor.failed(f"registration at {address}", error, "its list of ordered topics is passed over")
        else:
            self._unreadable.discard(address)
        return True

    def _failed(self, address: str, why: str) -> None:
        level = logging.DEBUG if address in self._failing else logging.WARNING
        self._failing.add(address)
        _log.log(level, "name server %s has not registered this broker: %s; trying again", address, why)

    def _watch_connection(self, address: str) -> None:
        # A name server forgets a broker whose connection is gone, so do not wait for the next period.
        connection = self._client.connected(address)
        if connection is not None and self._connections.get(address) is not connection:
            self._connections[address] = connection
            connection.on_close(lambda lost: self._connection_lost(address, lost))

    def _connection_lost(self, address: str, connection: Connection) -> None:
        if self._connections.get(address) is connection:
            del self._connections[address]
            self._registered.pop(address, None)
            self.request()

    def _apply_order(self, reply: Command) -> None:
        """Set which topics are ordered from the name server's list."""
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

    async def unregister(self) -> None:
        """Unregister at every name server."""
        self._connections.clear()
        self._registered.clear()
        await asyncio.gather(*(self._unregister(address) for address in self._names.addresses))

    async def _unregister(self, address: str) -> None:
        try:
            await self._client.invoke(address, self._request(RequestCode.UNREGISTER_BROKER), UNREGISTER_TIMEOUT_MS)
        except (TianzhouError, OSError, ValueError) as error:
            _log.warning("name server %s has not unregistered this broker: %s", address, error)
