"""The path from a connection's read to its fast path, and from the replies to the transport: the pure twin.

It serves nearly every read of a server: whole frames that one run serves at once. It also serves nearly every read of a
producer: replies to its sends. Every other read (a half frame, commands, a peer or a loop turn at its limit) is left to
the connection's `ReadPath._take_read`.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any, Final

from tianzhou._hot.client_sends import take_results
from tianzhou._hot.frames import request_code
from tianzhou._hot.identifiers import OpaqueCounter

READ_SIZE: Final = 65_536
"""Bytes of one read from a connection while memory is not short."""


class SharedReads:
    """The state of reads that all connections of a group share.

    Attributes:
        budget: its `read_size` is the number of bytes of one read.
        busy_poll: notes requests, see `tianzhou.remoting.busy_poll`; None notes none.
        fast_paths: functions that serve several requests at the front of a read in one call, by request code of the
            first, see `remoting.connection.FastPath`.
        monotonic: monotonic time, seconds.
        opaques: counter of opaques and of in-flight requests.
        next_mark: time from which a read is marked in its loop turn.
        scratch: shared read buffer.
        turn_full: whether requests read in this loop turn wait for later turns.
        unread_full: whether no further reply may be made until peers read some of the unread ones.
        window: the part of `scratch` that a read fills without a half frame before it.
    """

    __slots__ = (
        "budget", "busy_poll", "fast_paths", "monotonic", "next_mark", "opaques", "scratch", "turn_full", "unread_full",
        "window",
    )  # fmt: skip

    budget: Any
    busy_poll: Any
    fast_paths: dict[int, Callable[..., tuple[int, list[bytes]]]]
    monotonic: Callable[[], float]
    next_mark: float
    opaques: OpaqueCounter
    scratch: bytearray
    turn_full: bool
    unread_full: bool
    window: memoryview


class ReadPath:
    """The handling of a connection's reads.

    Attributes:
        closed: whether the connection serves and sends no more.
        last_read: time of the last read, seconds of the group's clock.
        last_write: time of the last write.
        silent_since: time since when no whole request has arrived; `inf` when one has.
    """

    # _awaited: outgoing requests that wait for replies. _backlog: requests that wait for a later turn. _reserved: bytes
    # of a half frame that precedes the next read.
    __slots__ = (
        "_awaited", "_backlog", "_group", "_reserved", "_transport", "closed", "last_read", "last_write",
        "silent_since",
    )  # fmt: skip

    _awaited: dict[int, Any]
    _backlog: list[Any]
    _group: Any
    _reserved: int
    _transport: Any
    closed: bool
    last_read: float
    last_write: float
    silent_since: float

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer for the transport's next bytes.

        Args:
            sizehint: the transport's wish, -1 for none; ignored.
        """
        group = self._group
        if self._reserved or group.turn_full or group.budget.read_size != READ_SIZE:
            return self._room()
        window: memoryview = group.window
        return window

    def buffer_updated(self, nbytes: int) -> None:
        """Serve the received bytes.

        Args:
            nbytes: number of bytes written into the buffer of `get_buffer`.
        """
        group, written = self._group, self.last_write
        self.last_read = now = group.monotonic()
        if (
            (not group.fast_paths and not self._awaited)
            or now >= group.next_mark
            or group.turn_full
            or group.unread_full
            or self._reserved
            or self._backlog
            or self.closed
            or nbytes >= READ_SIZE
        ):
            self._take_read(nbytes, written, None, None)
            return
        replies: list[bytes] = []
        if self._awaited:
            after, count = take_results(self._awaited, group.scratch, 0, nbytes)
            group.opaques.in_flight -= count
        else:
            serve = group.fast_paths.get(request_code(group.scratch, 0, nbytes))
            after = 0
            if serve is not None:
                after, replies = serve(self, group.scratch, 0, nbytes)
        if after == nbytes:
            self._answer_run(replies, now, written)
        else:
            self._take_read(nbytes, written, after, replies)

    def _answer_run(self, replies: list[bytes], now: float, written: float) -> None:
        group = self._group
        if self.closed:
            return
        self.silent_since = inf
        if len(replies) == 1 and len(replies[0]) < READ_SIZE:
            self.last_write = group.monotonic()
            self._transport.write(replies[0])
        elif replies:
            self._write(replies, sum(map(len, replies)))
        if group.busy_poll is not None:
            group.busy_poll.requested(self, now - written if self.last_write > written else inf)

    def _room(self) -> memoryview:
        """Return the buffer for the next bytes when it is not the group's window."""
        raise NotImplementedError

    def _take_read(self, nbytes: int, written: float, after: int | None, replies: list[bytes] | None) -> None:
        """Serve the received bytes of any kind.

        Args:
            nbytes: number of received bytes.
            written: time of the last write before this read.
            after: end of the frames at the front that a run has served, or that were replies to sends; None when
                neither was tried.
            replies: replies of the run.
        """
        raise NotImplementedError

    def _write(self, pieces: list[bytes], size: int) -> None:
        """Write several replies, or a large one, of `size` bytes together."""
        raise NotImplementedError
