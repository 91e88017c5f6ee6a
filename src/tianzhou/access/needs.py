"""Needs of each request, for both kinds of access control: one table by request code (broker.md §22).

A row lists the needs of a request, separated by commas. `PUB topic` is the permission to send to the topic in the field
`topic`, `SUB @group` the permission to consume with the group in the field `group`. `topicList;` is a field with
several names and their separator, and `body` refers to the names in a body. `Cluster Update` is an action on the whole
cluster. `account` requires any account, `admin` an administrator. A code without a row requires an administrator, and
the action All on the cluster.

Handlers use the same fields, and decode bodies with the same codecs, so the check sees what the handler executes.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar

from tianzhou.access import order_entries, staging_choices
from tianzhou.access.body_names import Names, names_in
from tianzhou.access.further_topics import further_topics
from tianzhou.access.requests import AccessRequest
from tianzhou.access.resources import Action, Need, Permission, PlainNeed, Resource, ResourceType
from tianzhou.model.names import (
    AUTO_CREATE_TOPIC,
    CHECK_MAX_TIME_TOPIC,
    HALF_TOPIC,
    OP_HALF_TOPIC,
    REPLY_TOPIC_SUFFIX,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    STAGED_OP_TOPIC,
    STAGED_TOPIC,
    UNDELIVERABLE_TOPIC,
    reply_topic,
    retry_topic,
)

ADMIN, ACCOUNT = "admin", "account"
GET_ROUTE: Final = 105
END_TRANSACTION: Final = 37
MOST_REMEMBERED: Final = 2_048
"""Maximum number of cached results of a row. All are dropped when one more arrives."""
LONGEST_REMEMBERED: Final = 300
"""Maximum total length of a request's names, in characters. The result for a longer request is not cached."""
Found = TypeVar("Found")


class Row(NamedTuple):
    """The needs of a request code.

    Attributes:
        plain: needs of an account of RocketMQ 4.x.
        policy: needs of a user of RocketMQ 5.3.
        differs: why Apache's servers require less; empty where they require the same.
    """

    plain: str
    policy: str
    differs: str = ""


_LOSES = "it deletes or changes what others rely on, and Apache's brokers take it from every account"
_LOSES_4 = "it deletes or changes what others rely on, and Apache's 4.x takes it from every account"
_READS = "it reads messages of any topic"
_LOCKS = "it keeps other members of the group from their queues, and Apache's 4.x takes it from every account"
_WRITES_4 = "it writes to the topic, and Apache's 4.x takes it from every account"
_REPLIES = (
    "it writes to the topic, and Apache's brokers take it from every account; replies to the cluster's reply topic need"
    " an account only"
)
_DECIDES_4 = "it decides about a message of the topic, and Apache's 4.x takes it from every account"
_ONLY_5 = "Apache's 5.3 takes it from every user"
_ALL_OPEN = "Apache's name servers check no access, in any setting"
_SPEAKS = "it speaks for a broker, and Apache's name servers check no access"

