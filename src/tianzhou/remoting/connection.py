"""A connection that carries commands both ways.

Servers and clients use the same connection: either side may send requests (wire.md §1.5). The work per request is
small on purpose: one joined write per read, no task and no future for a request that is answered at once, byte limits
per read and per turn, and no reading from a peer that does not read.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from math import inf
from typing import Any, TypeAlias, cast

from tianzhou._hot import request_code
from tianzhou._hot.client_sends import FLUSH_BYTES as FLUSH_BYTES
from tianzhou.errors import ConnectionLost, LimitExceeded, ProtocolError
from tianzhou.remoting.budget import FRAMES, SMALLEST_READ
from tianzhou.remoting.deferred_reply import DeferredReply
from tianzhou.remoting.deferred_reply import Reply as Reply
from tianzhou.remoting.error_codes import encoded, failed
from tianzhou.remoting.gates.peer_addresses import host_of
from tianzhou.remoting.group import ConnectionGroup
from tianzhou.remoting.handshakes import words_of_loss
from tianzhou.remoting.outgoing import LOST_TRANSPORT, WRITE_LOW_BYTES, Outgoing, PacedTransport
from tianzhou.remoting.proxies.proxy import ProxyHeader
from tianzhou.remoting.session import READ_SIZE, Session
from tianzhou.wire.codes import FLAG_ONEWAY, FLAG_RESPONSE
from tianzhou.wire.command import Command

Processor: TypeAlias = "Callable[[Connection, Command], Reply | Awaitable[Reply]]"
"""Serves a request: returns a reply or a `DeferredReply` (both without a task), or an awaitable (run as a task)."""

LateProcessor: TypeAlias = "Callable[[Connection, Command, float], Reply | Awaitable[Reply]]"
"""Like `Processor`, with the seconds that the requests waited before they were served."""

FastPath: TypeAlias = "Callable[[Connection, bytearray, int, int], tuple[int, list[bytes]]]"
"""Serves several requests at the front of a read in one call (docs/adr/0033).

