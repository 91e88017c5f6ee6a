"""One suite for both `QueueReader`s: the one over brokers, and the fake one of other tests."""

import pytest
from fake_queues import FakeQueues
from pyspark.sql.datasource import CaseInsensitiveDict

from tianzhou.client import validation
from tianzhou.errors import ClientError
from tianzhou.model import Message, MessageQueue, PullStatus
from tianzhou.records.codec import decode_records
from tianzhou.spark import connections
from tianzhou.spark.data_source import TianzhouSource
from tianzhou.spark.option_values import BATCH
from tianzhou.spark.rows.schema import row_schema
from tianzhou.spark.source.offsets import QueueBounds
from tianzhou.spark.source.read_options import parse_read
from tianzhou.spark.source.span_reader import Ask
from tianzhou.testing import Cluster


class OverFake:
    def __init__(self, topic):
        self.reader = FakeQueues()
        self.a, self.b = (MessageQueue(topic, "broker-a", number) for number in (0, 1))
        for queue in (self.a, self.b):
            self.reader.add(queue, 0)

    def add(self, queue, count, tag=None):
        self.reader.add(queue, count, tag=tag, at_ms=1000)

    def published(self, queue):
        return self.reader.published[queue]


class OverBroker:
    def __init__(self, topic, server):
        self.server = server
        options = {"namesrvAddr": server.address, "subscribe": topic, "consumerGroup": f"group-{topic}"}
        self.reader = connections.connect(parse_read(options, BATCH))
        self.a, self.b = (MessageQueue(topic, "broker-a", number) for number in (0, 1))

    def add(self, queue, count, tag=None):
        self.server.send(queue.topic, range(count), queue=queue.queue_id, tags=tag)

    def published(self, queue):
        return self.reader._process.run(self.reader._consumer.committed(queue))


@pytest.fixture(params=["fake", "broker"])
def one(request, topic, server):
    if request.param == "fake":
        yield OverFake(topic)
        return
    yield OverBroker(topic, server)
    connections.SparkProcess.here().close()


def pull(one, *asks, tags="*"):
    return one.reader.pull(one.a, [Ask(*ask) for ask in asks], tags)


def offsets_of(pulled):
    return [record.queue_offset for record in decode_records(pulled.body)]


def test_queues_are_sorted(one):
    assert one.reader.queues([one.a.topic]) == [one.a, one.b]


def test_a_topic_that_does_not_exist(one):
    with pytest.raises(ClientError, match="topic no-such-topic does not exist"):
        one.reader.queues([one.a.topic, "no-such-topic"])


def test_bounds_of_empty_and_other_queues(one):
    one.add(one.b, 5)
    assert one.reader.bounds([one.a, one.b]) == {one.a: QueueBounds(0, 0), one.b: QueueBounds(0, 5)}


def test_offsets_by_time_of_the_past_and_the_future(one):
    one.add(one.a, 5)
    assert one.reader.offsets_by_time([one.a], 1) == {one.a: 0}
    assert one.reader.offsets_by_time([one.a], 4_000_000_000_000) == {one.a: 5}


def test_pulls_come_back_in_order_of_their_requests(one):
    one.add(one.a, 100)
    answers = pull(one, (0, 10), (50, 10), (20, 5))
    assert [offsets_of(answer) for answer in answers] == [
        list(range(10)), list(range(50, 60)), list(range(20, 25)),
    ]  # fmt: skip
    assert [answer.next_offset for answer in answers] == [10, 60, 25]
    assert {(answer.status, answer.min_offset, answer.max_offset) for answer in answers} == {(PullStatus.FOUND, 0, 100)}


def test_pulls_sent_ahead_are_collected_or_left(one):
    one.add(one.a, 100)
    one.reader.ahead(one.a, [Ask(0, 10), Ask(10, 10)], "*")
    assert [offsets_of(answer) for answer in pull(one, (0, 10), (10, 10))] == [[*range(10)], [*range(10, 20)]]
    one.reader.ahead(one.a, [Ask(20, 10)], "*")
    assert offsets_of(pull(one, (50, 5))[0]) == list(range(50, 55))  # another range is requested now
    assert offsets_of(pull(one, (20, 10))[0]) == list(range(20, 30))


def test_a_broker_gives_no_more_than_its_limit(one):
    one.add(one.a, 100)
    [answer] = pull(one, (0, 4096))
    assert 0 < answer.next_offset <= 100
    assert offsets_of(answer) == list(range(answer.next_offset))


def test_the_end_of_a_queue(one):
    one.add(one.a, 3)
    at_end, behind = pull(one, (3, 10), (9, 10))
    assert (at_end.status, at_end.next_offset, at_end.body) == (PullStatus.NO_NEW_MSG, 3, b"")
    assert (behind.status, behind.next_offset, behind.max_offset) == (PullStatus.OFFSET_ILLEGAL, 3, 3)


def test_tags_that_match_nothing_move_on(one):
    one.add(one.a, 30, tag="A")
    [answer] = pull(one, (0, 100), tags="B")
    assert (answer.status, answer.body) == (PullStatus.NO_MATCHED_MSG, b"")
    assert answer.next_offset == 30


def test_tags_that_match_some(one):
    one.add(one.a, 10, tag="A")
    one.add(one.a, 10, tag="B")
    [answer] = pull(one, (5, 100), tags="B || C")
    assert offsets_of(answer) == list(range(10, 20))
    assert answer.next_offset == 20


def test_progress_is_published(one):
    one.add(one.a, 10)
    pull(one, (0, 10))  # creates the group, like the tasks of a query
    one.reader.publish({one.a: 7})
    assert one.published(one.a) == 7


def test_time_passes(one):
    before = one.reader.monotonic()
    one.reader.wait(20)
    assert one.reader.monotonic() - before >= 0.019


def test_light_queues_are_found_at_the_brokers_that_have_them(monkeypatch):
    """As RocketMQ's MQTT proxy writes them; our own producers may not."""
    monkeypatch.setattr(validation, "_REFUSED", frozenset())
    given = {"subscribe": "%LMQ%a,%LMQ%none", "startingOffsets": "earliest"}
    with Cluster(brokers=2, settings={"enableLmq": True, "enableMultiDispatch": True}) as cluster:
        with cluster.admin() as admin, cluster.producer() as producer:
            admin.topics.create("orders", read_queue_nums=2, write_queue_nums=2)
            for number in range(40):
                more = {"INNER_MULTI_DISPATCH": "%LMQ%b,%LMQ%a" if number % 4 else "%LMQ%b"}
                producer.send(Message("orders", str(number).encode(), properties=more))
        source = TianzhouSource(CaseInsensitiveDict({"namesrvAddr": cluster.namesrv_addr, **given}))
        reader = source.reader(row_schema())
        rows = [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]
        connections.SparkProcess.here().close()
    assert sorted(int(row["body"]) for row in rows) == [number for number in range(40) if number % 4]
    assert {(row["topic"], row["queueId"]) for row in rows} == {("%LMQ%a", 0)}
    for broker in ("broker-a", "broker-b"):
        offsets = [row["queueOffset"] for row in rows if row["brokerName"] == broker]
        assert offsets == list(range(len(offsets))) != []


def test_brokers_without_light_queues_say_so(server):
    options = {"namesrvAddr": server.address, "subscribe": "%LMQ%a"}
    reader = connections.connect(parse_read(options, BATCH))
    with pytest.raises(ClientError, match="no broker of broker-a has light queues; set enableLmq=true and"):
        reader.queues(["%LMQ%a"])
    connections.SparkProcess.here().close()