# fmt: off
ROWS: Final[Mapping[int, Row]] = {
    # Messages
    10: Row("PUB topic", "Pub topic"),
    310: Row("PUB b", "Pub b"),
    320: Row("PUB b", "Pub b", _WRITES_4),
    324: Row("PUB topic", "Pub topic", _REPLIES),
    325: Row("PUB b", "Pub b", _REPLIES),
    11: Row("SUB topic, SUB @consumerGroup", "Sub topic, Sub @consumerGroup"),
    361: Row("SUB topic, SUB @consumerGroup", "Sub topic, Sub @consumerGroup", "it is a pull by another number"),
    36: Row("SUB @group", "Sub @group"),
    37: Row("PUB topic", "Pub topic", _DECIDES_4),
    370: Row("PUB topic", "Pub topic"),
    12: Row("SUB topic", "Sub|Get topic"),
    33: Row("SUB topic", "Get topic", "it reads a message, and Apache's 4.x takes it from every account"),
    29: Row(ACCOUNT, "Get|Sub topic"),
    30: Row(ACCOUNT, "Get|Sub topic"),
    31: Row(ACCOUNT, "Get|Sub topic"),
    32: Row(ACCOUNT, "Get|Sub topic"),
    # Clients
    34: Row("SUB body", "Sub body"),
    46: Row(ACCOUNT, ACCOUNT),
    35: Row("SUB @consumerGroup", "Sub @consumerGroup"),
    38: Row("SUB @consumerGroup", "Sub|Get @consumerGroup"),
    14: Row(ACCOUNT, "Sub|Get topic, Sub|Get @consumerGroup"),
    15: Row("SUB @consumerGroup, SUB topic", "Sub|Update topic, Sub|Update @consumerGroup"),
    41: Row("SUB body", "Sub body", _LOCKS),
    42: Row("SUB body", "Sub body", _LOCKS),
    # Topics and groups
    17: Row(ADMIN, "Create topic"),
    18: Row(ADMIN, "Create body", _ONLY_5),
    513: Row(ADMIN, "Create topic", _ONLY_5),
    215: Row(ADMIN, "Delete topic"),
    21: Row(ACCOUNT, "Cluster Get", "it lists what all others have"),
    202: Row(ACCOUNT, "Get topic"),
    351: Row(ACCOUNT, "Get topic"),
    200: Row(ADMIN, "Create body", _ONLY_5),
    225: Row(ADMIN, "Create body", _ONLY_5),
    207: Row(ADMIN, "Delete @groupName"),
    201: Row(ACCOUNT, "Cluster Get", "it lists what all others have"),
    352: Row(ACCOUNT, "Get @group"),
    353: Row(ADMIN, "Update @group, Update topic"),
    203: Row(ACCOUNT, "Get @consumerGroup"),
    204: Row(ACCOUNT, "Cluster Get"),
    208: Row(ACCOUNT, "Get @consumerGroup, Get topic, Get topicList;"),
    222: Row("SUB @group, SUB topic", "Update @group, Update topic", _LOSES_4),
    223: Row(ACCOUNT, "Get @group, Get topic"),
    300: Row(ACCOUNT, "Get topic"),
    303: Row(ACCOUNT, "Get topic, Get @group"),
    305: Row(ACCOUNT, ACCOUNT),
    307: Row(ACCOUNT, "Get @consumerGroup"),
    308: Row(ACCOUNT, "Get topic, Get @compareGroup, Get @filterGroups,"),
    309: Row(ADMIN, "Sub @consumerGroup, Sub topic, Cluster Get", _READS + ", and hands it to a member"),
    314: Row(ADMIN, "Get @srcGroup, Update @destGroup, Update topic", _LOSES_4),
    317: Row(ACCOUNT, "Cluster Get"),
    321: Row(ACCOUNT, "Get topic, Get @consumerGroup"),
    323: Row(ADMIN, "Cluster Update, Update topic", _LOSES_4 + ", by a message id, whatever topic is named"),
    328: Row(ACCOUNT, "Cluster Get"),
    343: Row(ACCOUNT, "Get @group"),
    345: Row(ACCOUNT, "Get @group, Get topic"),
    315: Row(ACCOUNT, "Cluster Get"),
    354: Row(ACCOUNT, "Get topic"),
    355: Row(ADMIN, "Cluster Update"),
    402: Row(ACCOUNT, "Cluster Get", _ONLY_5),
    # Settings, files and figures of a broker
    25: Row(ADMIN, "Cluster Update", _ONLY_5),
    26: Row(ACCOUNT, "Cluster Get", _ONLY_5),
    28: Row(ACCOUNT, "Cluster Get", _ONLY_5),
    27: Row(ADMIN, "Cluster Update"),
    306: Row(ADMIN, "Cluster Update", _LOSES),
    316: Row(ADMIN, "Cluster Update", _LOSES),
    329: Row(ADMIN, "Cluster Update", _LOSES),
    2001: Row(ADMIN, "Cluster Update", _ONLY_5),
    2002: Row(ADMIN, "Cluster Update", _ONLY_5),
    2003: Row(ACCOUNT, "Cluster Get", _ONLY_5),
    2004: Row(ADMIN, "Cluster Update", _ONLY_5),
    60: Row(ACCOUNT, "Cluster Get", _ONLY_5),
    61: Row(ACCOUNT, "Cluster Get", _ONLY_5),
    # Requests between brokers
    43: Row(ACCOUNT, "Cluster Get", "it lists what all others have"),
    45: Row(ACCOUNT, "Cluster Get", "it lists what all others have"),
    901: Row(ACCOUNT, "Cluster Get", _ALL_OPEN),
    902: Row(ADMIN, "Cluster Update"),
    903: Row(ADMIN, "Cluster Update"),
    904: Row(ADMIN, "Cluster Update", _SPEAKS),
    905: Row(ADMIN, "Cluster Update"),
    906: Row(ADMIN, "Cluster Update"),
    907: Row(ACCOUNT, "Cluster Get", _ONLY_5),
    908: Row(ADMIN, "Cluster Update"),
    1007: Row(ACCOUNT, "Cluster Get", _ONLY_5),
    1008: Row(ADMIN, "Cluster Update"),
    # Accounts, users and policies
    50: Row(ADMIN, "Cluster Update", "Apache's 4.x lets every account make itself an administrator"),
    51: Row(ADMIN, "Cluster Update", "Apache's 4.x lets every account delete accounts"),
    52: Row(ACCOUNT, "Cluster Get"),
    53: Row(ADMIN, "Cluster Update", "Apache's 4.x lets every account let in addresses"),
    54: Row(ADMIN, "Cluster Get", "Apache's 4.9 shows every account the secrets of all"),
    **dict.fromkeys((3001, 3002, 3003, 3006, 3007, 3008), Row(ADMIN, "Cluster Update")),
    **dict.fromkeys((3004, 3005, 3009, 3010), Row(ADMIN, "Cluster Get")),
    # Name servers
    105: Row(ACCOUNT, "Pub|Sub|Get|Create|Update|Delete topic", _ALL_OPEN),
    106: Row(ACCOUNT, ACCOUNT, _ALL_OPEN),
    100: Row(ADMIN, "Cluster Update", _ALL_OPEN),
    102: Row(ADMIN, "Cluster Update", _ALL_OPEN),
    101: Row(ACCOUNT, "Cluster Get", _ALL_OPEN),
    219: Row(ACCOUNT, "Cluster Get", _ALL_OPEN),
    103: Row(ADMIN, "Cluster Update", _SPEAKS),
    104: Row(ADMIN, "Cluster Update", _SPEAKS),
    322: Row(ADMIN, "Cluster Get", _SPEAKS),
    205: Row(ADMIN, "Cluster Update", _ALL_OPEN),
    327: Row(ADMIN, "Cluster Update", _ALL_OPEN),
    216: Row(ADMIN, "Delete topic", _ALL_OPEN),
    217: Row(ADMIN, "Cluster Update", _ALL_OPEN),
    206: Row(ACCOUNT, "Cluster Get", _ALL_OPEN),
    224: Row(ACCOUNT, "Cluster Get", _ALL_OPEN),
    304: Row(ACCOUNT, ACCOUNT, _ALL_OPEN),
    311: Row(ACCOUNT, "Cluster Get", _ALL_OPEN),
    312: Row(ACCOUNT, "Cluster Get", _ALL_OPEN),
    313: Row(ACCOUNT, "Cluster Get", _ALL_OPEN),
    318: Row(ADMIN, "Cluster Update", _ALL_OPEN),
    319: Row(ACCOUNT, "Cluster Get", _ALL_OPEN),
    # Tianzhou's own requests (docs/adr/0006, docs/adr/0016): a writer of staged messages counts as a group
    31001: Row("SUB @writer", "Sub @writer"),
    31002: Row("SUB @writer, PUB body", "Sub @writer, Pub body"),
    **dict.fromkeys((31003, 31004, 31005, 31006), Row("SUB body", "Sub body")),
    31010: Row(ADMIN, "Cluster Update"),
    # docs/adr/0024: the reply contains passwords
    31020: Row(ADMIN, "Cluster All"),
    # docs/adr/0031
    31030: Row(ADMIN, "Cluster Update"),
    31031: Row(ACCOUNT, "Cluster Get"),
    # Requests between members of a DLedger group
    **dict.fromkeys((50000, 50001, 50002, *range(51001, 51006), 31101, 31102), Row(ADMIN, "Cluster Update")),
    # Requests that clients serve: only the asked connection receives the reply
    **dict.fromkeys((39, 40, 220, 221, 326), Row(ADMIN, "Cluster All")),
    # Requests that no server here serves
    **dict.fromkeys((13, 22, 23, 47, *range(209, 215), 301, 302, 400, 401), Row(ADMIN, "Cluster All")),
    **dict.fromkeys((*range(200050, 200057), 200151), Row(ADMIN, "Cluster All")),
    **dict.fromkeys(range(1001, 1007), Row(ADMIN, "Cluster All")),
    **dict.fromkeys(range(1009, 1014), Row(ADMIN, "Cluster All")),
}
"""Rows by request code; docs/reference/access.md is generated from them."""
# fmt: on

