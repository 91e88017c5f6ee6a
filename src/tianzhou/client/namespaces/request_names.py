"""Where names change between a namespace's users and the servers (client.md §21).

Inside the client everything goes by the users' names. Requests are translated here on their way out, what brokers
send on its way in; producers' frames have the servers' names in their templates already.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeVar

from tianzhou.client.namespaces.namespaces import unwrap, wrap
from tianzhou.client.namespaces.reply_names import answer_inside, has_names
from tianzhou.model import MessageExt, MessageQueue, SubscriptionData, names
from tianzhou.remoting.client import Exchange, RpcHook
from tianzhou.wire.bodies.clients import LOCK_REQUEST, LOCKED_QUEUES, ConsumerRunningInfo
from tianzhou.wire.bodies.groups import SUBSCRIPTION_GROUP
from tianzhou.wire.bodies.heartbeat import CLIENT_CONFIG_CHECK, HEARTBEAT
from tianzhou.wire.codes import RequestCode
from tianzhou.wire.command import Command

_NAMES = ("topic", "consumerGroup", "producerGroup", "group", "groupName")
V = TypeVar("V")


def border(namespace: str) -> RpcHook:
    """An RPC hook that gives requests the servers' names, and some replies the users'."""

    def translate(exchange: Exchange) -> Callable[[Exchange], None] | None:
        request = exchange.request
        named = {name: wrap(namespace, request.fields[name]) for name in _NAMES if name in request.fields}
        if named:
            request.fields = {**request.fields, **named}
        _BODIES.get(request.code, _unchanged)(namespace, request)
        if request.code == RequestCode.LOCK_BATCH_MQ:
            return locked
        return told if has_names(request.code) else None

    def told(exchange: Exchange) -> None:
        if exchange.reply is not None:
            answer_inside(namespace, exchange.request.code, exchange.reply)

    def locked(exchange: Exchange) -> None:
        reply = exchange.reply
        if reply is not None and reply.code == 0:
            ours = [queue_inside(namespace, queue) for queue in LOCKED_QUEUES.loads(reply.body)]
            reply.body = LOCKED_QUEUES.dumps(ours)

    return translate


def _unchanged(namespace: str, request: Command) -> None:
    """Most requests name things in their header alone."""


def _heartbeat(namespace: str, request: Command) -> None:
    said = HEARTBEAT.loads(request.body)
    consumers = [
        replace(
            data,
            group_name=wrap(namespace, data.group_name),
            subscription_data_set=[_outside(namespace, one) for one in data.subscription_data_set],
        )
        for data in said.consumers
    ]
    groups = [wrap(namespace, group) for group in said.producer_groups]
    request.body = HEARTBEAT.dumps(replace(said, producer_groups=groups, consumers=consumers))


def _locks(namespace: str, request: Command) -> None:
    asked = LOCK_REQUEST.loads(request.body)
    queues = [queue_outside(namespace, queue) for queue in asked.queues]
    group = wrap(namespace, asked.consumer_group)
    request.body = LOCK_REQUEST.dumps(replace(asked, consumer_group=group, queues=queues))


def _config_check(namespace: str, request: Command) -> None:
    check = CLIENT_CONFIG_CHECK.loads(request.body)
    request.body = CLIENT_CONFIG_CHECK.dumps(
        replace(
            check,
            group=wrap(namespace, check.group),
            subscription_data=_outside(namespace, check.subscription_data),
            namespace=namespace,
        )
    )


def _group(namespace: str, request: Command) -> None:
    config = SUBSCRIPTION_GROUP.loads(request.body)
    config = replace(config, group_name=wrap(namespace, config.group_name))
    request.body = SUBSCRIPTION_GROUP.dumps(config)


def _order_config(namespace: str, request: Command) -> None:
    if request.fields.get("namespace") == names.ORDER_TOPIC_CONFIG and "key" in request.fields:
        request.fields = {**request.fields, "key": wrap(namespace, request.fields["key"])}


_BODIES: Mapping[int, Callable[[str, Command], None]] = {
    RequestCode.HEART_BEAT: _heartbeat,
    RequestCode.LOCK_BATCH_MQ: _locks,
    RequestCode.UNLOCK_BATCH_MQ: _locks,
    RequestCode.CHECK_CLIENT_CONFIG: _config_check,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: _group,
    RequestCode.PUT_KV_CONFIG: _order_config,
    RequestCode.GET_KV_CONFIG: _order_config,
    RequestCode.DELETE_KV_CONFIG: _order_config,
}


def _outside(namespace: str, subscription: SubscriptionData) -> SubscriptionData:
    return replace(subscription, topic=wrap(namespace, subscription.topic))


def queue_outside(namespace: str | None, queue: MessageQueue) -> MessageQueue:
    """A queue as the servers know it."""
    return queue._replace(topic=wrap(namespace, queue.topic)) if namespace else queue


def queue_inside(namespace: str | None, queue: MessageQueue) -> MessageQueue:
    """A queue as users know it."""
    return queue._replace(topic=unwrap(namespace, queue.topic)) if namespace else queue


def offsets_outside(namespace: str | None, offsets: Mapping[MessageQueue, V]) -> dict[MessageQueue, V]:
    """Something by queue, as the servers know those."""
    return {queue_outside(namespace, queue): value for queue, value in offsets.items()}


def offsets_inside(namespace: str | None, offsets: Mapping[MessageQueue, V]) -> dict[MessageQueue, V]:
    """Something by queue, as users know those."""
    return {queue_inside(namespace, queue): value for queue, value in offsets.items()}


def message_inside(namespace: str | None, message: MessageExt) -> MessageExt:
    """A delivered message with the users' names: its topic, and the one it had before it was retried."""
    if namespace:
        message.topic = unwrap(namespace, message.topic)
        if (origin := message.properties.get(names.RETRY_TOPIC)) is not None:
            message.properties[names.RETRY_TOPIC] = unwrap(namespace, origin)
    return message


def running_info_outside(namespace: str | None, info: ConsumerRunningInfo) -> ConsumerRunningInfo:
    """What a consumer tells about itself, with the servers' names."""
    if not namespace:
        return info
    return replace(
        info,
        subscription_set=[_outside(namespace, one) for one in info.subscription_set],
        mq_table=offsets_outside(namespace, info.mq_table),
        status_table={wrap(namespace, topic): value for topic, value in info.status_table.items()},
    )
