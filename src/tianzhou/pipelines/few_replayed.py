"""Replay of few messages by the client: what `replay` does, at least once, without Spark.

How far a replay is lies in one file of its checkpoint folder, written after what it says was acknowledged.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tianzhou.errors import ConfigError, OffsetOutOfRange
from tianzhou.model import MessageExt, MessageQueue, SendResult
from tianzhou.model.dead_letters import resent
from tianzhou.pipelines.few_messages import PAGE, Span, pages, send_in_order, spans_of, with_bodies
from tianzhou.pipelines.folder_lock import held
from tianzhou.spark.rows.rules import FAIL
from tianzhou.spark.source.marks import Mark, made_again

if TYPE_CHECKING:
    from tianzhou.admin import Admin
    from tianzhou.client import Producer
    from tianzhou.client.consumer.pull.pull_consumer import PullConsumer

FILE: Final = "replay.json"
KIND: Final = "replay"
STEPS: Final = 10
"""Steps that a second's messages are sent in."""
SAVE_EVERY_S: Final = 0.5
SPARKS: Final = ("metadata", "offsets", "commits")
"""What Spark keeps in a checkpoint."""

Progress = Callable[[int, int], None]
"""Called with the messages read and sent so far."""


@dataclass(frozen=True)
class Place:
    """How far a replay is.

    Attributes:
        source: the topic it reads.
        target: the topic it sends to.
        spans: what is left of each queue.
        marks: the last message that was read of each queue, by which it is recognised.
    """

    source: str
    target: str
    spans: tuple[Span, ...] = ()
    marks: Mapping[MessageQueue, Mark] = field(default_factory=dict)

    def to_json(self) -> str:
        """As it is written."""
        left = [[one.queue.broker_name, one.queue.queue_id, one.begin, one.end] for one in self.spans]
        marks = [[queue.broker_name, queue.queue_id, *mark] for queue, mark in sorted(self.marks.items())]
        return json.dumps({"version": 1, "from": self.source, "to": self.target, "queues": left, "marks": marks})

    def passed(self, queue: MessageQueue, offset: int, last: MessageExt | None = None) -> Place:
        """The same, with a queue at another offset.

        Args:
            queue: the queue.
            offset: where it goes on.
            last: the last message that was read of it; None when none was.
        """
        spans = tuple(replace(one, begin=offset) if one.queue == queue else one for one in self.spans)
        marks = self.marks if last is None else {**self.marks, queue: Mark(last.queue_offset, last.store_timestamp)}
        return replace(self, spans=spans, marks=marks)

    def going_on(self, now: Sequence[Span]) -> Place:
        """Where a replay goes on that was begun before.

        What is left of it comes first; one that was finished takes what has come since, and so do queues that came. A
        replay into its own topic does not, or it would send again what it sent itself.

        Args:
            now: what the topic holds now.
        """
        if self.source == self.target or any(one.count for one in self.spans):
            return self
        before = {one.queue: one.end for one in self.spans}
        return replace(
            self,
            spans=tuple(
                Span(one.queue, begin, max(begin, one.end))
                for one in now
                for begin in (before.get(one.queue, one.begin),)
            ),
        )


def place_of(text: str) -> Place:
    """How far a replay is, as it was written.

    Raises:
        ValueError: it was not written by a replay.
    """
    try:
        value: Mapping[str, Any] = json.loads(text)
        source = str(value["from"])
        spans = tuple(
            Span(MessageQueue(source, str(broker), int(number)), int(begin), int(end))
            for broker, number, begin, end in value["queues"]
        )
        marks = {
            MessageQueue(source, str(broker), int(number)): Mark(int(offset), int(store_ms))
            for broker, number, offset, store_ms in value.get("marks", ())  # older places have none
        }
        return Place(source, str(value["to"]), spans, marks)
    except (KeyError, TypeError) as error:
        raise ValueError(str(error)) from error


def is_begun(folder: str) -> bool:
    """Whether a checkpoint is of a replay without Spark."""
    return "://" not in folder and (Path(folder) / FILE).exists()


def is_sparks(folder: str) -> bool:
    """Whether a checkpoint is of a replay by Spark, or lies where only Spark can write."""
    return "://" in folder or any((Path(folder) / name).exists() for name in SPARKS)