OF_ALL_TOPICS: Final = frozenset(
    {
        SCHEDULE_TOPIC,
        HALF_TOPIC,
        OP_HALF_TOPIC,
        CHECK_MAX_TIME_TOPIC,
        STAGED_TOPIC,
        STAGED_OP_TOPIC,
        UNDELIVERABLE_TOPIC,
    }
)
"""System topics that store messages of all other topics. An account that may read all topics but one would find that
topic's messages there. So reading them requires, besides the topic, an administrator, and the action All on the
cluster."""
READS: Final = frozenset({11, 12, 33, 361})
"""Request codes whose reply contains messages of the named topic."""

_UNKNOWN: Final = Row(ADMIN, "Cluster All")

LOOKUPS: Final = frozenset({105, 106, 206, 224, 304, 311, 312, 313})
"""Codes that a name server serves to every peer, as Apache's do, unless `requireSignedLookups` is set: routes, and
lists of topics and brokers. Go's pull consumer and its topic list do not sign these requests."""
ONE_ACTION_IS_ENOUGH: Final = frozenset({105})
"""Codes for which one allowed action of a row is enough, even when a policy denies another of its actions. A user with
any permission on a topic needs its route."""
NAMELESS: Final = frozenset({33, 34, 35, 37})
"""Codes whose requests may name nothing to check: a producer's heartbeat and its end, and the end of a transaction or
the view of a message by a client that does not send the topic. Any other request without a name requires an
administrator, or the actions of its row on the cluster."""


