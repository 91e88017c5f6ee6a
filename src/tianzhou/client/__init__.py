"""Producers and consumers on asyncio.

Names are imported when first used, so that a program pays only for what it needs.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tianzhou.client.cluster.requests import create_reply_message
    from tianzhou.client.consumer.allocation import (
        Averagely,
        ByCircle,
        ByMachineRoom,
        ConsistentHash,
        FixedQueues,
        NearbyRoom,
    )
    from tianzhou.client.consumer.pull.pull_consumer import PullConsumer
    from tianzhou.client.consumer.pull.pull_schedule import PullSchedule, PullTurn
    from tianzhou.client.consumer.pull.queue_reader import QueueReader
    from tianzhou.client.consumer.pulling import RawPull
    from tianzhou.client.consumer.push.handlers import ConsumeContext, Handler
    from tianzhou.client.consumer.push.idempotence import MemoryIds, idempotent
    from tianzhou.client.consumer.push.process_pool import in_processes
    from tianzhou.client.consumer.push.processed_ids import RedisIds, SqliteIds
    from tianzhou.client.consumer.push.push_consumer import PushConsumer
    from tianzhou.client.instance import ClientInstance
    from tianzhou.client.producer.producer import Producer
    from tianzhou.client.producer.selector import select_at_random, select_by_hash
    from tianzhou.client.producer.transactions import TransactionProducer
    from tianzhou.client.tracing.opentelemetry import Spans

_HOMES = {
    "Averagely": "consumer.allocation",
    "ByCircle": "consumer.allocation",
    "ByMachineRoom": "consumer.allocation",
    "ClientInstance": "instance",
    "ConsistentHash": "consumer.allocation",
    "ConsumeContext": "consumer.push.handlers",
    "FixedQueues": "consumer.allocation",
    "Handler": "consumer.push.handlers",
    "MemoryIds": "consumer.push.idempotence",
    "NearbyRoom": "consumer.allocation",
    "Producer": "producer.producer",
    "PullConsumer": "consumer.pull.pull_consumer",
    "PullSchedule": "consumer.pull.pull_schedule",
    "PullTurn": "consumer.pull.pull_schedule",
    "PushConsumer": "consumer.push.push_consumer",
    "QueueReader": "consumer.pull.queue_reader",
    "RawPull": "consumer.pulling",
    "RedisIds": "consumer.push.processed_ids",
    "Spans": "tracing.opentelemetry",
    "SqliteIds": "consumer.push.processed_ids",
    "TransactionProducer": "producer.transactions",
    "create_reply_message": "cluster.requests",
    "idempotent": "consumer.push.idempotence",
    "in_processes": "consumer.push.process_pool",
    "select_at_random": "producer.selector",
    "select_by_hash": "producer.selector",
}

__all__ = [
    "Averagely",
    "ByCircle",
    "ByMachineRoom",
    "ClientInstance",
    "ConsistentHash",
    "ConsumeContext",
    "FixedQueues",
    "Handler",
    "MemoryIds",
    "NearbyRoom",
    "Producer",
    "PullConsumer",
    "PullSchedule",
    "PullTurn",
    "PushConsumer",
    "QueueReader",
    "RawPull",
    "RedisIds",
    "Spans",
    "SqliteIds",
    "TransactionProducer",
    "create_reply_message",
    "idempotent",
    "in_processes",
    "select_at_random",
    "select_by_hash",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
