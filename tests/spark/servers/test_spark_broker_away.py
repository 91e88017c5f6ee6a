"""Rows with a sharding key while the broker of their queue is down: they wait, in order, or are refused."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa
from pyspark.sql.types import StringType, StructType

from tianzhou.spark import connections
from tianzhou.spark.rows.schema import arrow_schema
from tianzhou.spark.sink.outgoing import RowNotSent
from tianzhou.spark.sink.sink import Sender
from tianzhou.testing import Cluster

KEYS = 20
BATCH = 300
SCHEMA = StructType().add("body", StringType()).add("shardingKey", StringType())


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=2) as cluster:
        with cluster.admin() as admin:
            admin.topics.create("orders", read_queue_nums=2, write_queue_nums=2)
        yield cluster
        connections.SparkProcess.here().close()


def sender(cluster: Cluster, **options: str) -> Sender:
    given = {"namesrvAddr": cluster.namesrv_addr, "topic": "orders", "sendTimeoutMs": "2000", **options}
    return Sender(given, SCHEMA, overwrite=False)


def batch(begin: int) -> pa.RecordBatch:
    rows = [{"body": str(number), "shardingKey": f"k{number % KEYS}"} for number in range(begin, begin + BATCH)]
    return pa.RecordBatch.from_pylist(rows, schema=arrow_schema(SCHEMA))


def by_key(cluster: Cluster) -> dict[str, dict[tuple[str, int], list[int]]]:
    """Return the bodies of each key, by broker and queue, in the order of the queue."""
    found: dict[str, dict[tuple[str, int], list[int]]] = defaultdict(lambda: defaultdict(list))
    with cluster.pull_consumer("tests") as consumer:
        for queue in consumer.queues("orders"):
            at, end = consumer.min_offset(queue), consumer.max_offset(queue)
            while at < end:
                pulled = consumer.pull(queue, at)
                for message in pulled.messages:
                    number = int(message.body)
                    found[f"k{number % KEYS}"][queue.broker_name, queue.queue_id].append(number)
                at = pulled.next_offset
    return found


@pytest.mark.parametrize("kill", [False, True])
def test_keys_stay_in_their_queue_and_order_while_a_broker_comes_back(cluster, kill) -> None:
    broker = cluster.brokers["broker-b"]
    back = threading.Timer(1.0, broker.start)

    def batches() -> Iterator[pa.RecordBatch]:
        for number in range(6):
            if number == 3:
                broker.kill() if kill else broker.stop()
                back.start()
            yield batch(number * BATCH)

    sender(cluster).send(batches(), partition=0)
    back.join()
    found = by_key(cluster)
    assert len(found) == KEYS
    for key, queues in found.items():
        assert len(queues) == 1, f"{key} is in {list(queues)}"
        ((_, numbers),) = queues.items()
        # Of repeated messages the last copy counts; then each number occurs once.
        last = sorted({number: place for place, number in enumerate(numbers)}.items(), key=lambda item: item[1])
        assert [number for number, _ in last] == list(range(int(key[1:]), 6 * BATCH, KEYS))
    assert {place[0] for queues in found.values() for place in queues} == {"broker-a", "broker-b"}


def test_a_later_task_of_the_process_refuses_rows_whose_broker_stays_away(cluster) -> None:
    sender(cluster).send([batch(0)], partition=0)
    before = {key: list(queues) for key, queues in by_key(cluster).items()}
    cluster.brokers["broker-b"].stop()
    with pytest.raises(RowNotSent, match=r"row \d+ of partition 0: .*(broker-b is away: start it|cannot connect)"):
        sender(cluster, shardingWaitMs="700").send([batch(BATCH)], partition=0)
    with cluster.brokers["broker-a"].down():
        pass
    cluster.brokers["broker-b"].start()
    sender(cluster).send([batch(2 * BATCH)], partition=0)
    assert {key: list(queues) for key, queues in by_key(cluster).items()} == before


def test_brokers_that_are_named_are_waited_for_by_a_process_that_never_saw_them(cluster) -> None:
    cluster.brokers["broker-b"].stop()
    with pytest.raises(RowNotSent, match="topic orders has no queue at broker-b now, which shardingBrokers names"):
        sender(cluster, shardingBrokers="broker-a,broker-b", shardingWaitMs="300").send([batch(0)], partition=0)
    assert not by_key(cluster)
    cluster.brokers["broker-b"].start()
    sender(cluster, shardingBrokers="broker-a").send([batch(0)], partition=0)
    assert {place[0] for queues in by_key(cluster).values() for place in queues} == {"broker-a"}