@dataclass(frozen=True, slots=True)
class _Item:
    """One part of a row: its words, its field (`body`; empty for the cluster), and whether the field names a group."""

    words: tuple[str, ...]
    field: str
    is_group: bool
    between: str


def _items(text: str) -> Iterator[_Item]:
    for part in text.split(", "):
        first, _, field = part.partition(" ")
        if first == ResourceType.CLUSTER:
            yield _Item((field,), "", is_group=False, between="")
            continue
        is_group, field = field.startswith("@"), field.removeprefix("@")
        between = field[-1] if field[-1] in ",;" else ""
        yield _Item(tuple(first.split("|")), field.removesuffix(between) if between else field, is_group, between)


def _named(item: _Item, request: AccessRequest) -> Names:
    """Return the topics and the groups that a part of a row refers to."""
    if item.field == "body":
        topics, groups = names_in(request)
        return dict.fromkeys(filter(None, topics)), dict.fromkeys(filter(None, groups))
    text = request.fields.get(item.field)
    if not text:
        return (), ()
    texts = (text,) if not item.between else tuple(filter(None, text.split(item.between)))
    return ((), texts) if item.is_group else (texts, ())


def _is_open(request: AccessRequest, topic: str, cluster: str) -> bool:
    """Whether a named topic requires no permission.

    These topics are open: the reply topic, whose route a replying client requests; the topic for automatic creation,
    whose route a producer requests before its own topic exists; and the half topic, which clients name when they end a
    transaction. The producer's send needs the permission on its own topic.
    """
    if request.code == GET_ROUTE:
        # A name server belongs to no cluster.
        replies = topic == reply_topic(cluster) if cluster else topic.endswith(REPLY_TOPIC_SUFFIX)
        return replies or topic == AUTO_CREATE_TOPIC
    if request.code == END_TRANSACTION:
        # Java's reply to a transaction check names the half topic of the check. The handler itself verifies the
        # message's topic.
        return topic == HALF_TOPIC
    return request.code in (324, 325) and topic == reply_topic(cluster)


