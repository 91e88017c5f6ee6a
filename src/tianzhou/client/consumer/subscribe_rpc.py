"""Reporting a consumer's subscriptions to the brokers (client.md §9.1)."""

from __future__ import annotations

from tianzhou.client.cluster import rpc
from tianzhou.client.consumer.subscription import TAG
from tianzhou.client.instance import ClientInstance
from tianzhou.model import ConsumerData


async def announce(instance: ClientInstance, data: ConsumerData) -> None:
    """Find the routes of a consumer's topics, let brokers check its expressions, and send heartbeats.

    Args:
        instance: the consumer's instance.
        data: the consumer's part of heartbeats.

    Raises:
        BrokerError: a broker cannot serve an SQL subscription.
        RemotingError: a server does not answer.
    """
    for subscription in data.subscription_data_set:
        await instance.route(subscription.topic)
    for subscription in data.subscription_data_set:
        if subscription.expression_type == TAG:
            continue
        address = await instance.any_broker_of(subscription.topic)
        if address is not None:
            await rpc.check_client_config(instance.remoting, address, instance.client_id, data.group_name, subscription)
    await instance.heartbeats.all()
