"""A small HTTP server on the process's own loop: `/metrics`, `/healthz`, `/readyz`, one request a connection.

Everything a peer can make it do is bounded: heads by bytes and seconds, connections by number, answers by seconds. A
page that is asked for again and again is made so rarely that it takes a fifth of the processor at most.
"""

from __future__ import annotations

import asyncio
import errno
import json
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Final

from tianzhou.errors import ConfigError
from tianzhou.limits import METRICS_CONNECTIONS, METRICS_REQUEST, Bounds
from tianzhou.metrics.exposition import CONTENT_TYPE
from tianzhou.metrics.http_request import BadRequest, Request, parse_head, response_head
from tianzhou.metrics.readiness import Readiness

HEAD_TIMEOUT_S: Final = 5.0
"""Seconds in which the head of a request has to be whole."""
ANSWER_TIMEOUT_S: Final = 30.0
"""Seconds in which a peer has to take its answer."""
CLOSE_TIMEOUT_S: Final = 2.0
"""Seconds in which a peer that has its answer has to close."""
WRITE_BYTES: Final = 65_536
FRESH_S: Final = 0.2
"""Seconds for which a page is served again at least."""
REST: Final = 4.0
"""A page is served again for so many times as long as it took to make it."""
TEXT: Final = "text/plain; charset=utf-8"
_CHALLENGE: Final = 'WWW-Authenticate: Basic realm="tianzhou"\r\n'
_log = logging.getLogger(__name__)


Page = Callable[[], AsyncIterator[bytes]]
"""Makes the page, in pieces between which others are served."""
Allowed = Callable[[str, "tuple[str, str] | None"], int]
"""Status for a peer's address and credentials: 200, 401 or 403."""


class MetricsServer:
    """Serves the page of metrics, and answers probes.

    Args:
        host: address to bind.
        port: port, 0 for any free one; the bound one is `port` after the start.
        page: makes the page.
        ready: says whether the server is ready.
        allowed: who may see the page.
        monotonic: time, in seconds.
        bounds: counts what is refused.
        host_setting: what sets the host, for errors.
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
    ) -> None:
        self.host, self.port = host, port
        self._page, self._ready, self._allowed = page, ready, allowed
        self._monotonic = monotonic
        self._bounds = bounds or Bounds()
        self._host_setting = host_setting
        self._server: asyncio.Server | None = None
        self._open: dict[asyncio.Task[None], None] = {}
        self._made: tuple[list[bytes], float] | None = None
        self._making: asyncio.Task[list[bytes]] | None = None

    @property
    def address(self) -> str:
        """Where it is reached, `host:port`."""
        return f"{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"

    async def start(self) -> None:
        """Bind and serve.

        Raises:
            ConfigError: the address cannot be bound.
        """
        try:
            self._server = await asyncio.start_server(
                self._serve, self.host, self.port, limit=METRICS_REQUEST.default, backlog=METRICS_CONNECTIONS.default
            )
        except OSError as error:
            raise ConfigError(f"metrics cannot be served on {self.address}: {self._advice(error)}") from error
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Stop serving; what is being answered ends."""
        if self._server is not None:
            self._server.close()
            self._server = None
        tasks = [*self._open, *filter(None, [self._making])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _advice(self, error: OSError) -> str:
        if error.errno == errno.EADDRINUSE:
            return "the port is taken; set metricsPromExporterPort to a free one (0 takes any)"
        return f"{error.strerror or error}; set {self._host_setting} to an address of this machine"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        try:
            if not self._bounds.allows(METRICS_CONNECTIONS, len(self._open) + 1):
                return
            self._open[task] = None
            with suppress(OSError, TimeoutError):
                await self._answer(reader, writer)
        finally:
            self._open.pop(task, None)
            # What a peer has not read yet is dropped with a peer that takes too long.
            (writer.close if writer.transport.get_write_buffer_size() == 0 else writer.transport.abort)()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head_only = False
        try:
            request = await self._request(reader)
            head_only = request.head_only
            peer = writer.get_extra_info("peername")
            status, kind, body = await self._body(request, peer[0] if isinstance(peer, tuple) else "")
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
        # Closing while something of the peer is unread would take the answer from it.
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
        """The page: made now, the one being made, or the last one while that is young."""
        if self._made is not None and self._monotonic() < self._made[1]:
            return self._made[0]
        if self._making is None:
            self._making = asyncio.get_running_loop().create_task(self._make(), name="page of metrics")
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
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("the page of metrics could not be made", exc_info=error)