def _holds_others(request: AccessRequest, topics: Iterable[str], cluster: str) -> bool:
    """Whether the read topics contain messages of other topics, or replies to other clients."""
    return request.code in READS and any(topic in OF_ALL_TOPICS or topic == reply_topic(cluster) for topic in topics)


def fields_of(code: int) -> frozenset[str]:
    """Return the header fields that a row names, for both kinds."""
    row = ROWS[code]
    texts = [text for text in (row.plain, row.policy) if text not in (ADMIN, ACCOUNT)]
    return frozenset(item.field for text in texts for item in _items(text) if item.field not in ("", "body"))


# RocketMQ 4.x


class _Plain:
    """A compiled row for accounts of 4.x. It caches the result by the request's names."""

    __slots__ = ("_cached", "_fixed", "_items", "_names")

    def __init__(self, text: str) -> None:
        self._items = () if text in (ADMIN, ACCOUNT) else tuple(_items(text))
        self._fixed = PlainNeed({}, admin=text == ADMIN) if not self._items else None
        self._names = _cached_names(self._items)
        self._cached: dict[tuple[str | None, ...], PlainNeed] = {}

    def need(self, request: AccessRequest, cluster: str) -> PlainNeed:
        if self._fixed is not None:
            return self._fixed
        if not self._names:
            return self._found(request, cluster)
        get = request.fields.get
        key = (*map(get, self._names), cluster, str(request.code))
        found = self._cached.get(key)
        if found is None:
            found = _remember(self._cached, key, self._found(request, cluster))
        return found

    def _found(self, request: AccessRequest, cluster: str) -> PlainNeed:
        permissions: dict[str, Permission] = {}
        named, hidden = request.code in NAMELESS, False
        for item in self._items:
            permission = Permission[item.words[0]]
            topics, groups = _named(item, request)
            named = named or bool(topics or groups)
            hidden = hidden or _holds_others(request, topics, cluster)
            for topic in topics:
                if not _is_open(request, topic, cluster):
                    permissions[topic] = _plain_permission(topic, permission)
            for group in groups:
                permissions[retry_topic(group)] = permission
        return PlainNeed(permissions, admin=hidden or not named)


_plain_row = functools.cache(_Plain)


def _plain_permission(topic: str, permission: Permission) -> Permission:
    # A retry topic represents its group. No client needs the permission to send to it.
    return Permission.SUB if topic.startswith(RETRY_PREFIX) else permission


def plain_needs(request: AccessRequest, cluster: str = "") -> PlainNeed:
    """Return the needs of a request from an account of RocketMQ 4.x (broker.md §22.1).

    Args:
        request: the request.
        cluster: the server's own cluster; empty for a name server.

    Raises:
        ProtocolError: the body cannot be decoded.
    """
    choice = staging_choices.plain_need(request)
    if choice is not None:
        return choice
    need = _plain_row(ROWS.get(request.code, _UNKNOWN).plain).need(request, cluster)
    further = further_topics(request)
    if not further:
        return need
    permissions = {topic: _plain_permission(topic, Permission.PUB) for topic in further}
    return PlainNeed({**permissions, **need.permissions}, need.admin)


