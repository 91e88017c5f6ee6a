"""The choice of a message's queue (client.md §5.4, §5.5). Pure: randomness is an argument."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from tianzhou.client.producer.answer_times import AnswerTimes
from tianzhou.client.producer.latency_faults import LatencyFaults
from tianzhou.errors import ClientError
from tianzhou.model import Message, MessageQueue
from tianzhou.remoting.callbacks import failure_of
from tianzhou.wire.hashing import java_hash

QueueSelector = Callable[[Sequence[MessageQueue], Message, Any], MessageQueue]
"""Function that chooses a queue for a message. Its third argument is the caller's `selector_arg`."""


class Rng(Protocol):
    """The part of `random.Random` that selectors need."""

    def randrange(self, start: int, /) -> int:
        """Return an integer from 0 up to, and without, `start`."""
        ...


class RoundRobin:
    """Round robin over queues; each topic has its own counter.

    Args:
        start: the first index; random, so that many producers do not use the same queues at the same time.

    Attributes:
        index: the last used index; it only grows.
    """

    __slots__ = ("index",)

    def __init__(self, start: int) -> None:
        self.index = start - 1

    def next_index(self, count: int) -> int:
        """Return the next of `count` indices."""
        self.index = index = self.index + 1
        return index % count

    def choose(
        self,
        queues: Sequence[MessageQueue],
        avoid_broker: str | None = None,
        faults: LatencyFaults | None = None,
        now_ms: float = 0,
        times: AnswerTimes | None = None,
    ) -> MessageQueue:
        """Return the next queue, if possible not on a broker that has just failed.

        Args:
            queues: the writable queues, at least one.
            avoid_broker: the broker of the last failed attempt; it is chosen only when there is no other.
            faults: known faults of brokers, when fault avoidance is enabled.
            now_ms: present time, for the faults and times.
            times: with `queue_selector="latency"`, mean answer times of brokers. The suitable queues of the fastest
                broker take turns.

        Raises:
            ClientError: there is no queue.
        """
        count = len(queues)
        if not count:
            raise ClientError("the topic has no writable queue; check its permission and its brokers")
        start = self.next_index(count)
        if avoid_broker is None and times is None and (faults is None or not faults.enabled):
            return queues[start]
        ring = [queues[(start + step) % count] for step in range(count)]
        others = [q for q in ring if q.broker_name != avoid_broker]
        if faults is not None and faults.enabled:
            fit = [q for q in others if faults.is_available(q.broker_name, now_ms)]
            fit = fit or [q for q in others if faults.is_reachable(q.broker_name)]
            others = fit or others
        others = others or ring
        if times is None:
            return others[0]
        fastest = times.choose((q.broker_name for q in others), now_ms)
        mine = [q for q in queues if q.broker_name == fastest]
        return mine[self.index % len(mine)]


def select_by_hash(queues: Sequence[MessageQueue], message: Message, key: Any) -> MessageQueue:
    """Return the queue for the hash of a key: RocketMQ's SelectMessageQueueByHash.

    Equal keys go to the same queue while the set of queues does not change.

    Args:
        queues: the writable queues.
        message: the message; its `sharding_key` is used when `key` is None.
        key: any value; the hash is that of its text as a Java string, for integers that of Java's Integer or Long.

    Raises:
        ClientError: there is neither a key nor a sharding key.
    """
    chosen = message.sharding_key if key is None else key
    if chosen is None:
        raise ClientError("a hash selector needs a key: pass selector_arg=… or set the message's sharding_key")
    value = _java_int_hash(chosen) if isinstance(chosen, int) else java_hash(str(chosen))
    return queues[abs(_java_remainder(value, len(queues)))]


def _java_int_hash(number: int) -> int:
    if -(2**31) <= number < 2**31:
        return number
    folded = (number ^ (number >> 32)) & 0xFFFFFFFF
    return folded - 2**32 if folded >= 2**31 else folded


def _java_remainder(value: int, count: int) -> int:
    # Java's % has the sign of the dividend, Python's that of the divisor.
    return value % count if value >= 0 else -(-value % count)


def select_at_random(rng: Rng) -> QueueSelector:
    """Return a selector that chooses all queues with equal probability: RocketMQ's SelectMessageQueueByRandom."""

    def select(queues: Sequence[MessageQueue], message: Message, key: Any) -> MessageQueue:
        return queues[rng.randrange(len(queues))]

    return select


def choose_queue(
    queues: Sequence[MessageQueue], message: Message, selector: QueueSelector | None, selector_arg: Any
) -> MessageQueue | None:
    """Return the queue for a selector or the message's sharding key; None without both.

    Raises:
        ClientError: the selector raised an error, or returned no queue.
    """
    if selector is None:
        if message.sharding_key is None:
            return None
        selector = select_by_hash
    try:
        queue = selector(queues, message, selector_arg)
    except BaseException as error:  # noqa: BLE001 - `SystemExit` of a selector must not end the event loop
        failure = failure_of(error)
        raise ClientError(
            f"the queue selector failed for a message of topic {message.topic}: {type(failure).__name__}: {failure}; "
            "it is called with the list of queues, the message and selector_arg"
        ) from failure
    if not isinstance(queue, MessageQueue):
        raise ClientError(f"the queue selector returned {queue!r}; it has to return one of the queues it was given")
    return queue
