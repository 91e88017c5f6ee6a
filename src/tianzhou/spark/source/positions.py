"""Offsets and times that an option gives per queue, and the value of each queue. Pure.

The full form is `{"topic": {"broker": {"queueId": value}}}`. A value instead of a broker's queues applies to all of
them. A value instead of a topic's brokers applies to all queues of the topic. `{"topic": {"queueId": value}}`, Kafka's
form, is accepted if only one broker has the topic. Offsets may also be the `endOffset` of a query's progress, `{"end":
{"topic@broker:queueId": offset}, "from": …}`, or the inner part of it alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from tianzhou.errors import ConfigError
from tianzhou.model import MessageQueue
from tianzhou.spark.source.marks import MARKS, SLOWEST
from tianzhou.spark.source.offsets import EARLIEST, LATEST, Positions, QueueBounds, parse_queue

PerQueue = Mapping[str, "int | Mapping[str, int | Mapping[int, int]]"]
"""Values by topic, broker and queue id. Inner levels may be missing."""
Path = tuple[str | int, ...]
"""Topic, broker and queue id. The last parts may be missing."""

OFFSETS_RULE: Final = 'JSON like {"topic": {"broker": {"0": 42, "1": -2}}} with -1 for latest and -2 for earliest'
STRATEGY: Final = "startingOffsetsByTimestampStrategy"
ERROR: Final = "error"
AT_LATEST: Final = "latest"
TIME_RULE: Final = "milliseconds since the epoch, or a time like 2026-01-31T08:00:00Z"
_TIMES_RULE: Final = 'JSON like {"topic": {"broker": {"0": 1700000000000, "1": "2026-01-31T08:00:00Z"}}}'


def milliseconds(text: str) -> int:
    """Parse a point in time: milliseconds since the epoch, or ISO 8601. A time without a zone is in UTC.

    Raises:
        ValueError: the text is neither.
    """
    if text.isascii() and text.isdecimal():
        return int(text)
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    found = round(moment.timestamp() * 1000)
    if found < 0:
        raise ValueError(text)
    return found


def parse_offsets(text: str, option: str) -> PerQueue:
    """Parse offsets per queue; -1 is latest, -2 earliest.

    Args:
        text: the JSON, in any of the forms of this module.
        option: the option's name, for messages.

    Raises:
        ConfigError: the text has another form.
    """
    return _parse(text, option, _offset, "an offset: 0 or more, -1 for latest or -2 for earliest", OFFSETS_RULE)


def parse_times(text: str, option: str) -> PerQueue:
    """Parse times per queue.

    Args:
        text: the JSON; times are numbers or text, see `milliseconds`.
        option: the option's name, for messages.

    Raises:
        ConfigError: the text has another form.
    """
    return _parse(text, option, _time, TIME_RULE, _TIMES_RULE)


def _offset(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < EARLIEST:
        raise ValueError(value)
    return value


def _time(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError(value)
    return milliseconds(str(value))


def _parse(text: str, option: str, leaf: Callable[[object], int], one: str, whole: str) -> PerQueue:
    try:
        parsed = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"{option}={text}: {error}; expected {whole}") from None

    def value(found: object, where: str) -> int:
        try:
            return leaf(found)
        except ValueError:
            raise ConfigError(f"{option}: {json.dumps(found)} for {where} cannot be; expected {one}") from None

    def queues(found: Any, topic: str, broker: str) -> int | dict[int, int]:
        if not isinstance(found, dict):
            return value(found, f"the queues of {topic} on {broker}")
        for number in found:
            if not (number.isascii() and number.isdecimal()):
                raise ConfigError(f"{option}: {number!r} of {topic} on {broker} is no queue id; expected {whole}")
        return {int(number): value(at, f"queue {number} of {topic} on {broker}") for number, at in found.items()}

    def brokers(found: Any, topic: str) -> int | dict[str, int | dict[int, int]]:
        if not isinstance(found, dict):
            return value(found, f"topic {topic}")
        return {broker: queues(below, topic, broker) for broker, below in found.items()}

    if not isinstance(parsed, dict):
        raise ConfigError(f"{option}={text}: expected {whole}")
    if leaf is _offset and (reported := _reported(parsed)) is not None:
        return _by_topic({named: value(at, named) for named, at in reported.items()}, option)
    return {topic: brokers(below, topic) for topic, below in parsed.items()}


def _reported(parsed: dict[str, Any]) -> dict[str, Any] | None:
    """Return offsets by queue name, as in a query's progress; None if the text has another form."""
    if not parsed.keys() - {"end", "from", MARKS, SLOWEST} and isinstance(parsed.get("end"), dict):
        end: dict[str, Any] = parsed["end"]
        if not end or any("@" in named and not isinstance(at, dict) for named, at in end.items()):
            return end
    return parsed if any("@" in named for named in parsed) else None


