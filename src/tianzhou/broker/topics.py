"""The topic table: what topics there are, and how new ones come to be (broker.md §5)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Protocol

from tianzhou.model import DataVersion, TopicConfig, names
from tianzhou.model.topic import PERM_INHERIT, PERM_READ, PERM_WRITE

READ_WRITE = PERM_READ | PERM_WRITE
MAX_NAME = 127
MAX_GROUP_NAME = 255
SCHEDULE_QUEUES = 18
CHECK_MAX_TIME_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
SELF_TEST_TOPIC = "SELF_TEST_TOPIC"
OFFSET_MOVED_EVENT = "OFFSET_MOVED_EVENT"
BENCHMARK_TOPIC = "BenchmarkTest"
CHECKPOINT_TOPIC = "CHECKPOINT_TOPIC"
TIMER_TOPIC = "rmq_sys_wheel_timer"
SYSTEM_PREFIX = "rmq_sys_"

NOT_SENDABLE = frozenset(
    {
        names.SCHEDULE_TOPIC,
        names.HALF_TOPIC,
        names.OP_HALF_TOPIC,
        CHECK_MAX_TIME_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_EVENT,
    }
)
_ALWAYS_SYSTEM = NOT_SENDABLE | {
    names.AUTO_CREATE_TOPIC,
    BENCHMARK_TOPIC,
    names.TRACE_TOPIC,
    CHECKPOINT_TOPIC,
}


def topic_name_problem(topic: str | None) -> str | None:
    """What is wrong with a topic's name, None when nothing is (broker.md §5.2)."""
    if not topic or topic.isspace():
        return "The specified topic is blank."
    if names.NAME_PATTERN.fullmatch(topic) is None:
        return "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"
    if len(topic) > MAX_NAME:
        return "The specified topic is longer than topic max length."
    return None


def group_name_problem(group: str | None) -> str | None:
    """What is wrong with a group's name, None when nothing is (broker.md §5.2)."""
    if not group or group.isspace():
        return "The specified group is blank."
    if names.NAME_PATTERN.fullmatch(group) is None:
        return "The specified group contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"
    if len(group) > MAX_GROUP_NAME:
        return f"The specified group is longer than group max length {MAX_GROUP_NAME}."
    return None


def system_topics(
    *,
    cluster: str,
    broker: str,
    auto_create: bool,
    default_queues: int,
    cluster_topic: bool = True,
    broker_topic: bool = True,
    trace_topic: str | None = None,
    revive_queues: int = 8,
    timer: bool = True,
) -> list[TopicConfig]:
    """The topics a broker has from the start (broker.md §5.3).

    Args:
        cluster: the cluster's name, which is also a topic: tools create topics through its route.
        broker: the broker's name, also a topic.
        auto_create: whether sending creates topics, from the template TBW102.
        default_queues: queues of that template.
        cluster_topic: whether the cluster's topic can be read and written.
        broker_topic: whether the broker's topic can be read and written.
        trace_topic: name of the trace topic, None without one.
        revive_queues: queues of POP's revive topic.
        timer: whether there is a timer wheel.
    """
    found = [TopicConfig(SELF_TEST_TOPIC, 1, 1)]
    if auto_create:
        found.append(TopicConfig(names.AUTO_CREATE_TOPIC, default_queues, default_queues, READ_WRITE | PERM_INHERIT))
    found += [
        TopicConfig(BENCHMARK_TOPIC, 1024, 1024),
        TopicConfig(cluster, perm=PERM_INHERIT | (READ_WRITE if cluster_topic else 0)),
        TopicConfig(broker, 1, 1, PERM_INHERIT | (READ_WRITE if broker_topic else 0)),
        TopicConfig(OFFSET_MOVED_EVENT, 1, 1),
        TopicConfig(names.SCHEDULE_TOPIC, SCHEDULE_QUEUES, SCHEDULE_QUEUES),
    ]
    if trace_topic is not None:
        found.append(TopicConfig(trace_topic, 1, 1))
    found += [
        TopicConfig(f"{cluster}_REPLY_TOPIC", 1, 1),
        TopicConfig(f"rmq_sys_REVIVE_LOG_{cluster}", revive_queues, revive_queues),
        TopicConfig(f"rmq_sys_SYNC_BROKER_MEMBER_{broker}", 1, 1, PERM_INHERIT),
        TopicConfig(names.HALF_TOPIC, 1, 1),
        TopicConfig(names.OP_HALF_TOPIC, 1, 1),
    ]
    if timer:
        found.append(TopicConfig(TIMER_TOPIC, 1, 1))
    return found


