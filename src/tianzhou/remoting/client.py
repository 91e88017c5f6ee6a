"""Requests to servers by address: one connection per address, made when needed."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import ssl
from asyncio import get_running_loop
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from math import inf
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from tianzhou.clock import Clock
from tianzhou.errors import ClientError, ConfigError, ConnectFailed, ConnectionLost, RequestTimeout
from tianzhou.escaping import shown
from tianzhou.model.server_addresses import MAX_PORT, address_fault
from tianzhou.remoting.callbacks import failure_of
from tianzhou.remoting.connection import Connection, Processor
from tianzhou.remoting.group import ConnectionGroup
from tianzhou.remoting.handshakes import for_new_connection, why_refused, why_unanswered
from tianzhou.remoting.proxies.proxy import ProxyHeader
from tianzhou.remoting.tls import SHUTDOWN_TIMEOUT_S
from tianzhou.supervision import start_owned
from tianzhou.wire.codes import ResponseCode
from tianzhou.wire.command import Command, decode, encode

if TYPE_CHECKING:
    from tianzhou.remoting.proxies.socks import SocksProxies, SocksProxy

T = TypeVar("T")

REPLACE_INTERVAL_S = 1.0
"""Minimum seconds between two replacements of a connection over which the server replied GO_AWAY."""
_log = logging.getLogger(__name__)

NOTABLE_SHARE = 0.1
"""Share of a request's timeout from which an error names connecting as a cause of the timeout."""


def _proxies(socks: str | Mapping[str, Mapping[str, str]]) -> SocksProxies:
    from tianzhou.remoting.proxies.socks import SocksProxies

    return SocksProxies(socks)


def parse_address(address: str) -> tuple[str, int]:
    """Return host and port of `host:port` or `[v6]:port`.

    Raises:
        ConfigError: the address has neither form.
    """
    host, colon, port = address.strip().rpartition(":")
    if not colon or not host or not (port.isascii() and port.isdigit()) or int(port[:9]) > MAX_PORT:
        fault = address_fault(address.strip())
        raise ConfigError(f"address {shown(repr(address))}: expected host:port, for example 127.0.0.1:9876: {fault}")
    return host.strip("[]"), int(port)


def _reason(error: OSError) -> str:
    """Return the operating system's error text, which asyncio replaces with its own."""
    if error.errno and error.errno > 0 and not isinstance(error, socket.gaierror):
        return os.strerror(error.errno)
    return error.strerror or str(error) or type(error).__name__


@dataclass(slots=True)
class Exchange:
    """A request in flight, as RPC hooks see it.

    Attributes:
        address: the server's `host:port`.
        request: the request; a hook may change it, its header fields above all.
        reply: the server's reply; None before it arrives, and for one-way requests.
    """

    address: str
    request: Command
    reply: Command | None = None


RpcHook = Callable[[Exchange], "Callable[[Exchange], Any] | None"]
"""Called with each request before it is encoded. The client calls the returned function with the reply.

The caller of the request gets an exception of the hook. An exception that is no `Exception`, such as `SystemExit`,
becomes the cause of a `CallbackExit`.
"""


def _call_hook(hook: Callable[[Exchange], T], exchange: Exchange) -> T:
    # Tasks of the client send many requests, such as heartbeats. `SystemExit` in such a task would end the event loop.
    try:
        return hook(exchange)
    except Exception:
        raise
    except BaseException as error:
        raise failure_of(error) from error


