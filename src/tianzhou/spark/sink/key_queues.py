"""The queue of a sharding key, which does not change while a broker is away.

Name servers omit the queues of a broker that is away. With fewer queues, later rows of a key would go to another queue.
So this module remembers the queues of a topic. If a broker has none of them in the current route, it is away, and the
rows of its queues must wait. If a broker has other queues of the topic, it has lost the missing queue for good.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from tianzhou.client.producer.selector import select_by_hash
from tianzhou.errors import RemotingError
from tianzhou.model import Message, MessageQueue
from tianzhou.spark.sink.options import WriteOptions

AGAIN_S: Final = 0.2
"""Seconds until rows whose broker is away are sent again."""


class QueueAway(RemotingError):
    """The queue of a sharding key is at a broker that is away. The row must wait for it."""


class KeyQueues:
    """The queue of each sharding key of a process's rows.

    Args:
        brokers: the brokers among which keys are divided; empty for all that were ever seen.
    """

    def __init__(self, brokers: frozenset[str] = frozenset()) -> None:
        self._brokers = brokers
        self._known: dict[str, list[MessageQueue]] = {}

    def knows(self, topic: str) -> bool:
        """Whether the topic had queues in an earlier route."""
        return topic in self._known

    def choose(self, message: Message, there: Sequence[MessageQueue]) -> MessageQueue:
        """Return the queue of a message's sharding key.

        Args:
            message: a message with a sharding key.
            there: the writable queues of its topic; empty while all its brokers are away.

        Raises:
            QueueAway: the queue, or a broker of the option, is away.
        """
        topic = message.topic
        serving = {queue.broker_name for queue in there}
        missing = sorted(self._brokers - serving)
        if missing:
            raise QueueAway(
                f"topic {topic} has no queue at {', '.join(missing)} now, which shardingBrokers names; start what is "
                "away, or leave it out there, which moves keys to other queues"
            )
        queues = [queue for queue in there if not self._brokers or queue.broker_name in self._brokers]
        known = () if self._brokers else self._known.get(topic, ())
        if away := [queue for queue in known if queue.broker_name not in serving]:
            queues = sorted({*queues, *away})
        self._known[topic] = queues
        chosen = select_by_hash(queues, message, None)
        if chosen.broker_name not in serving:
            raise QueueAway(
                f"{chosen} is the queue of the sharding key {message.sharding_key!r}, and broker {chosen.broker_name} "
                "is away: start it, or name the brokers that are left by shardingBrokers, which moves keys to others"
            )
        return chosen


def queues_of_keys(options: WriteOptions) -> KeyQueues:
    """Return the queues of sharding keys, shared by all tasks of this process: a later batch may find a broker away."""
    return _of_process(options.namesrv_addr, options.namespace, options.sharding_brokers)


@lru_cache(maxsize=64)
def _of_process(namesrv_addr: str, namespace: str | None, brokers: frozenset[str]) -> KeyQueues:
    return KeyQueues(brokers)
