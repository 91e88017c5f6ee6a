"""The HA port of a master: slaves connect to it, and are sent the commit log (broker.md §17.1)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from typing import Final, Self, cast

from tianzhou.clock import Clock
from tianzhou.errors import ConfigError, ProtocolError, StoreError
from tianzhou.replication.slaves import LogBounds, Send, Slave, Slaves
from tianzhou.store.store import MessageStore
from tianzhou.wire.ha import ReportReader, encode_head

_TURN_BYTES: Final = 4 << 20
"""Bytes a slave is given before others have their turn."""
_MOST_SLAVES: Final = 64
"""Connections to the HA port; more are refused, as each may make the master read all of its log."""

_log = logging.getLogger(__name__)


class HaServer:
    """Listens for slaves; `async with HaServer(…)`.

    Args:
        store: has the log.
        clock: monotonic time.
        host: where to listen.
        port: likewise; 0 for any free one.

    Attributes:
        slaves: those that are connected.
    """

    def __init__(self, store: MessageStore, clock: Clock, host: str, port: int) -> None:
        self._store = store
        self._clock = clock
        self._host = host
        self._port = port
        self._server: asyncio.Server | None = None
        self._links: set[_Link] = set()
        self._scheduled = False
        self.slaves = Slaves(store.settings)

    @property
    def port(self) -> int:
        """The port it listens on."""
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(lambda: _Link(self), self._host, self._port)
        except OSError as error:
            raise ConfigError(
                f"haListenPort={self._port}: cannot listen on {self._host} ({error.strerror}); choose another port"
            ) from error
        self._store.appended = self._grown
        self._store.durability.copies = self.slaves
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._store.appended = self._store.durability.copies = None
        self._server.close()
        for link in list(self._links):
            link.close()
        await self._server.wait_closed()

    def _grown(self) -> None:
        if self._links and not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._send_all)

    def _send_all(self) -> None:
        self._scheduled = False
        for link in self._links:
            link.send()

    def bounds(self) -> LogBounds:
        """What there is of the log."""
        store = self._store
        return LogBounds(store.begin_offset, store.end_offset, store.settings.mapped_file_size_commit_log)

    def reported(self) -> None:
        """A slave has said how far it is."""
        self._store.durability.replicated.advance(self.slaves.copied(self._store.end_offset))


class _Link(asyncio.Protocol):
    """One slave's connection."""

    def __init__(self, server: HaServer) -> None:
        self._server = server
        self._store = server._store
        self._now = server._clock.monotonic
        self._reports = ReportReader()
        self._timer: asyncio.TimerHandle | None = None
        self._reading: asyncio.Task[None] | None = None
        self._paused = False
        self._transport: asyncio.Transport | None = None
        self._slave = Slave("", server._store.settings, 0.0)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast("asyncio.Transport", transport)
        self._transport = transport
        host, port, *_ = transport.get_extra_info("peername") or ("?", 0)
        self._slave = Slave(f"{host}:{port}", self._store.settings, self._now())
        if len(self._server._links) >= _MOST_SLAVES:
            _log.error("slave %s is refused: %d are connected to the HA port", self._slave.address, _MOST_SLAVES)
            transport.abort()
            return
        self._server._links.add(self)
        self._server.slaves.connected.append(self._slave)
        self._watch()

    def connection_lost(self, error: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._reading is not None:
            self._reading.cancel()
        self._transport = None
        if self in self._server._links:
            self._server._links.discard(self)
            self._server.slaves.connected.remove(self._slave)
            if self._slave.acked >= 0:
                _log.warning("slave %s is gone, it had the log up to %d", self._slave.address, self._slave.acked)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        offset = self._reports.feed(data)
        if offset is None:
            return
        first = self._slave.acked < 0
        try:
            self._slave.reported(offset, self._server.bounds(), self._now())
        except ProtocolError as error:
            _log.error("%s", error)
            self.close()
            return
        if first:
            _log.info("slave %s is sent the log from %d on", self._slave.address, self._slave.sent)
        self._server.reported()
        self.send()

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self.send()

    def _watch(self) -> None:
        """Look again whether the slave is silent, and whether a heartbeat is due."""
        if self._slave.is_silent(self._now()):
            _log.error("slave %s has said nothing for too long; it is disconnected", self._slave.address)
            self.close()
            return
        self.send()

    def send(self) -> None:
        """Send what there is, as far as the connection takes it."""
        left = _TURN_BYTES
        while self._transport is not None and not self._paused and self._reading is None:
            now = self._now()
            step = self._slave.next(self._server.bounds(), now)
            if not isinstance(step, Send):
                self._wake_in(step - now)
                return
            if left <= 0:
                self._wake_in(0)
                return
            try:
                stretch = self._store.log_bytes(step.offset, step.size) if step.size else memoryview(b"")
            except StoreError as error:
                _log.error("slave %s is disconnected: %s", self._slave.address, error)
                self.close()
                return
            if isinstance(stretch, memoryview):
                self._transport.writelines((encode_head(step.offset, step.size), stretch))
                self._slave.was_sent(step, now)
                left -= step.size + 1024
            else:
                self._reading = asyncio.get_running_loop().create_task(self._fetch(stretch))

    async def _fetch(self, fetched: Awaitable[None]) -> None:
        try:
            await fetched
        except StoreError as error:
            _log.error("slave %s is disconnected: %s", self._slave.address, error)
            self.close()
        finally:
            self._reading = None
        self.send()

    def _wake_in(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(max(seconds, 0), self._watch)
