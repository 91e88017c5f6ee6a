"""Topics exist on all brokers of one command: which of them a broker still lacks. Pure.

A topic that a message made exists where that message went, and a broker that is new has none of its neighbours'. Each
broker is to make a topic once, when it or the topic is new; so that nobody brings back what was deleted from some.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tianzhou.model import TopicConfig, names

Missing = dict[str, list[TopicConfig]]
"""Broker to the topics it is to make."""


class SharedTopics:
    """What each broker has, by its registrations.

    Args:
        brokers: their names. Others that come to the same name server are left alone.
    """

    def __init__(self, brokers: Iterable[str]) -> None:
        self._brokers = frozenset(brokers)
        self._known: dict[str, dict[str, TopicConfig]] = {}
        self._requested: dict[str, set[str]] = {}

    def registered(self, broker: str, topics: Mapping[str, TopicConfig]) -> Missing:
        """A broker has registered with all its topics.

        Returns:
            Who lacks what now.
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
        """A broker has ended; when it is back, it is new."""
        self._known.pop(broker, None)
        self._requested.pop(broker, None)

    def _is_shared(self, topic: str) -> bool:
        # Of groups, of the system and of its own name every broker makes its own, when it needs them.
        return not (topic.startswith("%") or topic.lower().startswith(names.SYSTEM_PREFIX) or topic in self._brokers)
