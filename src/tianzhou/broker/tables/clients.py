"""Who is connected: producer groups, consumer groups and their subscriptions (broker.md §15).

A connection is an opaque key here; what leaves the table as `Departure` or as a list of connections is acted upon
by the handlers.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from tianzhou.errors import FilterSyntaxError
from tianzhou.filter import parse_tags
from tianzhou.limits import BROUGHT_TEXT, GROUPS_OF_CLIENT, MEMBERS, MEMBERS_OF_GROUP, SUBSCRIPTIONS, Bounds
from tianzhou.model import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    MessageModel,
    SubscriptionData,
)

TAG = "TAG"
_BROUGHT = 40
"""What an entry takes besides its expression, in characters."""
_SHOWN = 10
"""Of more wishes than these nobody makes sense in a log."""


@dataclass(slots=True)
class Client:
    """One client on one connection.

    Attributes:
        connection: the connection's key.
        client_id: the id it gave itself.
        language: its language code.
        version: its version ordinal.
        seen_ms: wall-clock time of its last heartbeat, which tools are shown.
        heard_s: monotonic time of the same, by which silence is judged: clocks on walls are set.
    """

    connection: Hashable
    client_id: str
    language: int
    version: int
    seen_ms: int
    heard_s: float


class Subscription(NamedTuple):
    """A group's subscription to a topic, with the tag hashes the store compares (None: all)."""

    data: SubscriptionData
    codes: frozenset[int] | None


class Brought(NamedTuple):
    """What a pull that brought its own subscription asked for, and when it last did."""

    expression: str
    kind: str
    at_ms: int


Wishes = dict[str, tuple[str, str]]
"""What one member wants: topic to expression and its type."""


class Departure(NamedTuple):
    """A client that is no longer in a consumer group."""

    group: str
    client_id: str


@dataclass(slots=True)
class ConsumerGroup:
    """The members of a consumer group and what they said last.

    Nothing here looks through the members when one of them speaks: there may be thousands.

    Attributes:
        clients: the members by connection; a client that reconnected may be here on two of them.
        wishes: what each member subscribes; all have to subscribe the same.
        conflicts: how often members were found to subscribe different things.
        news: whether members subscribe something that others do not and that has not been shown yet.
        ids_body: what clients are told who ask for the members; None when it has to be made anew.
    """

    name: str
    consume_type: ConsumeType
    message_model: MessageModel
    consume_from_where: ConsumeFromWhere
    clients: dict[Hashable, Client] = field(default_factory=dict)
    subscriptions: dict[str, Subscription] = field(default_factory=dict)
    wishes: dict[Hashable, Wishes] = field(default_factory=dict)
    conflicts: int = 0
    news: bool = False
    ids_body: bytes | None = None
    _by_id: dict[str, dict[Hashable, Client]] = field(default_factory=dict)
    _wanting: dict[frozenset[tuple[str, tuple[str, str]]], dict[Hashable, None]] = field(default_factory=dict)

    def take(self, client: Client) -> bool:
        """Note a member, or that it is still there; whether it is new."""
        former = self.clients.get(client.connection)
        if former is not None and former.client_id != client.client_id:
            self._forget_id(former)
        self.clients[client.connection] = client
        of_id = self._by_id.get(client.client_id)
        if of_id is None:
            of_id = self._by_id[client.client_id] = {}
            self.ids_body = None
        of_id[client.connection] = client
        return former is None

    def drop(self, connection: Hashable) -> Client | None:
        """A member leaves; None when it was not there."""
        client = self.clients.pop(connection, None)
        if client is not None:
            self._forget_id(client)
        former = self.wishes.pop(connection, None)
        if former is not None:
            self._forget_wishes(connection, former)
        return client

    def _forget_id(self, client: Client) -> None:
        of_id = self._by_id[client.client_id]
        del of_id[client.connection]
        if not of_id:
            del self._by_id[client.client_id]
            self.ids_body = None

    def _forget_wishes(self, connection: Hashable, wishes: Wishes) -> None:
        kind = frozenset(wishes.items())
        del self._wanting[kind][connection]
        if not self._wanting[kind]:
            del self._wanting[kind]

    def wants(self, connection: Hashable, wishes: Wishes) -> None:
        """Note what a member subscribes, and whether that is what all others do."""
        former = self.wishes.get(connection)
        if former == wishes:
            return
        if former is not None:
            self._forget_wishes(connection, former)
        self.wishes[connection] = wishes
        kind = frozenset(wishes.items())
        same = self._wanting.setdefault(kind, {})
        same[connection] = None
        if len(self._wanting) > 1:
            self.conflicts += 1
            self.news |= len(same) == 1

    def differing(self) -> list[tuple[Client, Wishes]]:
        """What each member subscribes when they do not all subscribe the same; empty when they do."""
        if len(self._wanting) <= 1:
            return []
        return [(self.clients[key], one) for key, one in self.wishes.items() if key in self.clients]

    def examples(self) -> dict[str, Wishes]:
        """As `differing`, by client id, with one member for each of the first few things that are subscribed."""
        some = [next(iter(members)) for members in islice(self._wanting.values(), _SHOWN)]
        return {self.clients[key].client_id: self.wishes[key] for key in some if key in self.clients}

    def client_ids(self) -> list[str]:
        """Ids of the members, each once: a client that reconnected may be here on two connections."""
        return list(self._by_id)

    def find(self, client_id: str) -> Client | None:
        """A member by its id."""
        return next(iter(self._by_id.get(client_id, {}).values()), None)


