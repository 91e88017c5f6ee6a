"""Table of connected clients: producer groups, consumer groups and their subscriptions (broker.md §15).

A connection is an opaque key here; handlers process returned departures and connections.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, KeysView
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, NamedTuple

from tianzhou.errors import BrokerError, FilterSyntaxError
from tianzhou.escaping import shown
from tianzhou.filter import parse_tags
from tianzhou.limits import GROUPS_OF_CLIENT, MEMBERS, MEMBERS_OF_GROUP, PULLED_TEXT, SUBSCRIPTIONS, Bounds
from tianzhou.model import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    MessageModel,
    SubscriptionData,
)
from tianzhou.wire.codes import ResponseCode

TAG = "TAG"
_ENTRY_OVERHEAD = 100
"""Characters that an entry counts in addition to its texts."""
MAX_EXAMPLES = 10
"""Maximum differing subscriptions that a log line shows."""


@dataclass(slots=True)
class RegisteredClient:
    """One client on one connection.

    Attributes:
        connection: key of the connection.
        client_id: its id.
        language: its language code.
        version: its version ordinal.
        seen_ms: wall-clock time of its last heartbeat, for tools.
        last_heartbeat_s: monotonic time of the last heartbeat, for timeouts.
        account: account of its last heartbeat; empty without access control, and for peers that need none.
    """

    connection: Hashable
    client_id: str
    language: int
    version: int
    seen_ms: int
    last_heartbeat_s: float
    account: str = ""


class Subscription(NamedTuple):
    """A group's subscription to a topic, with the tag hashes the store compares (None: all)."""

    data: SubscriptionData
    codes: frozenset[int] | None


NOTED_MS: Final = 1000
"""Minimum milliseconds between two notes of pulls with the same subscription."""


class PulledSubscription(NamedTuple):
    """Subscription of a pull, and the time of the last one."""

    expression: str
    kind: str
    at_ms: int


MemberSubscriptions = dict[str, tuple[str, str]]
"""Subscriptions of one member: topic to expression and its type."""


class Departure(NamedTuple):
    """A client that left a consumer group."""

    group: str
    client_id: str