It receives the connection, the read buffer, the start of the first frame and the end of the read. It returns the start
of the first frame that it leaves to the processor, and the replies to the requests before that frame.
"""

HELD_OVERHEAD = 1024

# `budget` defines further reasons.
_PAUSED_WRITING = 1
_PAUSED_HELD = 2
_PAUSED_TURN = 4

_log = logging.getLogger(__name__)


class Connection(Outgoing, asyncio.BufferedProtocol):
    """One peer: its address, its attributes, and the methods to send to it.

    `RemotingServer` and `RemotingClient` create it. Processors receive it with every request.
    """

    __slots__ = (
        "_attributes", "_callbacks", "_deferred", "_held", "_lost", "_paused", "_proxy_header", "_served", "_session",
        "_shared", "_tasks", "account", "broken", "gathering_since", "remote_address", "remote_host_bytes", "remote_ip",
        "remote_port", "verified_ip",
    )  # fmt: skip

    def __init__(self, group: ConnectionGroup[Connection]) -> None:
        super().__init__(group)
        self.remote_ip = self.remote_address = ""
        self.account = ""  # account of the peer's verified certificate (tls.server.accountFrom)
        self.verified_ip = ""  # address that the peer cannot forge: see `use_proxy_header`
        self.remote_port = 0
        self.remote_host_bytes = b"\0\0\0\0"
        self.broken = False  # whether a network error, such as a reset, ended the connection
        self._lost = False
        self.last_read = self.last_write = self.gathering_since = 0.0
        self.silent_since = group.monotonic()  # inf once a whole command has arrived
        self._session = Session(group.scratch)
        self._transport: asyncio.Transport = None  # type: ignore[assignment]
        self._attributes: dict[str, Any] | None = None
        self._callbacks: list[Callable[[Connection], None]] = []
        self._tasks: dict[asyncio.Task[None], Awaitable[Reply]] = {}
        self._deferred: dict[DeferredReply, None] = {}
        self._paused = self._held = self._shared = self._reserved = 0
        self._backlog: list[Command] = []
        # Replies that the fast path made before the rest of the read was split; None without such replies.
        self._served: list[bytes] | None = None
        self._proxy_header: ProxyHeader | None = None

    def __str__(self) -> str:
        return self.remote_address or "connection without a peer"

    @property
    def gathering(self) -> bool:
        """Whether a frame is half received, since `gathering_since`."""
        return self._reserved > 0

    @property
    def deferred_replies(self) -> int:
        """Number of requests that wait for a `DeferredReply`."""
        return len(self._deferred)

    @property
    def attributes(self) -> dict[str, Any]:
        """Values that the owner stores about this peer."""
        if self._attributes is None:
            self._attributes = {}
        return self._attributes

    @property
    def local_ip(self) -> str:
        """Local address that the peer has connected to; empty for sockets without addresses."""
        name = self._transport.get_extra_info("sockname")
        return host_of(name[0])[0] if isinstance(name, tuple) and len(name) >= 2 else ""

    def on_close(self, callback: Callable[[Connection], None]) -> None:
        """Call `callback(connection)` once when the connection is lost; call it now if it is lost already."""
        if self._lost:
            callback(self)
        else:
            self._callbacks.append(callback)

    # sending

    def close(self) -> None:
        """Flush the sent data, then close. Requests in progress are dropped."""
        if not self.closed:
            self._flush()
            self.closed = True
            self._transport.close()

    def abort(self) -> None:
        """Close at once and drop unsent data."""
        self.closed = True
        self._transport.abort()

    def use_proxy_header(self, header: ProxyHeader, *, trusted: bool = False) -> None:
        """Use a PROXY header's address in logs and client lists. Stored messages keep the socket's address.

        With a `trusted` sender the address also becomes `verified_ip`, which access control and limits use.
        """
        self._proxy_header = header
        self.verified_ip = host_of(header.ip)[0] if trusted and header.ip else ""

    # transport events

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Set up the connection when its transport is ready."""
        # uvloop's class does not derive from asyncio's.
        self._transport = transport = cast("asyncio.Transport", transport)
        if self._group.guarded and transport.get_extra_info("sslcontext") is not None:
            self._paced = PacedTransport(transport)
            self._transport = cast("asyncio.Transport", self._paced)
        else:
            transport.set_write_buffer_limits(
                high=self._group.write_high_bytes, low=min(WRITE_LOW_BYTES, self._group.write_high_bytes // 4)
            )
        peer = transport.get_extra_info("peername")
        if isinstance(peer, tuple) and len(peer) >= 2:
            (self.remote_ip, self.remote_host_bytes), self.remote_port = host_of(peer[0]), peer[1]
            self.remote_address = f"{self.remote_ip}:{self.remote_port}"
            self.verified_ip = self.verified_ip or self.remote_ip
        if (header := self._proxy_header) is not None:
            if header.source:
                self.remote_ip, self.remote_address = header.ip, header.source
            self.attributes.update((f"proxy_protocol_tlv_{kind:#04x}", value) for kind, value in header.values.items())
        elif self._group.account_of is not None:
            self.account = self._group.account_shown(self, transport)
        self.last_read = self.last_write = self._group.monotonic()
        self._group.joined(self)

    def _room(self) -> memoryview:
        group = self._group
        return self._session.writable(SMALLEST_READ if group.turn_full else group.budget.read_size)

    def _take_read(self, nbytes: int, written: float, after: int | None, replies: list[bytes] | None) -> None:
        group, now = self._group, self.last_read
        session, awaiting, waits = self._session, len(self._awaited), False
        finished = bool(after)
        if after is not None:
            commands, served = session.received(nbytes, first=after), replies or None
        else:
            if now >= group.next_mark:
                group.mark_turn(now)
            if group.turn_full or group.unread_full:
                group.postpone(self, group.turn_began or now)
            waits = bool(self._backlog or group.unread_full or group.turn_full)
            take = self._take_results if awaiting else None
            if not (take or waits or not group.fast_paths or self.closed):
                take = self._take_fast
            commands = session.received(nbytes, take)
            served, self._served = self._served, None
        finished = finished or bool(commands) or served is not None or len(self._awaited) < awaiting
        if finished and not self.closed:
            self.silent_since = inf
            if waits:
                self._backlog += commands
            elif commands:
                self._serve(commands, group.processor, served)
            elif served:
                self._write(served, sum(map(len, served)))
            if group.busy_poll is not None:
                group.busy_poll.requested(self, now - written if self.last_write > written else inf)
        reserved = session.reserved
        if reserved or self._reserved:
            if finished or not self._reserved:
                self.gathering_since = self.last_read
            self._reserved = reserved
            group.budget.reserve(self, reserved, finished=finished)
        if session.error is not None:
            self._reject(session.error)
        elif nbytes >= READ_SIZE and group.eager_reads and not self._paused & _PAUSED_TURN:
            self.hold(_PAUSED_TURN)
            group.loop.call_soon(self.release, _PAUSED_TURN)

    def eof_received(self) -> None:
        """Return None, so that the transport closes after the peer's end of stream."""

    def pause_writing(self) -> None:
        """Stop reading from a peer that reads too slowly, so that its replies do not pile up here."""
        self._write_paused = True
        if self._group.guarded:
            self.hold(_PAUSED_WRITING)
            self._group.peer_is_slow(self)

    def resume_writing(self) -> None:
        """Resume serving and reading when the peer has read its replies."""
        if self._paced is not None and not self._paced.write_on():
            return
        self._write_paused = False
        self._group.unread.forget(self)
        if left := self._transport.get_write_buffer_size():
            self._group.keeps_some(self, self._written.held(left))
        if self._writable is not None:
            self._writable.set_result(None)
            self._writable = None
        self.go_on()
        if not self._write_paused:
            self.release(_PAUSED_WRITING)

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the waiters, cancel the tasks and release the memory of a lost connection."""
        self.broken = exc is not None
        self.closed = self._lost = True
        self._backlog.clear()
        self._out.clear()
        if self._paced is not None:
            self._paced.forget()
            self._paced = None
        if self._transport.get_extra_info("sslcontext") is not None:
            # uvloop's TLS protocol holds bound methods of this connection. Drop the transport, which refers to that
            # protocol: a cycle would hold its buffers, 0.4 MiB a connection, until the garbage collector runs.
            self._transport = cast("asyncio.Transport", LOST_TRANSPORT)
        self._share(-self._shared)
        deferred, self._deferred = self._deferred, {}
        for task in self._tasks:
            task.cancel()
        for promise in deferred:
            promise.cancel()
        self._fail_all(ConnectionLost(f"connection to {self} was lost{words_of_loss(exc)}"))
        if self._writable is not None:
            self._writable.set_result(None)
            self._writable = None
        if self._reserved:
            self._reserved = 0
            self._group.budget.reserve(self, 0)
        self._group.left(self)
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            try:
                callback(self)
            except Exception:  # noqa: BLE001 - one bad callback must not keep the others from running
                _log.exception("a close callback of %s failed", self)

    def hold(self, reason: int = FRAMES) -> None:
        """Stop reading until `release` clears this reason (a flag of `budget` or of this module)."""
        if not self._paused and not self._transport.is_closing():
            self._transport.pause_reading()
        self._paused |= reason

    def release(self, reason: int = FRAMES) -> None:
        """Clear a reason, and resume reading when no other reason remains."""
        if self._paused & reason:
            self._paused &= ~reason
            if not self._paused and not self._transport.is_closing():
                self._transport.resume_reading()

    def go_on(self, waited_s: float = 0.0) -> None:
        """Serve requests that were postponed for `waited_s` seconds, unless the peer still has replies to read."""
        if self._backlog and not self.closed and not self._write_paused:
            group, backlog, self._backlog = self._group, self._backlog, []
            self._serve(backlog, group.processor_after(waited_s) if waited_s > group.late_after_s else group.processor)

    def unread(self) -> tuple[int, int]:
        """Return the bytes held because the peer does not read, and the number of them in the transport's buffer."""
        left = self._transport.get_write_buffer_size()
        return self._written.held(left) + self._ready_bytes + len(self._backlog) * HELD_OVERHEAD, left

    def refused(self, request: Command, error: LimitExceeded) -> None:
        """Note a request refused because of a limit."""
        self._group.refused(self, request, error)

    def _reject(self, error: ProtocolError) -> None:
        if not self.closed:
            self._group.rejected(self.verified_ip, self, error)
            self.close()

    # serving

    def _take_fast(self, buffer: bytearray, start: int, end: int) -> int:
        serve = self._group.fast_paths.get(request_code(buffer, start, end))
        if serve is None:
            return start
        after, replies = serve(self, buffer, start, end)
        if after > start:
            self._served = replies
        return after

    def _serve(self, commands: list[Command], processor: Processor, served: list[bytes] | None = None) -> None:
        replies, size, done = served or [], sum(map(len, served or ())), 0
        reply: Any
        for command in commands:
            done += 1
            if command.flag and command.flag & (FLAG_RESPONSE | FLAG_ONEWAY):  # other bits mean nothing
                if command.flag & FLAG_RESPONSE:
                    self._replied(command)
                else:
                    self._serve_oneway(command, processor)
                continue
            try:
                reply = processor(self, command)
            except Exception as error:  # noqa: BLE001 - every failure of a handler becomes a reply
                reply = failed(self, command, error)
            if type(reply) is Command:
                reply = encoded(self, command, reply)
            if type(reply) is bytes:
                replies.append(reply)
                size += len(reply)
            elif type(reply) is tuple:
                replies += reply
                size += len(reply[1])
            else:
                if reply is not None:
                    self.defer(command, reply)
                continue
            if size >= FLUSH_BYTES:
                if self.closed:
                    return
                self._write(replies, size)
                replies, size = [], 0
                if self._write_paused and self._group.guarded:
                    self._backlog = commands[done:]
                    return
        if replies and not self.closed:
            self._write(replies, size)

    def _serve_oneway(self, command: Command, processor: Processor) -> None:
        try:
            reply = processor(self, command)
        except Exception as error:  # noqa: BLE001 - a one-way request has no reply; `failed` logs defects
            failed(self, command, error)
            return
        if reply is not None and not isinstance(reply, bytes | tuple | Command):
            self.defer(command, reply)

    def defer(self, command: Command, reply: Awaitable[Reply] | DeferredReply) -> None:
        """Answer a request later: when its deferred reply ends or its awaitable returns the reply."""
        if type(command.body) is memoryview:
            # The view is on the shared read buffer, which the next read overwrites.
            command.body = bytes(command.body)
        group = self._group
        cost = len(command.body) + HELD_OVERHEAD
        self._held += cost
        if self._held > group.held_bytes:
            self.hold(_PAUSED_HELD)
        if isinstance(reply, DeferredReply):
            # The handlers that defer replies limit their number; the connection only counts the bodies.
            if len(command.body):
                self._share(len(command.body))
            self._deferred[reply] = None
            reply.begin(self, command, cost)
            return
        self._share(cost)
        task = group.loop.create_task(self._finish(command, reply, cost))
        self._tasks[task] = reply
        if len(self._tasks) > group.most_requests and not self._paused & _PAUSED_HELD:
            self.hold(_PAUSED_HELD)
            group.over_own_requests(self, len(self._tasks))
        group.tasks[task] = None
        task.add_done_callback(self._finished)

    async def _finish(self, command: Command, awaitable: Awaitable[Reply], cost: int) -> None:
        reply: Reply
        try:
            reply = await awaitable
        except Exception as error:  # noqa: BLE001 - every failure of a handler becomes a reply
            reply = failed(self, command, error)
        finally:
            self._release_cost(cost, cost)
        self._answer(command, reply)

    def end(self, deferred: DeferredReply, command: Command, cost: int, reply: Reply | Exception) -> None:
        """Send a deferred reply, or the response code of its error."""
        if deferred in self._deferred:
            del self._deferred[deferred]
            self._release_cost(cost, cost - HELD_OVERHEAD)
            self._answer(command, failed(self, command, reply) if isinstance(reply, Exception) else reply)

    def _share(self, size: int) -> None:
        self._shared += size
        requests = self._group.requests
        requests.used += size
        if size > 0 and requests.used > requests.limit:
            self._group.over_request_budget(self, self._shared)
        elif size < 0 and requests.waiting:
            requests.shrank(self, self._shared)

    def _release_cost(self, cost: int, shared: int) -> None:
        self._held -= cost
        if shared and not self._lost:
            self._share(-shared)
        group = self._group
        if (
            self._paused & _PAUSED_HELD
            and self._held <= group.held_bytes // 2
            and len(self._tasks) <= group.most_requests // 2
        ):
            self.release(_PAUSED_HELD)

    def _answer(self, command: Command, reply: Reply) -> None:
        if isinstance(reply, DeferredReply):
            self.defer(command, reply)
        elif reply is not None and not command.flag & FLAG_ONEWAY:
            frame = encoded(self, command, reply) if isinstance(reply, Command) else reply
            if isinstance(frame, bytes):
                self.send(frame)
            else:
                for piece in frame:  # joining would copy the records once more
                    self.send(piece)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._group.tasks.pop(task, None)
        awaitable = self._tasks.pop(task, None)
        if self._paused & _PAUSED_HELD:
            self._release_cost(0, 0)
        if task.cancelled():
            if isinstance(awaitable, Coroutine):
                awaitable.close()  # a coroutine that never started would warn
        elif (error := task.exception()) is not None:
            _log.error("%s: a reply could not be sent", self, exc_info=error)
