"""Content of state files, and tables that a broker rebuilds from its log when a file is lost (docs/adr/0028). Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tianzhou.broker.tables.topics import BrokerTopicTable
from tianzhou.model import SubscriptionGroupConfig, TopicConfig, names
from tianzhou.model.name_rules import folder_name_problem, group_name_problem
from tianzhou.model.topic import PERM_READ, PERM_WRITE

TOPICS: Final = "topics.json"
GROUPS: Final = "subscriptionGroup.json"
OFFSETS: Final = "consumerOffset.json"
LIGHT_OFFSETS: Final = "lmqConsumerOffset.json"
DELAYS: Final = "delayOffset.json"
FILTERS: Final = "consumerFilter.json"
SEND_LIMITS: Final = "sendLimits.json"
TABLES: Final[Mapping[str, str]] = {
    TOPICS: "topicConfigTable",
    GROUPS: "subscriptionGroupTable",
    OFFSETS: "offsetTable",
    LIGHT_OFFSETS: "offsetTable",
    DELAYS: "offsetTable",
    FILTERS: "filterDataByTopic",
    SEND_LIMITS: "sendLimitTable",
}
"""Member of each state file that holds its table. A file without it is damaged: every broker writes it."""
MAX_NAMED: Final = 20
"""Maximum number of topics or groups that a line of the log names; the note names all."""


def shape_problem(file_name: str, value: Mapping[Any, Any]) -> str:
    """Return why a JSON object is not the content of a state file, empty when it is.

    Args:
        file_name: name of the state file.
        value: the JSON object.
    """
    member = TABLES[file_name]
    table = value.get(member)
    if not isinstance(table, dict):
        return f"{member} is {'missing' if member not in value else _kind(table)}, expected an object"
    if "lmqOffsetTable" in value and not isinstance(value["lmqOffsetTable"], dict):
        return f"lmqOffsetTable is {_kind(value['lmqOffsetTable'])}, expected an object"
    for key, row in table.items() if file_name != DELAYS else ():
        if not isinstance(row, dict):
            return f"{member}.{key} is {_kind(row)}, expected an object"
    return ""


def _kind(value: object) -> str:
    return "null" if value is None else f"a {type(value).__name__}"


@dataclass(frozen=True, slots=True)
class StoredQueues:
    """Queues of a store, from which lost tables are rebuilt.

    Attributes:
        end_offset: next offset of the log.
        queues: each topic with its queues, by id, and the first offset of each that is still stored.
        batch_topics: topics whose queues are of type BatchCQ.
        follows: whether the tables also come from a master, or from the log of a DLedger group.
    """

    end_offset: int
    queues: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    batch_topics: Collection[str] = ()
    follows: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether the store never had a message."""
        return self.end_offset <= 0 and not self.queues

    def unknown_topics(self, topics: BrokerTopicTable) -> list[str]:
        """Return topics that have queues and are not in the table; system topics are left out."""
        return sorted(
            topic
            for topic in self.queues
            if topic not in topics
            and not topics.is_system(topic)
            and not topic.startswith(names.LMQ_PREFIX)
            and folder_name_problem(topic) is None
        )


def rebuilt_topics(stored: StoredQueues, topics: BrokerTopicTable, default_queues: int) -> list[TopicConfig]:
    """Return configurations of the topics that have queues in the store and are not in the table.

    A topic gets at least as many queues as a new one. A queue without a message leaves no trace, and clients continue
    to use it.

    Args:
        stored: queues of the store.
        topics: the table.
        default_queues: queues of a new topic.
    """
    found = []
    for topic in stored.unknown_topics(topics):
        few = topic.startswith((names.RETRY_PREFIX, names.DLQ_PREFIX))
        count = max(*stored.queues[topic], 0 if few else default_queues - 1) + 1
        attributes = {"queue.type": "BatchCQ"} if topic in stored.batch_topics else {}
        found.append(TopicConfig(topic, count, count, PERM_READ | PERM_WRITE, attributes=attributes))
    return found


