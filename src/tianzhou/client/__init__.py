"""Producers and consumers on asyncio.

Names are imported at their first use, so a program imports only the modules that it needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tianzhou.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from tianzhou.client.bodies import decode_body, encode_message
    from tianzhou.client.cluster.requests import create_reply_message
    from tianzhou.client.consumer.allocation import (
        Averagely,
        ByCircle,
        ByMachineRoom,
        ConsistentHash,
        FixedQueues,
        NearbyRoom,
    )
    from tianzhou.client.consumer.once.database_ids import DatabaseIds
    from tianzhou.client.consumer.once.decorator import once
    from tianzhou.client.consumer.pull.pull_consumer import PullConsumer
    from tianzhou.client.consumer.pull.pull_schedule import PullSchedule, PullTurn
    from tianzhou.client.consumer.pull.queue_reader import QueueReader
    from tianzhou.client.consumer.pulling import RawPull
    from tianzhou.client.consumer.push.handlers import ConsumeContext, Handler
    from tianzhou.client.consumer.push.idempotence import MemoryIds, idempotent
    from tianzhou.client.consumer.push.process_pool import in_processes
    from tianzhou.client.consumer.push.processed_ids import RedisIds, SqliteIds
    from tianzhou.client.consumer.push.push_consumer import PushConsumer
    from tianzhou.client.consumer.push.retry_policy import RetryPolicy
    from tianzhou.client.instance import ClientInstance
    from tianzhou.client.producer.batch_splitting import split_batches
    from tianzhou.client.producer.outbox.outbox_store import OutboxStore
    from tianzhou.client.producer.outbox.redis_store import RedisOutbox
    from tianzhou.client.producer.outbox.sqlite_store import SqliteOutbox
    from tianzhou.client.producer.producer import Producer
    from tianzhou.client.producer.selector import select_at_random, select_by_hash
    from tianzhou.client.producer.transactions import TransactionProducer
    from tianzhou.client.retry import RETRY_CODES_4X
    from tianzhou.client.tracing.opentelemetry import Spans
    from tianzhou.client.tracing.prometheus import ClientMetrics

__all__ = [
    "RETRY_CODES_4X",
    "Averagely",
    "ByCircle",
    "ByMachineRoom",
    "ClientInstance",
    "ClientMetrics",
    "ConsistentHash",
    "ConsumeContext",
    "DatabaseIds",
    "FixedQueues",
    "Handler",
    "MemoryIds",
    "NearbyRoom",
    "OutboxStore",
    "Producer",
    "PullConsumer",
    "PullSchedule",
    "PullTurn",
    "PushConsumer",
    "QueueReader",
    "RawPull",
    "RedisIds",
    "RedisOutbox",
    "RetryPolicy",
    "Spans",
    "SqliteIds",
    "SqliteOutbox",
    "TransactionProducer",
    "create_reply_message",
    "decode_body",
    "encode_message",
    "idempotent",
    "in_processes",
    "once",
    "select_at_random",
    "select_by_hash",
    "split_batches",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "bodies": "decode_body encode_message",
        "cluster.requests": "create_reply_message",
        "consumer.allocation": "Averagely ByCircle ByMachineRoom ConsistentHash FixedQueues NearbyRoom",
        "consumer.once.database_ids": "DatabaseIds",
        "consumer.once.decorator": "once",
        "consumer.pull.pull_consumer": "PullConsumer",
        "consumer.pull.pull_schedule": "PullSchedule PullTurn",
        "consumer.pull.queue_reader": "QueueReader",
        "consumer.pulling": "RawPull",
        "consumer.push.handlers": "ConsumeContext Handler",
        "consumer.push.idempotence": "MemoryIds idempotent",
        "consumer.push.process_pool": "in_processes",
        "consumer.push.processed_ids": "RedisIds SqliteIds",
        "consumer.push.push_consumer": "PushConsumer",
        "consumer.push.retry_policy": "RetryPolicy",
        "instance": "ClientInstance",
        "producer.batch_splitting": "split_batches",
        "producer.outbox.outbox_store": "OutboxStore",
        "producer.outbox.redis_store": "RedisOutbox",
        "producer.outbox.sqlite_store": "SqliteOutbox",
        "producer.producer": "Producer",
        "producer.selector": "select_at_random select_by_hash",
        "producer.transactions": "TransactionProducer",
        "retry": "RETRY_CODES_4X",
        "tracing.opentelemetry": "Spans",
        "tracing.prometheus": "ClientMetrics",
    },
)