class Checkpoint:
    """The folder of a replay, which one process has at a time.

    Args:
        folder: made when missing.
    """

    def __init__(self, folder: str) -> None:
        self._file = Path(folder) / FILE

    def held(self) -> AbstractContextManager[None]:
        """Have the folder for this process; see `folder_lock.held`."""
        return held(self._file.parent, f"{FILE}.lock", "replay")

    def place(self, source: str, target: str) -> Place | None:
        """How far the replay is; None when it was never begun.

        Raises:
            ConfigError: the folder is of a replay of other topics, or was not written by one.
        """
        try:
            found = place_of(self._file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise ConfigError(
                f"--checkpoint {self._file}: is no place of a replay ({error}); give another folder"
            ) from error
        if (found.source, found.target) != (source, target):
            raise ConfigError(
                f"--checkpoint {self._file.parent}: is that of a replay from {found.source} to {found.target}; "
                "give this one a folder of its own"
            )
        return found

    def save(self, place: Place) -> None:
        """Write how far it is; a crash leaves the one or the other."""
        draft = self._file.with_suffix(".new")
        with draft.open("w", encoding="utf-8") as out:
            out.write(place.to_json())
            out.flush()
            os.fsync(out.fileno())
        draft.replace(self._file)


class Pace:
    """Holds what is sent back to so many messages a second, in even steps; what is late is not made up for.

    Args:
        per_second: most messages in a second; None for as fast as can be.
        now: seconds.
        sleep: waits so many seconds.
    """

    def __init__(
        self,
        per_second: int | None,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.step = PAGE if per_second is None else max(1, min(PAGE, per_second // STEPS))
        self._every_s = 0.0 if per_second is None else 1 / per_second
        self._now, self._sleep = now, sleep
        self._due = now()

    async def wait(self, count: int) -> None:
        """Wait until so many messages may be sent, which are at most a step."""
        while (left := self._due - self._now()) > 0:
            await self._sleep(left)
        self._due = max(self._due, self._now()) + count * self._every_s


async def replay(
    consumer: PullConsumer,
    producer: Producer,
    checkpoint: Checkpoint,
    place: Place,
    *,
    tags: str | None,
    wanted: Callable[[MessageExt], bool],
    pace: Pace,
    progress: Progress,
    corrupt_bodies: str = FAIL,
    now: Callable[[], float] = time.monotonic,
) -> int:
    """Send again what is left of a replay; returns how many messages were sent.

    Args:
        consumer: reads them.
        producer: sends them.
        checkpoint: keeps how far it is.
        place: where it begins.
        tags: a tag expression; None for all.
        wanted: whether a message is to be sent.
        pace: how fast.
        progress: see `Progress`.
        corrupt_bodies: see `with_bodies`; FAIL or SKIP.
        now: seconds.

    Raises:
        TianzhouError: a message was not sent, or was deleted before it was read; the same replay goes on there.
    """
    read = sent = 0
    saved = now()
    checkpoint.save(place)
    try:
        async for page in pages(consumer, place.spans, tags):
            messages = with_bodies(page.messages, corrupt_bodies)
            async for part, offset in _steps(messages, page.next_offset, wanted, pace):
                await send_in_order(producer, [resent(message, place.target, KIND) for message in part])
                last = next((one for one in reversed(page.messages) if one.queue_offset < offset), None)
                place, sent = place.passed(page.queue, offset, last), sent + len(part)
                if now() - saved >= SAVE_EVERY_S:
                    checkpoint.save(place)
                    saved = now()
                progress(read + page.passed - (page.next_offset - offset), sent)
            read += page.passed
    finally:
        checkpoint.save(place)
    return sent


async def _steps(
    messages: Sequence[MessageExt], end: int, wanted: Callable[[MessageExt], bool], pace: Pace
) -> AsyncIterator[tuple[list[MessageExt], int]]:
    """The wanted messages of a page in steps, each when its time has come, and the offset behind each step."""
    again = [message for message in messages if wanted(message)]
    for first in range(0, len(again), pace.step):
        part = again[first : first + pace.step]
        await pace.wait(len(part))
        yield part, end if first + pace.step >= len(again) else part[-1].queue_offset + 1
    if not again:
        yield [], end


async def check_marks(consumer: PullConsumer, place: Place) -> None:
    """See that the queues hold the messages that the replay has read.

    Args:
        consumer: reads the topic.
        place: how far the replay is.

    Raises:
        OffsetOutOfRange: one holds other messages; names the queue, the offset and the remedy.
    """
    for span in place.spans:
        mark = place.marks.get(span.queue)
        end = await consumer.max_offset(span.queue) if mark is not None else 0
        if mark is None or end <= 0:
            continue
        at = min(mark.offset, end - 1)
        found = (await consumer.pull(span.queue, at, 1)).messages
        if not found or found[0].queue_offset != at:  # retention has deleted it
            continue
        others = made_again(
            {span.queue: span.begin}, place.marks, {span.queue: at}, {span.queue: found[0].store_timestamp}
        )
        if others:
            raise OffsetOutOfRange(f"{others[0]}; begin again with another --checkpoint")


async def first_place(consumer: PullConsumer, source: str, target: str, since_ms: int | None) -> Place:
    """Where a replay begins that was never begun before.

    Args:
        consumer: reads the topic.
        source: the topic.
        target: where it sends to.
        since_ms: see `tianzhou.pipelines.replay.replay`.
    """
    return Place(source, target, tuple(await spans_of(consumer, source, since_ms)))


async def replay_ids(
    admin: Admin, producer: Producer, source: str, target: str, ids: Sequence[str]
) -> list[SendResult]:
    """Send single messages again, which brokers find by their ids.

    Args:
        admin: finds the messages.
        producer: sends them.
        source: the topic they are in.
        target: the topic to send to.
        ids: unique keys or offset ids.

    Raises:
        ClientError: there is no message with one of the ids; nothing was sent.
    """
    messages = [await admin.messages.view(source, one) for one in ids]
    return [await producer.send(resent(message, target, KIND)) for message in messages]