@dataclass(slots=True)
class ConsumerGroup:
    """Members of a consumer group and their last heartbeats.

    No heartbeat iterates over all members, because there may be thousands.

    Attributes:
        clients: members by connection; a client that reconnected may have two.
        subscribed: subscriptions of each member; all should be the same, and equal ones are one object.
        conflicts: number of heartbeats in which members had different subscriptions.
        new_conflict: whether a differing subscription has not been logged yet.
        ids_body: encoded reply to requests for the member ids; None after a change.
    """

    name: str
    consume_type: ConsumeType
    message_model: MessageModel
    consume_from_where: ConsumeFromWhere
    clients: dict[Hashable, RegisteredClient] = field(default_factory=dict)
    subscriptions: dict[str, Subscription] = field(default_factory=dict)
    subscribed: dict[Hashable, MemberSubscriptions] = field(default_factory=dict)
    conflicts: int = 0
    new_conflict: bool = False
    ids_body: bytes | None = None
    _by_id: dict[str, dict[Hashable, RegisteredClient]] = field(default_factory=dict)
    _subscribers: dict[frozenset[tuple[str, tuple[str, str]]], dict[Hashable, None]] = field(default_factory=dict)

    def add(self, client: RegisteredClient) -> bool:
        """Add or refresh a member; return whether it is new."""
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

    def remove(self, connection: Hashable) -> RegisteredClient | None:
        """Remove a member and return it; None when the connection is no member."""
        client = self.clients.pop(connection, None)
        if client is not None:
            self._forget_id(client)
        former = self.subscribed.pop(connection, None)
        if former is not None:
            self._forget_subscriptions(connection, former)
        return client

    def _forget_id(self, client: RegisteredClient) -> None:
        of_id = self._by_id[client.client_id]
        del of_id[client.connection]
        if not of_id:
            del self._by_id[client.client_id]
            self.ids_body = None

    def _forget_subscriptions(self, connection: Hashable, subscribed: MemberSubscriptions) -> None:
        kind = frozenset(subscribed.items())
        del self._subscribers[kind][connection]
        if not self._subscribers[kind]:
            del self._subscribers[kind]

    def growth(self, connection: Hashable, subscribed: MemberSubscriptions | None) -> int:
        """Return the growth in characters when a member gets these subscriptions, or leaves (None).

        Equal subscriptions of members count once.
        """
        former = self.subscribed.get(connection)
        if former == subscribed:
            return 0
        more = 0 if subscribed is None or frozenset(subscribed.items()) in self._subscribers else _size(subscribed)
        if former is None or len(self._subscribers[frozenset(former.items())]) > 1:
            return more
        return more - _size(former)

    def set_subscriptions(self, connection: Hashable, subscribed: MemberSubscriptions) -> None:
        """Set the subscriptions of a member, and count a conflict with other members."""
        former = self.subscribed.get(connection)
        if former == subscribed:
            return
        if former is not None:
            self._forget_subscriptions(connection, former)
        same = self._subscribers.setdefault(frozenset(subscribed.items()), {})
        self.subscribed[connection] = self.subscribed[next(iter(same))] if same else subscribed
        same[connection] = None
        if len(self._subscribers) > 1:
            self.conflicts += 1
            self.new_conflict |= len(same) == 1

    def differing(self) -> list[tuple[RegisteredClient, MemberSubscriptions]]:
        """Return the members with their subscriptions when these differ; else an empty list."""
        if len(self._subscribers) <= 1:
            return []
        return [(self.clients[key], one) for key, one in self.subscribed.items() if key in self.clients]

    def examples(self) -> dict[str, MemberSubscriptions]:
        """Return one member's subscriptions, by client id, for each of the first `MAX_EXAMPLES` differing ones."""
        some = [next(iter(members)) for members in islice(self._subscribers.values(), MAX_EXAMPLES)]
        return {self.clients[key].client_id: self.subscribed[key] for key in some if key in self.clients}

    def client_ids(self) -> list[str]:
        """Return the ids of the members, each once."""
        return list(self._by_id)

    def find(self, client_id: str) -> RegisteredClient | None:
        """Return a member by its id."""
        return next(iter(self._by_id.get(client_id, {}).values()), None)


