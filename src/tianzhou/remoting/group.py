"""The shared state of one server's or one client's connections: processor, limits, counters and sweeps."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from math import inf
from typing import Any, Generic, Protocol, TypeAlias, TypeVar, cast

from tianzhou._hot import SharedReads
from tianzhou._hot.reads import READ_SIZE
from tianzhou.clock import Clock, SystemClock
from tianzhou.errors import LimitExceeded, ProtocolError, RequestTimeout, TooManyRequests
from tianzhou.limits import (
    CONNECTION_REQUESTS,
    FIRST_FRAME,
    HALF_FRAMES,
    IDLE_SECONDS,
    REPLY_BYTES,
    REQUEST_BYTES,
    UNREAD_BYTES,
    Bounds,
    Limit,
)
from tianzhou.process.free_memory import give_back
from tianzhou.remoting.budget import REPLIES, FrameBudget, Holdable, RequestBudget
from tianzhou.remoting.busy_poll import BusyPoll
from tianzhou.remoting.deferred_reply import Reply
from tianzhou.remoting.error_codes import unsupported
from tianzhou.remoting.loop_stall import StallAwareTimer
from tianzhou.remoting.session import OpaqueCounter, scratch_buffer
from tianzhou.remoting.turns import FairQueue
from tianzhou.remoting.unread import HIGH_BYTES, SWEEP_S, Reader, UnreadReplies, high_mark
from tianzhou.repeats import Repeats
from tianzhou.slices import NextTurn
from tianzhou.wire.command import Command

HELD_BYTES = 33_554_432
"""Maximum bytes of a connection's unfinished requests. Above it the server stops reading from the peer."""
MAX_IN_FLIGHT = 65_535
"""Maximum in-flight requests of this process over all connections (wire.md §1.8)."""
DEADLINE_STEP_S = 0.05
IDLE_STEP_S = 5.0
MARK_STEP_S = 0.02
BACKLOG_S = 0.01
"""Seconds of postponed requests that are served in one loop turn."""
REJECTIONS_LOGGED = 20
"""Rejected connections of one host that are logged per minute; further ones are only counted."""
DEAD_PEER_S = 3.0
REFUSALS_SPAN_S = 60.0
"""Seconds after a logged refusal in which further refusals by the same limit are only counted."""

_log = logging.getLogger(__name__)


class Member(Holdable, Reader, Protocol):
    """A connection as the group uses it; see `tianzhou.remoting.connection.Connection`."""

    closed: bool
    last_read: float
    last_write: float
    gathering_since: float
    silent_since: float
    verified_ip: str

    @property
    def gathering(self) -> bool:
        """Whether a frame is half received, since `gathering_since`."""

    @property
    def awaiting(self) -> int:
        """Number of in-flight requests that the peer has not answered."""

    def expired(self, now: float) -> list[tuple[asyncio.Future[Command], float]]:
        """Remove and return the waiters whose deadline has passed, each with its timeout in seconds."""

    def go_on(self, waited_s: float = 0.0) -> None:
        """Serve postponed requests."""

    def close(self) -> None:
        """Flush the sent data, then close."""

    def abort(self) -> None:
        """Close at once and drop unsent data."""


MemberT = TypeVar("MemberT", bound=Member)
_Processor: TypeAlias = "Callable[[MemberT, Command], Reply | Awaitable[Reply]]"
_LateProcessor: TypeAlias = "Callable[[MemberT, Command, float], Reply | Awaitable[Reply]]"


