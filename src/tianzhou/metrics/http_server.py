"""A small HTTP server on the process's event loop: `/metrics`, `/healthz`, `/readyz`, one request per connection.

All resources that a peer can use are limited: heads by bytes and seconds, connections by number, responses by seconds.
A page that is requested again and again is cached, so that making it takes at most a fifth of the processor.
"""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any, Final, Protocol, cast

from tianzhou.errors import ConfigError
from tianzhou.limits import METRICS_CONNECTIONS, METRICS_REQUEST, Bounds
from tianzhou.metrics.exposition import CONTENT_TYPE
from tianzhou.metrics.http_request import BadRequest, Request, parse_head, response_head
from tianzhou.metrics.readiness import Readiness
from tianzhou.supervision import retrieve_exception, start_awaited, start_owned

HEAD_TIMEOUT_S: Final = 5.0
"""Seconds within which a request's head must be complete."""
ANSWER_TIMEOUT_S: Final = 30.0
"""Seconds within which a peer must receive its response."""
CLOSE_TIMEOUT_S: Final = 2.0
"""Seconds within which a peer must close after its response."""
HANDSHAKE_EVERY_S: Final = 0.02
"""Seconds between the starts of two TLS handshakes, which limits the processor time that peers can use."""
ACCEPT_AGAIN_S: Final = 1.0
"""Seconds before the server accepts connections again after an error."""
WRITE_BYTES: Final = 65_536
FRESH_S: Final = 0.2
"""Minimum seconds for which a page is cached."""
REST: Final = 4.0
"""Factor of the time for making a page, which gives the seconds for which the page is cached."""
TEXT: Final = "text/plain; charset=utf-8"
_CHALLENGE: Final = 'WWW-Authenticate: Basic realm="tianzhou"\r\n'
_log = logging.getLogger(__name__)


Page = Callable[[], AsyncIterator[bytes]]
"""Yields the page in pieces. The loop may serve other work between them."""
Allowed = Callable[[str, "tuple[str, str] | None"], int]
"""Returns the HTTP status for a peer's address and credentials: 200, 401 or 403."""


class PageTls(Protocol):
    """TLS of a page's connections.

    Attributes:
        sniffs: whether plain connections are served as well.
    """

    sniffs: bool

    async def context_for(self, accepted: socket.socket) -> ssl.SSLContext | None:
        """Return the TLS context for a new connection by its peer's first byte; None for a plain connection.

        Args:
            accepted: the non-blocking connection; this call consumes no byte of it.
        """


