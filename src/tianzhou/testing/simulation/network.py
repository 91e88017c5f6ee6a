"""The network of a simulated cluster: it delays, is cut, cut one way and in halves; connections keep their order.

What is written arrives later, in order within a connection and in any order between connections. While a way is
cut, nothing arrives over it and nobody learns of it, as with TCP: what was written waits, and arrives after the cut has
healed unless the connection was dropped meanwhile. A process that dies closes its connections; a machine that loses
its power does not, and its peers learn of it when it is up again and knows nothing of them.
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
"""Seconds after which a connection attempt ends that nobody answers."""


class Network:
    """All ways between the machines of a cluster.

    Args:
        loop: the event loop of everything.
        rng: decides delays, and which connections survive a cut.
        note: called with what happened, for the digest of the run.

    Attributes:
        slow: what every delay is multiplied with.
        packets: how many were delivered.
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

    # what the cluster does

    def plug_in(self, host: Host) -> None:
        """Let a machine be reached; one that had no power knows nothing of its former connections."""
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
        """Nothing of a process is there any more; with the power the machine is not either."""
        if power:
            self._dark.add(process.host.address)
        self._listeners = {at: one for at, one in self._listeners.items() if one.process is not process}
        for end in [end for end in self._ends if end.process is process]:
            end.process_died(power=power)

    # what goes wrong

    def cut(self, source: str, target: str) -> None:
        """Let nothing through from one address to another."""
        self._cuts.add((source, target))

    def halves(self, one: Iterable[str], other: Iterable[str]) -> None:
        """Cut all ways between two sets of addresses."""
        right = list(other)
        for source in one:
            for target in right:
                self._cuts |= {(source, target), (target, source)}

    def heal(self) -> None:
        """Open all ways; what waited arrives, or its connection turns out to be dropped."""
        self._cuts.clear()
        self.slow = 1.0
        for end in list(self._ends):
            end.way_opened(lost=self._rng.random() < 0.3)
        self._wake_dialing()

    def passes(self, source: str, target: str) -> bool:
        """Whether anything gets from one address to another."""
        return (source, target) not in self._cuts and target not in self._dark and source not in self._dark

    def delay(self) -> float:
        """Seconds until a packet arrives; one of a hundred takes its time."""
        rng = self._rng
        seconds = self._base_s * (0.5 + rng.random())
        if rng.random() < 0.01:
            seconds += rng.random() * 0.3
        return seconds * self.slow

    # what the loop asks for

    async def connect(self, factory: Callable[[], Any], host: str, port: int) -> tuple[ConnectionEnd, Any]:
        """Connect the process that runs to an address.

        Raises:
            OSError: nobody listens there, or nobody answers.
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
        """A listening socket of the process that runs.

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
        """What `create_server` returns."""
        listener = self.listen(host, port)
        listener.factory = factory
        return listener

    def forget(self, place: tuple[str, int]) -> None:
        """Nobody listens there any more."""
        self._listeners.pop(place, None)

    def delivered(self, end: ConnectionEnd, size: int) -> None:
        """Note a packet."""
        self.packets += 1
        self._note(f"packet {end.peer_address} {end.process.host.address} {size}")

    def ended(self, end: ConnectionEnd) -> None:
        """A connection's end is no more."""
        self._ends.pop(end, None)