class TopicTable:
    """All topics of this broker.

    Args:
        system: the topics to start with; they are protected from tools.
        now_ms: stamp of the table's first version.
        light: every light queue (`%LMQ%…`) is a topic of one queue; such topics are not kept (store.md §7).

    Attributes:
        version: changes with every change of the table.
        listeners: called after each change with the names that changed.
    """

    def __init__(self, system: Iterable[TopicConfig] = (), now_ms: int = 0, *, light: bool = False) -> None:
        self._light = light
        self._topics: dict[str, TopicConfig] = {config.topic_name: config for config in system}
        self._system = _ALWAYS_SYSTEM | self._topics.keys()
        self.version = DataVersion(0, now_ms)
        self.listeners: list[Callable[[list[str]], None]] = []

    def __contains__(self, topic: str) -> bool:
        return topic in self._topics or self._is_light(topic)

    def _is_light(self, topic: str) -> bool:
        return self._light and topic.startswith(names.LMQ_PREFIX)

    def __len__(self) -> int:
        return len(self._topics)

    def get(self, topic: str) -> TopicConfig | None:
        """A topic's configuration, None when there is no such topic."""
        found = self._topics.get(topic)
        return TopicConfig(topic, 1, 1) if found is None and self._is_light(topic) else found

    def all(self) -> Mapping[str, TopicConfig]:
        """The whole table; not to be changed."""
        return self._topics

    def is_system(self, topic: str) -> bool:
        """Whether tools may neither create nor delete the topic."""
        return topic in self._system or topic.startswith(SYSTEM_PREFIX)

    def system_names(self) -> list[str]:
        """Names of the system topics."""
        return sorted(self._system)

    def load(self, topics: Mapping[str, TopicConfig], version: DataVersion) -> None:
        """Take over a stored table; what it holds wins over the topics there are from the start."""
        self._topics.update(topics)
        self.version = version

    def put(self, config: TopicConfig, now_ms: int) -> bool:
        """Create or replace a topic; False when it is already exactly so."""
        return bool(self.put_all([config], now_ms))

    def put_all(self, configs: Iterable[TopicConfig], now_ms: int) -> list[str]:
        """Create or replace several topics as one change; returns the names that changed."""
        changed = []
        for config in configs:
            if self._topics.get(config.topic_name) != config and not self._is_light(config.topic_name):
                self._topics[config.topic_name] = config
                changed.append(config.topic_name)
        if changed:
            self._changed(changed, now_ms)
        return changed

    def delete(self, topics: Iterable[str], now_ms: int) -> list[str]:
        """Remove topics as one change; returns those that were there."""
        gone = [topic for topic in topics if self._topics.pop(topic, None) is not None]
        if gone:
            self._changed(gone, now_ms)
        return gone

    def create_by_send(
        self,
        topic: str,
        template: str,
        queues: int,
        now_ms: int,
        *,
        auto_create: bool,
        sys_flag: int = 0,
    ) -> TopicConfig | None:
        """The topic a message was sent to, created from the template it names if need be (broker.md §5.4).

        Args:
            topic: where the message goes.
            template: topic to inherit from, normally TBW102.
            queues: how many queues the sender would like.
            now_ms: stamp of the change.
            auto_create: whether TBW102 may be inherited from.
            sys_flag: the new topic's flag.

        Returns:
            The topic, or None when it neither exists nor may be created.
        """
        found = self.get(topic)
        if found is not None:
            return found
        pattern = self._topics.get(template)
        if pattern is not None and template == names.AUTO_CREATE_TOPIC and not auto_create:
            pattern = self._topics[template] = pattern.with_perm(READ_WRITE)
        if pattern is not None and pattern.perm & PERM_INHERIT:
            count = max(min(queues, pattern.write_queue_nums), 0)
            found = TopicConfig(
                topic,
                count,
                count,
                pattern.perm & ~PERM_INHERIT,
                pattern.topic_filter_type,
                sys_flag,
            )
        elif topic.startswith(names.RETRY_PREFIX):
            found = TopicConfig(topic, 1, 1, READ_WRITE, topic_sys_flag=sys_flag)
        else:
            return None
        self.put(found, now_ms)
        return found

    def ensure(
        self,
        topic: str,
        queues: int,
        now_ms: int,
        *,
        perm: int = READ_WRITE,
        order: bool = False,
        sys_flag: int = 0,
    ) -> TopicConfig:
        """A topic the broker itself needs, created if it is not there (broker.md §5.5)."""
        found = self._topics.get(topic)
        if found is None:
            found = TopicConfig(topic, queues, queues, perm, topic_sys_flag=sys_flag, order=order)
            self.put(found, now_ms)
        elif sys_flag and found.topic_sys_flag & sys_flag != sys_flag:
            found = replace(found, topic_sys_flag=found.topic_sys_flag | sys_flag)
            self.put(found, now_ms)
        return found

    def touch(self, now_ms: int) -> None:
        """Make a new version although no topic changed, because what is told about them did."""
        self._changed([], now_ms)

    def _changed(self, topics: list[str], now_ms: int) -> None:
        self.version = self.version.next(now_ms)
        for listener in self.listeners:
            listener(topics)


class QueueKinds(Protocol):
    """What the store has to know about topics to make their queues."""

    batch_topics: set[str]


def follow_queue_types(topics: TopicTable, kinds: QueueKinds) -> None:
    """Tell the store which topics have queues of type BatchCQ, now and whenever topics change.

    A deleted topic keeps its kind: its queues are still to be deleted.
    """

    def tell(changed: Iterable[str]) -> None:
        for topic in changed:
            config = topics.get(topic)
            if config is not None and config.attributes.get("queue.type") == "BatchCQ":
                kinds.batch_topics.add(topic)
            elif config is not None:
                kinds.batch_topics.discard(topic)

    tell(list(topics.all()))
    topics.listeners.append(tell)
