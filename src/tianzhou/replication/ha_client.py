"""A slave's connection to its master's HA port; the slave appends received bytes to its log (broker.md §17.1)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections.abc import Callable
from typing import Any, Final, cast

from tianzhou.clock import Clock
from tianzhou.errors import ConnectFailed, ConnectionLost, StoreError, TianzhouError
from tianzhou.records.walk import LogEntry
from tianzhou.remoting.handshakes import for_new_connection, why_refused, why_unanswered, words_of_loss
from tianzhou.remoting.tls import SHUTDOWN_TIMEOUT_S
from tianzhou.repeats import Repeats
from tianzhou.replication.agreement import OVERLAP, Agreement, CutRefused, Parting, cut_limit_bytes
from tianzhou.replication.differences import MOST_BESIDE_BODY, Differences, LogDifference, Whose
from tianzhou.replication.following import Following
from tianzhou.replication.halted_slave import MAX_COUNTED, Halt, halt_line, halt_reason, promote_command
from tianzhou.store.startup.marked_cut import forbid_cut, is_cut_allowed
from tianzhou.store.store import MessageStore
from tianzhou.supervision import Supervisor
from tianzhou.wire.ha import StretchReader, encode_report

AGAIN_S: Final = 3.0
"""Seconds before a slave connects again; RocketMQ's slaves wait for five."""
REFUSED_AGAIN_S: Final = 60.0
"""Seconds before a log that differs from the master's is compared again, in case an operator has repaired it."""
HALTED_AGAIN_S: Final = 600.0
"""Seconds between two log lines about a slave that has halted for the same reason."""
WORK: Final = "copying the log"
_CONNECT_LIMIT_S: Final = 5.0
_SURE: Final = 2
"""Heartbeats that prove the end of the master's log; RocketMQ's master may send one before more bytes."""
_BUFFER: Final = 1 << 20
_PLAIN_MASTER: Final = "; RocketMQ's masters speak none there: tls.replication.enable=false at a slave of theirs"

_log = logging.getLogger(__name__)