def rebuilt_groups(
    stored: StoredQueues, offset_groups: Iterable[str], known: Collection[str]
) -> list[SubscriptionGroupConfig]:
    """Return configurations, with default settings, of groups that left traces and are not in the table.

    Args:
        stored: queues of the store; retry and dead-letter topics name their group.
        offset_groups: groups that have committed offsets.
        known: groups of the table.
    """
    found = dict.fromkeys(offset_groups)
    for topic in sorted(stored.queues):
        for prefix in (names.RETRY_PREFIX, names.DLQ_PREFIX):
            if topic.startswith(prefix):
                found[topic.removeprefix(prefix)] = None
    return [
        SubscriptionGroupConfig(group)
        for group in found
        if group not in known and not group.startswith(names.LMQ_PREFIX) and group_name_problem(group) is None
    ]


def rebuilt_offsets(stored: StoredQueues) -> list[tuple[str, str, int, int]]:
    """Return group, topic, queue and offset of the read positions of retry topics: the first messages still stored.

    No message of a retry topic is skipped. The log has no record of consumption, so members may get messages again.
    """
    return [
        (topic.removeprefix(names.RETRY_PREFIX), topic, queue_id, max(first, 0))
        for topic, queues in sorted(stored.queues.items())
        if topic.startswith(names.RETRY_PREFIX)
        for queue_id, first in sorted(queues.items())
    ]


@dataclass(frozen=True, slots=True)
class RebuiltState:
    """Tables that a start has rebuilt.

    Attributes:
        lost: each lost state file, and why it was lost.
        topics: rebuilt topics and their numbers of queues.
        groups: rebuilt groups, with default settings.
        offsets: rebuilt read positions, by `topic@group` and queue.
    """

    lost: Mapping[str, str]
    topics: Mapping[str, int] = field(default_factory=dict)
    groups: tuple[str, ...] = ()
    offsets: Mapping[str, Mapping[int, int]] = field(default_factory=dict)

    def lines(self) -> list[str]:
        """Return a line per lost file: rebuilt entries, and entries that are missing."""
        found = []
        for name, why in self.lost.items():
            if name == TOPICS:
                shown = [f"{topic} ({count} queues)" for topic, count in self.topics.items()]
                text = f"rebuilt from the queues of the log: {_listed(shown, 'topics')}; permissions and attributes of "
                text += "topics, and topics without a message, are lost: create or update these topics"
            elif name == GROUPS:
                text = f"rebuilt from retry topics and offsets: {_listed(self.groups, 'groups')} with default settings"
            elif name in {OFFSETS, LIGHT_OFFSETS}:
                shown = [
                    f"{key} {', '.join(f'{queue}:{at}' for queue, at in queues.items())}"
                    for key, queues in self.offsets.items()
                ]
                text = "rebuilt read positions of retry topics, at their first stored messages: "
                text += f"{_listed(shown, 'topics')}; on other topics each group begins where its consumers' settings "
                text += "say: set positions with tianzhou offset reset before the consumers start"
            elif name == DELAYS:
                text = "delivery positions are lost: all delayed messages that the log still has are delivered again"
            elif name == SEND_LIMITS:
                text = "limits of senders are lost, and sends are not limited: set them with tianzhou limit set"
            else:
                text = "filter expressions of groups are lost: the groups announce them again with their heartbeats"
            found.append(f"{name} was lost ({why}): {text}")
        return found

    def to_json(self) -> dict[str, object]:
        """Return the note's members."""
        return {
            "lost": dict(self.lost),
            "topics": dict(self.topics),
            "groups": list(self.groups),
            "readPositions": {
                key: {str(queue): at for queue, at in queues.items()} for key, queues in self.offsets.items()
            },
        }


def _listed(shown: Collection[str], noun: str) -> str:
    if not shown:
        return f"no {noun}"
    named = ", ".join(list(shown)[:MAX_NAMED])
    more = len(shown) - MAX_NAMED
    return named + (f" and {more} more" if more > 0 else "")
