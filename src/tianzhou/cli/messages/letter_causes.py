"""Causes of dead letters: counted by topic, tag, reason and deliveries, and printed. Counting is pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from tianzhou.cli.messages.body_pieces import body_start
from tianzhou.cli.output import Output, local_time, print_json, print_line, print_rows
from tianzhou.errors import ConfigError
from tianzhou.model.dead_letters import TOPIC_PROPERTIES, origin_id
from tianzhou.model.names import KEYS, TAGS
from tianzhou.wire.delivered import unreadable

if TYPE_CHECKING:
    from tianzhou.model import MessageExt

COUNTS: Final = ("topic", "tag", "reason", "deliveries", "letters", "first", "last")
SAMPLES: Final = ("topic", "tag", "reason", "deliveries", "stored", "id", "keys", "body")
SAMPLE_CHARACTERS: Final = 80
"""Maximum characters of a body that a sample shows."""
CONDITION_COLUMNS: Final[Mapping[str, type]] = {
    "topic": str,
    "brokerName": str,
    "queueId": int,
    "queueOffset": int,
    "msgId": str,
    "tags": str,
    "keys": str,
    "reconsumeTimes": int,
    "originTopic": str,
    "originId": str,
    "reason": str,
}
"""Columns of a condition over dead letters. `tianzhou pipeline dlq` has more."""
Cause = tuple[str | None, str | None, str | None, int]
"""Original topic, tag, reason and deliveries."""
Rows = Sequence[tuple[Any, ...]]


def _first(properties: Mapping[str, str], names: Sequence[str]) -> str | None:
    return next((properties[name] for name in names if name in properties), None)


def cause_of(letter: MessageExt, reasons: Sequence[str]) -> Cause:
    """Return the cause of a dead letter. Letters are counted by it.

    Args:
        letter: the dead letter.
        reasons: names of properties with the reason of the failure; the first that is set counts.
    """
    properties = letter.properties
    topic, reason = _first(properties, TOPIC_PROPERTIES), _first(properties, reasons)
    return topic, properties.get(TAGS), reason, letter.reconsume_times


def condition_row(letter: MessageExt, reasons: Sequence[str]) -> dict[str, Any]:
    """Return the values of a dead letter for `CONDITION_COLUMNS`.

    Args:
        letter: the dead letter.
        reasons: see `cause_of`.
    """
    topic, tag, reason, deliveries = cause_of(letter, reasons)
    return {
        "topic": letter.topic,
        "brokerName": letter.broker_name,
        "queueId": letter.queue_id,
        "queueOffset": letter.queue_offset,
        "msgId": letter.msg_id,
        "tags": tag,
        "keys": letter.properties.get(KEYS),
        "reconsumeTimes": deliveries,
        "originTopic": topic,
        "originId": origin_id(letter),
        "reason": reason,
    }


def condition_of_letters(where: str, reasons: Sequence[str]) -> Callable[[MessageExt], bool]:
    """Return a function that checks whether a dead letter fulfils a condition.

    Args:
        where: the condition of SQL, as in `reason = 'Timeout' AND reconsumeTimes > 3`.
        reasons: see `cause_of`.

    Raises:
        ConfigError: the condition needs Spark, or contains an unknown column.
    """
    from tianzhou.pipelines.conditions import condition_of

    fulfils = condition_of(where, CONDITION_COLUMNS)
    if fulfils is None:
        raise ConfigError(
            f"--where {where}: expected comparisons of {', '.join(CONDITION_COLUMNS)} by =, <>, IN and IS NULL, and "
            "of numbers by < and >, joined by AND and OR; other conditions of SQL: tianzhou pipeline dlq --where"
        )
    return lambda letter: fulfils(condition_row(letter, reasons))


@dataclass(slots=True)
class CauseCount:
    """Dead letters of one cause.

    Attributes:
        letters: the number of letters.
        first_ms: store time of the oldest, milliseconds since the epoch.
        last_ms: store time of the newest.
        newest: the newest letters, the newest first; as many as samples are wanted.
    """

    letters: int = 0
    first_ms: int = 0
    last_ms: int = 0
    newest: list[MessageExt] = field(default_factory=list)


class CauseCounter:
    """A counter of dead letters by cause.

    Args:
        samples: number of letters of each cause to retain.
        reasons: see `cause_of`.
    """

    def __init__(self, samples: int, reasons: Sequence[str]) -> None:
        self._samples, self._reasons = samples, reasons
        self._counts: dict[Cause, CauseCount] = {}

    def add(self, letter: MessageExt) -> None:
        """Count one dead letter."""
        stored = letter.store_timestamp
        one = self._counts.setdefault(cause_of(letter, self._reasons), CauseCount(first_ms=stored))
        one.letters += 1
        one.first_ms, one.last_ms = min(one.first_ms, stored), max(one.last_ms, stored)
        if self._samples:
            one.newest.append(letter)
            one.newest.sort(key=lambda each: (each.store_timestamp, each.msg_id), reverse=True)
            del one.newest[self._samples :]

    def ordered(self) -> list[tuple[Cause, CauseCount]]:
        """Return the causes, the most frequent first.

        Equally frequent causes are sorted by their columns, missing values first.
        """

        def place(one: tuple[Cause, CauseCount]) -> tuple[Any, ...]:
            topic, tag, reason, deliveries = one[0]
            texts = [(text is not None, text or "") for text in (topic, tag, reason)]
            return (-one[1].letters, *texts, deliveries)

        return sorted(self._counts.items(), key=place)

    def rows(self) -> tuple[Rows, Rows]:
        """Return the rows of `COUNTS` and of `SAMPLES`; the body of a letter that cannot be unpacked is None."""
        causes, samples = [], []
        for cause, one in self.ordered():
            causes.append((*cause, one.letters, local_time(one.first_ms), local_time(one.last_ms)))
            for letter in one.newest:
                body = None if unreadable(letter) else body_start(letter.body, SAMPLE_CHARACTERS)
                stored = local_time(letter.store_timestamp)
                samples.append((*cause, stored, letter.msg_id, letter.keys or None, body))
        return causes, samples


def print_causes(group: str, causes: Rows, samples: Rows, output: Output) -> None:
    """Print causes and samples of dead letters.

    Args:
        group: the consumer group.
        causes: rows of `COUNTS`.
        samples: rows of `SAMPLES`.
        output: the form.
    """
    if output is Output.json:
        print_json(
            {
                "group": group,
                "causes": [dict(zip(COUNTS, row, strict=True)) for row in causes],
                "samples": [dict(zip(SAMPLES, row, strict=True)) for row in samples],
            }
        )
        return
    print_rows(COUNTS, causes, output)
    if samples:
        print_line("")
        print_rows(SAMPLES, samples, output)
