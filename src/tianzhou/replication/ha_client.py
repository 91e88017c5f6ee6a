"""A slave's connection to its master's HA port: what comes is appended to the log (broker.md §17.1)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Final, cast

from tianzhou.clock import Clock
from tianzhou.errors import ConnectFailed, ConnectionLost, TianzhouError
from tianzhou.replication.following import Following
from tianzhou.store.store import MessageStore
from tianzhou.supervision import Supervisor
from tianzhou.wire.ha import StretchReader, encode_report

AGAIN_S: Final = 3.0
"""Seconds after which a connection is tried again; RocketMQ's slaves wait for five."""
WORK: Final = "copying the log"
_CONNECT_LIMIT_S: Final = 5.0
_BUFFER: Final = 1 << 20

_log = logging.getLogger(__name__)


class HaClient:
    """Follows a master.

    Args:
        store: gets the log.
        clock: monotonic time.
        master: the HA address of the master, `host:port`; empty while there is none.

    Attributes:
        following: the present connection, if any.
    """

    def __init__(self, store: MessageStore, clock: Clock, master: Callable[[], str]) -> None:
        self._store = store
        self._clock = clock
        self._master = master
        self.following: Following | None = None
        self._changed = asyncio.Event()

    def master_changed(self) -> None:
        """Look at the master's address now, rather than in a few seconds."""
        self._changed.set()

    async def run(self, supervisor: Supervisor) -> None:
        """Connect, copy, and connect again, until cancelled.

        Args:
            supervisor: learns why there is nothing to copy.
        """
        while True:
            self._changed.clear()
            if address := self._master():
                try:
                    await self._follow(address, lambda: supervisor.well(WORK))
                except TianzhouError as error:
                    supervisor.failed(WORK, error)
                else:
                    continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(AGAIN_S):
                    await self._changed.wait()

    async def _follow(self, address: str, well: Callable[[], None]) -> None:
        """Copy until the master is at another address.

        Args:
            address: the HA address.
            well: called when bytes of the master have come.

        Raises:
            TianzhouError: the connection cannot be made or ended, or the logs differ.
        """
        loop = asyncio.get_running_loop()
        host, _, port = address.rpartition(":")
        link = _Link(self._store, self._clock)
        try:
            async with asyncio.timeout(_CONNECT_LIMIT_S):
                await loop.create_connection(lambda: link, host.strip("[]"), int(port))
        except (OSError, ValueError) as error:
            raise ConnectFailed(f"the master's HA port {address} cannot be reached: {error}") from error
        self.following = link.following
        _log.info("the log is copied from %s, from %d on", address, link.following.first)
        try:
            await self._watch(link, address, well)
        finally:
            link.close()
            self.following = None

    async def _watch(self, link: _Link, address: str, well: Callable[[], None]) -> None:
        began_s = link.following.heard_s
        while self._master() == address:
            following = link.following
            pause_s = max(following.next_report_s - self._clock.monotonic(), 0.05)
            try:
                async with asyncio.timeout(pause_s):
                    await link.ended.wait()
            except TimeoutError:
                link.report(appended=False)
                if following.heard_s > began_s:
                    well()
                if following.is_silent(self._clock.monotonic()):
                    raise ConnectionLost(f"the master at {address} has said nothing for too long") from None
            else:
                raise link.failure or ConnectionLost(f"the master at {address} ended the connection")


class _Link(asyncio.BufferedProtocol):
    def __init__(self, store: MessageStore, clock: Clock) -> None:
        self._store = store
        self._now = clock.monotonic
        self._buffer = memoryview(bytearray(_BUFFER))
        self._stretches = StretchReader()
        self._transport: asyncio.Transport | None = None
        self.following = Following(store.begin_offset, store.end_offset, store.settings, self._now())
        self.ended = asyncio.Event()
        self.failure: TianzhouError | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast("asyncio.Transport", transport)
        self._transport = transport
        transport.write(encode_report(self.following.first))

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self.ended.set()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        appended = False
        copy = self._store.copy
        try:
            for stretch in self._stretches.feed(self._buffer[:nbytes]):
                part = self.following.received(stretch.offset, len(stretch.body), self._now())
                if part.compare:
                    self.following.compared(part, copy.equal(part.offset, stretch.body[: part.compare]))
                if len(stretch.body) > part.compare:
                    copy.append(part.offset + part.compare, stretch.body[part.compare :])
                    appended = True
        except (TianzhouError, OSError) as error:
            self.failure = error if isinstance(error, TianzhouError) else ConnectionLost(f"the disk refused: {error}")
            self.close()
            return
        self.report(appended=appended)

    def report(self, *, appended: bool) -> None:
        """Tell the master how far this log is, when it is time to."""
        offset = self.following.report(self._now(), appended=appended)
        if offset is not None and self._transport is not None:
            self._transport.write(encode_report(offset))