class ClientTable:
    """All connected producers and consumers, and subscriptions that pulls brought along.

    Args:
        bounds: how many of them there may be.

    Attributes:
        members: how many members all groups have together; who is in two groups counts twice.
        wished: how long all they subscribe is together, in characters.
    """

    def __init__(self, bounds: Bounds | None = None) -> None:
        self._bounds = bounds or Bounds()
        self.members = self.wished = 0
        self._brought: dict[str, dict[str, Brought]] = {}
        self._brought_size = 0
        self.consumers: dict[str, ConsumerGroup] = {}
        self.producers: dict[str, dict[Hashable, Client]] = {}
        self._producers_by_id: dict[str, Client] = {}
        # In which groups each connection is, so that one that ends is not looked for in all of them.
        self._produces: dict[Hashable, set[str]] = {}
        self._consumes: dict[Hashable, set[str]] = {}

    def add_producer(self, group: str, client: Client) -> None:
        """Note a producer, or that it is still there.

        Raises:
            LimitExceeded: there are too many members.
        """
        clients = self.producers.get(group, {})
        former = clients.get(client.connection)
        if former is None:
            self._check_room(group, len(clients), client)
            self.members += 1
        elif former.client_id != client.client_id:
            self._forget_producer(former)
        self.producers.setdefault(group, clients)[client.connection] = client
        self._produces.setdefault(client.connection, set()).add(group)
        self._producers_by_id[client.client_id] = client

    def _check_room(self, group: str, members: int, client: Client) -> None:
        key = client.connection
        groups = len(self._produces.get(key, ())) + len(self._consumes.get(key, ()))
        self._bounds.check(MEMBERS_OF_GROUP, members + 1, f"group {group}")
        self._bounds.check(GROUPS_OF_CLIENT, groups + 1, f"connection of client {client.client_id}")
        self._bounds.check(MEMBERS, self.members + 1)

    def _forget_producer(self, client: Client) -> None:
        found = self._producers_by_id.get(client.client_id)
        if found is not None and found.connection is client.connection:
            del self._producers_by_id[client.client_id]

    def add_consumer(self, said: ConsumerData, client: Client, *, keep_subscriptions: bool = False) -> bool:
        """Note a consumer and what it says of its group.

        Args:
            said: the group as this heartbeat announces it; the last heartbeat's word counts for the whole group.
            client: the member.
            keep_subscriptions: the heartbeat left its subscriptions out because they did not change.

        Returns:
            Whether the group's members should be told: a member is new, or topics came or went.

        Raises:
            LimitExceeded: there are too many members.
        """
        group = self.consumers.get(said.group_name)
        wishes = None if keep_subscriptions else _wishes(said.subscription_data_set)
        more = (
            0 if wishes is None else _size(wishes) - _size({} if group is None else group.wishes.get(client.connection))
        )
        if more > 0:
            self._bounds.check(SUBSCRIPTIONS, self.wished + more, f"subscriptions of group {said.group_name}")
        if group is None or client.connection not in group.clients:
            self._check_room(said.group_name, 0 if group is None else len(group.clients), client)
            self.members += 1
        if group is None:
            group = self.consumers[said.group_name] = ConsumerGroup(
                said.group_name, said.consume_type, said.message_model, said.consume_from_where
            )
        group.consume_type = said.consume_type
        group.message_model = said.message_model
        group.consume_from_where = said.consume_from_where
        changed = group.take(client)
        self._consumes.setdefault(client.connection, set()).add(said.group_name)
        if wishes is not None:
            self.wished += more
            changed |= _subscribe(group, said.subscription_data_set)
            group.wants(client.connection, wishes)
        return changed

    def remove_producer(self, group: str, connection: Hashable) -> None:
        """A producer said that it leaves."""
        clients = self.producers.get(group)
        if clients is None:
            return
        client = clients.pop(connection, None)
        if not clients:
            del self.producers[group]
        _leave(self._produces, connection, group)
        if client is not None:
            self.members -= 1
            if connection not in self._produces:
                self._forget_producer(client)

    def remove_consumer(self, group: str, connection: Hashable) -> Departure | None:
        """A consumer said that it leaves; None when it was not there."""
        found = self.consumers.get(group)
        if found is not None and connection in found.wishes:
            self.wished -= _size(found.wishes[connection])
        client = None if found is None else found.drop(connection)
        if found is None or client is None:
            return None
        self.members -= 1
        _leave(self._consumes, connection, group)
        if not found.clients:
            del self.consumers[group]
        return Departure(group, client.client_id)

    def remove_connection(self, connection: Hashable) -> list[Departure]:
        """A connection is gone; returns the consumer groups it was in."""
        for group in list(self._produces.get(connection, ())):
            self.remove_producer(group, connection)
        left = [self.remove_consumer(group, connection) for group in sorted(self._consumes.get(connection, ()))]
        return [departure for departure in left if departure is not None]

    def silent(self, now_s: float, limit_s: float) -> set[Hashable]:
        """Connections from which no heartbeat came for longer than the limit; times are monotonic."""
        before = now_s - limit_s
        quiet = {
            one.connection
            for group in self.consumers.values()
            for one in group.clients.values()
            if one.heard_s < before
        }
        quiet |= {one.connection for group in self.producers.values() for one in group.values() if one.heard_s < before}
        # In another of its groups it may have been heard of since.
        return {connection for connection in quiet if self._heard_s(connection) < before}

    def _heard_s(self, connection: Hashable) -> float:
        consumes = (self.consumers[group].clients for group in self._consumes.get(connection, ()))
        produces = (self.producers[group] for group in self._produces.get(connection, ()))
        return max(clients[connection].heard_s for clients in (*consumes, *produces))

    def pulled_by(self, group: str, topic: str, expression: str, kind: str, now_ms: int) -> None:
        """Note the subscription that a pull brought along; tools are shown it when no heartbeat tells of another."""
        topics = self._brought.get(group)
        former = None if topics is None else topics.get(topic)
        if former is None or former.expression != expression:
            size = self._brought_size + _BROUGHT + len(expression)
            size -= 0 if former is None else _BROUGHT + len(former.expression)
            if not self._bounds.allows(BROUGHT_TEXT, size):
                return
            self._brought_size = size
        if topics is None:
            topics = self._brought[group] = {}
        topics[topic] = Brought(expression, kind, now_ms)

    def forget_pulls(self, before_ms: int) -> None:
        """Forget what pulls before a time brought along."""
        for group, topics in list(self._brought.items()):
            for topic in [topic for topic, brought in topics.items() if brought.at_ms < before_ms]:
                self._brought_size -= _BROUGHT + len(topics.pop(topic).expression)
            if not topics:
                del self._brought[group]

    def subscription(self, group: str, topic: str) -> Subscription | None:
        """What a group subscribes in a topic, by its heartbeats or else by pulls of the last ten minutes."""
        online = self.consumers.get(group)
        found = None if online is None else online.subscriptions.get(topic)
        brought = self._brought.get(group, {}).get(topic)
        if found is not None or brought is None:
            return found
        data = SubscriptionData(topic, brought.expression, expression_type=brought.kind, sub_version=brought.at_ms)
        if brought.kind == TAG:
            tags = parse_tags(brought.expression)
            data.tags_set, data.code_set = set(tags.tags), set(tags.codes or ())
        return Subscription(data, _codes(data))

    def leaves_out(self, group: str, topic: str) -> bool:
        """Whether a group that is online subscribes other topics, but not this one."""
        online = self.consumers.get(group)
        return online is not None and bool(online.subscriptions) and self.subscription(group, topic) is None

    def conflicts(self, group: str) -> int:
        """How often members of a consumer group were found to subscribe different things."""
        found = self.consumers.get(group)
        return 0 if found is None else found.conflicts

    def connections(self, group: str) -> list[Hashable]:
        """Connections of a consumer group's members."""
        found = self.consumers.get(group)
        return [] if found is None else list(found.clients)

    def find_consumer(self, group: str, client_id: str) -> Client | None:
        """A member of a consumer group by its id."""
        found = self.consumers.get(group)
        return None if found is None else found.find(client_id)

    def find_producer(self, client_id: str) -> Client | None:
        """The producing client of an id, on the connection it spoke on last."""
        return self._producers_by_id.get(client_id)

    def is_member(self, group: str, client_id: str) -> bool:
        """Whether a consumer group has a member of this id."""
        return self.find_consumer(group, client_id) is not None

    def subscribers(self, topic: str) -> list[str]:
        """Consumer groups online that subscribe the topic."""
        return [name for name, group in self.consumers.items() if topic in group.subscriptions]