class ClientTable:
    """All connected producers and consumers, and the subscriptions of pulls.

    Args:
        bounds: limits in force.

    Attributes:
        members: number of members of all groups; a client in two groups counts twice.
        subscribed_size: characters of all subscriptions; equal subscriptions of a group's members count once.
    """

    def __init__(self, bounds: Bounds | None = None) -> None:
        self._bounds = bounds or Bounds()
        self.members = self.subscribed_size = 0
        self._pulled: dict[str, dict[str, PulledSubscription]] = {}
        self._pulled_size = 0
        self.consumers: dict[str, ConsumerGroup] = {}
        self.producers: dict[str, dict[Hashable, RegisteredClient]] = {}
        self._producers_by_id: dict[str, RegisteredClient] = {}
        # Groups of each connection, so that a lost connection is not searched in all groups.
        self._produces: dict[Hashable, set[str]] = {}
        self._consumes: dict[Hashable, set[str]] = {}

    def add_producer(self, group: str, client: RegisteredClient) -> None:
        """Add or refresh a producer.

        Replies go to the connection of the last heartbeat with the client id. Another account cannot take over a client
        id in use.

        Raises:
            BrokerError: NO_PERMISSION, a connected client of another account has the client id.
            LimitExceeded: there are too many members.
        """
        holder = self._producers_by_id.get(client.client_id)
        if holder is not None and holder.connection is not client.connection and holder.account != client.account:
            raise BrokerError(
                ResponseCode.NO_PERMISSION,
                f"client id {shown(client.client_id)} is in use by another account; choose another instance name",
            )
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

    def _check_room(self, group: str, members: int, client: RegisteredClient) -> None:
        key = client.connection
        groups = len(self._produces.get(key, ())) + len(self._consumes.get(key, ()))
        self._bounds.check(MEMBERS_OF_GROUP, members + 1, f"group {group}")
        self._bounds.check(GROUPS_OF_CLIENT, groups + 1, f"connection of client {client.client_id}")
        self._bounds.check(MEMBERS, self.members + 1)

    def _forget_producer(self, client: RegisteredClient) -> None:
        found = self._producers_by_id.get(client.client_id)
        if found is not None and found.connection is client.connection:
            del self._producers_by_id[client.client_id]

    def add_consumer(self, data: ConsumerData, client: RegisteredClient, *, keep_subscriptions: bool = False) -> bool:
        """Add or refresh a consumer, and take its group's configuration from its heartbeat.

        Args:
            data: the group in this heartbeat; the last heartbeat sets the configuration of the whole group.
            client: the member.
            keep_subscriptions: whether the heartbeat omits its subscriptions because they did not change.

        Returns:
            Whether to notify the group's members: a member is new, or the subscribed topics changed.

        Raises:
            LimitExceeded: there are too many members.
        """
        group = self.consumers.get(data.group_name)
        subscribed = None if keep_subscriptions else _subscriptions_of(data.subscription_data_set)
        more = 0
        if subscribed is not None:
            more = _size(subscribed) if group is None else group.growth(client.connection, subscribed)
        if more > 0:
            self._bounds.check(SUBSCRIPTIONS, self.subscribed_size + more, f"subscriptions of group {data.group_name}")
        if group is None or client.connection not in group.clients:
            self._check_room(data.group_name, 0 if group is None else len(group.clients), client)
            self.members += 1
        if group is None:
            group = self.consumers[data.group_name] = ConsumerGroup(
                data.group_name, data.consume_type, data.message_model, data.consume_from_where
            )
        group.consume_type = data.consume_type
        group.message_model = data.message_model
        group.consume_from_where = data.consume_from_where
        changed = group.add(client)
        self._consumes.setdefault(client.connection, set()).add(data.group_name)
        if subscribed is not None:
            self.subscribed_size += more
            changed |= _subscribe(group, data.subscription_data_set)
            group.set_subscriptions(client.connection, subscribed)
        return changed

    def remove_producer(self, group: str, connection: Hashable) -> None:
        """Remove a producer from a group."""
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
        """Remove a consumer from a group; return None when it was no member."""
        found = self.consumers.get(group)
        if found is not None:
            self.subscribed_size += found.growth(connection, None)
        client = None if found is None else found.remove(connection)
        if found is None or client is None:
            return None
        self.members -= 1
        _leave(self._consumes, connection, group)
        if not found.clients:
            del self.consumers[group]
        return Departure(group, client.client_id)

    def remove_connection(self, connection: Hashable) -> list[Departure]:
        """Remove a lost connection from all groups; return its departures from consumer groups."""
        for group in list(self._produces.get(connection, ())):
            self.remove_producer(group, connection)
        left = [self.remove_consumer(group, connection) for group in sorted(self._consumes.get(connection, ()))]
        return [departure for departure in left if departure is not None]

    def silent(self, now_s: float, limit_s: float) -> KeysView[Hashable]:
        """Return the connections without a heartbeat for longer than `limit_s`; times are monotonic."""
        before = now_s - limit_s
        groups = [*(group.clients for group in self.consumers.values()), *self.producers.values()]
        quiet = {one.connection: None for group in groups for one in group.values() if one.last_heartbeat_s < before}
        # The connection may have sent a heartbeat for another group since.
        return {connection: None for connection in quiet if self._last_heartbeat_s(connection) < before}.keys()

    def _last_heartbeat_s(self, connection: Hashable) -> float:
        consumes = (self.consumers[group].clients for group in self._consumes.get(connection, ()))
        produces = (self.producers[group] for group in self._produces.get(connection, ()))
        return max(clients[connection].last_heartbeat_s for clients in (*consumes, *produces))

    def note_pull(self, group: str, topic: str, expression: str, kind: str, now_ms: int) -> None:
        """Note the subscription of a pull, which tools see when heartbeats have none.

        Args:
            group: the consumer group.
            topic: the topic.
            expression: the subscription's expression.
            kind: type of the expression.
            now_ms: time of the pull, which is noted once in `NOTED_MS` for the same subscription.
        """
        topics = self._pulled.get(group)
        former = None if topics is None else topics.get(topic)
        if former is not None and former[:2] == (expression, kind) and 0 <= now_ms - former.at_ms < NOTED_MS:
            return
        if former is None or former.expression != expression:
            size = self._pulled_size + _ENTRY_OVERHEAD + len(expression)
            size -= 0 if former is None else _ENTRY_OVERHEAD + len(former.expression)
            if not self._bounds.allows(PULLED_TEXT, size):
                return
            self._pulled_size = size
        if topics is None:
            topics = self._pulled[group] = {}
        topics[topic] = PulledSubscription(expression, kind, now_ms)

    def pulled(self, group: str) -> dict[str, PulledSubscription] | None:
        """Return the subscriptions of a group's pulls by topic; read-only."""
        return self._pulled.get(group)

    def forget_pulls(self, before_ms: int) -> None:
        """Drop subscriptions of pulls before a time."""
        for group, topics in list(self._pulled.items()):
            for topic in [topic for topic, pulled in topics.items() if pulled.at_ms < before_ms]:
                self._pulled_size -= _ENTRY_OVERHEAD + len(topics.pop(topic).expression)
            if not topics:
                del self._pulled[group]

    def subscription(self, group: str, topic: str) -> Subscription | None:
        """Return a group's subscription to a topic, from heartbeats or else from pulls of the last ten minutes."""
        online = self.consumers.get(group)
        found = None if online is None else online.subscriptions.get(topic)
        pulled = self._pulled.get(group, {}).get(topic)
        if found is not None or pulled is None:
            return found
        data = SubscriptionData(topic, pulled.expression, expression_type=pulled.kind, sub_version=pulled.at_ms)
        if pulled.kind == TAG:
            tags = parse_tags(pulled.expression)
            data.tags_set, data.code_set = set(tags.tags), set(tags.codes or ())
        return Subscription(data, _codes(data))

    def leaves_out(self, group: str, topic: str) -> bool:
        """Whether a connected group subscribes to other topics, but not to this one."""
        online = self.consumers.get(group)
        return online is not None and bool(online.subscriptions) and self.subscription(group, topic) is None

    def conflicts(self, group: str) -> int:
        """Return the number of heartbeats in which a group's members had different subscriptions."""
        found = self.consumers.get(group)
        return 0 if found is None else found.conflicts

    def connections(self, group: str) -> list[Hashable]:
        """Return the connections of a consumer group's members."""
        found = self.consumers.get(group)
        return [] if found is None else list(found.clients)

    def find_consumer(self, group: str, client_id: str) -> RegisteredClient | None:
        """Return a member of a consumer group by its id."""
        found = self.consumers.get(group)
        return None if found is None else found.find(client_id)

    def find_producer(self, client_id: str) -> RegisteredClient | None:
        """Return a producer by client id, with the connection of its last heartbeat."""
        return self._producers_by_id.get(client_id)

    def is_member(self, group: str, client_id: str) -> bool:
        """Whether a consumer group has a member of this id."""
        return self.find_consumer(group, client_id) is not None

    def subscribers(self, topic: str) -> list[str]:
        """Return the connected consumer groups that subscribe to the topic."""
        return [name for name, group in self.consumers.items() if topic in group.subscriptions]


def _subscriptions_of(announced: Iterable[SubscriptionData]) -> MemberSubscriptions:
    return {data.topic: (data.sub_string, data.expression_type or TAG) for data in announced}


def _size(subscribed: MemberSubscriptions) -> int:
    return sum(_ENTRY_OVERHEAD + len(topic) + len(text) for topic, (text, _) in subscribed.items())


def _leave(groups: dict[Hashable, set[str]], connection: Hashable, group: str) -> None:
    of_connection = groups.get(connection)
    if of_connection is not None:
        of_connection.discard(group)
        if not of_connection:
            del groups[connection]


def _subscribe(group: ConsumerGroup, announced: Iterable[SubscriptionData]) -> bool:
    changed = False
    topics = set()
    for data in announced:
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
        # The expression has only separators, which the client's parser refuses, so trust the hashes it sent, if any.
        return frozenset(data.code_set) or None