class RemotingClient:
    """Sends requests to any number of servers; one connection per address, dialled again after it was lost.

    Use it as an async context manager, or call `close`. All requests made in one turn of the loop to one
    address share one write. It belongs to the event loop it is first used on.

    Args:
        processor: serves requests that servers send (wire.md §7.8); by default they are answered as
            unsupported.
        connect_timeout_ms: maximum ms of a connection attempt.
        hooks: see `RpcHook`; in this order.
        border: a hook that runs before `hooks`, for requests that the caller has not encoded.
        clock: source of monotonic time.
        tls: speak TLS to every server (`tianzhou.remoting.tls.client_context`); None speaks plain.
        socks: proxies by network, see `SocksProxies`.

    Raises:
        ConfigError: `socks` is wrong.
    """

    def __init__(
        self,
        processor: Processor | None = None,
        *,
        connect_timeout_ms: float = 3000,
        hooks: Iterable[RpcHook] = (),
        border: RpcHook | None = None,
        clock: Clock | None = None,
        tls: ssl.SSLContext | None = None,
        socks: str | Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        self._tls = tls
        self._proxies = _proxies(socks) if socks else None
        self.connect_timeout_ms = connect_timeout_ms
        self.hooks = list(hooks)
        self._command_hooks = self.hooks if border is None else [border, *self.hooks]
        self.group = ConnectionGroup(processor, guarded=False, clock=clock)
        self._connections: dict[str, Connection] = {}
        self._dials: dict[str, asyncio.Task[Connection]] = {}
        self._replaced_s: dict[str, float] = {}
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def open_connections(self) -> dict[str, Connection]:
        """Connections by address, live and read-only. Some may be closed already."""
        return self._connections

    @property
    def hooked(self) -> bool:
        """Whether hooks see requests, so that each request must be a `Command`."""
        return bool(self._command_hooks)

    @property
    def is_plain(self) -> bool:
        """Whether connections go directly to the servers, without TLS or a proxy."""
        return self._tls is None and self._proxies is None

    async def invoke(self, address: str, command: Command, timeout_ms: float = 3000) -> Command:
        """Send a request and return the reply, whatever its response code is.

        A server that shuts down replies GO_AWAY (1500); the client then repeats the request once over a new
        connection (wire.md §1.9).

        Args:
            address: `host:port` of the server.
            command: the request; its opaque is set here.
            timeout_ms: for connecting and the reply together, accurate to about 50 ms.

        Raises:
            ConnectFailed: no connection could be made.
            ConnectionLost: the connection ended before the reply.
            RequestTimeout: no reply came in time.
            TooManyRequests: too many requests are in flight.
        """
        if not self._command_hooks:
            return await self._invoke(address, command, timeout_ms)
        exchange = Exchange(address, command)
        afters = self._before(exchange, self._command_hooks)
        exchange.reply = await self._invoke(address, exchange.request, timeout_ms)
        for after in afters:
            _call_hook(after, exchange)
        return exchange.reply

    @staticmethod
    def _before(exchange: Exchange, hooks: list[RpcHook]) -> list[Callable[[Exchange], Any]]:
        return [after for hook in hooks if (after := _call_hook(hook, exchange)) is not None]

    def prepare(self, address: str, command: Command) -> Command:
        """Return the request as the hooks change it, for a caller that sends it itself. Hooks do not see the reply."""
        if self._command_hooks:
            exchange = Exchange(address, command)
            self._before(exchange, self._command_hooks)
            return exchange.request
        return command

    async def _invoke(self, address: str, command: Command, timeout_ms: float) -> Command:
        connection = self.connected(address)
        began_s = self.group.monotonic()
        if connection is None:
            connection, reply = await self._with_new_connection(
                address, timeout_ms, lambda new, left: new.invoke(command, left)
            )
        else:
            reply = await connection.invoke(command, timeout_ms)
        if reply.code == ResponseCode.GO_AWAY and self._may_replace(address, connection):
            self._forget(address, connection)
            left_ms = timeout_ms - (self.group.monotonic() - began_s) * 1000
            _, reply = await self._with_new_connection(address, left_ms, lambda new, left: new.invoke(command, left))
        return reply

    def _may_replace(self, address: str, connection: Connection) -> bool:
        # Limit the rate: a server that replies GO_AWAY over each new connection would otherwise get one per request.
        if self._connections.get(address) is not connection:
            return True  # it is replaced already
        now_s = self.group.monotonic()
        if now_s - self._replaced_s.get(address, -inf) < REPLACE_INTERVAL_S:
            return False
        self._replaced_s[address] = now_s
        return True

    async def _with_new_connection(
        self, address: str, timeout_ms: float, ask: Callable[[Connection, float], Awaitable[Command]]
    ) -> tuple[Connection, Command]:
        connection, left_ms = await self.reach(address, timeout_ms)
        began_s = self.group.monotonic()
        try:
            return connection, await ask(connection, left_ms)
        except ConnectionLost as error:
            after_ms = (self.group.monotonic() - began_s) * 1000
            why = why_unanswered(after_ms, by_tls=self._tls is not None)
            raise ConnectionLost(f"{error}, which was new; {why}") from error
        except RequestTimeout as error:
            took_ms = timeout_ms - left_ms
            if took_ms < timeout_ms * NOTABLE_SHARE:
                raise
            raise RequestTimeout(
                f"{error}; of the {timeout_ms:.0f} ms given, connecting to {address} took the first {took_ms:.0f}"
            ) from None

    async def reach(self, address: str, timeout_ms: float) -> tuple[Connection, float]:
        """Return the connection for a request, made if needed, and the rest of the request's time.

        Args:
            address: `host:port`.
            timeout_ms: for connecting and the reply together.

        Returns:
            The connection, and milliseconds above zero.

        Raises:
            ConnectFailed: no connection could be made, or making it used up the time.
            ConnectionLost: the client is closed.
        """
        began_s = self.group.monotonic()
        connection = await self.connect(address, timeout_ms)
        took_ms = (self.group.monotonic() - began_s) * 1000
        if took_ms >= timeout_ms:
            raise ConnectFailed(
                f"connecting to {address} took {took_ms:.0f} ms and the request was given {max(timeout_ms, 0):.0f}, so "
                "it was not sent; is this machine or the server too busy?"
            )
        return connection, timeout_ms - took_ms

    async def invoke_frame(self, address: str, opaque: int, frame: bytes, timeout_ms: float = 3000) -> Command:
        """Invoke a request that the caller encoded with an opaque of `group.opaques`. Return a GO_AWAY reply, too."""
        exchange = None
        if self.hooks:
            exchange = Exchange(address, decode(memoryview(frame)[4:]))
            afters = self._before(exchange, self.hooks)
            exchange.request.opaque = opaque
            frame = encode(exchange.request)
        connection = self.connected(address)
        if connection is None:
            _, reply = await self._with_new_connection(
                address, timeout_ms, lambda new, left: new.invoke_frame(opaque, frame, left)
            )
        else:
            reply = await connection.invoke_frame(opaque, frame, timeout_ms)
        if exchange is None:
            return reply
        exchange.reply = reply
        for after in afters:
            _call_hook(after, exchange)
        return exchange.reply

    async def invoke_oneway(
        self, address: str, command: Command, refused: Callable[[Command], object] | None = None
    ) -> None:
        """Send a request that awaits no reply. Connect first when there is no connection.

        Args:
            address: `host:port`.
            command: the request.
            refused: see `Requester.invoke_oneway`.

        Raises:
            ConnectFailed: no connection could be made.
            ConnectionLost: the connection ended just now.
        """
        connection = self.connected(address)
        if connection is None:
            connection = await self.connect(address)
        connection.invoke_oneway(self.prepare(address, command), refused)

    async def send_frame(self, address: str, frame: bytes) -> None:
        """Send a one-way request that the caller encoded. Return when the connection can take more.

        Raises:
            ConnectFailed: no connection could be made.
            ConnectionLost: the connection ended just now.
        """
        connection = await self.connect(address)
        if self.hooks:
            frame = encode(self.prepare(address, decode(memoryview(frame)[4:])))
        connection.send(frame)
        await connection.drain()

    def bind(self) -> None:
        """Bind the client to the running event loop now, rather than at the first connection."""
        if not self.group.started:
            self.group.start()

    def check_loop(self) -> None:
        """Check that the running event loop is the client's.

        Raises:
            ClientError: the running loop is another one.
        """
        if self.group.started and asyncio.get_running_loop() is not self.group.loop:
            raise ClientError(
                "this client belongs to another event loop (each asyncio.run has its own); make and use it within one, "
                "or use tianzhou.sync, which needs none"
            )

    def connected(self, address: str) -> Connection | None:
        """Return the open connection to an address, None when there is none now.

        Raises:
            ClientError: the client belongs to another event loop.
        """
        connection = self._connections.get(address)
        if connection is None or connection.closed:
            return None
        if get_running_loop() is not self.group.loop:
            self.check_loop()
        return connection

    async def connect(self, address: str, timeout_ms: float | None = None) -> Connection:
        """Return the connection to an address; make one if needed. Concurrent callers share one attempt.

        Raises:
            ConnectFailed: it could not be made within the connect timeout or `timeout_ms`.
            ConnectionLost: the client is closed.
            ClientError: the client belongs to another event loop.
        """
        if self._closed:
            raise ConnectionLost(f"cannot connect to {address}: the client is closed; make a new one")
        connection = self.connected(address)
        if connection is not None:
            return connection
        self.bind()
        self.check_loop()
        dial = self._dials.get(address)
        if dial is None:
            host, port = parse_address(address)
            dial = start_owned(self._dial(address, host, port), f"connection to {address}")
            self._dials[address] = dial
            dial.add_done_callback(lambda _: self._dials.pop(address, None))
        if timeout_ms is None or timeout_ms >= self.connect_timeout_ms:
            return await asyncio.shield(dial)
        try:
            # Not wait_for: Python 3.11's wait_for loses a cancellation that arrives together with the connection.
            async with asyncio.timeout(max(timeout_ms, 0) / 1000):
                return await asyncio.shield(dial)
        except TimeoutError:
            raise ConnectFailed(f"cannot connect to {address} within {max(timeout_ms, 0):.0f} ms") from None

    async def _dial(self, address: str, host: str, port: int) -> Connection:
        tls = for_new_connection(self._tls)
        shutdown_s = None if tls is None else SHUTDOWN_TIMEOUT_S
        proxy = self._proxies.towards(host) if self._proxies is not None else None
        connection = Connection(self.group)
        try:
            async with asyncio.timeout(self.connect_timeout_ms / 1000):
                if proxy is None:
                    await self.group.loop.create_connection(
                        lambda: connection, host, port, ssl=tls, ssl_shutdown_timeout=shutdown_s
                    )
                else:
                    connection.use_proxy_header(ProxyHeader(address, host))
                    await self.group.loop.create_connection(
                        lambda: connection,
                        sock=await self._open_tunnel(proxy, host, port),
                        ssl=tls,
                        server_hostname=host if tls is not None else None,
                        ssl_shutdown_timeout=shutdown_s,
                    )
        except TimeoutError:
            raise ConnectFailed(
                f"cannot connect to {address} within {self.connect_timeout_ms:.0f} ms; is the address right"
                " and reachable?"
            ) from None
        except OSError as error:
            why = await why_refused(error, host, port, tls, direct=proxy is None)
            raise ConnectFailed(f"cannot connect to {address}: {why or _reason(error)}") from error
        self._connections[address] = connection
        connection.on_close(lambda lost: self._forget(address, lost))
        return connection

    async def _open_tunnel(self, proxy: SocksProxy, host: str, port: int) -> socket.socket:
        """Return a socket that a proxy connects to the server.

        Raises:
            ConnectFailed: the proxy does not answer, or refuses.
        """
        from tianzhou.remoting.proxies.socks import handshake

        loop = self.group.loop
        try:
            found = await loop.getaddrinfo(proxy.host, proxy.port, type=socket.SOCK_STREAM)
            tunnel = socket.socket(*found[0][:3])
        except OSError as error:
            raise ConnectFailed(f"cannot find {proxy}: {_reason(error)}") from error
        try:
            tunnel.setblocking(False)
            await loop.sock_connect(tunnel, found[0][4])
            talk = handshake(proxy, host, port)
            data, wanted = next(talk)
            while True:
                await loop.sock_sendall(tunnel, data)
                answer = b""
                while len(answer) < wanted:
                    piece = await loop.sock_recv(tunnel, wanted - len(answer))
                    if not piece:
                        raise ConnectFailed(f"{proxy} ended the connection before it led to {host}:{port}")
                    answer += piece
                try:
                    data, wanted = talk.send(answer)
                except StopIteration:
                    return tunnel
        except OSError as error:
            tunnel.close()
            raise ConnectFailed(f"cannot connect to {host}:{port} through {proxy}: {_reason(error)}") from error
        except BaseException:
            tunnel.close()
            raise

    def _forget(self, address: str, connection: Connection) -> None:
        if self._connections.get(address) is connection:
            del self._connections[address]
        if not connection.closed:
            # Other requests may still be answered on it; the idle sweep ends it, or the server does.
            _log.info("no new requests to %s over the present connection: it replied GO_AWAY", address)

    async def close(self, grace_s: float = 1.0) -> None:
        """Close every connection and all tasks. Waiting requests fail with ConnectionLost."""
        self._closed = True
        dials = list(self._dials.values())
        for dial in dials:
            dial.cancel()
        if dials:
            await asyncio.wait(dials)
        if self.group.started:
            await self.group.close(grace_s)
        self._connections.clear()
