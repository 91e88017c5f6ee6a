"""The HA port of a master, which sends the commit log to connected slaves (broker.md §17.1)."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable
from typing import Any, Final, Self, cast

from tianzhou.chained_coroutines import ChainedCoroutine
from tianzhou.clock import Clock
from tianzhou.errors import ConfigError, ProtocolError, StoreError
from tianzhou.remoting.handshakes import first_byte, reason_of
from tianzhou.remoting.tls import HANDSHAKE, HANDSHAKE_TIMEOUT_S, SHUTDOWN_TIMEOUT_S
from tianzhou.repeats import Repeats
from tianzhou.replication.port_protection import UNPROTECTED, PortProtection
from tianzhou.replication.slaves import LogBounds, Slave, Slaves, SlaveSend, speaks_as_slave
from tianzhou.shortages import words
from tianzhou.store.store import MessageStore
from tianzhou.supervision import start_owned
from tianzhou.wire.ha import ReportReader, encode_head

_TURN_BYTES: Final = 4 << 20
"""Bytes sent to one slave before other slaves get their turn."""
_GATHERING_S: Final = 0.001
"""Seconds that an ASYNC_MASTER gathers bytes before it sends them.

Each stretch and its report cost both sides some calls."""
_ACCEPTS_PER_TURN: Final = 16
_ACCEPT_AGAIN_S: Final = 1.0
MOST_SLAVES: Final = 64
"""Maximum number of connections to the HA port; more are refused, because each may make the master read all of its log.
A new connection replaces the oldest one that has not reported, so that idle connections keep no slave out."""

_log = logging.getLogger(__name__)


class _Gone(Exception):
    """The error of a peer that ends its connection before it sends a byte."""


class HaServer:
    """The listener for slaves; `async with HaServer(…)`.

    Args:
        store: the store whose log is sent.
        clock: monotonic time.
        host: where to listen.
        port: where to listen; 0 for any free port.
        protection: allowed addresses of slaves, which of them use TLS, and which certificates are accepted.

    Attributes:
        slaves: the connected slaves.
        links: their connections, the oldest first.
    """

    def __init__(
        self, store: MessageStore, clock: Clock, host: str, port: int, protection: PortProtection = UNPROTECTED
    ) -> None:
        self._store = store
        self.protection = protection
        self._clock = clock
        self._host = host
        self._port = port
        self._socket: socket.socket | None = None
        self._rest: asyncio.TimerHandle | None = None
        self.links: dict[_Link, None] = {}
        self._complaints = Repeats(lines=5)
        self._scheduled = False
        self.slaves = Slaves(store.settings)

    @property
    def port(self) -> int:
        """The port on which it listens."""
        assert self._socket is not None
        return int(self._socket.getsockname()[1])

    async def __aenter__(self) -> Self:
        try:
            self._socket = await self._bind()
        except OSError as error:
            raise ConfigError(
                f"haListenPort={self._port}: cannot listen on {self._host} ({error.strerror}); choose another port"
            ) from error
        self._listen()
        self._store.durability.copies = self.slaves
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._socket is not None
        self._store.appended = self._store.durability.copies = None
        if self._rest is not None:
            self._rest.cancel()
        asyncio.get_running_loop().remove_reader(self._socket)
        self._socket.close()
        begun = [link.beginning for link in self.links if link.beginning is not None]
        for link in list(self.links):
            link.close()
        await asyncio.gather(*begun, return_exceptions=True)

    async def _bind(self) -> socket.socket:
        found = await asyncio.get_running_loop().getaddrinfo(
            self._host or None, self._port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        family, _, _, _, address = found[0]
        listener = socket.create_server(cast("tuple[str, int]", address), family=family, backlog=MOST_SLAVES)
        listener.setblocking(False)
        return listener

    def _listen(self) -> None:
        assert self._socket is not None
        asyncio.get_running_loop().add_reader(self._socket, self._accept, self._socket)

    def _accept(self, listener: socket.socket) -> None:
        try:
            for _ in range(_ACCEPTS_PER_TURN):
                accepted, peer = listener.accept()
                accepted.setblocking(False)
                self._take(accepted, str(peer[0]), int(peer[1]))
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError as error:
            # The socket stays readable while no connection can be accepted; without a pause the loop would spin.
            self.complain("accept", f"HA port {self.port}: no slave can connect now: {words(error)}")
            loop = asyncio.get_running_loop()
            loop.remove_reader(listener)
            self._rest = loop.call_later(_ACCEPT_AGAIN_S, self._listen)

    def _take(self, accepted: socket.socket, host: str, port: int) -> None:
        address = f"{host}:{port}"
        if not self.admits(host, address):
            accepted.close()
        elif not self.has_room():
            self.complain("full", f"slave {address} is refused: {MOST_SLAVES} are connected already")
            accepted.close()
        else:
            link = _Link(self, host, address)
            self.links[link] = None
            self.slaves.connected.append(link.slave)
            self._store.appended = self.grown
            link.beginning = start_owned(self._begin(accepted, link), "replication")
            # A task that is cancelled before its first turn does not close the socket itself.
            link.beginning.add_done_callback(lambda begun: accepted.close() if begun.cancelled() else None)

    async def _begin(self, accepted: socket.socket, link: _Link) -> None:
        """Set up the connection of a link, with TLS when the slave starts a handshake."""
        loop, tls, address = asyncio.get_running_loop(), self.protection.tls, link.slave.address
        options: dict[str, Any] = {}
        try:
            if tls is not None:
                # A slave sends first. The first byte of its first report equals TLS's only beyond 2^60 bytes of log.
                first = await first_byte(accepted, link.slave.patience_s)
                if first == HANDSHAKE and tls.offered:
                    tls.refresh()
                    options = {
                        "ssl": tls.context(),
                        "ssl_handshake_timeout": HANDSHAKE_TIMEOUT_S,
                        "ssl_shutdown_timeout": SHUTDOWN_TIMEOUT_S,
                    }
                elif first == HANDSHAKE:
                    raise ProtocolError("it speaks TLS, and tls.server.mode is disabled here")
                elif first is None:
                    raise ProtocolError("it has said nothing for too long")
                elif not first:
                    raise _Gone
                elif tls.offered and not tls.sniffs:
                    raise ProtocolError(
                        "it speaks no TLS, and tls.server.mode is enforcing here; set tls.enable=true at the slave"
                    )
            await loop.connect_accepted_socket(lambda: link, accepted, **options)
        except BaseException as error:
            accepted.close()
            self.left(link)
            if isinstance(error, _Gone):
                return
            if not isinstance(error, OSError | EOFError | ProtocolError):
                raise
            why = str(error) if isinstance(error, ProtocolError) else f"it could not be set up: {reason_of(error)}"
            self.complain("begin", f"HA port {self.port}: closing {address}: {why}")
        finally:
            link.beginning = None

    def left(self, link: _Link) -> None:
        """Remove a connection.

        Args:
            link: the connection; a second removal has no effect.
        """
        if link in self.links:
            del self.links[link]
            if not self.links:
                self._store.appended = None
            self.slaves.connected.remove(link.slave)

    def grown(self) -> None:
        """Send slaves the new end of the log soon; a SYNC_MASTER sends it in the next turn of the loop."""
        if self.links and not self._scheduled:
            self._scheduled = True
            loop = asyncio.get_running_loop()
            if self._store.settings.broker_role == "SYNC_MASTER":
                loop.call_soon(self._send_all)
            else:
                loop.call_later(_GATHERING_S, self._send_all)

    def _send_all(self) -> None:
        self._scheduled = False
        for link in self.links:
            link.send()

    def bounds(self) -> LogBounds:
        """Return the bounds of the log."""
        store = self._store
        return LogBounds(store.begin_offset, store.end_offset, store.settings.mapped_file_size_commit_log)

    def admits(self, host: str, address: str) -> bool:
        """Whether a peer may connect from its address.

        Args:
            host: its address, without its port.
            address: its address with its port, for the log.
        """
        try:
            self.protection.allowed.check(host)
        except ProtocolError as error:
            self.complain("refused", f"HA port {self.port}: closing {address}: {error}")
            return False
        return True

    def has_room(self) -> bool:
        """Whether there is room for one more connection; the oldest one that has not reported is closed for it."""
        if len(self.links) < MOST_SLAVES:
            return True
        mute = next((link for link in self.links if link.slave.acked < 0), None)
        if mute is None:
            return False
        mute.close()
        return True

    def complain(self, kind: str, text: str) -> None:
        """Log a complaint about a slave, at a rate that a person can read.

        Args:
            kind: complaints of one kind share a limit.
            text: the line.
        """
        held = self._complaints.due(kind, self._clock.monotonic())
        if held is not None:
            _log.error("%s%s", text, f" ({held} more of the kind before)" if held else "")

    def complain_of_stranger(self, address: str, hello: bytes) -> None:
        """Log a peer that is no slave.

        Args:
            address: the peer's address.
            hello: first bytes that it sent.
        """
        self.complain(
            "stranger",
            f"HA port {self.port}: closing {address}: it does not speak as a slave, it begins with {hello[:16]!r}; "
            "clients connect to listenPort, slaves and members of one broker's group only to this one",
        )

    def reported(self) -> None:
        """Notify the store that a slave has reported or disconnected."""
        self._store.copies_changed()


class _Link(asyncio.Protocol):
    """The connection of one slave."""

    def __init__(self, server: HaServer, host: str, address: str) -> None:
        self._server = server
        self._host = host
        self._store = server._store
        self._now = server._clock.monotonic
        self._reports = ReportReader()
        self._timer: asyncio.TimerHandle | None = None
        self._reading: asyncio.Task[None] | None = None
        self._paused = False
        self._transport: asyncio.Transport | None = None
        self.slave = Slave(address, server._store.settings, self._now())
        # Ends when the connection is set up, after the first byte and the TLS handshake.
        self.beginning: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        shown = transport.get_extra_info("ssl_object")
        try:
            # The certificate is empty when it was not verified.
            self._server.protection.check_slave(self._host, None if shown is None else shown.getpeercert())
        except ProtocolError as error:
            self._server.complain("refused", f"slave {self.slave.address} is refused: {error}")
            self.close()
            return
        self._watch()

    def connection_lost(self, error: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._reading is not None:
            self._reading.cancel()
        self._transport = None
        self._server.left(self)
        if self.slave.acked >= 0:
            self._server.reported()
            _log.warning("slave %s is gone, it had the log up to %d", self.slave.address, self.slave.acked)

    @property
    def unsent_bytes(self) -> int:
        """Bytes in the write buffer of this process."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()
        elif self.beginning is not None:
            self.beginning.cancel()
            self._server.left(self)

    def data_received(self, data: bytes) -> None:
        first, bounds = self.slave.acked < 0, self._server.bounds()
        hello = self._reports.begun + data if first else b""
        offset = self._reports.feed(data)
        if offset is None:
            return
        if first and not speaks_as_slave(hello, bounds):
            self._server.complain_of_stranger(self.slave.address, hello)
            self.close()
            return
        answer = self.slave.answer(offset, bounds)
        try:
            self.slave.reported(offset, bounds, self._now())
        except ProtocolError as error:
            self._server.complain("report", str(error))
            if answer is not None and self._transport is not None:
                self._transport.write(encode_head(answer, 0))
                self._transport.close()
                return
            self.close()
            return
        if first:
            _log.info("slave %s is sent the log from %d on", self.slave.address, self.slave.sent)
        self._server.reported()
        self.send()

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self.send()

    def _watch(self) -> None:
        """Disconnect a silent slave, and send a heartbeat when one is due."""
        if self.slave.is_silent(self._now()):
            self._server.complain(
                "silent", f"slave {self.slave.address} has said nothing for too long; it is disconnected"
            )
            self.close()
            return
        self.send()

    def send(self) -> None:
        """Send the available bytes until the connection is full."""
        left = _TURN_BYTES
        while self._transport is not None and not self._paused and self._reading is None:
            now = self._now()
            step = self.slave.next(self._server.bounds(), now)
            if not isinstance(step, SlaveSend):
                self._wake_in(step - now)
                return
            if left <= 0:
                self._wake_in(0)
                return
            try:
                stretch = self._store.log_bytes(step.offset, step.size) if step.size else memoryview(b"")
            except StoreError as error:
                self._server.complain("unreadable", f"slave {self.slave.address} is disconnected: {error}")
                self.close()
                return
            if isinstance(stretch, memoryview):
                head = encode_head(step.offset, step.size)
                # From Python 3.12 on asyncio never completes the write of an empty piece, and its loop spins.
                self._transport.writelines((head, stretch) if step.size else (head,))
                self.slave.was_sent(step, now)
                left -= step.size + 1024
            else:
                self._reading = start_owned(ChainedCoroutine(self._fetch(stretch), stretch), "replication")

    async def _fetch(self, fetched: Awaitable[None]) -> None:
        try:
            await fetched
        except StoreError as error:
            self._server.complain("unreadable", f"slave {self.slave.address} is disconnected: {error}")
            self.close()
        finally:
            self._reading = None
        self.send()

    def _wake_in(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(max(seconds, 0), self._watch)
