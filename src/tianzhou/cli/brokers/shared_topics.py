"""Topics that must exist on all brokers of one command, and the topics that a broker lacks. Pure.

A topic that a message created exists only on that message's broker, and a new broker lacks the topics of the others.
Each broker is asked to create a topic once, when the broker or the topic is new. So a topic that was deleted from some
brokers is not created again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tianzhou.model import TopicConfig, names

Missing = dict[str, list[TopicConfig]]
"""Topics to create, by broker."""


class SharedTopics:
    """The topics of each broker, from its registrations.

    Args:
        brokers: names of the brokers. Other brokers at the same name server are ignored.
    """

    def __init__(self, brokers: Iterable[str]) -> None:
        self._brokers = frozenset(brokers)
        self._known: dict[str, dict[str, TopicConfig]] = {}
        self._requested: dict[str, set[str]] = {}

    def registered(self, broker: str, topics: Mapping[str, TopicConfig]) -> Missing:
        """Record the registration of a broker with all its topics.

        Returns:
            The topics that brokers must create.
        """
        if broker not in self._brokers:
            return {}
        own = {name: config for name, config in topics.items() if self._is_shared(name)}
        before = self._known.get(broker)
        self._known[broker] = own
        others = {name: theirs for name, theirs in self._known.items() if name != broker}
        new = sorted(own.keys() - (before or {}).keys())
        missing = {name: [own[topic] for topic in new if topic not in theirs] for name, theirs in others.items()}
        if before is None:
            of_others = {topic: config for theirs in others.values() for topic, config in theirs.items()}
            missing[broker] = [of_others[topic] for topic in sorted(of_others.keys() - own.keys())]
        self._requested[broker] = self._requested.get(broker, set()) - own.keys()
        return {name: lacking for name, configs in missing.items() if (lacking := self._not_requested(name, configs))}

    def _not_requested(self, broker: str, configs: Iterable[TopicConfig]) -> list[TopicConfig]:
        before = self._requested.setdefault(broker, set())
        new = [config for config in configs if config.topic_name not in before]
        before.update(config.topic_name for config in new)
        return new

    def gone(self, broker: str) -> None:
        """Record that a broker has ended. When it registers again, it counts as new."""
        self._known.pop(broker, None)
        self._requested.pop(broker, None)

    def _is_shared(self, topic: str) -> bool:
        # Every broker creates topics of groups, system topics and the topic of its own name itself.
        return not (topic.startswith("%") or topic.lower().startswith(names.SYSTEM_PREFIX) or topic in self._brokers)
