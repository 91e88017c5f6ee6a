"""The topic table: existing topics and the creation of new ones (broker.md §5)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Protocol

from tianzhou.limits import QUEUES, QUEUES_OF_TOPIC, TOPICS, Bounds
from tianzhou.model import DataVersion, TopicConfig, names
from tianzhou.model.name_rules import light_queue_problem
from tianzhou.model.topic import PERM_INHERIT, PERM_READ, PERM_WRITE

READ_WRITE = PERM_READ | PERM_WRITE
SCHEDULE_QUEUES = 18
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
        names.CHECK_MAX_TIME_TOPIC,
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
    """Return the topics that a broker has from the start (broker.md §5.3).

    Args:
        cluster: the cluster's name, which is also a topic: tools create topics through its route.
        broker: the broker's name, also a topic.
        auto_create: whether sends create topics from the template TBW102.
        default_queues: number of queues of that template.
        cluster_topic: whether the cluster's topic can be read and written.
        broker_topic: whether the broker's topic can be read and written.
        trace_topic: name of the trace topic, None without one.
        revive_queues: number of queues of POP's revive topic.
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


class BrokerTopicTable:
    """All topics of this broker.

    Args:
        system: the topics to start with; they are protected from tools.
        now_ms: stamp of the table's first version.
        light: whether each light queue (`%LMQ%…`) is a topic of one queue; such topics are not stored (store.md §7).
        bounds: limits of topics and queues.

    Attributes:
        version: changes with every change of the table.
        listeners: callbacks with the changed names after each change.
        queues: number of queues of all topics.
    """

    def __init__(
        self,
        system: Iterable[TopicConfig] = (),
        now_ms: int = 0,
        *,
        light: bool = False,
        bounds: Bounds | None = None,
    ) -> None:
        self._light = light
        self._bounds = bounds or Bounds()
        self._topics: dict[str, TopicConfig] = {config.topic_name: config for config in system}
        self.queues = sum(map(_queues, self._topics.values()))
        self._system = _ALWAYS_SYSTEM | self._topics.keys()
        self.version = DataVersion(0, now_ms)
        self.listeners: list[Callable[[list[str]], None]] = []

    def __contains__(self, topic: str) -> bool:
        return topic in self._topics or self._is_light(topic)

    def _is_light(self, topic: str) -> bool:
        return self._light and topic.startswith(names.LMQ_PREFIX) and light_queue_problem(topic) is None

    def __len__(self) -> int:
        return len(self._topics)

    def get(self, topic: str) -> TopicConfig | None:
        """Return a topic's configuration, None when there is no such topic."""
        found = self._topics.get(topic)
        return TopicConfig(topic, 1, 1) if found is None and self._is_light(topic) else found

    def all(self) -> Mapping[str, TopicConfig]:
        """Return the complete table; read-only."""
        return self._topics

    def is_system(self, topic: str) -> bool:
        """Whether tools may neither create nor delete the topic."""
        return topic in self._system or topic.startswith(SYSTEM_PREFIX)

    def system_names(self) -> list[str]:
        """Return the names of the system topics."""
        return sorted(self._system)

    def load(self, topics: Mapping[str, TopicConfig], version: DataVersion) -> list[str]:
        """Load a stored table; its entries replace those that the table has from the start.

        Returns:
            Topics that had too many queues and are cut to the limit.
        """
        most = max(QUEUES_OF_TOPIC.default, self._bounds.most(QUEUES_OF_TOPIC))
        cut = [name for name, config in topics.items() if _queues(config) > most]
        self._topics.update(topics)
        for name in cut:
            config = self._topics[name]
            self._topics[name] = replace(
                config,
                read_queue_nums=min(config.read_queue_nums, most),
                write_queue_nums=min(config.write_queue_nums, most),
            )
        self.queues = sum(map(_queues, self._topics.values()))
        self.version = version
        return cut

    def put(self, config: TopicConfig, now_ms: int) -> bool:
        """Create or replace a topic; return False when it has this configuration already.

        Raises:
            LimitExceeded: there would be too many topics or queues.
        """
        return bool(self.put_all([config], now_ms))

    def put_all(self, configs: Iterable[TopicConfig], now_ms: int, *, bounded: bool = True) -> list[str]:
        """Create or replace several topics as one change; return the changed names.

        Args:
            configs: the topics.
            now_ms: stamp of the change.
            bounded: whether the limits apply; they do not apply to topics that the leader of the group has accepted.

        Raises:
            LimitExceeded: there would be too many topics or queues; none of them was changed.
        """
        fresh = {
            config.topic_name: config
            for config in configs
            if self._topics.get(config.topic_name) != config and not self._is_light(config.topic_name)
        }
        if bounded:
            self._check_room(fresh)
        return self._take(fresh, now_ms)

    def _take(self, fresh: Mapping[str, TopicConfig], now_ms: int) -> list[str]:
        changed = list(fresh)
        for name, config in fresh.items():
            self.queues += _queues(config) - _queues(self._topics.get(name))
            self._topics[name] = config
        if changed:
            self._changed(changed, now_ms)
        return changed

    def _check_room(self, fresh: Mapping[str, TopicConfig]) -> None:
        # System topics are not counted, so the broker can create its own topics beyond the limit. A change that shrinks
        # a topic is always allowed.
        new = sum(name not in self._topics and name not in self._system for name in fresh)
        more = sum(
            _queues(config) - _queues(self._topics.get(name))
            for name, config in fresh.items()
            if name not in self._system
        )
        if new:
            self._bounds.check(TOPICS, len(self._topics) + new, _where(fresh))
        if more > 0:
            self._bounds.check(QUEUES, self.queues + more, _where(fresh))

    def delete(self, topics: Iterable[str], now_ms: int) -> list[str]:
        """Remove topics as one change; return the topics that existed."""
        gone = [topic for topic in dict.fromkeys(topics) if topic in self._topics]
        for topic in gone:
            self.queues -= _queues(self._topics.pop(topic))
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
        """Return the topic of a send; create it from the named template when it does not exist (broker.md §5.4).

        Args:
            topic: the topic's name.
            template: topic to inherit from, normally TBW102.
            queues: number of queues that the sender requests.
            now_ms: stamp of the change.
            auto_create: whether topics may inherit from TBW102.
            sys_flag: the new topic's flag.

        Returns:
            The topic, or None when it neither exists nor may be created.

        Raises:
            LimitExceeded: there are too many topics or queues.
        """
        found = self.get(topic)
        if found is not None:
            return found
        pattern = self._topics.get(template)
        if pattern is not None and template == names.AUTO_CREATE_TOPIC and not auto_create:
            pattern = self._topics[template] = replace(pattern, perm=READ_WRITE)
        if pattern is not None and pattern.perm & PERM_INHERIT:
            count = max(min(queues, pattern.write_queue_nums, self._bounds.most(QUEUES_OF_TOPIC)), 0)
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
        bounded: bool = True,
    ) -> TopicConfig:
        """Return a topic that the broker itself needs; create it when it does not exist (broker.md §5.5).

        Args:
            topic: its name.
            queues: number of queues of a new topic.
            now_ms: stamp of the change.
            perm: its permission.
            order: whether the topic is ordered.
            sys_flag: bits that the topic's flag must have.
            bounded: whether the limits apply; they do not apply where an acknowledged message would be lost.

        Raises:
            LimitExceeded: there are too many topics or queues.
        """
        found = self._topics.get(topic)
        if found is None:
            queues = min(queues, self._bounds.most(QUEUES_OF_TOPIC))
            found = TopicConfig(topic, queues, queues, perm, topic_sys_flag=sys_flag, order=order)
            if bounded:
                self._check_room({topic: found})
            self._take({topic: found}, now_ms)
        elif sys_flag and found.topic_sys_flag & sys_flag != sys_flag:
            found = replace(found, topic_sys_flag=found.topic_sys_flag | sys_flag)
            self.put(found, now_ms)
        return found

    def widen(self, topic: str, queues: int, now_ms: int) -> bool:
        """Give a topic at least this many read and write queues; return whether it had fewer.

        A topic without write permission retains its number of write queues. A missing topic is not created.

        Args:
            topic: its name.
            queues: minimum number of read queues and of write queues.
            now_ms: stamp of the change.

        Raises:
            LimitExceeded: there would be too many queues.
        """
        found = self._topics.get(topic)
        if found is None or found.read_queue_nums >= queues:
            return False
        write_queues = max(found.write_queue_nums, queues) if found.writable else found.write_queue_nums
        return self.put(replace(found, read_queue_nums=queues, write_queue_nums=write_queues), now_ms)

    def touch(self, now_ms: int) -> None:
        """Advance the version although no topic changed, because a registered property of all topics changed."""
        self._changed([], now_ms)

    def _changed(self, topics: list[str], now_ms: int) -> None:
        self.version = self.version.next(now_ms)
        for listener in self.listeners:
            listener(topics)


def _queues(config: TopicConfig | None) -> int:
    return 0 if config is None else max(config.read_queue_nums, config.write_queue_nums, 0)


def _where(topics: Iterable[str]) -> str:
    first, *more = topics
    return f"topic {first}" + (f" and {len(more)} more" if more else "")


class QueueKinds(Protocol):
    """Properties of topics that decide the type of the store's queues."""

    batch_topics: set[str]


def follow_queue_types(topics: BrokerTopicTable, kinds: QueueKinds) -> None:
    """Pass the topics with queues of type BatchCQ to the store, now and after each change of topics.

    A deleted topic stays in the set, because its queues are deleted later.
    """

    def follow(changed: Iterable[str]) -> None:
        for topic in changed:
            config = topics.get(topic)
            if config is not None and config.attributes.get("queue.type") == "BatchCQ":
                kinds.batch_topics.add(topic)
            elif config is not None:
                kinds.batch_topics.discard(topic)

    follow(list(topics.all()))
    topics.listeners.append(follow)
