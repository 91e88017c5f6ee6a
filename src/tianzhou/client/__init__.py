"""Producers and consumers on asyncio.

Names are imported when first used, so that a program pays only for what it needs.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tianzhou.client.handlers import ConsumeContext, Handler
    from tianzhou.client.idempotence import MemoryIds, idempotent
    from tianzhou.client.instance import ClientInstance
    from tianzhou.client.processed_ids import RedisIds, SqliteIds
    from tianzhou.client.processes import in_processes
    from tianzhou.client.producer import Producer
    from tianzhou.client.pull_consumer import PullConsumer
    from tianzhou.client.pull_schedule import PullSchedule, PullTurn
    from tianzhou.client.pulling import RawPull
    from tianzhou.client.push_consumer import PushConsumer
    from tianzhou.client.queue_reader import QueueReader
    from tianzhou.client.rebalance import (
        Averagely,
        ByCircle,
        ByMachineRoom,
        ConsistentHash,
        FixedQueues,
        NearbyRoom,
    )
    from tianzhou.client.requests import create_reply_message
    from tianzhou.client.selector import select_at_random, select_by_hash
    from tianzhou.client.spans import Spans
    from tianzhou.client.transactions import TransactionProducer

_HOMES = {
    "Averagely": "rebalance",
    "ByCircle": "rebalance",
    "ByMachineRoom": "rebalance",
    "ClientInstance": "instance",
    "ConsistentHash": "rebalance",
    "ConsumeContext": "handlers",
    "FixedQueues": "rebalance",
    "Handler": "handlers",
    "MemoryIds": "idempotence",
    "NearbyRoom": "rebalance",
    "Producer": "producer",
    "PullConsumer": "pull_consumer",
    "PullSchedule": "pull_schedule",
    "PullTurn": "pull_schedule",
    "PushConsumer": "push_consumer",
    "QueueReader": "queue_reader",
    "RawPull": "pulling",
    "RedisIds": "processed_ids",
    "Spans": "spans",
    "SqliteIds": "processed_ids",
    "TransactionProducer": "transactions",
    "create_reply_message": "requests",
    "idempotent": "idempotence",
    "in_processes": "processes",
    "select_at_random": "selector",
    "select_by_hash": "selector",
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