def _by_topic(reported: Mapping[str, int], option: str) -> dict[str, dict[str, int | dict[int, int]]]:
    result: dict[str, dict[str, Any]] = {}
    for named, at in reported.items():
        try:
            queue = parse_queue(named)
        except ConfigError as error:
            raise ConfigError(f"{option}: {error}") from None
        result.setdefault(queue.topic, {}).setdefault(queue.broker_name, {})[queue.queue_id] = at
    return result


def holds(values: PerQueue | int, mark: int) -> bool:
    """Whether one of the values is `mark`."""
    if isinstance(values, Mapping):
        return any(holds(below, mark) for below in values.values())  # type: ignore[arg-type]
    return values == mark


def each(values: PerQueue, queues: Iterable[MessageQueue], option: str) -> dict[MessageQueue, int]:
    """Return the value of every queue.

    Args:
        values: result of `parse_offsets` or `parse_times`.
        queues: the queues to read.
        option: the option's name, for messages.

    Raises:
        ConfigError: a queue has no value, or a value belongs to no queue.
    """
    there = sorted(queues)
    found: dict[MessageQueue, int] = {}
    used: set[Path] = set()
    missing = []
    for queue in there:
        value: Any = values
        path: Path = ()
        for part in (queue.topic, queue.broker_name, queue.queue_id):
            if not isinstance(value, Mapping):
                break
            if part == queue.broker_name and part not in value and isinstance(value.get(str(queue.queue_id)), int):
                _check_alone(queue, there, option)
                part = str(queue.queue_id)
            value = value.get(part)
            path = (*path, part)
        if value is None:
            missing.append(queue)
        else:
            used.add(path)
            found[queue] = value
    unknown = [path for path in _paths(values, ()) if path not in used]
    if missing or unknown:
        problems = []
        if missing:
            problems.append(f"nothing is given for {_list(missing)}")
        if unknown:
            problems.append(f"there is no {', '.join(map(_named, unknown))}")
        raise ConfigError(
            f"{option}: {' and '.join(problems)}; give one for each queue of what is read: "
            f"{_list(there) or 'there are none'}"
        )
    return found


def _check_alone(queue: MessageQueue, queues: Iterable[MessageQueue], option: str) -> None:
    same = [other for other in queues if (other.topic, other.queue_id) == (queue.topic, queue.queue_id)]
    if len(same) > 1:
        raise ConfigError(
            f"{option}: queue {queue.queue_id} of {queue.topic} is on {' and '.join(one.broker_name for one in same)}; "
            f"name the broker, as in {OFFSETS_RULE}"
        )


def _paths(values: Any, above: Path) -> list[Path]:
    if not isinstance(values, Mapping):
        return [above]
    return [path for part, below in values.items() for path in _paths(below, (*above, part))]


def _named(path: Path) -> str:
    match path:
        case (str(topic),):
            return f"topic {topic}"
        case (str(topic), str(broker)) if broker.isdecimal():
            return f"queue or broker {broker} of topic {topic}"
        case (str(topic), str(broker)):
            return f"broker {broker} of topic {topic}"
        case (str(topic), str(broker), int(number)):
            return f"queue {MessageQueue(topic, broker, number)}"
    return str(path)


def _list(queues: Iterable[MessageQueue]) -> str:
    return ", ".join(map(str, queues))


def check_found(
    strategy: str, positions: Mapping[MessageQueue, int], bounds: Mapping[MessageQueue, QueueBounds]
) -> None:
    """Check that a message exists at or after the starting time in every queue, if the strategy requires it.

    Args:
        strategy: `startingOffsetsByTimestampStrategy`.
        positions: the offset for the time in each queue; the queue's end if all its messages are older.
        bounds: the offsets of the queues' messages.

    Raises:
        ConfigError: a queue has no message at that time or later. The error contains all such queues.
    """
    if strategy != ERROR:
        return
    without = sorted(queue for queue, at in positions.items() if at >= bounds[queue].maximum)
    if without:
        raise ConfigError(
            f"startingTimestamp: nothing is stored at that time or later in {_list(without)}; give an earlier time, or "
            f"{STRATEGY}={AT_LATEST} to begin at the end there"
        )


def resolve(wanted: PerQueue, bounds: Mapping[MessageQueue, QueueBounds], option: str) -> Positions:
    """Return positions for every queue from offsets per queue. They are not checked against the bounds.

    Raises:
        ConfigError: a queue has no value, or a value belongs to no queue.
    """
    marks = {LATEST: 1, EARLIEST: 0}
    return {
        queue: bounds[queue][marks[position]] if position in marks else position
        for queue, position in each(wanted, bounds, option).items()
    }
