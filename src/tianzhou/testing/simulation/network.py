"""The network of a simulated cluster, with delays, cuts, one-way cuts and partitions; connections stay ordered.

Bytes arrive later, in order within a connection and in any order between connections. While a way is cut, no bytes
arrive over it and no end is notified, as with TCP. The bytes wait, and arrive after the cut has healed unless the
connection was dropped meanwhile. A process that dies closes its connections. A machine that loses its power does not:
its peers are notified once it is up again, without its connections.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections import deque
from collections.abc import Callable, Iterable
from random import Random
from typing import Any

from tianzhou.testing.simulation.loop import SimulationLoop
from tianzhou.testing.simulation.processes import Host, SimulatedProcess, here

HIGH_BYTES = 65_536
FIRST_PORT = 49_152
GIVEN_UP_S = 60.0
"""Seconds after which a connection attempt without an answer fails."""


class Network:
    """The network between the machines of a cluster.

    Args:
        loop: the event loop of the cluster.
        rng: decides delays, and which connections survive a cut.
        note: called with each event, for the digest of the run.

    Attributes:
        slow: factor of all delays.
        packets: number of delivered packets.
    """

    def __init__(self, loop: SimulationLoop, rng: Random, note: Callable[[str], None]) -> None:
        self.loop = loop
        self.slow = 1.0
        self.packets = 0
        self._rng = rng
        self._note = note
        self._base_s = rng.choice((0.0001, 0.0005, 0.002))
        self._machines: dict[str, Host] = {}
        self._dark: set[str] = set()
        self._listeners: dict[tuple[str, int], Listener] = {}
        self._cuts: set[tuple[str, str]] = set()
        self._ends: dict[ConnectionEnd, None] = {}
        self._healed: list[asyncio.Future[None]] = []
        self._ports = FIRST_PORT

    # calls of the cluster

    def plug_in(self, host: Host) -> None:
        """Connect a machine to the network; after a power failure it resets its former connections."""
        self._machines[host.address] = host
        self._dark.discard(host.address)
        for end in list(self._ends):
            if end.peer_gone and end.peer_address == host.address and end.wrote_to_nobody:
                end.reset_after(self.delay() + self._rng.random())
        self._wake_dialing()

    def _wake_dialing(self) -> None:
        healed, self._healed = self._healed, []
        for future in healed:
            if not future.done():
                future.set_result(None)

    def died(self, process: SimulatedProcess, *, power: bool) -> None:
        """Close the connections and listeners of a dead process; with the power, disconnect the machine."""
        if power:
            self._dark.add(process.host.address)
        self._listeners = {at: one for at, one in self._listeners.items() if one.process is not process}
        for end in [end for end in self._ends if end.process is process]:
            end.process_died(power=power)

    # faults

    def cut(self, source: str, target: str) -> None:
        """Cut the way from one address to another."""
        self._cuts.add((source, target))

    def halves(self, one: Iterable[str], other: Iterable[str]) -> None:
        """Cut all ways between two sets of addresses."""
        right = list(other)
        for source in one:
            for target in right:
                self._cuts |= {(source, target), (target, source)}

    def heal(self) -> None:
        """Open all ways; waiting bytes arrive, or their connection is dropped."""
        self._cuts.clear()
        self.slow = 1.0
        for end in list(self._ends):
            end.way_opened(lost=self._rng.random() < 0.3)
        self._wake_dialing()

    def passes(self, source: str, target: str) -> bool:
        """Whether packets pass from one address to another."""
        return (source, target) not in self._cuts and target not in self._dark and source not in self._dark

    def delay(self) -> float:
        """Return the seconds until a packet arrives; one of a hundred is slow."""
        rng = self._rng
        seconds = self._base_s * (0.5 + rng.random())
        if rng.random() < 0.01:
            seconds += rng.random() * 0.3
        return seconds * self.slow

    # calls of the loop

    async def connect(self, factory: Callable[[], Any], host: str, port: int) -> tuple[ConnectionEnd, Any]:
        """Connect the running process to an address.

        Raises:
            OSError: no process listens there, or the attempt timed out.
        """
        process = here()
        assert process is not None, "connections are made by processes"
        source = process.host.address
        began_s = self.loop.time()
        await asyncio.sleep(self.delay())
        while not (self.passes(source, host) and self.passes(host, source)):
            left_s = began_s + GIVEN_UP_S - self.loop.time()
            opened = self.loop.create_future()
            self._healed.append(opened)
            try:
                async with asyncio.timeout(max(left_s, 0)):
                    await opened
            except TimeoutError:
                raise OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT)) from None
            await asyncio.sleep(self.delay())
        listener = self._listeners.get((host, port))
        if listener is None:
            raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
        self._ports = self._ports + 1 if self._ports < 65_535 else FIRST_PORT
        near = ConnectionEnd(self, process, (host, port))
        far = ConnectionEnd(self, listener.process, (source, self._ports))
        near.other, far.other = far, near
        self._ends[near] = self._ends[far] = None
        self._note(f"connect {source} {host}:{port}")
        self.loop.call_soon(listener.arrived, far, context=listener.process.context)
        protocol = factory()
        near.attach(protocol)
        return near, protocol

    def listen(self, host: str, port: int) -> Listener:
        """Return a listening socket of the running process.

        Raises:
            OSError: the port is taken.
        """
        process = here()
        assert process is not None, "servers are processes"
        if (host, port) in self._listeners:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        listener = self._listeners[host, port] = Listener(self, process, (host, port))
        return listener

    def serve(self, factory: Callable[[], Any], host: str, port: int) -> Listener:
        """Return a server, as `create_server` does."""
        listener = self.listen(host, port)
        listener.factory = factory
        return listener

    def forget(self, place: tuple[str, int]) -> None:
        """Remove a listener."""
        self._listeners.pop(place, None)

    def delivered(self, end: ConnectionEnd, size: int) -> None:
        """Record a packet."""
        self.packets += 1
        self._note(f"packet {end.peer_address} {end.process.host.address} {size}")

    def ended(self, end: ConnectionEnd) -> None:
        """Remove an end of a connection."""
        self._ends.pop(end, None)


class Listener:
    """A listening socket, or the server of `create_server`, with the methods that servers use."""

    def __init__(self, network: Network, process: SimulatedProcess, place: tuple[str, int]) -> None:
        self.process = process
        self.factory: Callable[[], Any] | None = None
        self._network = network
        self._place = place
        self._waiting: deque[ConnectionEnd] = deque()
        self._call: Callable[[], Any] | None = None

    def arrived(self, end: ConnectionEnd) -> None:
        """Accept a new connection."""
        if self.factory is not None:
            end.attach(self.factory())
            return
        self._waiting.append(end)
        if self._call is not None:
            self._call()

    def on_readable(self, callback: Callable[..., Any] | None, arguments: tuple[Any, ...]) -> bool:
        """Set the callback of `add_reader`; None removes it."""
        before, self._call = self._call, None if callback is None else lambda: callback(*arguments)
        return before is not None

    def accept(self) -> tuple[Accepted, tuple[str, int]]:
        """Accept a connection as a socket does."""
        if not self._waiting:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        accepted = Accepted(self._waiting.popleft())
        return accepted, accepted.getpeername()

    def getsockname(self) -> tuple[str, int]:
        """Return the address as a socket does."""
        return self._place

    @property
    def sockets(self) -> list[Listener]:
        """Return the sockets as a server does."""
        return [self]

    def close(self) -> None:
        """Close the listener; connections not accepted yet are closed."""
        if self._network._listeners.get(self._place) is self:
            self._network.forget(self._place)
        for end in self._waiting:
            end.close()
        self._waiting.clear()

    async def wait_closed(self) -> None:
        """Return at once; a server's method."""


