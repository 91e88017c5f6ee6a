"""From a read of a connection to the fast path that serves it, and from its replies to the transport: the pure twin.

This is what nearly every read of a server is: whole frames, all of them served as a run at once; and nearly every read
of a producer: replies to its sends. Anything else (a half frame, commands, a peer or a turn of the loop that has had
enough) is left to `ReadPath._take_read` of the connection.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any, Final

from tianzhou._hot.client_sends import take_results
from tianzhou._hot.frames import request_code
from tianzhou._hot.identifiers import OpaqueCounter

READ_SIZE: Final = 65_536
"""Bytes that are taken from a connection at once while memory is not short."""


class SharedReads:
    """What the connections of a group share of their reads.

    Attributes:
        budget: says by `read_size` how many bytes are read at once.
        busy_poll: notes requests, see `tianzhou.remoting.busy_poll`; None does not.
        fast_paths: functions that serve several requests at the front of a read by one call, by request code of the
            first, see `remoting.connection.FastPath`.
        monotonic: seconds of a clock that only goes forward.
        opaques: numbers of requests, and how many of them wait for replies.
        next_mark: time from which on a read is marked in its turn of the loop.
        scratch: what all of them read into.
        turn_full: what is read in this turn of the loop is left to later ones.
        unread_full: no further replies are made until some of those that wait are read.
        window: the part of `scratch` that a read fills while nothing is in front of it.
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
    """What a connection does with a read.

    Attributes:
        closed: nothing more is served, or sent.
        last_read: when something was last read, seconds of the group's clock.
        last_write: when something was last written.
        silent_since: since when no whole request has come; `inf` when one has.
    """

    # _awaited: our own requests that wait for replies. _backlog: requests that wait for a later turn. _reserved: bytes
    # of a half frame, which the next read is put behind.
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
        """Where the transport puts the next bytes.

        Args:
            sizehint: the transport's wish, -1 for none; not looked at.
        """
        group = self._group
        if self._reserved or group.turn_full or group.budget.read_size != READ_SIZE:
            return self._room()
        window: memoryview = group.window
        return window

    def buffer_updated(self, nbytes: int) -> None:
        """Serve what has arrived.

        Args:
            nbytes: how many bytes of what `get_buffer` gave were filled.
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
        """Where the next bytes go when that is not the group's window."""
        raise NotImplementedError

    def _take_read(self, nbytes: int, written: float, after: int | None, replies: list[bytes] | None) -> None:
        """Serve what has arrived, whatever it is.

        Args:
            nbytes: how many bytes have arrived.
            written: when something was last written before.
            after: behind the frames at the front that a run has served, or that were replies to sends; None when
                neither was tried.
            replies: to a run's.
        """
        raise NotImplementedError

    def _write(self, pieces: list[bytes], size: int) -> None:
        """Write several replies, or a large one, of so many bytes together."""
        raise NotImplementedError