class MetricsServer:
    """Serves the metrics page, and answers probes.

    Args:
        host: address to bind.
        port: port to bind, 0 for any free port; after the start, `port` is the bound port.
        page: yields the page.
        ready: returns the readiness of the server.
        allowed: returns the HTTP status by a peer's permission to see the page.
        monotonic: monotonic time, seconds.
        bounds: counts refused connections.
        host_setting: key of the setting for the host, for errors.
        tls: decides which connections use TLS; None means plain only.
    """

    def __init__(
        self,
        host: str,
        port: int,
        page: Page,
        ready: Callable[[], Readiness],
        allowed: Allowed,
        monotonic: Callable[[], float],
        bounds: Bounds | None = None,
        host_setting: str = "metricsPromExporterHost",
        tls: PageTls | None = None,
    ) -> None:
        self.host, self.port = host, port
        self._page, self._ready, self._allowed = page, ready, allowed
        self._monotonic = monotonic
        self._bounds = bounds or Bounds()
        self._host_setting = host_setting
        self._tls = tls
        self._next_handshake = 0.0
        self._listeners: list[socket.socket] = []
        self._rest: asyncio.TimerHandle | None = None
        self._open: dict[asyncio.Task[None], socket.socket | None] = {}
        self._made: tuple[list[bytes], float] | None = None
        self._making: asyncio.Task[list[bytes]] | None = None

    @property
    def address(self) -> str:
        """Address of the server, `host:port`."""
        return f"{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"

    @property
    def url(self) -> str:
        """URL of the page, with `https` where only TLS is served."""
        return f"{'http' if self._tls is None or self._tls.sniffs else 'https'}://{self.address}/metrics"

    async def start(self) -> None:
        """Bind and serve.

        Raises:
            ConfigError: the address cannot be bound.
        """
        try:
            await self._bind()
        except OSError as error:
            self._unbind()
            raise ConfigError(f"metrics cannot be served on {self.address}: {self._advice(error)}") from error
        self._listen()

    async def _bind(self) -> None:
        found = await asyncio.get_running_loop().getaddrinfo(
            self.host or None, self.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        for family, host in dict.fromkeys((family, address[0]) for family, _, _, _, address in found):
            address = cast("tuple[str, int]", (host, self.port))
            listener = socket.create_server(address, family=family, backlog=METRICS_CONNECTIONS.default)
            self._listeners.append(listener)
            listener.setblocking(False)
            self.port = listener.getsockname()[1]

    def _listen(self) -> None:
        for listener in self._listeners:
            asyncio.get_running_loop().add_reader(listener, self._accept, listener)

    def _unbind(self) -> None:
        if self._rest is not None:
            self._rest.cancel()
        for listener in self._listeners:
            asyncio.get_running_loop().remove_reader(listener)
            listener.close()
        self._listeners.clear()

    async def close(self) -> None:
        """Stop serving and cancel the responses in progress."""
        self._unbind()
        tasks = [*self._open, *filter(None, [self._making])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _advice(self, error: OSError) -> str:
        if error.errno == errno.EADDRINUSE:
            return "the port is taken; set metricsPromExporterPort to a free one (0 takes any)"
        return f"{error.strerror or error}; set {self._host_setting} to an address of this machine"

    def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        try:
            for _ in range(METRICS_CONNECTIONS.default):
                accepted, peer = listener.accept()
                accepted.setblocking(False)
                task = start_owned(self._serve(accepted, str(peer[0])), "metrics", name="reader of metrics")
                self._open[task] = accepted
                task.add_done_callback(self._left)
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError as error:
            # The socket stays readable while accepting fails: without a pause the loop would spin.
            _log.warning("%s cannot be asked for now: %s", self.url, error.strerror or error)
            for each in self._listeners:
                loop.remove_reader(each)
            self._rest = loop.call_later(ACCEPT_AGAIN_S, self._listen)

    def _left(self, task: asyncio.Task[None]) -> None:
        # The loop closes a connection that it has taken over. Close one that was cancelled before that.
        accepted = self._open.pop(task)
        if accepted is not None:
            accepted.close()

    async def _serve(self, accepted: socket.socket, ip: str) -> None:
        if not self._bounds.allows(METRICS_CONNECTIONS, len(self._open)):
            return
        with suppress(OSError, TimeoutError, EOFError):
            context = await self._context(accepted)
            reader, writer = await self._connected(accepted, context)
            try:
                await self._answer(reader, writer, ip, refused=context is None and self._tls_only)
            finally:
                # Abort the connection of a slow peer, because close() would wait until it has read the rest.
                (writer.close if writer.transport.get_write_buffer_size() == 0 else writer.transport.abort)()

    @property
    def _tls_only(self) -> bool:
        return self._tls is not None and not self._tls.sniffs

    async def _context(self, accepted: socket.socket) -> ssl.SSLContext | None:
        if self._tls is None:
            return None
        async with asyncio.timeout(HEAD_TIMEOUT_S):
            return await self._tls.context_for(accepted)

    async def _connected(
        self, accepted: socket.socket, context: ssl.SSLContext | None
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Return the streams of a connection, with TLS after its handshake.

        Raises:
            OSError: the handshake failed.
        """
        loop = asyncio.get_running_loop()
        options: dict[str, Any] = {}
        if context is not None:
            now = self._monotonic()
            begin = max(now, self._next_handshake)
            self._next_handshake = begin + HANDSHAKE_EVERY_S
            await asyncio.sleep(begin - now)
            options = {
                "ssl": context, "ssl_handshake_timeout": HEAD_TIMEOUT_S, "ssl_shutdown_timeout": CLOSE_TIMEOUT_S,
            }  # fmt: skip
        reader = asyncio.StreamReader(METRICS_REQUEST.default, loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
        transport, _ = await loop.connect_accepted_socket(lambda: protocol, accepted, **options)
        task = asyncio.current_task()
        assert task is not None
        self._open[task] = None
        return reader, asyncio.StreamWriter(transport, protocol, reader, loop)

    async def _answer(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, ip: str, *, refused: bool
    ) -> None:
        head_only = False
        try:
            if refused:
                raise BadRequest(400, "this page speaks TLS (tls.server.mode=enforcing); ask for it by https://")
            request = await self._request(reader)
            head_only = request.head_only
            status, kind, body = await self._body(request, ip)
        except BadRequest as error:
            status, kind, body = error.status, TEXT, [f"{error.why}\n".encode()]
        except EOFError:
            return
        extra = {401: _CHALLENGE, 405: "Allow: GET, HEAD\r\n"}.get(status, "")
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            writer.write(response_head(status, kind, sum(map(len, body)), extra))
            for piece in () if head_only else body:
                for start in range(0, len(piece), WRITE_BYTES):
                    writer.write(piece[start : start + WRITE_BYTES])
                    await writer.drain()
            await writer.drain()
            if writer.can_write_eof():
                writer.write_eof()
        # Closing a socket with unread bytes of the peer would reset the connection before the peer reads the response.
        async with asyncio.timeout(CLOSE_TIMEOUT_S):
            await reader.read(1)

    async def _request(self, reader: asyncio.StreamReader) -> Request:
        try:
            async with asyncio.timeout(HEAD_TIMEOUT_S):
                return parse_head(await reader.readuntil(b"\r\n\r\n"))
        except asyncio.LimitOverrunError:
            self._bounds.refusals.counts[METRICS_REQUEST.name] += 1
            raise BadRequest(431, f"the head has more than {METRICS_REQUEST.default} bytes") from None
        except TimeoutError:
            raise BadRequest(408, f"the head was not whole after {HEAD_TIMEOUT_S:g} s") from None

    async def _body(self, request: Request, ip: str) -> tuple[int, str, list[bytes]]:
        path = request.path
        if path == "/healthz":
            return 200, TEXT, [b"ok\n"]
        if path not in ("/metrics", "/readyz"):
            raise BadRequest(404, "there are /metrics, /healthz and /readyz")
        status = self._allowed(ip, request.credentials)
        if path == "/readyz":
            return self._readiness(shown=status == 200)
        if status == 401:
            raise BadRequest(401, "this page needs the credentials of an account that may look at the cluster")
        if status != 200:
            raise BadRequest(403, "this page is not for you: see metricsAllowedAddresses and the rules of access")
        return 200, CONTENT_TYPE, await self._present()

    def _readiness(self, *, shown: bool) -> tuple[int, str, list[bytes]]:
        found = self._ready()
        told: dict[str, object] = {"ready": found.ready}
        if shown:
            told |= {"reasons": list(found.reasons), **found.facts}
        return (200 if found.ready else 503), "application/json", [json.dumps(told).encode() + b"\n"]

    async def _present(self) -> list[bytes]:
        """Return the page: the cached one while it is young, else the one in progress, else a new one."""
        if self._made is not None and self._monotonic() < self._made[1]:
            return self._made[0]
        if self._making is None:
            self._making = start_awaited(self._make(), name="page of metrics")
            self._making.add_done_callback(self._finished)
        try:
            return await asyncio.shield(self._making)
        except Exception as error:
            raise BadRequest(500, "the page could not be made; the server's log says why") from error

    async def _make(self) -> list[bytes]:
        began = self._monotonic()
        made = [piece async for piece in self._page()]
        now = self._monotonic()
        self._made = made, now + max(FRESH_S, REST * (now - began))
        return made

    def _finished(self, task: asyncio.Task[list[bytes]]) -> None:
        self._making = None
        if (error := retrieve_exception(task)) is not None:
            _log.error("the page of metrics could not be made", exc_info=error)
