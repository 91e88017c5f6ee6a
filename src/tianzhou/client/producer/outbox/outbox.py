"""Messages that no broker accepts now, stored on disk and sent when a broker accepts them again.

What a producer with an outbox promises: a message whose `send` returned is at a broker, or in a local file from which
it is sent later, in the order of the sends, at least once and always with the same unique key; even when the process
is killed in between. While anything is in the outbox, all further messages go through it, so that none overtakes.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import msgspec

from tianzhou.client.instance import ClientInstance
from tianzhou.client.producer.outbox.outbox_entry import OutboxEntry, OutboxStatus, together
from tianzhou.client.producer.outbox.outbox_file import Frame, OutboxFile
from tianzhou.client.producer.send_failures import FailureKind, failure_kind, is_missing_topic
from tianzhou.errors import (
    BrokerError,
    ClientError,
    TianzhouError,
)
from tianzhou.file_modes import MODES
from tianzhou.model import SendResult, names
from tianzhou.wire.bodies.route import CLUSTER_INFO
from tianzhou.wire.codes import RequestCode, ResponseCode

_log = logging.getLogger(__name__)

PEEK_BYTES = 512 * 1024
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.2, 10.0
MOST_REFUSALS = 16
"""Refusals after which a message is set aside, so that those behind it get their turn."""
REFUSED_FILE = "refused.jsonl"
LAST_SEND_S = 3.0
_HOPELESS = frozenset({ResponseCode.MESSAGE_ILLEGAL})
"""Codes after which the first message is set aside at once."""


class Outbox:
    """Keeps messages and sends them later.

    Args:
        instance: of the producer.
        folder: of the file with the messages; each producer needs its own.
        max_bytes: most bytes that may wait.
        send: sends entries of one topic and queue together.
    """

    def __init__(
        self,
        instance: ClientInstance,
        folder: Path | str,
        max_bytes: int,
        send: Callable[[Sequence[OutboxEntry]], Awaitable[SendResult]],
    ) -> None:
        self._instance = instance
        self._folder = Path(folder)
        self._max_bytes = max_bytes
        self._send = send
        self._encode = msgspec.msgpack.Encoder().encode
        self._decode = msgspec.msgpack.Decoder(OutboxEntry).decode
        self._file: OutboxFile | None = None
        self._disk = asyncio.Lock()
        self._next_write: asyncio.Task[None] | None = None
        self._filled = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()
        self._sent = self._refused = self._refusals = 0
        self._last_error: str | None = None
        self._oldest_ms: int | None = None

    @property
    def pending(self) -> int:
        """Messages that wait."""
        return self._file.count if self._file is not None else 0

    def status(self) -> OutboxStatus:
        """Its status now."""
        file = self._file
        return OutboxStatus(
            self._folder,
            self.pending,
            file.bytes if file is not None else 0,
            self._max_bytes,
            self._oldest_ms if self.pending else None,
            self._sent,
            self._refused,
            self._last_error,
        )

    # --- life ------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the file, and begin to send what is in it from before.

        Raises:
            ConfigError: the folder cannot be used.
        """
        if self._file is not None:
            return
        self._closing.clear()
        self._file = await asyncio.to_thread(OutboxFile, self._folder, self._max_bytes)
        if self._file.count:
            _log.info("outbox %s: %d messages wait from before", self._folder, self._file.count)
            if first := await asyncio.to_thread(self._file.peek, 1):
                self._oldest_ms = self._entry(first[0]).born_ms
            self._filled.set()
        self._task = self._instance.keep(f"outbox {self._folder}", self._run)

    async def stop(self) -> None:
        """End; what has not been sent stays in the file for the next start."""
        file = self._file
        self._closing.set()
        if file is None:
            return
        if self._task is not None:
            self._filled.set()
            await asyncio.wait([self._task], timeout=LAST_SEND_S)
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None
        self._file = None
        if self._next_write is not None:
            await asyncio.wait([self._next_write])
        async with self._disk:
            await asyncio.to_thread(file.close)
        if file.count:
            _log.warning("outbox %s: %d messages wait for the next start", self._folder, file.count)

    # --- keeping ---------------------------------------------------------------------------------------------

    async def keep(self, messages: Sequence[OutboxEntry], failure: TianzhouError | None = None) -> None:
        """Store messages. They are on the disk when this returns.

        Args:
            messages: the messages, in the order of their sends.
            failure: the error of their send; None for messages that follow others into the outbox.

        Raises:
            OutboxFull: there is no room.
        """
        file = self._file
        if file is None:
            raise ClientError(f"outbox {self._folder} is not open; start the producer first")
        was_empty = not file.count
        file.append([self._encode(message) for message in messages])
        if was_empty:
            self._oldest_ms = messages[0].born_ms
            _log.warning(
                "messages are stored in outbox %s until a broker accepts them; the first send failed: %s",
                self._folder, failure or "others waited before it",
            )  # fmt: skip
        self._filled.set()
        if self._next_write is None:
            self._next_write = asyncio.get_running_loop().create_task(self._write(file))
        await asyncio.shield(self._next_write)

    async def _write(self, file: OutboxFile) -> None:
        async with self._disk:
            self._next_write = None  # who comes from now on needs the next one
            await asyncio.to_thread(file.write, file.take())

    async def accepts(self, error: TianzhouError) -> bool:
        """Whether the outbox stores messages whose send failed with this error, because a later send may succeed.

        Args:
            error: the error after all attempts.
        """
        return failure_kind(error) is not FailureKind.PERMANENT or await self._no_broker_runs(error)

    async def _no_broker_runs(self, error: TianzhouError) -> bool:
        """Whether a topic has no route because no broker is registered: name servers forget topics with brokers."""
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
        """Send what is first in line; whether the line has moved."""
        file = self._file
        assert file is not None
        async with self._disk:
            frames = await asyncio.to_thread(file.peek, PEEK_BYTES)
        if not frames:
            return True
        entries = [self._entry(frame) for frame in frames]
        self._oldest_ms = entries[0].born_ms
        count = 1 if self._refusals else together(entries)
        try:
            await self._send(entries[:count])
        except TianzhouError as error:
            if failure_kind(error) is FailureKind.TEMPORARY or await self._no_broker_runs(error):
                raise
            return await self._refuse(file, frames, entries, count, error)
        self._sent += count
        await self._advance(file, frames[:count], entries)
        return True

    async def _refuse(
        self, file: OutboxFile, frames: list[Frame], entries: list[OutboxEntry], count: int, error: TianzhouError
    ) -> bool:
        """A broker, or this client, refuses what is first: try it alone, later again, and at last set it aside."""
        self._last_error = str(error)
        self._refusals += 1
        if count > 1:
            return True  # which of them it is will be seen when each goes alone
        code = error.code if isinstance(error, BrokerError) else None
        if code not in _HOPELESS and self._refusals < MOST_REFUSALS:
            _log.info("outbox %s: the first message was refused and is tried again: %s", self._folder, error)
            return False
        _log.error("outbox %s: message %s is set aside: %s", self._folder, entries[0].properties[names.UNIQ_KEY], error)
        self._refused += 1
        line = msgspec.json.encode({"error": str(error), "message": msgspec.structs.asdict(entries[0])})
        await asyncio.to_thread(self._set_aside, line)
        await self._advance(file, frames[:1], entries)
        return True

    def _set_aside(self, line: bytes) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        with os.fdopen(os.open(self._folder / REFUSED_FILE, flags, MODES.files), "ab") as aside:
            aside.write(line + b"\n")

    async def _advance(self, file: OutboxFile, frames: list[Frame], entries: list[OutboxEntry]) -> None:
        self._refusals = 0
        async with self._disk:
            await asyncio.to_thread(file.advance, frames)
        if len(entries) > len(frames):
            self._oldest_ms = entries[len(frames)].born_ms
        if not file.count:
            _log.warning("outbox %s is empty again: all its messages are at brokers", self._folder)

    def _entry(self, frame: Frame) -> OutboxEntry:
        return self._decode(frame.payload)