class Accepted:
    """The socket of an accepted connection without a protocol."""

    def __init__(self, end: ConnectionEnd) -> None:
        self.end = end

    def fileno(self) -> int:
        """Return a number that never exceeds a limit of open files."""
        return 3

    def getpeername(self) -> tuple[str, int]:
        """Return the peer's address as a socket does."""
        return self.end.peer

    def setblocking(self, flag: bool) -> None:
        """Do nothing; no call blocks here."""

    def setsockopt(self, *_: Any) -> None:
        """Do nothing; there is no kernel."""

    def recv(self, size: int, flags: int = 0) -> bytes:
        """Return received bytes as a socket does with `MSG_PEEK`."""
        return self.end.peek(size)

    def on_readable(self, callback: Callable[..., Any] | None, arguments: tuple[Any, ...]) -> bool:
        """Set the callback of `add_reader`; None removes it."""
        before, self.end.readable = self.end.readable, None if callback is None else lambda: callback(*arguments)
        return before is not None

    def close(self) -> None:
        """Close as a socket does."""
        self.end.close()


class ConnectionEnd(asyncio.Transport):
    """One end of a connection, a transport for its protocol.

    Args:
        network: the network between the ends.
        process: the process of this end.
        peer: address and port of the other end, as this one sees it.

    Attributes:
        peer_gone: whether the other end was lost in a power failure.
        wrote_to_nobody: whether bytes were written since.
        readable: called when bytes are there and no protocol is; None without a callback.
    """

    other: ConnectionEnd

    def __init__(self, network: Network, process: SimulatedProcess, peer: tuple[str, int]) -> None:
        super().__init__({"peername": peer})
        self.process = process
        self.peer = peer
        self.peer_gone = self.wrote_to_nobody = False
        self.readable: Callable[[], Any] | None = None
        self._network = network
        self._loop = network.loop
        self._protocol: Any = None
        # Bytes in flight to this end, and bytes that have arrived unread; None is the end of the connection.
        self._coming: deque[tuple[float, bytes | None]] = deque()
        self._inbox: deque[bytes | None] = deque()
        self._unread = 0
        self._last_s = 0.0
        self._stalled = False
        self._reading = True
        self._closing = self._lost = False
        self._writing_paused = False
        self._high, self._low = HIGH_BYTES, HIGH_BYTES // 4

    @property
    def peer_address(self) -> str:
        """Address of the other machine."""
        return self.other.process.host.address

    def attach(self, protocol: Any) -> None:
        """Serve a protocol from now on."""
        self._protocol = protocol
        self.readable = None
        protocol.connection_made(self)
        self._read()

    # incoming bytes

    def send(self, data: bytes | None) -> None:
        """Send bytes, or the end of the connection, to this end."""
        when_s = max(self._loop.time() + self._network.delay(), self._last_s)
        self._last_s = when_s
        self._coming.append((when_s, data))
        if data is not None:
            self._unread += len(data)
        if not self._stalled:
            self._loop.call_at(when_s, self._arrive, context=self.process.context)

    def _arrive(self) -> None:
        if not self._coming or self._lost or self._stalled:
            return
        if not self._network.passes(self.peer_address, self.process.host.address):
            self._stalled = True
            return
        when_s, data = self._coming[0]
        if when_s > self._loop.time():
            return
        self._coming.popleft()
        self._network.delivered(self, -1 if data is None else len(data))
        self._inbox.append(data)
        self._read()

    def way_opened(self, *, lost: bool) -> None:
        """Deliver waiting bytes after a cut has healed, or drop the connection."""
        if not self._stalled or self._lost:
            return
        self._stalled = False
        if lost:
            self.reset_after(self._network.delay())
            self.other.reset_after(self._network.delay())
            return
        waiting = [data for _, data in self._coming]
        self._coming.clear()
        self._last_s = 0.0
        for data in waiting:
            if data is not None:
                self._unread -= len(data)
            self.send(data)

    def _read(self) -> None:
        protocol, inbox = self._protocol, self._inbox
        if protocol is None:
            if inbox and self.readable is not None:
                self.readable()
            return
        while inbox and self._reading and not self._closing:
            data = inbox.popleft()
            if data is None:
                protocol.eof_received()
                self.close()
                return
            if not isinstance(protocol, asyncio.BufferedProtocol):
                self._unread -= len(data)
                protocol.data_received(data)
                continue
            left = memoryview(data)
            while left:
                target = memoryview(protocol.get_buffer(-1))
                count = min(len(target), len(left))
                target[:count] = left[:count]
                left = left[count:]
                self._unread -= count
                protocol.buffer_updated(count)
                if left and not self.is_reading():
                    inbox.appendleft(bytes(left))
                    break
        self.other._drained()

    def peek(self, size: int) -> bytes:
        """Return the first bytes that have arrived; empty when the connection has ended.

        Raises:
            BlockingIOError: no bytes have arrived yet.
        """
        if self._lost:
            return b""
        if not self._inbox:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return (self._inbox[0] or b"")[:size]

    # outgoing bytes

    def write(self, data: Any) -> None:
        """Write as asyncio does."""
        if self._closing or self.process.ended or not data:
            return
        if self.peer_gone:
            if not self.wrote_to_nobody and self._network.passes(self.process.host.address, self.peer_address):
                self.reset_after(self._network.delay() * 2)
            self.wrote_to_nobody = True
            return
        other = self.other
        if other._lost:
            return
        other.send(bytes(data))
        if other._unread > self._high and not self._writing_paused:
            self._writing_paused = True
            self._protocol.pause_writing()

    def get_write_buffer_size(self) -> int:
        """Return the bytes that the peer has not read, as asyncio does."""
        return self.other._unread

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set the limits as asyncio does."""
        self._high = HIGH_BYTES if high is None else high
        self._low = self._high // 4 if low is None else low

    def _drained(self) -> None:
        if self._writing_paused and not self.process.ended and self.get_write_buffer_size() <= self._low:
            self._writing_paused = False
            self._loop.call_soon(self._resume_writing, context=self.process.context)

    def _resume_writing(self) -> None:
        if not self._lost and not self._writing_paused:
            self._protocol.resume_writing()

    # reading

    def is_reading(self) -> bool:
        """Whether this end reads, as in asyncio."""
        return self._reading and not self._closing

    def pause_reading(self) -> None:
        """Pause reading as asyncio does."""
        self._reading = False

    def resume_reading(self) -> None:
        """Resume reading as asyncio does."""
        self._reading = True
        self._loop.call_soon(self._read, context=self.process.context)

    # ending

    def is_closing(self) -> bool:
        """Whether the transport is closing, as in asyncio."""
        return self._closing

    def close(self) -> None:
        """Close as asyncio does; the other end reads all written bytes first."""
        if not self._closing and not self.process.ended:
            self._closing = True
            self._loop.call_soon(self._end, None, context=self.process.context)

    def abort(self) -> None:
        """Abort as asyncio does; written bytes have left, as they would over a network."""
        self.close()

    def _end(self, error: Exception | None) -> None:
        if self._lost:
            return
        self._lost = self._closing = True
        self._network.ended(self)
        if not self.other._lost and not self.peer_gone:
            self.other.send(None)
        if self._protocol is not None:
            self._protocol.connection_lost(error)
        elif self.readable is not None:
            self.readable()

    def reset_after(self, seconds: float) -> None:
        """Reset the connection after a delay."""
        error = ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))
        self._loop.call_later(seconds, self._end, error, context=self.process.context)

    def process_died(self, *, power: bool) -> None:
        """Close the connection of a dead process, as its operating system would; a machine without power does not."""
        self._lost = self._closing = True
        self._network.ended(self)
        other = self.other
        if other._lost:
            return
        if power:
            other.peer_gone = True
            other.wrote_to_nobody = bool(self._unread)
        else:
            other.send(None)