def _wishes(said: Iterable[SubscriptionData]) -> Wishes:
    return {one.topic: (one.sub_string, one.expression_type or TAG) for one in said}


def _size(wishes: Wishes | None) -> int:
    return 0 if wishes is None else sum(_BROUGHT + len(topic) + len(text) for topic, (text, _) in wishes.items())


def _leave(groups: dict[Hashable, set[str]], connection: Hashable, group: str) -> None:
    of_connection = groups.get(connection)
    if of_connection is not None:
        of_connection.discard(group)
        if not of_connection:
            del groups[connection]


def _subscribe(group: ConsumerGroup, said: Iterable[SubscriptionData]) -> bool:
    changed = False
    topics = set()
    for data in said:
        topics.add(data.topic)
        known = group.subscriptions.get(data.topic)
        if known is None:
            changed = True
        elif data.sub_version <= known.data.sub_version:
            continue
        group.subscriptions[data.topic] = Subscription(data, _codes(data))
    gone = [topic for topic in group.subscriptions if topic not in topics]
    for topic in gone:
        del group.subscriptions[topic]
    return changed or bool(gone)


def _codes(data: SubscriptionData) -> frozenset[int] | None:
    if data.expression_type not in (TAG, "", None) or data.class_filter_mode:
        return None
    try:
        return parse_tags(data.sub_string).codes
    except FilterSyntaxError:
        # Only separators: the client's own parser refuses this, so trust the hashes it sent, if any.
        return frozenset(data.code_set) or None
