"""Messages that no broker accepts now, stored in an `OutboxStore` and sent when a broker accepts them again.

When `send` returns, a broker or the store has the message. The outbox sends stored messages in the order of the sends,
at least once and always with the same unique key, even if the process is killed in between. While the outbox has
messages, all further messages go through it. Sends of one queue or one sharding key wait for each other
(`ordered_sends`), so that none overtakes another.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import msgspec

from tianzhou.client.instance import ClientInstance
from tianzhou.client.producer.outbox.outbox_entry import OutboxEntry, OutboxStatus, together
from tianzhou.client.producer.outbox.outbox_store import Frame, OutboxStore, bytes_of
from tianzhou.client.producer.send_failures import FailureKind, failure_kind, is_missing_topic
from tianzhou.errors import BrokerError, ClientError, ConfigError, OutboxFull, TianzhouError
from tianzhou.model import SendResult, names
from tianzhou.supervision import shared_result, start_owned
from tianzhou.wire.bodies.route import CLUSTER_INFO
from tianzhou.wire.codes import RequestCode, ResponseCode

_log = logging.getLogger(__name__)

PEEK_BYTES = 512 * 1024
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.2, 10.0
MOST_REFUSALS = 16
"""Number of rejections after which a message is set aside, so that later ones are sent."""
LAST_SEND_S = 3.0
_HOPELESS = frozenset({ResponseCode.MESSAGE_ILLEGAL})
"""Response codes after which the first message is set aside at once."""


class Outbox:
    """The outbox of a producer: it stores messages and sends them later.

    Args:
        instance: client instance of the producer.
        store: store of the messages; each producer needs its own.
        producer: the producer group.
        max_bytes: maximum number of bytes in the store.
        send: sends entries of one topic and queue together.
    """

    def __init__(
        self,
        instance: ClientInstance,
        store: OutboxStore,
        producer: str,
        max_bytes: int,
        send: Callable[[Sequence[OutboxEntry]], Awaitable[SendResult]],
    ) -> None:
        self._instance = instance
        self._store = store
        self._producer = producer
        self._max_bytes = max_bytes
        self._send = send
        self._encode = msgspec.msgpack.Encoder().encode
        self._decode = msgspec.msgpack.Decoder(OutboxEntry).decode
        self._using = asyncio.Lock()
        """Held during each call of the store."""
        self._unwritten: list[bytes] = []
        self._unwritten_count = self._unwritten_bytes = 0
        """Payloads that the store does not have yet, including those of the running call."""
        self._next_write: asyncio.Task[None] | None = None
        self._filled = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()
        self._is_open = False
        self._sent = self._refused = self._refusals = 0
        self._last_error: str | None = None
        self._oldest_ms: int | None = None

    @property
    def pending(self) -> int:
        """Number of waiting messages."""
        return self._store.count + self._unwritten_count

    def status(self) -> OutboxStatus:
        """Return its present status."""
        return OutboxStatus(
            self._store.place,
            self.pending,
            self._store.bytes + self._unwritten_bytes,
            self._max_bytes,
            self._oldest_ms if self.pending else None,
            self._sent,
            self._refused,
            self._last_error,
            self._store.lost,
        )

    def check_open(self) -> None:
        """Check that the outbox is open. A send before the start might overtake messages of an earlier process.

        Raises:
            ClientError: the outbox is not open.
        """
        if not self._is_open:
            raise ClientError(f"outbox {self._store.place} is not open; start the producer first")

    # --- start and stop --------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the store, and start to send the messages of an earlier process.

        Raises:
            ConfigError: the store cannot be used.
        """
        if self._is_open:
            return
        self._closing.clear()
        await self._store.open(self._producer)
        self._is_open = True
        if self._store.count:
            _log.info("outbox %s: %d messages wait from before", self._store.place, self._store.count)
            if first := await self._store.peek(1):
                self._oldest_ms = self._entry(first[0]).born_ms
            self._filled.set()
        self._task = self._instance.keep(f"outbox {self._store.place}", self._run)

    async def stop(self) -> None:
        """Stop sending and close the store. Unsent messages remain in the store for the next start."""
        self._closing.set()
        if not self._is_open:
            return
        if self._task is not None:
            self._filled.set()
            await asyncio.wait([self._task], timeout=LAST_SEND_S)
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None
        self._is_open = False
        if self._next_write is not None:
            await asyncio.wait([self._next_write])
        async with self._using:
            left = self._store.count
            await self._store.close()
        if left:
            _log.warning("outbox %s: %d messages wait for the next start", self._store.place, left)

    # --- storage ---------------------------------------------------------------------------------------------

    def keep(self, messages: Sequence[OutboxEntry], failure: TianzhouError | None = None) -> Awaitable[None]:
        """Add messages behind all others of the outbox. The store has them once the result is awaited.

        Later sends are placed behind these messages, and need not wait for the store.

        Args:
            messages: the messages, in the order of their sends.
            failure: the error of their send; None for messages that follow others into the outbox.

        Raises:
            OutboxFull: there is no room; the result may raise it, too.
            OutboxUnavailable: raised by the result when the store does not answer.
        """
        self.check_open()
        was_empty = not self.pending
        self._add([self._encode(message) for message in messages])
        if was_empty:
            self._oldest_ms = messages[0].born_ms
            _log.warning(
                "messages are stored in outbox %s until a broker accepts them; the first send failed: %s",
                self._store.place, failure or "others waited before it",
            )  # fmt: skip
        self._filled.set()
        if self._next_write is None:
            self._next_write = start_owned(self._write(), f"outbox {self._store.place}")
        return shared_result(self._next_write)

    def _add(self, payloads: list[bytes]) -> None:
        size, used = bytes_of(payloads), self._store.bytes + self._unwritten_bytes
        if used + size > self._max_bytes:
            raise OutboxFull(
                f"outbox {self._store.place} holds {self.pending} messages of {used} bytes, the limit is "
                f"{self._max_bytes} (outbox_max_bytes), and no broker answers; raise the limit or send later"
            )
        self._unwritten += payloads
        self._unwritten_count += len(payloads)
        self._unwritten_bytes += size

    async def _write(self) -> None:
        """Store all payloads that were added during the call before, in one call."""
        async with self._using:
            self._next_write = None  # payloads that are added from now on need the next call
            payloads, self._unwritten = self._unwritten, []
            try:
                await self._store.append(payloads)
            finally:
                self._unwritten_count -= len(payloads)
                self._unwritten_bytes -= bytes_of(payloads)

    async def accepts(self, error: TianzhouError) -> bool:
        """Whether the outbox stores messages whose send failed with this error, because a later send may succeed.

        Args:
            error: the error after all attempts.
        """
        return failure_kind(error) is not FailureKind.PERMANENT or await self._no_broker_runs(error)

    async def _no_broker_runs(self, error: TianzhouError) -> bool:
        """Whether a topic has no route because no broker is registered: name servers drop topics with brokers."""
        if not is_missing_topic(error):
            return False
        try:
            reply = await self._instance.ask_name_server(RequestCode.GET_BROKER_CLUSTER_INFO)
            if reply.code != ResponseCode.SUCCESS:
                return False
            cluster = CLUSTER_INFO.loads(reply.body)
        except TianzhouError:
            return True
        return not any(broker.broker_addrs for broker in cluster.broker_addr_table.values())

    # --- sending ---------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        pause_s = FIRST_PAUSE_S
        while not self._closing.is_set():
            if not self.pending:
                self._filled.clear()
                await self._filled.wait()
                continue
            try:
                went_on = await self._send_first()
            except TianzhouError as error:
                self._last_error = str(error)
                went_on = False
            if went_on:
                pause_s = FIRST_PAUSE_S
                self._last_error = None
                continue
            await self._pause(pause_s)
            pause_s = min(pause_s * 2, LONGEST_PAUSE_S)

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._closing.wait()
        except TimeoutError:
            pass

    async def _send_first(self) -> bool:
        """Send the first messages. Return whether the next attempt may follow without a pause."""
        if not self._store.count and self._next_write is not None:
            # A store in memory never suspends this task, so the task that writes would not run.
            await asyncio.wait([self._next_write])
        async with self._using:
            frames = await self._store.peek(PEEK_BYTES)
        if not frames:
            return not self._store.count
        entries = [self._entry(frame) for frame in frames]
        self._oldest_ms = entries[0].born_ms
        count = 1 if self._refusals else together(entries)
        try:
            await self._send(entries[:count])
        except TianzhouError as error:
            if failure_kind(error) is FailureKind.TEMPORARY or await self._no_broker_runs(error):
                raise
            return await self._refuse(frames, entries, count, error)
        self._sent += count
        await self._advance(frames[:count], entries)
        return True

    async def _refuse(self, frames: list[Frame], entries: list[OutboxEntry], count: int, error: TianzhouError) -> bool:
        """Handle a rejection: send the first message alone, then retry it later, and finally set it aside."""
        self._last_error = str(error)
        self._refusals += 1
        if count > 1:
            return True  # the next attempt sends only the first message, to find the rejected one
        code, place = error.code if isinstance(error, BrokerError) else None, self._store.place
        if code not in _HOPELESS and self._refusals < MOST_REFUSALS:
            _log.info("outbox %s: the first message was refused and is tried again: %s", place, error)
            return False
        _log.error("outbox %s: message %s is set aside: %s", place, entries[0].properties[names.UNIQ_KEY], error)
        line = msgspec.json.encode({"error": str(error), "message": msgspec.structs.asdict(entries[0])})
        async with self._using:
            await self._store.set_aside(line)
        self._refused += 1
        await self._advance(frames[:1], entries)
        return True

    async def _advance(self, frames: list[Frame], entries: list[OutboxEntry]) -> None:
        self._refusals = 0
        async with self._using:
            await self._store.remove(frames)
        if len(entries) > len(frames):
            self._oldest_ms = entries[len(frames)].born_ms
        if not self.pending:
            _log.warning("outbox %s is empty again: all its messages are at brokers", self._store.place)

    def _entry(self, frame: Frame) -> OutboxEntry:
        return self._decode(frame.payload)


def store_of(outbox: Path | str | OutboxStore) -> OutboxStore:
    """Return the store for the option `outbox` of a producer.

    Args:
        outbox: a folder, the URL of a Redis, or a store.

    Raises:
        ConfigError: the value names no store.
    """
    if isinstance(outbox, str) and "://" in outbox:
        from tianzhou.client.producer.outbox.redis_store import SCHEMES, RedisOutbox

        if not outbox.startswith(SCHEMES):
            raise ConfigError(
                f"outbox={outbox.partition('://')[0]}://…: an outbox is a folder, a URL that begins with "
                f"{', '.join(SCHEMES)}, or an object with the methods of OutboxStore"
            )
        return RedisOutbox(outbox)
    if isinstance(outbox, (str, Path)):
        # Imported here because it needs locks that not every system has.
        from tianzhou.client.producer.outbox.sqlite_store import SqliteOutbox

        return SqliteOutbox(outbox)
    if isinstance(outbox, OutboxStore):
        return outbox
    raise ConfigError(
        f"outbox={outbox!r}: an outbox is a folder, the URL of a Redis, or an object with the methods of OutboxStore"
    )