class Listener:
    """A listening socket, or the server of `create_server`, as far as servers use them."""

    def __init__(self, network: Network, process: SimulatedProcess, place: tuple[str, int]) -> None:
        self.process = process
        self.factory: Callable[[], Any] | None = None
        self._network = network
        self._place = place
        self._waiting: deque[ConnectionEnd] = deque()
        self._call: Callable[[], Any] | None = None

    def arrived(self, end: ConnectionEnd) -> None:
        """Somebody has connected."""
        if self.factory is not None:
            end.attach(self.factory())
            return
        self._waiting.append(end)
        if self._call is not None:
            self._call()

    def on_readable(self, callback: Callable[..., Any] | None, arguments: tuple[Any, ...]) -> bool:
        """See `add_reader` and `remove_reader`."""
        before, self._call = self._call, None if callback is None else lambda: callback(*arguments)
        return before is not None

    def accept(self) -> tuple[Accepted, tuple[str, int]]:
        """As a socket's."""
        if not self._waiting:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        accepted = Accepted(self._waiting.popleft())
        return accepted, accepted.getpeername()

    def getsockname(self) -> tuple[str, int]:
        """As a socket's."""
        return self._place

    @property
    def sockets(self) -> list[Listener]:
        """As a server's."""
        return [self]

    def close(self) -> None:
        """As both; who waits to be accepted is refused."""
        if self._network._listeners.get(self._place) is self:
            self._network.forget(self._place)
        for end in self._waiting:
            end.close()
        self._waiting.clear()

    async def wait_closed(self) -> None:
        """As a server's."""


class Accepted:
    """The socket of a connection that has been accepted and has no protocol yet."""

    def __init__(self, end: ConnectionEnd) -> None:
        self.end = end

    def fileno(self) -> int:
        """A number that no limit of open files forbids."""
        return 3

    def getpeername(self) -> tuple[str, int]:
        """As a socket's."""
        return self.end.peer

    def setblocking(self, flag: bool) -> None:
        """Nothing here blocks."""

    def setsockopt(self, *_: Any) -> None:
        """There is no kernel to tell."""

    def recv(self, size: int, flags: int = 0) -> bytes:
        """As a socket's with `MSG_PEEK`."""
        return self.end.peek(size)

    def on_readable(self, callback: Callable[..., Any] | None, arguments: tuple[Any, ...]) -> bool:
        """See `add_reader` and `remove_reader`."""
        before, self.end.readable = self.end.readable, None if callback is None else lambda: callback(*arguments)
        return before is not None

    def close(self) -> None:
        """As a socket's."""
        self.end.close()


class ConnectionEnd(asyncio.Transport):
    """One end of a connection, a transport for the protocol that is attached to it.

    Args:
        network: what is between the ends.
        process: whose it is.
        peer: address and port of the other end, as this one sees it.

    Attributes:
        peer_gone: whether the other end was lost with the power of its machine.
        wrote_to_nobody: whether something was written since.
        readable: called when bytes are there and no protocol is; None for nobody.
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
        # What is on its way to this end, and what has arrived and was not read; None is the end of the connection.
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
        """The other machine's."""
        return self.other.process.host.address

    def attach(self, protocol: Any) -> None:
        """Serve a protocol from now on."""
        self._protocol = protocol
        self.readable = None
        protocol.connection_made(self)
        self._read()

    # what comes

    def send(self, data: bytes | None) -> None:
        """Let bytes, or the end of the connection, travel to this end."""
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
        """A cut has healed."""
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
        """The first bytes that have arrived; empty when the connection has ended.

        Raises:
            BlockingIOError: there are none yet.
        """
        if self._lost:
            return b""
        if not self._inbox:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return (self._inbox[0] or b"")[:size]

    # what goes

    def write(self, data: Any) -> None:
        """As asyncio's."""
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
        """As asyncio's: what the peer has not read."""
        return self.other._unread

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """As asyncio's."""
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
        """As asyncio's."""
        return self._reading and not self._closing

    def pause_reading(self) -> None:
        """As asyncio's."""
        self._reading = False

    def resume_reading(self) -> None:
        """As asyncio's."""
        self._reading = True
        self._loop.call_soon(self._read, context=self.process.context)

    # ending

    def is_closing(self) -> bool:
        """As asyncio's."""
        return self._closing

    def close(self) -> None:
        """As asyncio's; what was written is read at the other end first."""
        if not self._closing and not self.process.ended:
            self._closing = True
            self._loop.call_soon(self._end, None, context=self.process.context)

    def abort(self) -> None:
        """As asyncio's; what was written has left, as it would over a network."""
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
        """The connection turns out to be dead."""
        error = ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))
        self._loop.call_later(seconds, self._end, error, context=self.process.context)

    def process_died(self, *, power: bool) -> None:
        """The process is no more; its system closes the connection, if there is one left."""
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
