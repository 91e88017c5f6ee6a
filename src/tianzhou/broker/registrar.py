"""Keeps the name servers informed: at start, on every change of the topics at once, and periodically (broker.md §4)."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace

from tianzhou.broker.name_servers import NameServers
from tianzhou.broker.tables import Tables
from tianzhou.broker.topics import READ_WRITE
from tianzhou.clock import Clock
from tianzhou.errors import ConnectFailed, TianzhouError
from tianzhou.model import TopicConfig
from tianzhou.remoting.client import RemotingClient
from tianzhou.remoting.connection import Connection
from tianzhou.watermark import Watermark
from tianzhou.wire.bodies import RegisterBody, TopicTable, decode_kv_table, encode_data_version, encode_register_body
from tianzhou.wire.codes import RequestCode, ResponseCode
from tianzhou.wire.command import Command
from tianzhou.wire.fields import read_reply, write_header
from tianzhou.wire.hashing import crc32

SHORTEST_PERIOD_MS = 10_000
LONGEST_PERIOD_MS = 60_000
RETRY_S = 1.0
"""Pause after a round in which a name server could not be told; RocketMQ would wait for the next period."""
UNREGISTER_TIMEOUT_MS = 3_000

_log = logging.getLogger(__name__)


def registered_topics(topics: dict[str, TopicConfig], broker_permission: int) -> dict[str, TopicConfig]:
    """The topics as name servers are told: a broker that is not read-write reduces every permission."""
    if broker_permission == READ_WRITE:
        return topics
    return {
        name: TopicConfig(name, one.read_queue_nums, one.write_queue_nums, one.perm & broker_permission)
        for name, one in topics.items()
    }


class Registrar:
    """Registers this broker with every name server, and takes it out again.

    Args:
        tables: the broker's state.
        client: reaches the name servers.
        address: this broker's address, as clients are to use it.
        ha_address: the address replicas are to use.
        clock: wall-clock time.
        names: which name servers there are; by default those of the settings.
        hold_ms: for how long nobody is told after the start.
    """

    def __init__(
        self,
        tables: Tables,
        client: RemotingClient,
        address: str,
        ha_address: str,
        clock: Clock,
        *,
        names: NameServers | None = None,
        hold_ms: int = 0,
    ) -> None:
        self._tables = tables
        self._client = client
        self._address = address
        self._ha_address = ha_address
        self._clock = clock
        self._names = names or NameServers(tables.settings)
        self._hold_ms = hold_ms
        self._asked = Watermark(1)
        self._done = Watermark(0)
        self._ready = asyncio.Event()
        self._connections: dict[str, Connection] = {}
        self._failing: set[str] = set()

    async def ready(self) -> None:
        """Return once every name server that can be reached knows this broker."""
        await self._ready.wait()

    def request(self) -> None:
        """Register as soon as possible, because what name servers were told is no longer so."""
        self._asked.advance(self._asked.value + 1)

    async def settled(self, timeout_s: float = 3.0) -> bool:
        """Wait until everything asked for so far is with the name servers; False when that took too long."""
        if not self._names.addresses and not self._names.sought:
            return True
        try:
            async with asyncio.timeout(timeout_s):
                await self._done.reach(self._asked.value)
        except TimeoutError:
            return False
        return True

    async def run(self) -> None:
        """Register until cancelled."""
        if self._hold_ms > 0:
            await asyncio.sleep(self._hold_ms / 1000)
        periodic = False
        while True:
            asked = self._asked.value
            told_all = await self._round(periodic=periodic)
            self._done.advance(asked)
            period = self._tables.settings.register_name_server_period
            pause = min(max(period, SHORTEST_PERIOD_MS), LONGEST_PERIOD_MS) / 1000 if told_all else RETRY_S
            periodic = False
            try:
                async with asyncio.timeout(pause):
                    await self._asked.reach(asked + 1)
            except TimeoutError:
                periodic = told_all
                self.request()

    async def _round(self, *, periodic: bool) -> bool:
        """Tell every name server; whether all of them know now."""
        if not self._names.addresses:
            await self._names.refresh()
        addresses = self._names.addresses
        if not addresses:
            if self._names.sought:
                return False
            self._ready.set()
            return True
        if periodic and not self._tables.settings.force_register and await self._all_know(addresses):
            return True
        body = self._body()
        outcomes = await asyncio.gather(*(self._register(address, body) for address in addresses))
        if any(outcome is True for outcome in outcomes) and all(outcome is not False for outcome in outcomes):
            self._ready.set()
        return all(outcome is True for outcome in outcomes)

    async def _all_know(self, addresses: list[str]) -> bool:
        """Whether every name server has the present topics; asking is a sign of life, too (`forceRegister` is off)."""
        settings = self._tables.settings
        fields = write_header(
            RequestCode.QUERY_DATA_VERSION,
            broker_name=settings.broker_name,
            broker_addr=self._address,
            cluster_name=settings.broker_cluster_name,
            broker_id=settings.broker_id,
        )
        body = encode_data_version(self._tables.topics.version)

        async def knows(address: str) -> bool:
            command = Command(RequestCode.QUERY_DATA_VERSION, fields=fields, body=body)
            try:
                reply = await self._client.invoke(address, command, settings.register_broker_timeout_mills)
            except TianzhouError:
                return False
            return (
                reply.code == ResponseCode.SUCCESS and bool(reply.body) and not read_reply(command.code, reply).changed
            )

        return all(await asyncio.gather(*map(knows, addresses)))

    def _body(self) -> bytes:
        topics = self._tables.topics
        settings = self._tables.settings
        told = registered_topics(dict(topics.all()), settings.broker_permission)
        return encode_register_body(RegisterBody(TopicTable(told, topics.version)), settings.compressed_register)

    async def _register(self, address: str, body: bytes) -> bool | None:
        """Tell one name server: True it knows, False it refused, None it cannot be reached."""
        settings = self._tables.settings
        fields = write_header(
            RequestCode.REGISTER_BROKER,
            broker_name=settings.broker_name,
            broker_addr=self._address,
            cluster_name=settings.broker_cluster_name,
            ha_server_addr=self._ha_address,
            broker_id=settings.broker_id,
            enable_acting_master=False,
            compressed=settings.compressed_register,
            body_crc32=crc32(body),
        )
        command = Command(RequestCode.REGISTER_BROKER, fields=fields, body=body)
        try:
            reply = await self._client.invoke(address, command, settings.register_broker_timeout_mills)
        except ConnectFailed as error:
            self._failed(address, str(error))
            return None
        except TianzhouError as error:
            self._failed(address, str(error))
            return False
        if reply.code != ResponseCode.SUCCESS:
            self._failed(address, f"code {reply.code}: {reply.remark}")
            return False
        if address in self._failing:
            self._failing.discard(address)
            _log.info("name server %s knows this broker again", address)
        self._watch(address)
        self._take_order(reply)
        return True

    def _failed(self, address: str, why: str) -> None:
        level = logging.DEBUG if address in self._failing else logging.WARNING
        self._failing.add(address)
        _log.log(level, "name server %s was not told about this broker: %s; trying again", address, why)

    def _watch(self, address: str) -> None:
        # A name server forgets a broker whose connection is gone, so do not wait for the next period.
        connection = self._client.connected(address)
        if connection is not None and self._connections.get(address) is not connection:
            self._connections[address] = connection
            connection.on_close(lambda lost: self._lost(address, lost))

    def _lost(self, address: str, connection: Connection) -> None:
        if self._connections.get(address) is connection:
            del self._connections[address]
            self.request()

    def _take_order(self, reply: Command) -> None:
        """Topics the name server lists as ordered are; all others are not."""
        if not reply.body:
            return
        ordered = decode_kv_table(reply.body)
        topics = self._tables.topics
        changed = [
            replace(config, order=name in ordered)
            for name, config in topics.all().items()
            if config.order != (name in ordered)
        ]
        topics.put_all(changed, self._clock.now_ms())

    async def unregister(self) -> None:
        """Tell every name server that this broker is going."""
        self._connections.clear()
        await asyncio.gather(*(self._unregister(address) for address in self._names.addresses))

    async def _unregister(self, address: str) -> None:
        settings = self._tables.settings
        fields = write_header(
            RequestCode.UNREGISTER_BROKER,
            broker_name=settings.broker_name,
            broker_addr=self._address,
            cluster_name=settings.broker_cluster_name,
            broker_id=settings.broker_id,
        )
        try:
            await self._client.invoke(
                address, Command(RequestCode.UNREGISTER_BROKER, fields=fields), UNREGISTER_TIMEOUT_MS
            )
        except TianzhouError as error:
            _log.warning("name server %s was not told that this broker stops: %s", address, error)
