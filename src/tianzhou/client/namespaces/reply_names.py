"""What servers tell an admin inside a namespace, with its users' names (client.md §21).

Lists and tables hold everybody's names; of those only the namespace's own come through, and what belongs to the system.
Others could not be asked about from inside, where every name is taken for one of the namespace's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeVar

from tianzhou.client.namespaces.namespaces import unwrap, wrap
from tianzhou.model import MessageQueue
from tianzhou.wire.bodies.clients import CONSUMER_CONNECTION, RUNNING_INFO
from tianzhou.wire.bodies.groups import GROUP_LIST, SUBSCRIPTION_GROUP_TABLE
from tianzhou.wire.bodies.offsets import CONSUME_STATS, TOPIC_STATS
from tianzhou.wire.bodies.topics import TOPIC_CONFIG, TOPIC_LIST, TOPIC_TABLE
from tianzhou.wire.codes import RequestCode
from tianzhou.wire.command import Command

V = TypeVar("V")


def answer_inside(namespace: str, code: int, reply: Command) -> None:
    """Give a successful reply's body the users' names, where this kind of reply has any.

    Args:
        namespace: the namespace.
        code: what was asked.
        reply: the answer; it is changed.
    """
    translate = _ANSWERS.get(code)
    if translate is not None and reply.code == 0 and reply.body:
        reply.body = translate(namespace, bytes(reply.body))


def has_names(code: int) -> bool:
    """Whether replies to a request name topics or groups."""
    return code in _ANSWERS


def is_inside(namespace: str, name: str) -> bool:
    """Whether a name, as the servers have it, can be reached from inside a namespace."""
    return wrap(namespace, name) == name


def _named(namespace: str, table: Mapping[str, V]) -> dict[str, V]:
    return {unwrap(namespace, name): value for name, value in table.items() if is_inside(namespace, name)}


def _queues(namespace: str, table: Mapping[MessageQueue, V]) -> dict[MessageQueue, V]:
    return {
        queue._replace(topic=unwrap(namespace, queue.topic)): value
        for queue, value in table.items()
        if is_inside(namespace, queue.topic)
    }


def _topics(namespace: str, body: bytes) -> bytes:
    said = TOPIC_LIST.loads(body)
    found = [unwrap(namespace, name) for name in said.topic_list if is_inside(namespace, name)]
    return TOPIC_LIST.dumps(replace(said, topic_list=found))


def _topic(namespace: str, body: bytes) -> bytes:
    config = TOPIC_CONFIG.loads(body)
    return TOPIC_CONFIG.dumps(replace(config, topic_name=unwrap(namespace, config.topic_name)))


def _topic_table(namespace: str, body: bytes) -> bytes:
    said = TOPIC_TABLE.loads(body)
    table = {
        name: replace(config, topic_name=name) for name, config in _named(namespace, said.topic_config_table).items()
    }
    return TOPIC_TABLE.dumps(replace(said, topic_config_table=table))


def _topic_stats(namespace: str, body: bytes) -> bytes:
    said = TOPIC_STATS.loads(body)
    return TOPIC_STATS.dumps(replace(said, offset_table=_queues(namespace, said.offset_table)))


def _groups(namespace: str, body: bytes) -> bytes:
    said = GROUP_LIST.loads(body)
    return GROUP_LIST.dumps([unwrap(namespace, name) for name in said if is_inside(namespace, name)])


def _group_table(namespace: str, body: bytes) -> bytes:
    said = SUBSCRIPTION_GROUP_TABLE.loads(body)
    table = {
        name: replace(config, group_name=name)
        for name, config in _named(namespace, said.subscription_group_table).items()
    }
    return SUBSCRIPTION_GROUP_TABLE.dumps(replace(said, subscription_group_table=table))


def _consume_stats(namespace: str, body: bytes) -> bytes:
    said = CONSUME_STATS.loads(body)
    return CONSUME_STATS.dumps(replace(said, offset_table=_queues(namespace, said.offset_table)))


def _connection(namespace: str, body: bytes) -> bytes:
    said = CONSUMER_CONNECTION.loads(body)
    table = {name: replace(one, topic=name) for name, one in _named(namespace, said.subscription_table).items()}
    return CONSUMER_CONNECTION.dumps(replace(said, subscription_table=table))


def _running_info(namespace: str, body: bytes) -> bytes:
    said = RUNNING_INFO.loads(body)
    subscriptions = [replace(one, topic=unwrap(namespace, one.topic)) for one in said.subscription_set]
    return RUNNING_INFO.dumps(
        replace(
            said,
            subscription_set=subscriptions,
            mq_table=_queues(namespace, said.mq_table),
            status_table=_named(namespace, said.status_table),
        )
    )


_ANSWERS: Mapping[int, Callable[[str, bytes], bytes]] = {
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: _topics,
    RequestCode.GET_TOPICS_BY_CLUSTER: _topics,
    RequestCode.GET_TOPIC_CONFIG: _topic,
    RequestCode.GET_ALL_TOPIC_CONFIG: _topic_table,
    RequestCode.GET_TOPIC_STATS_INFO: _topic_stats,
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: _groups,
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: _group_table,
    RequestCode.GET_CONSUME_STATS: _consume_stats,
    RequestCode.GET_CONSUMER_CONNECTION_LIST: _connection,
    RequestCode.GET_CONSUMER_RUNNING_INFO: _running_info,
}
