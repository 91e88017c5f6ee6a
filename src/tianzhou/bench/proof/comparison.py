"""Comparison of acknowledged messages with the content of each replica and the messages that a group consumed. Pure.

A replica set is a broker name with all its brokers: master and slaves, or the members of a group. A message counts as
stored if a majority of one set has it, whichever broker is master now.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

MISSING: Final = ""
"""Replacement for a key at an offset where a queue has no message."""


class MessagePlace(NamedTuple):
    """The place of a message: a broker name, a queue and an offset."""

    broker: str
    queue_id: int
    offset: int

    def __str__(self) -> str:
        return f"{self.broker}:{self.queue_id}@{self.offset}"


@dataclass(slots=True)
class QueueReading:
    """Keys that were read from one queue at one replica.

    Attributes:
        begin: offset of the first key.
        keys: unique keys, one for each offset from `begin` on.
    """

    begin: int
    keys: list[str] = field(default_factory=list)

    @property
    def end(self) -> int:
        """The offset after the last key."""
        return self.begin + len(self.keys)

    def add(self, offset: int, key: str) -> None:
        """Record the message at an offset. Offsets before it without a message are missing."""
        at = offset - self.begin
        if at < 0:
            return
        self.keys.extend([MISSING] * (at + 1 - len(self.keys)))
        self.keys[at] = key

    def at(self, offset: int) -> str:
        """Return the key at an offset that was read; `MISSING` if there is none."""
        return self.keys[offset - self.begin]


@dataclass(slots=True)
class Reading:
    """The content of one replica.

    Attributes:
        broker: broker name of the replica.
        address: address of the replica.
        queues: the keys that were read, by queue.
        found: keys that were queried one by one, if the queues could not be read, each with its queues and offsets.
        whole: whether the replica was read completely. Otherwise it may contain more.
        why: the reason if it was not read completely.
    """

    broker: str
    address: str
    queues: dict[int, QueueReading] = field(default_factory=dict)
    found: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    whole: bool = False
    why: str = ""

    @property
    def messages(self) -> int:
        """Number of messages that were found on the replica."""
        in_queues = sum(len(queue.keys) - queue.keys.count(MISSING) for queue in self.queues.values())
        return in_queues + sum(map(len, self.found.values()))

    def places(self) -> Iterator[tuple[str, MessagePlace]]:
        """Return every key with its place."""
        for queue_id, queue in self.queues.items():
            for number, key in enumerate(queue.keys):
                if key:
                    yield key, MessagePlace(self.broker, queue_id, queue.begin + number)
        for key, places in self.found.items():
            for queue_id, offset in places:
                yield key, MessagePlace(self.broker, queue_id, offset)


@dataclass(frozen=True, slots=True)
class Missed:
    """An acknowledged message that is not on a majority.

    Attributes:
        key: the unique key.
        place: place of the acknowledgement; None if only the key is known.
        on: addresses of the replicas that have the message.
        copies: number of replicas of the set with most copies.
    """

    key: str
    place: MessagePlace | None
    on: tuple[str, ...]
    copies: int

    def __str__(self) -> str:
        where = f" acknowledged at {self.place}" if self.place else ""
        holders = ", ".join(self.on) or "none"
        return f"{self.key}{where}: on {len(self.on)} of {self.copies} replicas ({holders})"


@dataclass(frozen=True, slots=True)
class ReplicaDifference:
    """An offset at which replicas of a set have different messages.

    Attributes:
        place: the offset.
        keys: the key at each replica, by address; `MISSING` for no message.
    """

    place: MessagePlace
    keys: dict[str, str]

    def __str__(self) -> str:
        return f"{self.place}: " + ", ".join(f"{address} has {key or 'nothing'}" for address, key in self.keys.items())


@dataclass(frozen=True, slots=True)
class Behind:
    """A queue of which a replica lacks the last messages.

    Attributes:
        address: the replica.
        broker: broker name of the replica.
        queue_id: the queue.
        end: the offset after its last message at the replica.
        longest: the same at the replica with most messages.
    """

    address: str
    broker: str
    queue_id: int
    end: int
    longest: int

    def __str__(self) -> str:
        return f"{self.address}: {self.broker}:{self.queue_id} ends at {self.end}, elsewhere at {self.longest}"


@dataclass(frozen=True, slots=True)
class Repeated:
    """A message that occurs more than once.

    Attributes:
        key: the unique key.
        times: number of occurrences.
        places: the places; empty for consumed messages.
    """

    key: str
    times: int
    places: tuple[MessagePlace, ...] = ()

    def __str__(self) -> str:
        where = f": {', '.join(map(str, self.places))}" if self.places else ""
        return f"{self.key}: {self.times} times{where}"


@dataclass(frozen=True, slots=True)
class ProofVerdict:
    """The result of a comparison.

    Attributes:
        acknowledged: number of acknowledged messages.
        on_majority: number of acknowledged messages that a majority of a set has.
        consumed: number of acknowledged messages that were consumed.
        lost: messages that no majority has, whatever unread replicas may contain.
        unproven: messages that a majority has only if unread replicas have them.
        not_consumed: keys that the group did not receive.
        differing: offsets at which replicas have different messages.
        behind: queues of which a replica lacks the last messages.
        stored_twice: acknowledged messages at more than one place, as after a repeated send.
        consumed_twice: acknowledged messages that the group received more than once.
    """

    acknowledged: int
    on_majority: int
    consumed: int
    lost: tuple[Missed, ...] = ()
    unproven: tuple[Missed, ...] = ()
    not_consumed: tuple[str, ...] = ()
    differing: tuple[ReplicaDifference, ...] = ()
    behind: tuple[Behind, ...] = ()
    stored_twice: tuple[Repeated, ...] = ()
    consumed_twice: tuple[Repeated, ...] = ()

    @property
    def proven(self) -> bool:
        """Whether acknowledged = on a majority = consumed, and replicas agree at all offsets that several have."""
        return not (self.lost or self.unproven or self.not_consumed or self.differing)

    @property
    def settled(self) -> bool:
        """Whether waiting cannot change the result: it is proven, and every replica that was read has all messages."""
        return self.proven and not self.behind


def majority(copies: int) -> int:
    """Return the number of replicas that form a majority."""
    return copies // 2 + 1


def compare(
    acknowledged: Mapping[str, MessagePlace | None],
    readings: Sequence[Reading],
    copies: Mapping[str, int],
    consumed: Mapping[str, int],
) -> ProofVerdict:
    """Compare acknowledged messages with stored and consumed ones.

    Args:
        acknowledged: unique keys, each with the place of its acknowledgement, if known.
        readings: the content of every known replica, read or not.
        copies: number of replicas of each set, by broker name. At least the number of its readings counts.
        consumed: number of times that the group received each key.
    """
    sets: dict[str, list[Reading]] = defaultdict(list)
    for reading in readings:
        sets[reading.broker].append(reading)
    holders: dict[str, dict[str, set[str]]] = {name: defaultdict(set) for name in sets}
    places: dict[str, set[MessagePlace]] = defaultdict(set)
    for reading in readings:
        of_set = holders[reading.broker]
        for key, place in reading.places():
            if key in acknowledged:
                of_set[key].add(reading.address)
                places[key].add(place)
    sizes = {name: max(copies.get(name, 0), len(members)) for name, members in sets.items()}
    unread = {name: sizes[name] - sum(reading.whole for reading in members) for name, members in sets.items()}
    lost: list[Missed] = []
    unproven: list[Missed] = []
    for key, promised in acknowledged.items():
        best: tuple[str, ...] = ()
        size = max(sizes.values(), default=0)
        stored = possible = False
        for name, of_set in holders.items():
            on = of_set.get(key, ())
            stored = stored or len(on) >= majority(sizes[name])
            # A replica that was not read completely may have the message, unless it is already counted.
            hidden = unread[name] - sum(not one.whole and one.address in on for one in sets[name])
            possible = possible or len(on) + hidden >= majority(sizes[name])
            if len(on) > len(best):
                best, size = tuple(sorted(on)), sizes[name]
        if not stored:
            (unproven if possible else lost).append(Missed(key, promised, best, size))
    missed = [key for key in acknowledged if not consumed.get(key)]
    return ProofVerdict(
        acknowledged=len(acknowledged),
        on_majority=len(acknowledged) - len(lost) - len(unproven),
        consumed=len(acknowledged) - len(missed),
        lost=tuple(lost),
        unproven=tuple(unproven),
        not_consumed=tuple(missed),
        differing=tuple(_differing(sets)),
        behind=tuple(_behind(sets)),
        stored_twice=tuple(
            Repeated(key, len(found), tuple(sorted(found))) for key, found in sorted(places.items()) if len(found) > 1
        ),
        consumed_twice=tuple(
            Repeated(key, times) for key, times in sorted(consumed.items()) if times > 1 and key in acknowledged
        ),
    )


def _queues(members: Iterable[Reading]) -> Iterator[tuple[int, dict[str, QueueReading]]]:
    """Yield each queue of a set with its keys at each replica, by address."""
    members = list(members)
    for queue_id in sorted({queue_id for reading in members for queue_id in reading.queues}):
        yield queue_id, {one.address: one.queues[queue_id] for one in members if queue_id in one.queues}


def _differing(sets: Mapping[str, Sequence[Reading]]) -> Iterator[ReplicaDifference]:
    for name, members in sets.items():
        for queue_id, by_address in _queues(members):
            # Compare only offsets that all replicas have: one may have deleted old messages, another not yet copied new
            # ones.
            first = max(queue.begin for queue in by_address.values())
            end = min(queue.end for queue in by_address.values())
            for offset in range(first, end):
                keys = {address: queue.at(offset) for address, queue in by_address.items()}
                if len(set(keys.values())) > 1:
                    yield ReplicaDifference(MessagePlace(name, queue_id, offset), keys)


def _behind(sets: Mapping[str, Sequence[Reading]]) -> Iterator[Behind]:
    for name, members in sets.items():
        for queue_id, by_address in _queues(members):
            longest = max(queue.end for queue in by_address.values())
            for address, queue in by_address.items():
                if queue.end < longest:
                    yield Behind(address, name, queue_id, queue.end, longest)
