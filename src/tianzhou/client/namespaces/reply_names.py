"""Replies to a client inside a namespace, with its users' names (client.md §21).

Lists and tables contain the names of all namespaces. The client returns only names of its own namespace and of the
system. It could not query other names, because it wraps every name in its requests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from tianzhou.client.namespaces.namespaces import unwrap, wrap
from tianzhou.client.namespaces.renamed_bodies import Rename, renamed
from tianzhou.model import MessageQueue, SubscriptionData
from tianzhou.wire.bodies import handler_times
from tianzhou.wire.bodies.clients import CONSUMER_CONNECTION, LOCKED_QUEUES, RUNNING_INFO
from tianzhou.wire.bodies.groups import GROUP_LIST, SUBSCRIPTION_GROUP_TABLE
from tianzhou.wire.bodies.offsets import CONSUME_STATS, TOPIC_STATS
from tianzhou.wire.bodies.topics import TOPIC_CONFIG, TOPIC_LIST, TOPIC_TABLE
from tianzhou.wire.codes import RequestCode
from tianzhou.wire.command import Command

V = TypeVar("V")


def answer_inside(namespace: str, code: int, reply: Command) -> None:
    """Replace names in the body of a successful reply by the users' names, for kinds of replies that contain names.

    Args:
        namespace: the namespace.
        code: code of the request.
        reply: the answer, which is changed in place.
    """
    rename = _BODIES.get(code)
    if rename is not None and reply.code == 0 and reply.body:
        reply.body = rename(namespace, bytes(reply.body))


def has_names(code: int) -> bool:
    """Whether replies to a request contain names of topics or groups."""
    return code in _BODIES


def is_inside(namespace: str, name: str) -> bool:
    """Whether a name, by the servers, can be used from inside a namespace."""
    return wrap(namespace, name) == name


def _names(namespace: str, found: Iterable[str]) -> list[str]:
    return [unwrap(namespace, name) for name in found if is_inside(namespace, name)]


def _table(namespace: str, table: Mapping[str, V]) -> dict[str, V]:
    return {unwrap(namespace, name): value for name, value in table.items() if is_inside(namespace, name)}


def _table_with(field: str) -> Rename:
    """Return the translation of tables whose values also have their name as a field."""

    def rename(namespace: str, table: Mapping[str, Any]) -> dict[str, Any]:
        return {name: replace(value, **{field: name}) for name, value in _table(namespace, table).items()}

    return rename


def _queues(namespace: str, table: Mapping[MessageQueue, V]) -> dict[MessageQueue, V]:
    return {
        queue._replace(topic=unwrap(namespace, queue.topic)): value
        for queue, value in table.items()
        if is_inside(namespace, queue.topic)
    }


def _subscriptions(namespace: str, found: Iterable[SubscriptionData]) -> list[SubscriptionData]:
    return [replace(subscription, topic=unwrap(namespace, subscription.topic)) for subscription in found]


def _handler_times(namespace: str, entries: Mapping[str, str]) -> dict[str, str]:
    return handler_times.renamed(entries, lambda topic: unwrap(namespace, topic))


def _groups(namespace: str, body: bytes) -> bytes:
    return GROUP_LIST.dumps(_names(namespace, GROUP_LIST.loads(body)))


def _locked_queues(namespace: str, body: bytes) -> bytes:
    queues = LOCKED_QUEUES.loads(body)
    return LOCKED_QUEUES.dumps([queue._replace(topic=unwrap(namespace, queue.topic)) for queue in queues])


_BODIES: Mapping[int, Callable[[str, bytes], bytes]] = {
    RequestCode.LOCK_BATCH_MQ: _locked_queues,
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: renamed(TOPIC_LIST, topic_list=_names),
    RequestCode.GET_TOPICS_BY_CLUSTER: renamed(TOPIC_LIST, topic_list=_names),
    RequestCode.GET_TOPIC_CONFIG: renamed(TOPIC_CONFIG, topic_name=unwrap),
    RequestCode.GET_ALL_TOPIC_CONFIG: renamed(TOPIC_TABLE, topic_config_table=_table_with("topic_name")),
    RequestCode.GET_TOPIC_STATS_INFO: renamed(TOPIC_STATS, offset_table=_queues),
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: _groups,
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: renamed(
        SUBSCRIPTION_GROUP_TABLE, subscription_group_table=_table_with("group_name")
    ),
    RequestCode.GET_CONSUME_STATS: renamed(CONSUME_STATS, offset_table=_queues),
    RequestCode.GET_CONSUMER_CONNECTION_LIST: renamed(CONSUMER_CONNECTION, subscription_table=_table_with("topic")),
    RequestCode.GET_CONSUMER_RUNNING_INFO: renamed(
        RUNNING_INFO,
        subscription_set=_subscriptions,
        mq_table=_queues,
        status_table=_table,
        user_consumer_info=_handler_times,
    ),
}