class SlaveHaClient:
    """Copies the log of a master.

    Args:
        store: the slave's store, to which the log is appended.
        clock: monotonic time.
        master: returns the HA address of the master, `host:port`; empty while there is none.
        reopen: called when the store must be reopened, because the end of its log is to be cut off.
        tls: TLS context for the master (`tianzhou.remoting.tls.client_context`); None connects without TLS.
        config_file: the broker's configuration file, for the commands in log lines.

    Attributes:
        following: the present connection, if any.
        halted: why this slave copies nothing until an operator decides; empty while it may copy.
        broken_at_master: called with a record that is whole here and broken at the master.
    """

    def __init__(
        self,
        store: MessageStore,
        clock: Clock,
        master: Callable[[], str],
        reopen: Callable[[], None] = lambda: None,
        tls: ssl.SSLContext | None = None,
        config_file: str = "",
    ) -> None:
        self._tls = tls
        self._config_file = config_file
        self.halted = ""
        self._has_agreed = False
        self._counted: dict[tuple[int, int], int] = {}
        self._store = store
        self._clock = clock
        self._master = master
        self._reopen = reopen
        self.following: Following | None = None
        self._changed = asyncio.Event()
        self._agreement = Agreement(store.settings)
        self._compared_with = self._said = ""
        self._refusals = Repeats(span_s=REFUSED_AGAIN_S)
        self._halts = Repeats(span_s=HALTED_AGAIN_S)
        self._known: set[LogDifference] = set()
        self.broken_at_master: Callable[[LogEntry], None] = lambda entry: None

    def master_changed(self) -> None:
        """Check the master's address now, without waiting for the next attempt."""
        self._changed.set()

    async def run(self, supervisor: Supervisor) -> None:
        """Connect, copy, and connect again, until cancelled.

        Args:
            supervisor: gets the reason when nothing can be copied.
        """
        troubles = supervisor.troubles
        while True:
            self._changed.clear()
            pause_s = AGAIN_S
            if address := self._master():
                if address != self._compared_with:
                    self._compared_with, self._agreement = address, Agreement(self._store.settings)
                try:
                    self._has_agreed = False
                    parting = await self._follow(address, lambda: troubles.over(WORK))
                    if parting is None:
                        continue
                    if await self._reconcile(parting, address):
                        await asyncio.Event().wait()  # The store is being reopened, so copy no bytes after the cut.
                    pause_s = 0.0
                except TianzhouError as error:
                    # A master may be away for minutes, and each attempt every few seconds fails for the same cause.
                    troubles.failed(WORK, error, self._clock.now_ms(), self._clock.monotonic())
                    if isinstance(error, StoreError):
                        pause_s, self._agreement = REFUSED_AGAIN_S, Agreement(self._store.settings)
                        self._note_halt(error)
                    else:
                        state = f"the log is not copied, {address} is looked for every {AGAIN_S:g} s"
                        if isinstance(error, _Refused):
                            # The reason that comes first may vary between attempts, so each reason has its own limit.
                            if self._refusals.due(str(error), self._clock.monotonic()) is not None:
                                self._said = state
                                _log.error("%s: %s", state, error)
                        else:
                            self._say(state, logging.WARNING, f": {error}")
            await self._pause(pause_s)

    async def _pause(self, pause_s: float) -> None:
        """Wait for a time, for another master, or for an operator who allows a halted slave to cut its log."""
        loop, root = asyncio.get_running_loop(), self._store.settings.root
        until_s = loop.time() + pause_s
        while not self._changed.is_set() and (left_s := until_s - loop.time()) > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(left_s, AGAIN_S)):
                    await self._changed.wait()
            if self.halted and is_cut_allowed(root):
                return

    def _note_halt(self, error: StoreError) -> None:
        """Log why this slave copies nothing; rarely while the reason stays the same."""
        self.halted = error.reason if isinstance(error, _Halted) else str(error)
        if self._halts.due(self.halted, self._clock.monotonic()) is not None:
            self._said = self.halted
            _log.error("%s", error)

    def _say(self, state: str, level: int, detail: str = "") -> None:
        """Log a state when it differs from the last one; the detail is not compared."""
        if state != self._said:
            self._said = state
            _log.log(level, "%s%s", state, detail)

    async def _reconcile(self, parting: Parting, address: str) -> bool:
        """Handle a log that differs from the master's; return whether its end is to be cut off.

        Args:
            parting: where the logs differ.
            address: HA address of the master.

        Raises:
            StoreError: an operator must decide, or the disk refuses the copy of the records or the mark.
        """
        from tianzhou.store.offline.kept_records import keep_records  # only a slave that cuts its log needs it

        store, settings = self._store, self._store.settings
        begin, end = store.begin_offset, store.end_offset
        proved = parting.at > parting.first and store.copy.holds_record(parting.first, parting.at)
        allowed = is_cut_allowed(settings.root)
        limit_bytes = cut_limit_bytes(settings, allowed=allowed)
        try:
            at = self._agreement.cut(begin, end, parting, proved=proved, limit_bytes=limit_bytes)
        except CutRefused as error:
            if settings.cuts_nothing:
                raise await self._halt(error, parting, address) from error
            raise
        except StoreError as error:
            if settings.cuts_nothing:
                raise StoreError(
                    f"durability=zero-loss: this slave copies nothing from {address}, keeps its log from {begin} to "
                    f"{end} and serves reads: {error}: {promote_command(self._config_file)}"
                ) from error
            raise
        if at is None:
            if self._halts.due("further back", self._clock.monotonic()) is not None:
                _log.warning("the log is not the master's at %d; it is compared from %d on", parting.at, self._first())
            return False
        why = f"the log of its master {address} differs from there on, or ends there; {end - at} bytes are behind"
        most, folders = settings.ha_slave_cut_keep_max, settings.commit_log_directories
        try:
            kept = (await asyncio.to_thread(keep_records, settings.root, folders, at, end, most)).described(end)
            store.cut_at_next_start(at, why, kept, allowed=allowed)
        except OSError as error:
            raise StoreError(
                f"the records from {at} to {end}, which the master {address} does not have, cannot be copied to "
                f"{settings.root}/cut before the log is cut: {error}; free space, or set haSlaveCutKeepMax=0 to keep "
                "none of them"
            ) from error
        self._say(
            f"the log is to be cut at {at}, it ends at {end}: {why}; {kept}; the store is reopened", logging.ERROR
        )
        self._reopen()
        return True

    async def _halt(self, refused: CutRefused, parting: Parting, address: str) -> _Halted:
        """Return the error of a slave whose log has an end that its master's log does not have."""
        from tianzhou.store.offline.kept_records import count_records

        settings = self._store.settings
        begin, end = place = refused.at, refused.end
        if place not in self._counted:
            folders = settings.commit_log_directories
            found = await asyncio.to_thread(count_records, settings.root, folders, begin, end, MAX_COUNTED + 1)
            self._counted = {place: found}
        messages = self._counted[place]
        return _Halted(Halt(address, begin, parting.at, end, messages, self._config_file, str(settings.root)))

    def _first(self) -> int:
        """Return the log offset from which to compare."""
        store = self._store
        first, doubted = self._agreement.first(store.begin_offset, store.end_offset), store.copy.doubted_from
        # The record before the doubted ones proves that it is the same log.
        return first if doubted is None else min(first, max(doubted - OVERLAP, store.begin_offset, 1))

    async def _follow(self, address: str, well: Callable[[], object]) -> Parting | None:
        """Copy until the master has another address, or its log turns out to differ.

        Args:
            address: the HA address.
            well: called when bytes of the master have arrived.

        Raises:
            TianzhouError: the connection cannot be made, or it has ended.
        """
        loop = asyncio.get_running_loop()
        host, _, port = address.rpartition(":")
        host = host.strip("[]")
        first = self._first()
        link = _MasterLink(self._store, self._clock, first)
        tls = for_new_connection(self._tls)
        options: dict[str, Any] = {} if tls is None else {"ssl": tls, "ssl_shutdown_timeout": SHUTDOWN_TIMEOUT_S}
        try:
            async with asyncio.timeout(_CONNECT_LIMIT_S):
                await loop.create_connection(lambda: link, host, int(port), **options)
        except TimeoutError as error:
            hint = "" if tls is None else _PLAIN_MASTER
            raise ConnectFailed(
                f"the master's HA port {address} cannot be reached within {_CONNECT_LIMIT_S:g} s{hint}"
            ) from error
        except (OSError, ValueError) as error:
            why = await why_refused(error, host, int(port), tls) if isinstance(error, OSError) else ""
            if why:
                raise _Refused(f"TLS with the master's HA port {address}: {why}{_PLAIN_MASTER}") from error
            raise ConnectFailed(f"the master's HA port {address} cannot be reached: {error}") from error
        self.following = link.following
        try:
            return await self._watch(link, address, well)
        finally:
            link.close()
            self.following = None

    async def _settle(self, differences: list[LogDifference]) -> None:
        """Repair records that are broken here with the master's bytes, and report records that are broken there."""
        damage = self._store.damage
        for one in differences:
            why = f"bytes {one.start} to {one.stop} of the commit log are not those of the master"
            if one.whose is Whose.OWN:
                await damage.take(one.start, one.data)
            elif one.whose is Whose.BOTH:
                damage.add(one.start, one.stop, "those of the master are broken as well")
            elif one not in self._known:
                self._known.add(one)
                if one.whose is Whose.UNKNOWN:
                    _log.error("%s: both are as their CRCs say, and others follow that are equal; they stay", why)
                    continue
                _log.error("%s: there they are no whole records, here they are, and stay", why)
                for entry in self._store.copy.items.entries(one.start, one.stop):
                    self.broken_at_master(entry)

    async def _watch(self, link: _MasterLink, address: str, well: Callable[[], object]) -> Parting | None:
        following = link.following
        began_s = following.heard_s
        while self._master() == address:
            pause_s = max(following.next_report_s - self._clock.monotonic(), 0.05)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await link.stirred.wait()
            link.stirred.clear()
            await self._settle(link.settled())
            if following.agrees:
                self._store.copy.doubted_from = None
                self._agreed()
            # A halted slave copies nothing before the logs have been compared.
            may_copy = following.agrees or not self.halted
            if following.heard_s > began_s and link.parting is None and may_copy:
                well()
                self._say(f"the log is copied from {address}", logging.INFO, f", from {following.first} on")
            if link.ended:
                if link.parting is not None:
                    return link.parting
                raise link.failure or self._ended(link, address)
            link.report(appended=False)
            if following.is_silent(self._clock.monotonic()):
                raise ConnectionLost(f"the master at {address} has said nothing for too long")
        return None

    def _agreed(self) -> None:
        """Note that the master has all of this log. Nothing must be cut, so revoke a permission to cut."""
        self.halted = ""
        if not self._has_agreed:
            self._has_agreed = True
            with contextlib.suppress(OSError):
                forbid_cut(self._store.settings.root)

    def _ended(self, link: _MasterLink, address: str) -> TianzhouError:
        """Return the error for a connection that the master has ended."""
        text = f"the master at {address} ended the connection"
        if isinstance(link.error, ssl.SSLError):
            return _Refused(f"{text}{words_of_loss(link.error)}")
        if link.heard:
            return ConnectionLost(text)
        return _Refused(f"{text} before it sent anything; {why_unanswered(by_tls=self._tls is not None)}")


