"""A listening socket whose connections are served by one processor."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Self

from tianzhou.clock import Clock
from tianzhou.errors import ConfigError, ProtocolError
from tianzhou.limits import ADDRESS_CONNECTIONS, CONNECTIONS, HANDSHAKE_SECONDS, Bounds
from tianzhou.process.free_memory import give_back
from tianzhou.process.open_files import allow_more_files, ceiling
from tianzhou.remoting.connection import Connection, FastPath, LateProcessor, Processor
from tianzhou.remoting.gates.peer_addresses import PeerCounts, TrustedProxies, host_of
from tianzhou.remoting.group import ConnectionGroup
from tianzhou.remoting.handshakes import first_byte, reason_of
from tianzhou.remoting.proxies import proxy
from tianzhou.remoting.tls import (
    HANDSHAKE,
    HANDSHAKE_TIMEOUT_S,
    MOST_TLS_RECORD,
    SHUTDOWN_TIMEOUT_S,
    TLS_RECORD_HEAD,
    WATCH_S,
    ServerTls,
)
from tianzhou.remoting.turns import TURN_S, Turns
from tianzhou.remoting.unread import UnreadReplies
from tianzhou.shortages import passes, words
from tianzhou.supervision import start_owned

BACKLOG = 1024
ACCEPTS_PER_TURN = 64
ACCEPT_PAUSE_S = 1.0
HANDSHAKES_PER_TURN = 16
"""TLS handshakes that begin in one loop turn; each takes a third of a millisecond."""
MANY, GIVE_BACK_S = 1_000, 2.0
"""Number of ended connections after which memory is returned to the system, and the delay of that in seconds."""

_log = logging.getLogger(__name__)


class RemotingServer:
    """Listens on one address and serves every connection with `processor`; several servers may share a processor.

    Use it as an async context manager, or with `start` and `close`.

    Args:
        host: address to bind, `0.0.0.0` for all.
        port: port to bind, 0 for any free port; after the start, `port` is the bound port.
        processor: serves requests, see `tianzhou.remoting.connection.Processor`.
        idle_timeout_s: seconds without traffic after which a connection is closed.
        busy_poll_s: see `ConnectionGroup`.
        on_connect: called with every new connection.
        clock: source of monotonic time.
        late: serves requests that have waited for more than `late_after_s` seconds.
        late_after_s: see `late`.
        port_setting: key of the setting for the port, named in the error when the port is in use.
        tls: decides which connections use TLS; None means plain only.
        bounds: see `ConnectionGroup`.
        unread: see `ConnectionGroup`.
        trusted_proxies: load balancers whose PROXY header is trusted.
        check_address: called with the socket's address of each peer; raises ProtocolError to refuse it.
        fast_paths: serve several requests at the front of a read in one call, by request code of the first.
    """

    def __init__(
        self,
        host: str,
        port: int,
        processor: Processor,
        *,
        idle_timeout_s: float = 120.0,
        busy_poll_s: float = 0.0,
        on_connect: Callable[[Connection], None] | None = None,
        clock: Clock | None = None,
        port_setting: str = "listenPort",
        late: LateProcessor | None = None,
        late_after_s: float = 0.2,
        tls: ServerTls | None = None,
        bounds: Bounds | None = None,
        unread: UnreadReplies | None = None,
        trusted_proxies: TrustedProxies | None = None,
        check_address: Callable[[str], None] | None = None,
        fast_paths: Mapping[int, FastPath] | None = None,
    ) -> None:
        self.host = host
        self.port = port
        self.port_setting = port_setting
        self.group = ConnectionGroup(
            processor,
            idle_timeout_s=idle_timeout_s,
            first_request=True,
            busy_poll_s=busy_poll_s,
            clock=clock,
            bounds=bounds,
            unread=unread,
        )
        self.group.mark_turns()
        self.group.on_connect = on_connect
        self.group.fast_paths = dict(fast_paths or {})
        self.group.account_of = None if tls is None else tls.account_of
        if late is not None:
            self.group.serve_late(late, late_after_s)
        self._socket: socket.socket | None = None
        self._adoptions: set[asyncio.Task[None]] = set()
        self._retry: asyncio.TimerHandle | None = None
        self._sniffs = tls is not None
        self._tls = tls if tls is not None and tls.offered else None
        self._watch: asyncio.TimerHandle | None = None
        self._refusing = False
        self._admitted = 0
        self._trusted_proxies = trusted_proxies or TrustedProxies()
        self._check_address = check_address
        self._peers = PeerCounts()
        self._turns = Turns(monotonic=self.group.monotonic)
        self._dismissed = 0

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def connections(self) -> frozenset[Connection]:
        """The connections open now."""
        return frozenset(self.group.connections)

    async def start(self) -> None:
        """Bind and start to accept.

        Raises:
            ConfigError: the address cannot be bound; names it and the remedy.
        """
        self.group.start()
        self._socket = await self._bind()
        self.port = self._socket.getsockname()[1]
        self.group.loop.add_reader(self._socket, self._accept)
        self._watch_certificates()

    async def close(self, grace_s: float = 3.0) -> None:
        """Stop accepting, close every connection (waiting `grace_s` at most for writes), and end every handler."""
        self.stop_accepting()
        for task in list(self._adoptions):
            task.cancel()
        if self._adoptions:
            await asyncio.wait(self._adoptions)
        await self.group.close(grace_s)

    def stop_accepting(self) -> None:
        """Free the port. Open connections stay open."""
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        if self._socket is not None:
            self.group.loop.remove_reader(self._socket)
            self._socket.close()
            self._socket = None

    async def _bind(self) -> socket.socket:
        where = f"{self.host}:{self.port}"
        if not 0 <= self.port <= 65_535:
            raise ConfigError(
                f"cannot listen on {where}: {self.port_setting} has to be 1 to 65535, or 0 for any free one"
            )
        try:
            found = await self.group.loop.getaddrinfo(
                self.host, self.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )
        except OSError as error:
            raise ConfigError(
                f"cannot listen on {where}: no such host; listen on an address of this machine, or on 0.0.0.0"
            ) from error
        family, kind, protocol, _, address = found[0]
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setblocking(False)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(BACKLOG)
        except OSError as error:
            listener.close()
            raise ConfigError(f"cannot listen on {where}: {self._advice(error)}") from error
        return listener

    def _advice(self, error: OSError) -> str:
        if error.errno == errno.EADDRINUSE:
            return (
                f"the port is taken; end the process that holds it, or set {self.port_setting} to a free port"
                " (0 takes any)"
            )
        if error.errno == errno.EACCES:
            return f"not permitted; ports below 1024 need privileges, set {self.port_setting} to a higher one"
        if error.errno == errno.EADDRNOTAVAIL:
            return f"{self.host} is no address of this machine; listen on one, or on 0.0.0.0"
        return error.strerror or str(error)

    def _accept(self) -> None:
        listener = self._socket
        for _ in range(ACCEPTS_PER_TURN):
            if listener is None:
                return
            try:
                accepted, peer = listener.accept()
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionAbortedError:
                continue
            except OSError as error:
                self._rest(error)
                return
            if why := self._refusal(accepted.fileno()):
                if not self._refusing:
                    _log.warning("port %d: refusing further connections: %s", self.port, why)
                    self._refusing = True
                accepted.close()
                continue
            self._refusing = False
            # A load balancer's connections belong to its clients, and are counted once the PROXY header names the
            # client.
            counted = "" if self._trusted_proxies.trusts(peer[0]) else peer[0]
            if counted and not self._count(counted):
                accepted.close()
                continue
            self._admitted += 1
            task = start_owned(self._adopt(accepted, counted), f"port {self.port}")
            self._adoptions.add(task)
            task.add_done_callback(self._adoptions.discard)

    def _refusal(self, descriptor: int) -> str:
        """Return why a connection cannot be accepted; empty when it can."""
        bounds = self.group.bounds
        if self._admitted >= bounds.most(CONNECTIONS):
            bounds.refusals.counts[CONNECTIONS.name] += 1
            return f"there are {self._admitted}, the most allowed ({CONNECTIONS.name})"
        # Read the limit each time: it may change while the process runs. The call takes less than a microsecond.
        if descriptor >= ceiling() and (not allow_more_files() or descriptor >= ceiling()):
            return (
                f"{descriptor} files are open, and the rest of the limit is left to the server's own; raise it "
                "(ulimit -n), or have fewer connections"
            )
        return ""

    def _count(self, host: str) -> bool:
        """Count a connection of an address. Return False when the address has reached its limit."""
        bounds = self.group.bounds
        if not bounds.allows(ADDRESS_CONNECTIONS, self._peers.of(host) + 1):
            most = bounds.most(ADDRESS_CONNECTIONS)
            self.group.rejected(host, host, f"it has {most} connections, the most allowed ({ADDRESS_CONNECTIONS.name})")
            return False
        self._peers.add(host)
        return True

    def _rest(self, error: OSError) -> None:
        # The socket stays readable while nothing can be accepted: without a pause the loop would spin.
        assert self._socket is not None
        if error.errno == errno.EMFILE and allow_more_files():
            self.group.loop.call_soon(self._accept)
            return
        reason = "out of descriptors or memory" if passes(error) else "accept failed"
        _log.error("port %d: %s (%s); accepting again in %.0f s", self.port, reason, words(error), ACCEPT_PAUSE_S)
        self.group.loop.remove_reader(self._socket)
        self._retry = self.group.loop.call_later(ACCEPT_PAUSE_S, self._accept_again)

    def _accept_again(self) -> None:
        self._retry = None
        if self._socket is not None:
            self.group.loop.add_reader(self._socket, self._accept)
            self._accept()

    async def _adopt(self, accepted: socket.socket, counted: str) -> None:
        host = peer = "a peer that went"
        try:
            host, port, *_ = accepted.getpeername()
            peer = f"{host}:{port}"
            if self._check_address is not None:
                self._check_address(host)
            accepted.setblocking(False)
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection = await self._connection(accepted)
        except BaseException as error:
            accepted.close()
            self._dismiss(counted)
            if not isinstance(error, OSError | EOFError | ProtocolError):
                raise
            if isinstance(error, ConnectionAbortedError):  # asyncio raises it for a handshake that takes too long
                self.group.bounds.refusals.counts[HANDSHAKE_SECONDS.name] += 1
            why = str(error) if isinstance(error, ProtocolError) else f"it could not be set up: {reason_of(error)}"
            self.group.rejected(host, peer, why)
        else:
            if connection is not None and not counted and connection.verified_ip != host_of(host)[0]:
                counted = connection.verified_ip if self._count(connection.verified_ip) else ""
                if not counted:
                    connection.abort()
            if connection is None:
                accepted.close()
                self._dismiss(counted)
            else:
                connection.on_close(lambda _connection: self._dismiss(counted))

    async def _connection(self, accepted: socket.socket) -> Connection | None:
        """Return the connection of an accepted socket; None when the peer closed or was idle."""
        loop, tls = self.group.loop, self._tls
        # Do not use the loop's return value: with TLS, uvloop returns a protocol of its own.
        connection = Connection(self.group)
        if self._sniffs:
            first = await self._first_byte(accepted)
            if first in proxy.FIRST_BYTES:
                trusted = self._trusted_proxies.trusts(accepted.getpeername()[0])
                connection.use_proxy_header(await self._proxy_header(accepted), trusted=trusted)
                first = await self._first_byte(accepted)
            if not first:
                return None
            if first == HANDSHAKE and tls is not None:
                await self._whole_hello(accepted)
                await self._turns.turn()
                self._turns.spend(TURN_S / HANDSHAKES_PER_TURN)
                await loop.connect_accepted_socket(
                    lambda: connection,
                    accepted,
                    ssl=tls.context(),
                    ssl_handshake_timeout=HANDSHAKE_TIMEOUT_S,
                    ssl_shutdown_timeout=SHUTDOWN_TIMEOUT_S,
                )
                return connection
            if tls is not None and not tls.sniffs:
                raise ProtocolError(f"it speaks no TLS, and tls.server.mode is enforcing at port {self.port}")
        await loop.connect_accepted_socket(lambda: connection, accepted)
        return connection

    async def _whole_hello(self, accepted: socket.socket) -> None:
        """Wait until the first record of a TLS handshake has arrived, without consuming it.

        The handshake then runs in the loop turn that the server grants, not in a turn that the peer chooses. A peer
        that sends only a few bytes gets no handshake memory.

        Raises:
            ConnectionAbortedError: the record does not arrive in time.
        """
        try:
            async with asyncio.timeout(HANDSHAKE_TIMEOUT_S):
                head = await self._peek(accepted, TLS_RECORD_HEAD)
                if len(head) == TLS_RECORD_HEAD:
                    size = int.from_bytes(head[3:])
                    await self._peek(accepted, TLS_RECORD_HEAD + min(size, MOST_TLS_RECORD))
        except TimeoutError:
            raise ConnectionAbortedError(
                f"a TLS handshake that has not begun after {HANDSHAKE_TIMEOUT_S:.0f} s"
            ) from None

    async def _peek(self, accepted: socket.socket, count: int) -> bytes:
        """Return the peer's first `count` bytes without consuming them; fewer when the peer sends no more."""
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, count)
        try:
            await self._readable(accepted)
            return accepted.recv(count, socket.MSG_PEEK)
        finally:
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)

    async def _readable(self, accepted: socket.socket) -> None:
        ready = asyncio.Event()
        self.group.loop.add_reader(accepted, ready.set)
        try:
            await ready.wait()
        finally:
            self.group.loop.remove_reader(accepted)

    async def _first_byte(self, accepted: socket.socket) -> bytes:
        """Return the peer's first byte without consuming it; empty when none arrives."""
        idle_s, first_s = self.group.idle_timeout_s, self.group.first_request_timeout_s
        found = await first_byte(accepted, min(idle_s or first_s, first_s or idle_s) or None)
        if found is None:
            host, port, *_ = accepted.getpeername()
            self.group.silent(host, f"{host}:{port}")
        return found or b""

    async def _proxy_header(self, accepted: socket.socket) -> proxy.ProxyHeader:
        """Read a PROXY header from the connection, and no byte after it.

        Raises:
            ProtocolError: it is not a PROXY header, it is incomplete, or it takes too long.
        """
        data = b""
        try:
            async with asyncio.timeout(HANDSHAKE_TIMEOUT_S):
                while count := proxy.missing(data):
                    piece = await self.group.loop.sock_recv(accepted, count)
                    if not piece:
                        raise ProtocolError(f"a PROXY header that ends after {len(data)} bytes")
                    data += piece
        except TimeoutError:
            self.group.bounds.refusals.counts[HANDSHAKE_SECONDS.name] += 1
            raise ProtocolError(f"a PROXY header that is not whole after {HANDSHAKE_TIMEOUT_S:.0f} s") from None
        return proxy.parse(data)

    def _watch_certificates(self) -> None:
        if self._tls is not None:
            self._watch = self.group.loop.call_later(WATCH_S, self._watch_certificates)
            self._tls.refresh()

    def _dismiss(self, counted: str) -> None:
        self._admitted -= 1
        self._dismissed += 1
        if self._dismissed == MANY:
            # The allocator would hold a crowd's memory until the process ends.
            self.group.loop.call_later(GIVE_BACK_S, self._give_back)
        if counted:
            self._peers.remove(counted)

    def _give_back(self) -> None:
        self._dismissed = 0
        give_back()
