"""Dead letters of a group, counted, shown and sent again by the client: what `dead_letters` does, without Spark.

Letters are read page by page and never held all together; what is sent again is read once more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from tianzhou.errors import ClientError
from tianzhou.model import MessageExt
from tianzhou.model.dead_letters import KIND, TOPIC_PROPERTIES, origin_id, resent, retry_topic_of
from tianzhou.model.names import KEYS, TAGS
from tianzhou.pipelines.few_messages import COLUMNS, Span, pages, row_of, send_in_order, with_bodies
from tianzhou.spark.rows.rules import FAIL

if TYPE_CHECKING:
    from tianzhou.client import Producer
    from tianzhou.client.consumer.pull.pull_consumer import PullConsumer

LETTER_COLUMNS: Final[Mapping[str, type]] = {**COLUMNS, "originTopic": str, "originId": str, "reason": str}
"""What conditions may name: the columns of `dead_letters`, but for those of other types."""
Cause = tuple[str | None, str | None, str | None, int]
"""Original topic, tag, reason and deliveries: what letters are counted by."""
Progress = Callable[[int, int], None]
"""Called with the letters read and sent so far."""


@dataclass(frozen=True, slots=True)
class Letter:
    """A dead letter, and what it was before.

    Attributes:
        message: as it is stored.
        topic: the topic it was first sent to, None when it does not say.
        origin: the id it had then, else its own.
        reason: why the group gave up, None when it does not say.
    """

    message: MessageExt
    topic: str | None
    origin: str
    reason: str | None

    @property
    def cause(self) -> Cause:
        """What it is counted by."""
        return self.topic, self.message.properties.get(TAGS), self.reason, self.message.reconsume_times

    def row(self) -> dict[str, Any]:
        """Its columns that conditions may name."""
        return {**row_of(self.message), "originTopic": self.topic, "originId": self.origin, "reason": self.reason}


def letter_of(message: MessageExt, reasons: Sequence[str]) -> Letter:
    """A dead letter of a message.

    Args:
        message: of the group's dead letters.
        reasons: the properties looked at for why it failed; the first that is set counts.
    """
    properties = message.properties

    def first(names: Sequence[str]) -> str | None:
        return next((properties[name] for name in names if name in properties), None)

    return Letter(message, first(TOPIC_PROPERTIES), origin_id(message), first(reasons))


@dataclass(slots=True)
class Counted:
    """The letters of one cause.

    Attributes:
        letters: how many.
        first_ms: when the first was stored, milliseconds since the epoch.
        last_ms: when the last was.
        newest: the newest of them, as many as samples are wanted, the newest first.
    """

    letters: int = 0
    first_ms: int = 0
    last_ms: int = 0
    newest: list[Letter] = field(default_factory=list)


class Causes:
    """Counts letters by cause; call it with each.

    Args:
        samples: how many letters of each cause are remembered.
    """

    def __init__(self, samples: int) -> None:
        self._samples = samples
        self._counted: dict[Cause, Counted] = {}

    def __call__(self, letter: Letter) -> None:
        """Count one letter."""
        stored = letter.message.store_timestamp
        one = self._counted.setdefault(letter.cause, Counted(first_ms=stored))
        one.letters += 1
        one.first_ms, one.last_ms = min(one.first_ms, stored), max(one.last_ms, stored)
        if self._samples:
            one.newest.append(letter)
            one.newest.sort(key=lambda each: (each.message.store_timestamp, each.message.msg_id), reverse=True)
            del one.newest[self._samples :]

    def ordered(self) -> list[tuple[Cause, Counted]]:
        """The causes, the most frequent first; of equal ones by their columns, those without a value first."""

        def place(one: tuple[Cause, Counted]) -> tuple[Any, ...]:
            topic, tag, reason, deliveries = one[0]
            texts = [(text is not None, text or "") for text in (topic, tag, reason)]
            return (-one[1].letters, *texts, deliveries)

        return sorted(self._counted.items(), key=place)


async def count(
    consumer: PullConsumer,
    spans: Sequence[Span],
    reasons: Sequence[str],
    samples: int,
    progress: Progress,
    corrupt_bodies: str = FAIL,
) -> Causes:
    """Count letters by cause.

    Args:
        consumer: reads them.
        spans: of the group's dead letters.
        reasons: see `letter_of`.
        samples: see `Causes`.
        progress: see `Progress`.
        corrupt_bodies: see `with_bodies`.
    """
    causes, read = Causes(samples), 0
    async for page in pages(consumer, spans):
        for message in with_bodies(page.messages, corrupt_bodies):
            causes(letter_of(message, reasons))
        read += page.passed
        progress(read, 0)
    return causes


@dataclass(frozen=True, slots=True)
class Choice:
    """A letter that is to be sent again, without its body.

    Attributes:
        place: broker, queue and offset.
        stored_ms: when it was stored.
        shown: id, the topic it goes to, keys, tag and reason.
    """

    place: tuple[str, int, int]
    stored_ms: int
    shown: tuple[str, str | None, str | None, str | None, str | None]


def _place(message: MessageExt) -> tuple[str, int, int]:
    return message.broker_name, message.queue_id, message.queue_offset


async def chosen(
    consumer: PullConsumer,
    spans: Sequence[Span],
    reasons: Sequence[str],
    *,
    ids: Sequence[str],
    where: Callable[[Mapping[str, Any]], bool],
    to: str | None,
    progress: Progress,
    corrupt_bodies: str = FAIL,
) -> list[Choice]:
    """The letters that ids or a condition choose, the oldest first.

    Args:
        consumer: reads them.
        spans: of the group's dead letters.
        reasons: see `letter_of`.
        ids: ids of dead letters or of the messages they were; empty for no choice by id.
        where: whether a letter's columns are those wanted.
        to: the topic they go to; None for the retry topic of the group that they are of.
        progress: see `Progress`.
        corrupt_bodies: see `with_bodies`; with SKIP letters without a body are not chosen.

    Raises:
        ClientError: an id is none of those letters.
    """
    found, missing, read = [], dict.fromkeys(ids), 0
    wanted = frozenset(ids)
    async for page in pages(consumer, spans):
        for message in with_bodies(page.messages, corrupt_bodies):
            letter = letter_of(message, reasons)
            named = {message.msg_id, letter.origin}
            if not where(letter.row()) or (wanted and wanted.isdisjoint(named)):
                continue
            for one in named:
                missing.pop(one, None)
            shown = (
                message.msg_id,
                to or retry_topic_of(message.topic),
                message.properties.get(KEYS),
                message.tags,
                letter.reason,
            )
            found.append(Choice(_place(message), message.store_timestamp, shown))
        read += page.passed
        progress(read, 0)
    if missing:
        raise ClientError(f"no dead letter has the id {', '.join(missing)}; list them with --samples 1000")
    return sorted(found, key=lambda choice: choice.stored_ms)


async def resend(
    consumer: PullConsumer,
    producer: Producer,
    spans: Sequence[Span],
    choices: Sequence[Choice],
    to: str | None,
    progress: Progress,
) -> None:
    """Send letters again; they stay where they are as dead letters.

    Args:
        consumer: reads them.
        producer: sends them.
        spans: what they were chosen from.
        choices: of `chosen`.
        to: the topic they go to; None for the retry topic of the group that they are of.
        progress: see `Progress`.

    Raises:
        ClientError: one does not have its first topic, and `to` is None; nothing of its page was sent.
        TianzhouError: one was not sent; those before it were.
    """
    places, read, sent = {choice.place for choice in choices}, 0, 0
    async for page in pages(consumer, spans):
        again = [resent(message, to, KIND) for message in page.messages if _place(message) in places]
        await send_in_order(producer, again)
        read, sent = read + page.passed, sent + len(again)
        progress(read, sent)
