"""Figures of few traces by the client: what `trace_figures` does, without Spark.

Values are read as Spark reads them: what is missing, `null` or no number is no value, and percentiles are exact.
`client.tracing.trace_reading` takes a missing number for 0 and knows further forms of old clients; Spark does not.
"""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from tianzhou.client.tracing.trace_reading import TraceKind
from tianzhou.client.tracing.trace_records import FIELD_END, RECORD_END
from tianzhou.pipelines.few_messages import Span, pages, with_bodies
from tianzhou.spark.rows.rules import FAIL

if TYPE_CHECKING:
    from tianzhou.client.consumer.pull.pull_consumer import PullConsumer

MOST_RECORDS: Final = 500_000
"""Records that are held in memory, some 250 MB; Spark takes more."""
PERCENTILES: Final = (0.5, 0.95, 0.99)
Progress = Callable[[int], None]
"""Called with the messages read so far."""

_BLANK: Final = "".join(map(chr, range(33))) + "\x7f"
_WHOLE: Final = re.compile(r"[+-]?\d+", re.ASCII)
_LEAST, _MOST = -(1 << 63), (1 << 63) - 1
_TRUE: Final = frozenset({"t", "true", "y", "yes", "1"})
_FALSE: Final = frozenset({"f", "false", "n", "no", "0"})


def text_at(fields: Sequence[str], number: int) -> str | None:
    """A field of a record; None where it is missing or says `null`."""
    text = fields[number] if number < len(fields) else "null"
    return None if text == "null" else text


def number_at(fields: Sequence[str], number: int) -> int | None:
    """A field that is a whole number of 64 bits; None for any other."""
    text = (text_at(fields, number) or "").strip(_BLANK)
    # Python counts the digits of a text before it reads it, and refuses thousands of them.
    value = int(text) if len(text) < 100 and _WHOLE.fullmatch(text) else _MOST + 1
    return value if _LEAST <= value <= _MOST else None


def truth_at(fields: Sequence[str], number: int) -> bool | None:
    """A field that is true or false; None for any other."""
    text = (text_at(fields, number) or "").strip(_BLANK).lower()
    return True if text in _TRUE else False if text in _FALSE else None


def percentile(values: Sequence[int], share: float) -> float | None:
    """The exact percentile of values in order, between two of them in proportion; None of none.

    Args:
        values: in order.
        share: which, between 0 and 1.
    """
    if not values:
        return None
    place = (len(values) - 1) * share
    low, high = float(values[math.floor(place)]), float(values[math.ceil(place)])
    return low + (place - math.floor(place)) * (high - low)


@dataclass(slots=True)
class Figures:
    """What is known of the sends or deliveries of one topic and group.

    Attributes:
        messages: how many.
        succeeded: how many of them say so.
        took_ms: how long each took that says how long.
        waited_ms: of deliveries, how long after its send each began, as far as that is known.
    """

    messages: int = 0
    succeeded: int = 0
    took_ms: array[int] = field(default_factory=lambda: array("q"))
    waited_ms: list[int] = field(default_factory=list)

    def add(self, took_ms: int | None, ok: bool | None, waited_ms: int | None = None) -> None:
        """Count one."""
        self.messages += 1
        self.succeeded += ok is True
        if took_ms is not None:
            self.took_ms.append(took_ms)
        if waited_ms is not None:
            self.waited_ms.append(waited_ms)

    def row(self) -> dict[str, Any]:
        """Count, success rate and percentiles, by the names of `trace_figures`."""
        took = sorted(self.took_ms)
        return {
            "messages": self.messages,
            "success": self.succeeded / self.messages,
            **{f"p{share * 100:.0f}_ms": percentile(took, share) for share in PERCENTILES},
            "max_ms": took[-1] if took else None,
        }


Place = tuple[str | None, str | None]
"""Topic and group."""


class Traces:
    """Records of traces, put together; call it with the body of each message.

    Attributes:
        records: how many there were.
    """

    def __init__(self) -> None:
        self.records = 0
        self._sends: dict[Place, Figures] = {}
        self._sent: dict[str, tuple[str | None, int | None]] = {}
        self._begun: list[tuple[str | None, str | None, int | None, str | None]] = []
        self._ended: dict[tuple[str, str], list[tuple[int | None, bool | None]]] = {}

    def __call__(self, body: bytes) -> None:
        """Take the records of one message."""
        for record in body.decode("utf-8", "replace").split(RECORD_END):
            if not record:
                continue
            self.records += 1
            fields = record.split(FIELD_END)
            if fields[0] == TraceKind.SENT:
                self._add_send(fields)
            elif fields[0] == TraceKind.CONSUMING:
                self._begun.append((text_at(fields, 4), text_at(fields, 5), number_at(fields, 1), text_at(fields, 3)))
            elif fields[0] == TraceKind.CONSUMED:
                request, message = text_at(fields, 1), text_at(fields, 2)
                if request is not None and message is not None:
                    self._ended.setdefault((request, message), []).append((number_at(fields, 3), truth_at(fields, 4)))

    def _add_send(self, fields: Sequence[str]) -> None:
        topic, message, began = text_at(fields, 4), text_at(fields, 5), number_at(fields, 1)
        self._sends.setdefault((topic, text_at(fields, 3)), Figures()).add(number_at(fields, 10), truth_at(fields, 13))
        if message is not None:
            first, before = self._sent.get(message, (topic, None))
            self._sent[message] = first, min((one for one in (before, began) if one is not None), default=None)

    def sends(self) -> list[dict[str, Any]]:
        """Figures of sends by topic and producer group; see `trace_figures.send_figures`."""
        return [{"topic": topic, "group": group, **one.row()} for (topic, group), one in _ordered(self._sends)]

    def deliveries(self) -> list[dict[str, Any]]:
        """Figures of deliveries by topic and consumer group; see `trace_figures.delivery_figures`."""
        found: dict[Place, Figures] = {}
        for request, message, began, group in self._begun:
            if request is None or message is None:
                continue
            topic, sent = self._sent.get(message, (None, None))
            waited = None if began is None or sent is None else began - sent
            for took, ok in self._ended.get((request, message), ()):
                found.setdefault((topic, group), Figures()).add(took, ok, waited)
        return [
            {"topic": topic, "group": group, **one.row(), "p50_waited": percentile(sorted(one.waited_ms), 0.5)}
            for (topic, group), one in _ordered(found)
        ]


def _ordered(found: Mapping[Place, Figures]) -> Iterable[tuple[Place, Figures]]:
    """By topic and group, those without one first."""
    return sorted(found.items(), key=lambda one: [(text is not None, (text or "").encode()) for text in one[0]])


async def read(
    consumer: PullConsumer, spans: Sequence[Span], progress: Progress, corrupt_bodies: str = FAIL
) -> Traces | None:
    """The traces in some spans; None when there are more records than memory should hold.

    Args:
        consumer: reads them.
        spans: of the trace topic.
        progress: see `Progress`.
        corrupt_bodies: see `with_bodies`.

    Raises:
        OffsetOutOfRange: messages were deleted before they were read.
    """
    traces, done = Traces(), 0
    async for page in pages(consumer, spans):
        for message in with_bodies(page.messages, corrupt_bodies):
            traces(message.body)
        done += page.passed
        progress(done)
        if traces.records > MOST_RECORDS:
            return None
    return traces
