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
"""Chooses one of the writable queues for a message; the third argument is what the caller gave with it."""


class Rng(Protocol):
    """The part of `random.Random` that choices here need."""

    def randrange(self, start: int, /) -> int:
        """An integer from 0 up to, and without, `start`."""
        ...


class RoundRobin:
    """Takes the queues in turn, each topic with its own counter.

    Args:
        start: the first index; random, so that many producers do not march in step.

    Attributes:
        index: the last one that was taken; it only grows.
    """

    __slots__ = ("index",)

    def __init__(self, start: int) -> None:
        self.index = start - 1

    def next_index(self, count: int) -> int:
        """The next of `count` indices."""
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
        """The next queue, preferably not on a broker that has just failed.

        Args:
            queues: the writable queues, at least one.
            avoid_broker: the broker the last attempt failed on; it is taken only when there is no other.
            faults: what is known about slow brokers, when fault avoidance is on.
            now_ms: the present, for the faults and times.
            times: with `queue_selector="latency"`, mean times of brokers' answers: of the queues above, those of the
                fastest broker take turns.

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
    """Equal keys go to the same queue while the set of queues stays: RocketMQ's SelectMessageQueueByHash.

    Args:
        queues: the writable queues.
        message: the message; its `sharding_key` is used when `key` is None.
        key: anything; hashed as the Java string of its text, integers as Java's Integer or Long.

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
    # Java's % takes the sign of the dividend; Python's that of the divisor.
    return value % count if value >= 0 else -(-value % count)


def select_at_random(rng: Rng) -> QueueSelector:
    """A selector that takes any queue with equal chance: RocketMQ's SelectMessageQueueByRandom."""

    def select(queues: Sequence[MessageQueue], message: Message, key: Any) -> MessageQueue:
        return queues[rng.randrange(len(queues))]

    return select


def choose_queue(
    queues: Sequence[MessageQueue], message: Message, selector: QueueSelector | None, selector_arg: Any
) -> MessageQueue | None:
    """The queue a selector or the message's sharding key chooses; None without either.

    Raises:
        ClientError: the selector raised, or returned no queue.
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