class ConnectionGroup(SharedReads, Generic[MemberT]):
    """The shared state of one server's or one client's connections: processor, limits, counters and sweeps.

    Args:
        processor: serves the peers' requests; None replies REQUEST_CODE_NOT_SUPPORTED to each.
        idle_timeout_s: seconds without traffic after which a connection is closed; 0 never closes.
        first_request: whether a peer must send a whole request within `firstRequestTimeoutMillis`.
        guarded: whether to stop reading from a peer that does not read its replies. Set it for servers only. Two ends
            that both do so deadlock when both have much to send.
        busy_poll_s: seconds the loop polls for a peer that sends one request at a time, see `BusyPoll`; 0 never polls.
        clock: source of the monotonic time for deadlines and idleness.
        bounds: limits of all connections together.
        unread: counter of unread replies; servers that share a bound share the counter.
    """

    def __init__(
        self,
        processor: _Processor[MemberT] | None = None,
        *,
        idle_timeout_s: float = 120.0,
        first_request: bool = False,
        guarded: bool = True,
        busy_poll_s: float = 0.0,
        clock: Clock | None = None,
        bounds: Bounds | None = None,
        unread: UnreadReplies | None = None,
    ) -> None:
        self.bounds = bounds or Bounds()
        self.requests = RequestBudget(self.bounds.most(REQUEST_BYTES))
        self.unread = UnreadReplies() if unread is None else unread
        # Whether unread replies hold so much memory that no new reply may be made until peers read some.
        self.unread_full = False
        self._postponed: FairQueue[MemberT] = FairQueue()
        self._next_turn = NextTurn(self._go_on)
        self.write_high_bytes = HIGH_BYTES
        self._unread_timer: StallAwareTimer | None = None
        self.processor: _Processor[MemberT] = processor or (lambda _connection, command: unsupported(command))
        self.idle_timeout_s = idle_timeout_s
        self._first_request = first_request
        self.held_bytes = HELD_BYTES
        self.most_requests = self.bounds.most(CONNECTION_REQUESTS)
        self.budget = FrameBudget(HALF_FRAMES.default)
        self.guarded = guarded
        self.busy_poll_s = busy_poll_s
        self.busy_poll: BusyPoll | None = None
        self.clock = clock or SystemClock()
        self.monotonic = self.clock.monotonic
        self.scratch = scratch_buffer()
        self.window = memoryview(self.scratch)[:READ_SIZE]
        self.opaques = OpaqueCounter()
        self.opaques.most = MAX_IN_FLIGHT
        # In connection order: sweeps close the oldest connections first.
        self.connections: dict[MemberT, None] = {}
        self.tasks: dict[asyncio.Task[None], None] = {}  # of handlers; they may outlive their connection a little
        self.loop: asyncio.AbstractEventLoop = None  # type: ignore[assignment]
        self.on_connect: Callable[[MemberT], None] | None = None
        # Returns the account of a peer's certificate; None where certificates carry no account.
        self.account_of: Callable[[Mapping[str, Any]], str] | None = None
        self.late: _LateProcessor[MemberT] | None = None
        self.fast_paths: dict[int, Callable[[MemberT, bytearray, int, int], tuple[int, list[bytes]]]] = {}
        self.late_after_s = inf
        # Time the present loop turn began, as far as known; 0 when unknown.
        self.turn_began = 0.0
        self.next_mark = inf
        self.turn_full = False
        self.started = False
        self.eager_reads = False
        self._idle_timer: StallAwareTimer | None = None
        self.deadline_timer: StallAwareTimer | None = None
        self._empty: asyncio.Future[None] | None = None
        self._rejections = Repeats(REJECTIONS_LOGGED)
        self._nameless = Repeats(REJECTIONS_LOGGED)
        self._refusals = Repeats(span_s=REFUSALS_SPAN_S)

    def start(self) -> None:
        """Bind to the running loop and start the idle sweep."""
        self.loop = asyncio.get_running_loop()
        self.started = True
        # libuv reads one ready socket up to 32 times in a row; asyncio's own loop reads it once per turn.
        self.eager_reads = type(self.loop).__module__.startswith("uvloop")
        if self.busy_poll_s > 0:
            self.busy_poll = BusyPoll(self.loop, self.monotonic, self.busy_poll_s)
        if self.idle_timeout_s > 0:
            self._arm_idle()

    def account_shown(self, connection: MemberT, transport: asyncio.BaseTransport) -> str:
        """Return the account of the peer's verified certificate; empty when there is none."""
        ssl_object = transport.get_extra_info("ssl_object")
        # getpeercert() is empty for an unverified certificate.
        certificate = None if ssl_object is None else ssl_object.getpeercert()
        if not certificate or self.account_of is None:
            return ""
        try:
            return self.account_of(certificate)
        except ProtocolError as error:
            if self._nameless.due("", self.monotonic()) is not None:
                _log.warning("%s has no account by its certificate: %s", connection, error)
            return ""

    def rejected(self, host: str, peer: object, why: object, level: int = logging.WARNING) -> None:
        """Log why a connection is closed, at most `REJECTIONS_LOGGED` times a minute for one host.

        Args:
            host: the peer's host.
            peer: the connection, as the log line shows it.
            why: the reason, such as the protocol error.
            level: log level.
        """
        held = self._rejections.due(host, self.monotonic())
        if held is not None:
            more = f" ({held} more of its connections were closed for such reasons since)" if held else ""
            _log.log(level, "closing %s: %s%s", peer, why, more)

    async def close(self, grace_s: float = 3.0) -> None:
        """Close every connection, flush written data for at most `grace_s` seconds, and cancel all handler tasks."""
        for timer in (self._idle_timer, self.deadline_timer, self._unread_timer):
            if timer is not None:
                timer.cancel()
        self._idle_timer = self.deadline_timer = self._unread_timer = None
        for connection in list(self.connections):
            connection.close()
        if self.connections and not await self._drained(grace_s):
            for connection in list(self.connections):
                connection.abort()
            await self._drained(grace_s)
        tasks = list(self.tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            _, stuck = await asyncio.wait(tasks, timeout=grace_s)
            if stuck:
                _log.error("%d handlers did not end within %.0f s of being cancelled", len(stuck), grace_s)

    async def _drained(self, timeout_s: float) -> bool:
        if not self.connections:
            return True
        self._empty = self.loop.create_future()
        await asyncio.wait([self._empty], timeout=timeout_s)
        return not self.connections

    def mark_turns(self) -> None:
        """Postpone requests that are read late in a long loop turn to later turns, in slices.

        Ten thousand peers may send a request at the same moment, and the loop reads all of them in one turn.
        """
        self.next_mark = 0.0

    def serve_late(self, late: _LateProcessor[MemberT], after_s: float) -> None:
        """Serve requests with `late` when they are read more than `after_s` seconds after the loop turn began.

        All data that a turn reads had arrived when the turn began, so a request has waited at least since then. The
        group notes the beginning of a turn only every few milliseconds, so that reads cost nothing extra.
        """
        self.late = late
        self.late_after_s = after_s
        self.mark_turns()

    def processor_after(self, waited_s: float) -> _Processor[MemberT]:
        """Return the processor for requests that have waited `waited_s` seconds. Requires `serve_late`."""
        late = self.late
        assert late is not None
        return lambda connection, command: late(connection, command, waited_s)

    def mark_turn(self, now: float) -> None:
        """Note that the present loop turn began at `now` or earlier."""
        self.next_mark = now + MARK_STEP_S
        if not self.turn_began:
            self.turn_began = now
            self.loop.call_soon(self._turn_over)
        else:
            # The second mark of a turn: from now on each read takes little, and its requests wait for a later turn.
            self.turn_full = True

    def _turn_over(self) -> None:
        self.turn_began = 0.0
        self.turn_full = False

    def joined(self, connection: MemberT) -> None:
        """Add a new connection."""
        self.connections[connection] = None
        self._shared()
        if self.on_connect is not None:
            self.on_connect(connection)

    def left(self, connection: MemberT) -> None:
        """Remove a lost connection."""
        self.connections.pop(connection, None)
        if self.busy_poll is not None:
            self.busy_poll.left(connection)
        self.unread.forget(connection)
        self._postponed.leave(connection, connection.verified_ip)
        self.requests.forget(connection)
        self._shared()
        if not self.connections and self._empty is not None and not self._empty.done():
            self._empty.set_result(None)

    @property
    def first_request_timeout_s(self) -> float:
        """Seconds within which a new connection must send a whole command; 0 when it may stay silent."""
        return self.bounds.most(FIRST_FRAME) / 1000 if self._first_request else 0.0

    def _shared(self) -> None:
        count = len(self.connections)
        self.requests.limit = self.bounds.most(REQUEST_BYTES)
        self.most_requests = self.bounds.most(CONNECTION_REQUESTS)
        self.budget.set_connections(count)
        self.requests.connections = max(count, 1)
        self.write_high_bytes = high_mark(self.bounds.most(UNREAD_BYTES), count) if self.guarded else HIGH_BYTES

    def peer_is_slow(self, connection: MemberT) -> None:
        """Note a peer that does not read its replies, or reads them more slowly than it sends requests."""
        self.unread.note(connection, self.monotonic())
        if self.unread.used > 2 * self.bounds.most(UNREAD_BYTES) and not self.unread_full:
            # Sweep in the next turn, because a handler may be writing to one of these peers now.
            self.unread_full = True
            self.loop.call_soon(self.sweep_unread)
        if self._unread_timer is None and self.started:
            self._unread_timer = StallAwareTimer(self.loop, SWEEP_S, self._unread_tick)

    def keeps_some(self, connection: MemberT, size: int) -> None:
        """Note a connection whose transport still buffers part of a write of `size` bytes without having paused."""
        for one in self.unread.keeps_some(connection, size, self.bounds.most(UNREAD_BYTES)):
            self.peer_is_slow(cast("MemberT", one))

    def postpone(self, connection: MemberT, now: float) -> None:
        """Resume a connection's postponed requests in a later turn, once unread replies hold less memory."""
        if self._postponed.add(connection, connection.verified_ip, now):
            connection.hold(REPLIES)
        if not self.unread_full:
            self._next_turn.ask()

    def _go_on(self) -> None:
        # Serve a limited backlog per turn, so that a newly read request does not wait for thousands of older ones.
        now = self.monotonic()
        until = now + BACKLOG_S
        while self._postponed and not self.unread_full and now < until:
            connection, since = self._postponed.take()
            connection.go_on(max(now - since, 0.0))
            connection.release(REPLIES)
            began, now = now, self.monotonic()
            self._postponed.charge(now - began)
        if self._postponed and not self.unread_full:
            self._next_turn.ask()

    def _unread_tick(self) -> None:
        self._unread_timer = None
        self.sweep_unread()
        if len(self.unread):
            self._unread_timer = StallAwareTimer(self.loop, SWEEP_S, self._unread_tick)

    def sweep_unread(self) -> None:
        """Disconnect peers that do not read their replies when their unread replies hold too much memory together."""
        limit = self.bounds.most(UNREAD_BYTES)
        evictions = self.unread.evictions(limit, self.monotonic())
        if evictions:
            # The memory is free once the transports are gone.
            self.loop.call_later(SWEEP_S, give_back)
        for reader, size, silent_s in evictions:
            connection = cast("MemberT", reader)
            self.bounds.refusals.counts[UNREAD_BYTES.name] += 1
            why = (
                f"{size} bytes of replies wait for it, it has read next to none for {silent_s:.0f} s, and all such"
                f" connections together hold more than {UNREAD_BYTES.name}={limit}"
            )
            self.rejected(connection.verified_ip, connection, why)
            self.unread.forget(reader)
            connection.abort()
        if self.unread_full:
            # Resume in the next turn, when the memory of the disconnected peers is free.
            self.unread_full = False
            self._next_turn.ask()

    def over_request_budget(self, connection: MemberT, size: int) -> None:
        """Hold a connection whose requests made all requests in service exceed `maxHeldRequestBytes`."""
        if self.requests.grew_above_limit(connection, size):
            limit = self.requests.limit
            error = self.bounds.refusals.refused(REQUEST_BYTES, self.requests.used, limit)
            self._log_refusal(REQUEST_BYTES, "%s waits: %s", connection, error)

    def over_own_requests(self, connection: MemberT, count: int) -> None:
        """Note a connection that is held because it exceeds `maxRequestsPerConnection`."""
        error = self.bounds.refusals.refused(CONNECTION_REQUESTS, count, self.most_requests)
        self._log_refusal(CONNECTION_REQUESTS, "%s waits: %s", connection, error)

    def refused(self, connection: MemberT, request: Command, error: LimitExceeded) -> None:
        """Count a request refused because of a limit, and log it at most once a minute."""
        limit = error.limit
        if limit is REPLY_BYTES:
            self.bounds.refusals.counts[REPLY_BYTES.name] += 1
        if isinstance(limit, Limit):
            self._log_refusal(limit, "request %d from %s refused: %s", request.code, connection, error)

    def _log_refusal(self, limit: Limit, text: str, *values: object) -> None:
        if self._refusals.due(limit.name, self.monotonic()) is not None:
            _log.warning(f"{text} (others within %.0f s are only counted)", *values, REFUSALS_SPAN_S)

    def _arm_idle(self) -> None:
        shortest_s = min(self.idle_timeout_s, self.first_request_timeout_s or self.idle_timeout_s)
        self._idle_timer = StallAwareTimer(self.loop, min(IDLE_STEP_S, shortest_s / 4), self._idle_tick)

    def _idle_tick(self) -> None:
        self._arm_idle()
        self.sweep_idle()
        self.sweep_silent()

    def sweep_silent(self) -> None:
        """Close connections that did not send a whole request within the first-request timeout (docs/adr/0009)."""
        if (timeout_s := self.first_request_timeout_s) > 0:
            oldest = self.monotonic() - timeout_s
            for connection in [c for c in self.connections if c.silent_since <= oldest and not c.closed]:
                self.silent(connection.verified_ip, connection)
                connection.abort()

    def silent(self, host: str, peer: object) -> None:
        """Count and log a connection that is closed because it did not send a whole request.

        Args:
            host: the peer's host.
            peer: the connection, as the log line shows it.
        """
        self.bounds.refusals.counts[FIRST_FRAME.name] += 1
        most_ms = self.first_request_timeout_s * 1000
        self.rejected(host, peer, f"no whole request within {most_ms:.0f} ms ({FIRST_FRAME.name})")

    def sweep_idle(self) -> None:
        """Close connections that had no traffic for the idle timeout (wire.md §1.8)."""
        oldest = self.monotonic() - self.idle_timeout_s
        for connection in [c for c in self.connections if c.last_read <= oldest and c.last_write <= oldest]:
            if connection.closed:
                connection.abort()  # close() still waits for the peer to read the rest, which the peer does not do
            else:
                self.bounds.refusals.counts[IDLE_SECONDS.name] += 1
                why = f"no traffic for {self.idle_timeout_s:.0f} s"
                self.rejected(connection.verified_ip, connection, why, logging.INFO)
                connection.close()
        if self.budget.waiting:
            # Others wait for memory, so a peer that sends one frame for longer than the timeout loses its reservation.
            for connection in [c for c in self.connections if c.gathering and c.gathering_since <= oldest]:
                why = f"its frame was not complete after {self.idle_timeout_s:.0f} s"
                self.rejected(connection.verified_ip, connection, why)
                connection.abort()

    @property
    def in_flight(self) -> int:
        """Number of this process's requests that await replies."""
        return self.opaques.in_flight

    @property
    def max_in_flight(self) -> int:
        """Maximum of `in_flight`."""
        return self.opaques.most

    @max_in_flight.setter
    def max_in_flight(self, most: int) -> None:
        self.opaques.most = most

    def too_many(self) -> TooManyRequests:
        """Return the error for a new request while `in_flight` is at its limit."""
        return TooManyRequests(
            f"{self.in_flight} requests await replies, the most allowed; await some before sending more"
        )

    def arm_deadlines(self) -> None:
        """Start the timer that fails overdue requests; one timer serves all connections."""
        if self.deadline_timer is None:
            self.deadline_timer = StallAwareTimer(self.loop, DEADLINE_STEP_S, self._deadlines)

    def _deadlines(self) -> None:
        self.deadline_timer = None
        try:
            self.sweep_deadlines()
        finally:
            # Rearm also after an error: otherwise callers that await a reply would wait for ever.
            if self.opaques.in_flight:
                self.arm_deadlines()

    def sweep_deadlines(self) -> None:
        """Fail the requests whose deadline has passed."""
        now = self.monotonic()
        for connection in list(self.connections):
            try:
                if connection.awaiting:
                    self._expire(connection, now)
            except Exception:  # noqa: BLE001 - callers that await replies on other connections would wait for ever
                _log.exception("%s: its deadlines cannot be looked over", connection)
                connection.abort()

    def _expire(self, connection: MemberT, now: float) -> None:
        silent = False
        for waiter, timeout_s in connection.expired(now):
            self.opaques.in_flight -= 1
            silent = silent or (timeout_s >= DEAD_PEER_S and connection.last_read <= now - timeout_s)
            if not waiter.done():
                late = f"no reply from {connection} within {timeout_s * 1000:.0f} ms"
                waiter.set_exception(RequestTimeout(f"{late}; whether the request was carried out is unknown"))
        if silent and not connection.closed:
            # Otherwise a peer that vanished silently would hold every later request until TCP's own timeout.
            _log.warning("closing %s: nothing arrived while a request waited out its timeout", connection)
            connection.abort()
