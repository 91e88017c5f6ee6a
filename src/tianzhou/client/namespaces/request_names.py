"""Requests inside a namespace, with the servers' names (client.md §21).

Inside the client all names are the users' names. This module translates the client's requests, and brokers' requests to
the client. The frame templates of producers already have the servers' names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TypeVar

from tianzhou.client.namespaces.namespaces import unwrap, wrap
from tianzhou.client.namespaces.renamed_bodies import renamed
from tianzhou.client.namespaces.reply_names import answer_inside, has_names
from tianzhou.model import ConsumerData, MessageExt, MessageQueue, SubscriptionData, names
from tianzhou.remoting.client import Exchange, RpcHook
from tianzhou.wire.bodies import handler_times
from tianzhou.wire.bodies.clients import LOCK_REQUEST, ConsumerRunningInfo
from tianzhou.wire.bodies.groups import SUBSCRIPTION_GROUP
from tianzhou.wire.bodies.heartbeat import CLIENT_CONFIG_CHECK, HEARTBEAT
from tianzhou.wire.codes import RequestCode

_NAMES = ("topic", "consumerGroup", "producerGroup", "group", "groupName")
_KV_CODES = frozenset({RequestCode.PUT_KV_CONFIG, RequestCode.GET_KV_CONFIG, RequestCode.DELETE_KV_CONFIG})
V = TypeVar("V")


def border(namespace: str) -> RpcHook:
    """Return an RPC hook that translates names to the servers' in requests, and to the users' in some replies."""

    def to_servers(exchange: Exchange) -> Callable[[Exchange], None] | None:
        request = exchange.request
        order_conf = request.code in _KV_CODES and request.fields.get("namespace") == names.ORDER_TOPIC_CONFIG
        fields = (*_NAMES, "key") if order_conf else _NAMES
        if named := {name: wrap(namespace, request.fields[name]) for name in fields if name in request.fields}:
            request.fields = {**request.fields, **named}
        if request.code in _BODIES:
            request.body = _BODIES[request.code](namespace, bytes(request.body))
        return to_users if has_names(request.code) else None

    def to_users(exchange: Exchange) -> None:
        if exchange.reply is not None:
            answer_inside(namespace, exchange.request.code, exchange.reply)

    return to_servers


def _consumers(namespace: str, consumers: Iterable[ConsumerData]) -> list[ConsumerData]:
    return [
        replace(
            data,
            group_name=wrap(namespace, data.group_name),
            subscription_data_set=[_outside(namespace, one) for one in data.subscription_data_set],
        )
        for data in consumers
    ]


def _outside(namespace: str, subscription: SubscriptionData) -> SubscriptionData:
    return replace(subscription, topic=wrap(namespace, subscription.topic))


def _each(namespace: str, found: Iterable[str]) -> list[str]:
    return [wrap(namespace, name) for name in found]


def _queues(namespace: str, queues: Iterable[MessageQueue]) -> list[MessageQueue]:
    return [queue_outside(namespace, queue) for queue in queues]


_LOCKS = renamed(LOCK_REQUEST, consumer_group=wrap, queues=_queues)
_BODIES: Mapping[int, Callable[[str, bytes], bytes]] = {
    RequestCode.HEART_BEAT: renamed(HEARTBEAT, producer_groups=_each, consumers=_consumers),
    RequestCode.LOCK_BATCH_MQ: _LOCKS,
    RequestCode.UNLOCK_BATCH_MQ: _LOCKS,
    RequestCode.CHECK_CLIENT_CONFIG: renamed(
        CLIENT_CONFIG_CHECK, group=wrap, subscription_data=_outside, namespace=lambda namespace, _: namespace
    ),
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: renamed(SUBSCRIPTION_GROUP, group_name=wrap),
}


def queue_outside(namespace: str | None, queue: MessageQueue) -> MessageQueue:
    """Return a queue by the servers' name."""
    return queue._replace(topic=wrap(namespace, queue.topic)) if namespace else queue


def queue_inside(namespace: str | None, queue: MessageQueue) -> MessageQueue:
    """Return a queue by its users' name."""
    return queue._replace(topic=unwrap(namespace, queue.topic)) if namespace else queue


def offsets_outside(namespace: str | None, offsets: Mapping[MessageQueue, V]) -> dict[MessageQueue, V]:
    """Return a mapping by queue with the servers' names."""
    return {queue_outside(namespace, queue): value for queue, value in offsets.items()}


def offsets_inside(namespace: str | None, offsets: Mapping[MessageQueue, V]) -> dict[MessageQueue, V]:
    """Return a mapping by queue with the users' names."""
    return {queue_inside(namespace, queue): value for queue, value in offsets.items()}


def message_inside(namespace: str | None, message: MessageExt) -> MessageExt:
    """Translate a delivered message to the users' names: its topic, and its original topic if it was retried."""
    if namespace:
        message.topic = unwrap(namespace, message.topic)
        if (origin := message.properties.get(names.RETRY_TOPIC)) is not None:
            message.properties[names.RETRY_TOPIC] = unwrap(namespace, origin)
    return message


def running_info_outside(namespace: str | None, info: ConsumerRunningInfo) -> ConsumerRunningInfo:
    """Return a consumer's running info with the servers' names."""
    if not namespace:
        return info
    return replace(
        info,
        subscription_set=[_outside(namespace, one) for one in info.subscription_set],
        mq_table=offsets_outside(namespace, info.mq_table),
        status_table={wrap(namespace, topic): value for topic, value in info.status_table.items()},
        user_consumer_info=handler_times.renamed(info.user_consumer_info, lambda topic: wrap(namespace, topic)),
    )
