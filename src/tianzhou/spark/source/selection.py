"""The topics and queues that a query reads: `subscribe`, `subscribePattern` or `assign`. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tianzhou.errors import ConfigError
from tianzhou.model import MessageQueue, names
from tianzhou.spark.option_values import NAME_RULE, RawOptions
from tianzhou.spark.option_values import name as topic_name
from tianzhou.spark.option_values import names as topic_names

TOPICS_RULE: Final = f"topics joined by commas; {NAME_RULE}"
ASSIGN_RULE: Final = 'JSON like {"topic": [0, 1]} or {"topic": {"broker": [0, 1]}}, with ids of queues'
PATTERN_RULE: Final = "a regular expression that whole topic names match"
WAYS: Final = ("subscribe", "subscribePattern", "assign")

_SYSTEM: Final = frozenset(
    {
        names.AUTO_CREATE_TOPIC,
        names.SCHEDULE_TOPIC,
        names.TRACE_TOPIC,
        names.HALF_TOPIC,
        names.OP_HALF_TOPIC,
        "BenchmarkTest",
        "CHECKPOINT_TOPIC",
        "OFFSET_MOVED_EVENT",
        "SELF_TEST_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC",
    }
)


@dataclass(frozen=True, slots=True)
class TopicSelection:
    """The topics and queues of a query.

    Attributes:
        option: name of the option that selected them.
        topics: the topics, empty for a pattern.
        pattern: regular expression for the names of topics, None unless topics are selected by a pattern.
        assigned: queue ids by topic and broker; the broker None means all brokers. None unless queues are selected.
    """

    option: str
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: Mapping[str, Mapping[str | None, frozenset[int]]] | None = None

    def topics_among(self, there: Iterable[str], infrastructure: Collection[str] = ()) -> list[str]:
        """Return the topics to read.

        A pattern never matches system topics. It matches retry and dead-letter topics only if it contains a `%`.

        Args:
            there: the existing topics; used only for a pattern.
            infrastructure: names of clusters and brokers, which have topics of the same names.
        """
        if self.pattern is None:
            return list(self.topics)
        own = _SYSTEM | set(infrastructure) | {names.reply_topic(name) for name in infrastructure}
        return sorted(
            topic
            for topic in set(there)
            if topic not in own
            and not topic.startswith(names.SYSTEM_PREFIX)
            and ("%" in self.pattern or not topic.startswith("%"))
            and re.fullmatch(self.pattern, topic)
        )

    def wants(self, queue: MessageQueue) -> bool:
        """Whether a queue is selected. The queue need not exist."""
        if self.pattern is not None:
            return re.fullmatch(self.pattern, queue.topic) is not None
        if self.assigned is None:
            return queue.topic in self.topics
        brokers = self.assigned.get(queue.topic, {})
        return queue.queue_id in brokers.get(None, ()) or queue.queue_id in brokers.get(queue.broker_name, ())

    def check(self, queues: Collection[MessageQueue]) -> None:
        """Check that every assigned queue exists.

        Args:
            queues: all queues of the topics.

        Raises:
            ConfigError: a queue does not exist.
        """
        missing = []
        for topic, brokers in (self.assigned or {}).items():
            for broker, numbers in brokers.items():
                found = {
                    queue.queue_id
                    for queue in queues
                    if queue.topic == topic and (broker is None or queue.broker_name == broker)
                }
                where = f" on {broker}" if broker is not None else ""
                missing += [f"queue {number} of {topic}{where}" for number in sorted(numbers - found)]
        if missing:
            raise ConfigError(
                f"{self.option}: there is no {', '.join(missing)}; there are {', '.join(map(str, sorted(queues)))}"
            )


def parse_selection(raw: RawOptions) -> TopicSelection:
    """Parse whichever of the three options is given.

    Raises:
        ConfigError: none or several are given, or the option is malformed.
    """
    used = [name for name in WAYS if raw.text(name) is not None]
    if len(used) > 1:
        raise ConfigError(
            f"{' and '.join(f'{name}={raw.text(name)}' for name in used)} are given; give one of {', '.join(WAYS)}"
        )
    match used:
        case ["subscribePattern"]:
            raw.need("subscribePattern")
            return TopicSelection("subscribePattern", pattern=_pattern(raw))
        case ["assign"]:
            raw.need("assign")
            assigned = _assigned(raw)
            return TopicSelection("assign", tuple(assigned), assigned=assigned)
    if not raw.text("subscribe"):
        raise ConfigError(
            f"the option subscribe is missing; expected {TOPICS_RULE}. Or choose topics by subscribePattern, or queues "
            "by assign"
        )
    return TopicSelection("subscribe", raw.read("subscribe", (), topic_names))


def _pattern(raw: RawOptions) -> str:
    text = raw.text("subscribePattern") or ""
    try:
        re.compile(text)
    except re.error as error:
        raise raw.bad("subscribePattern", f"{error}") from None
    return text


def _assigned(raw: RawOptions) -> dict[str, dict[str | None, frozenset[int]]]:
    try:
        parsed = json.loads(raw.text("assign") or "")
    except ValueError as error:
        raise raw.bad("assign", f"{error}") from None
    if not isinstance(parsed, dict) or not parsed:
        raise raw.bad("assign")
    result: dict[str, dict[str | None, frozenset[int]]] = {}
    for topic, chosen in parsed.items():
        try:
            topic_name(topic)
        except ValueError:
            raise raw.bad("assign", f"{topic!r} is no topic") from None
        brokers: dict[Any, Any] = chosen if isinstance(chosen, dict) else {None: chosen}
        if not brokers:
            raise raw.bad("assign", f"no broker of {topic} is named")
        result[topic] = {broker: _ids(raw, topic, numbers) for broker, numbers in brokers.items()}
    return result


def _ids(raw: RawOptions, topic: str, numbers: Any) -> frozenset[int]:
    if not isinstance(numbers, list) or not numbers:
        raise raw.bad("assign", f"{json.dumps(numbers)} of {topic} is no list of queue ids")
    for number in numbers:
        if isinstance(number, bool) or not isinstance(number, int) or number < 0:
            raise raw.bad("assign", f"{json.dumps(number)} of {topic} is no queue id")
    return frozenset(numbers)