class _Halted(StoreError):
    """The error of a slave with `durability=zero-loss` whose log has an end that its master's log does not have."""

    def __init__(self, halt: Halt) -> None:
        super().__init__(halt_line(halt))
        self.reason = halt_reason(halt)


class _Refused(ConnectionLost):
    """The error of a slave that the master does not allow to copy."""


class _MasterLink(asyncio.BufferedProtocol):
    def __init__(self, store: MessageStore, clock: Clock, first: int) -> None:
        self._store = store
        self._now = clock.monotonic
        self._buffer = memoryview(bytearray(_BUFFER))
        self._stretches = StretchReader()
        self._transport: asyncio.Transport | None = None
        self.following = Following(store.begin_offset, store.end_offset, first, store.settings, self._now())
        self.ended = False
        # Set when the first bytes have arrived, and when no more will arrive.
        self.stirred = asyncio.Event()
        self.parting: Parting | None = None
        self.failure: TianzhouError | None = None
        self.error: Exception | None = None
        self.heard = False
        self._differences: Differences | None = None
        self._settled: list[LogDifference] = []
        self._boundary: int | None = None
        self._idle = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast("asyncio.Transport", transport)
        self._transport = transport
        transport.write(encode_report(self.following.first))

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self.error = error
        self.ended = True
        self.stirred.set()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        try:
            appended = self._take_in(self._buffer[:nbytes])
        except (TianzhouError, OSError) as error:
            self.failure = error if isinstance(error, TianzhouError) else ConnectionLost(f"the disk refused: {error}")
            self.close()
            return
        if self.parting is not None:
            self.close()
        else:
            self.report(appended=appended)

    def _take_in(self, data: memoryview) -> bool:
        """Compare or append received bytes; return whether any were appended."""
        following = self.following
        if not self.heard:
            self.heard = True
            self.stirred.set()
        appended = False
        for stretch in self._stretches.feed(data):
            part = following.received(stretch.offset, len(stretch.body), self._now())
            if isinstance(part, Parting):
                at = part.at if self._differences is None else self._differences.part_at(part.at)
                self.parting = Parting(part.first, at, part.master_begins)
            elif stretch.body:
                self._idle = 0
                appended = self._take(part.offset, stretch.body) or appended
            elif self._differences is not None:
                self._idle += 1
                rest = self._decided(self._differences.ended()) if self._idle >= _SURE else None
                appended = (rest is not None and self._take(*rest)) or appended
            if self.parting is not None:
                break
        return appended

    def _take(self, offset: int, body: memoryview) -> bool:
        """Compare or append bytes of the master's log; return whether any were appended."""
        copy = self._store.copy
        rest: tuple[int, memoryview] | None = (offset, body)
        if self._differences is not None:
            rest = self._decided(self._differences.feed(body))
        while rest is not None:
            offset, body = rest
            compare = max(min(self._store.end_offset - offset, len(body)), 0)
            equal = copy.equal(offset, body[:compare]) if compare else 0
            if equal == compare:
                if len(body) > compare:
                    copy.append(offset + compare, body[compare:])
                return len(body) > compare
            at = offset + equal
            begin = copy.items.begin_of(at, self.following.first, self._boundary)
            if begin is None:
                self.parting = Parting(self.following.first, at)
                return False
            most = self._store.settings.max_message_size + MOST_BESIDE_BODY
            self._differences = Differences(copy.items, begin, most)
            self.following.undecided = True
            before = copy.items.bytes_at(begin, at - begin)
            rest = self._decided(self._differences.feed(before + bytes(body[equal:])))
        return False

    def _decided(self, rest: bytes | None) -> tuple[int, memoryview] | None:
        """Return the bytes after a difference with their log offset; None while the difference is undecided."""
        differences = self._differences
        assert differences is not None
        if differences.parting is not None:
            self.parting = Parting(self.following.first, differences.parting)
        if rest is None:
            return None
        self._settled += differences.settled
        self._differences, self._boundary = None, differences.place
        self.following.undecided = False
        self.stirred.set()
        return differences.place, memoryview(rest)

    def settled(self) -> list[LogDifference]:
        """Return the differences settled since the last call."""
        found, self._settled = self._settled, []
        return found

    def report(self, *, appended: bool) -> None:
        """Report the end of this log to the master when a report is due."""
        offset = self.following.report(self._now(), appended=appended)
        if offset is not None and self._transport is not None:
            self._transport.write(encode_report(offset))