# RocketMQ 5.3


class _UserPolicy:
    """A compiled row for users of 5.3. It caches the result by the request's names."""

    __slots__ = ("_cached", "_items", "_names")

    def __init__(self, text: str) -> None:
        self._items = () if text == ACCOUNT else tuple((item, tuple(map(Action, item.words))) for item in _items(text))
        self._names = _cached_names([item for item, _ in self._items])
        self._cached: dict[tuple[str | None, ...], tuple[Need, ...]] = {}

    def needs(self, request: AccessRequest, cluster: str) -> tuple[Need, ...]:
        if not self._names:
            return self._found(request, cluster)
        get = request.fields.get
        key = (*map(get, self._names), cluster, str(request.code))
        found = self._cached.get(key)
        if found is None:
            found = _remember(self._cached, key, self._found(request, cluster))
        return found

    def _found(self, request: AccessRequest, cluster: str) -> tuple[Need, ...]:
        found: list[Need] = []
        named = request.code in NAMELESS
        for item, actions in self._items:
            if not item.field:
                found.append(Need(Resource(ResourceType.CLUSTER, cluster), actions))
                continue
            topics, groups = _named(item, request)
            named = named or bool(topics or groups)
            if _holds_others(request, topics, cluster):
                found.append(Need(Resource(ResourceType.CLUSTER, cluster), (Action.ALL,)))
            wanted = [_topic_need(topic, actions) for topic in topics if not _is_open(request, topic, cluster)]
            found += map(_alternatives, wanted) if request.code in ONE_ACTION_IS_ENOUGH else wanted
            found += [Need(Resource(ResourceType.GROUP, group), actions) for group in groups]
        if not found and not named:
            found = [Need(Resource(ResourceType.CLUSTER, cluster), actions) for _, actions in self._items]
        return tuple(dict.fromkeys(found))


_policy_row = functools.cache(_UserPolicy)


def _topic_need(topic: str, actions: tuple[Action, ...]) -> Need:
    if topic.startswith(RETRY_PREFIX):
        wanted = (Action.SUB,) if actions == (Action.PUB,) else actions
        return Need(Resource(ResourceType.GROUP, topic.removeprefix(RETRY_PREFIX)), wanted)
    return Need(Resource(ResourceType.TOPIC, topic), actions)


def _alternatives(need: Need) -> Need:
    """Return a need that any one of the actions satisfies, each decided separately."""
    first, *others = need.actions
    found: Need | None = None
    for action in reversed(others):
        found = Need(need.resource, (action,), found)
    return Need(need.resource, (first,), found)


def needs(request: AccessRequest, cluster: str) -> tuple[Need, ...]:
    """Return the needs of a request from a user of RocketMQ 5.3; all of them must be satisfied (broker.md §22.2).

    Args:
        request: the request.
        cluster: the server's own cluster; a cluster that the request names is ignored.

    Raises:
        ProtocolError: the body cannot be decoded.
    """
    entry = staging_choices.policy_needs(request, cluster)
    if entry is None:
        entry = order_entries.policy_needs(request, cluster)
    if entry is not None:
        return entry
    found = _policy_row(ROWS.get(request.code, _UNKNOWN).policy).needs(request, cluster)
    further = further_topics(request)
    return (
        tuple(dict.fromkeys((*found, *(_topic_need(topic, (Action.PUB,)) for topic in further)))) if further else found
    )


def _cached_names(items: Iterable[_Item]) -> tuple[str, ...]:
    """Return the fields that form the cache key; empty when a body has the names, or a field has several."""
    if any(item.field == "body" or item.between for item in items):
        return ()
    return tuple(item.field for item in items if item.field)


def _remember(cache: dict[tuple[str | None, ...], Found], key: tuple[str | None, ...], found: Found) -> Found:
    if sum(len(part) for part in key if part) <= LONGEST_REMEMBERED:
        if len(cache) >= MOST_REMEMBERED:
            cache.clear()
        cache[key] = found
    return found
