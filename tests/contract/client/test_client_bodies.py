"""Values sent and consumed, and retry policies, through a broker: in the async classes and the blocking ones."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from datetime import timedelta

import pydantic
import pytest

from tianzhou import ConsumeFromWhere, Producer, PushConsumer, sync
from tianzhou.client import RetryPolicy, create_reply_message, decode_body, encode_message
from tianzhou.errors import ClientError, ConfigError
from tianzhou.model import TransactionState

pytestmark = pytest.mark.tianzhou(virtual=True)
FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


@dataclass
class Line:
    name: str
    count: int


class Order(pydantic.BaseModel):
    id: int
    lines: list[Line] = []


ORDER = Order(id=7, lines=[Line("pen", 2)])


def test_blocking_a_model_goes_there_and_comes_back(tianzhou_cluster):
    seen = []
    with tianzhou_cluster.producer() as producer:
        result = producer.send_body("orders", ORDER, tags="paid", keys="7", properties={"shop": "north"})
        consumer = tianzhou_cluster.push_consumer("billing", consume_from_where=FIRST)

        @consumer.on("orders", "paid", body=Order)
        def bill(order, message):
            seen.append((order, message.keys, message.msg_id, message.user_properties))

        with consumer:
            tianzhou_cluster.wait_until_consumed("billing", "orders")
    assert seen == [(ORDER, "7", result.msg_id, {"shop": "north", "content_type": "application/json"})]
    [stored] = tianzhou_cluster.messages("orders")
    assert stored.body == b'{"id":7,"lines":[{"name":"pen","count":2}]}'


def test_async_a_model_goes_there_and_comes_back(tianzhou_cluster):
    seen = []

    async def scenario():
        consumer = PushConsumer("billing", tianzhou_cluster.namesrv_addr, consume_from_where=FIRST)

        @consumer.on("orders", body=Order)
        async def bill(order: Order) -> None:
            seen.append(order)

        async with Producer("shop", tianzhou_cluster.namesrv_addr) as producer, consumer:
            await producer.send_body("orders", ORDER)
            await producer.send_batch([encode_message("orders", {"id": n}) for n in (8, 9)])
            await tianzhou_cluster.aio.wait_until_consumed("billing", "orders")

    tianzhou_cluster.run(scenario())
    assert sorted(seen, key=lambda order: order.id) == [ORDER, Order(id=8), Order(id=9)]


@pytest.mark.parametrize("orderly", [False, True])
@pytest.mark.parametrize(
    ("undecodable", "dead"),
    [(None, ["no json", '{"id": "x"}']), ("dead_letter", ["no json", '{"id": "x"}']), ("skip", [])],
)
def test_bodies_that_do_not_decode_hold_nobody_up(tianzhou_cluster, caplog, orderly, undecodable, dead):
    tianzhou_cluster.create_topic("orders", queues=1)
    for body in ('{"id": 1}', "no json", '{"id": "x"}', '{"id": 2}'):
        tianzhou_cluster.send("orders", body)
    seen = []
    consumer = tianzhou_cluster.push_consumer("billing", orderly=orderly, consume_from_where=FIRST)
    consumer.subscribe("orders", handler=lambda order: seen.append(order.id), body=Order, undecodable=undecodable)
    with consumer:
        tianzhou_cluster.wait_until_consumed("billing", "orders")
    assert sorted(seen) == [1, 2]
    assert [message.body.decode() for message in tianzhou_cluster.dead_letters("billing")] == dead
    stored = tianzhou_cluster.messages("orders")
    lines = [record.getMessage() for record in caplog.records if "does not decode" in record.getMessage()]
    assert len(lines) == 2
    for message, line in zip(stored[1:3], lines, strict=True):
        assert f"orders queue 0 queue_offset {message.queue_offset} msg_id {message.msg_id}" in line
    assert "id: Input should be a valid integer" in lines[1]


def test_one_that_is_tried_again_may_decode_in_a_newer_program(tianzhou_cluster):
    tianzhou_cluster.send("orders", '{"number": 5}')
    for kind, seconds, seen in ((Order, 5, []), (dict, 11, [{"number": 5}])):
        got = []
        consumer = tianzhou_cluster.push_consumer("billing", consume_from_where=FIRST)
        consumer.subscribe("orders", handler=got.append, body=kind, undecodable="retry")
        with consumer:
            tianzhou_cluster.advance(seconds=seconds)
        assert got == seen


def test_a_message_from_elsewhere_that_is_no_json(tianzhou_cluster):
    tianzhou_cluster.send("orders", b"\x08\x01", properties={"content_type": "application/x-protobuf"})
    tianzhou_cluster.send("orders", b"\x08\x02", properties={"content_type": "application/x-protobuf"})
    numbers, orders = [], []
    reader = tianzhou_cluster.push_consumer("reader", consume_from_where=FIRST)
    reader.subscribe("orders", handler=numbers.append, body=lambda body: body[1])
    billing = tianzhou_cluster.push_consumer("billing", consume_from_where=FIRST)
    billing.subscribe("orders", handler=orders.append, body=dict)
    with reader, billing:
        tianzhou_cluster.wait_until_consumed("reader", "orders")
        tianzhou_cluster.wait_until_consumed("billing", "orders")
    assert (sorted(numbers), orders, len(tianzhou_cluster.dead_letters("billing"))) == ([1, 2], [], 2)


def test_an_sql_filter_knows_the_content_type(tianzhou_cluster):
    tianzhou_cluster.send("orders", {"id": 1})
    tianzhou_cluster.send("orders", "a text")
    seen = []
    consumer = tianzhou_cluster.push_consumer("billing", consume_from_where=FIRST)
    consumer.subscribe("orders", handler=seen.append, sql="content_type = 'application/json'", body=dict)
    with consumer:
        tianzhou_cluster.wait_until_consumed("billing", "orders")
    assert seen == [{"id": 1}]


def test_iterating_polling_requests_and_transactions(tianzhou_cluster):
    with tianzhou_cluster.transaction_producer("shop", check=lambda message: TransactionState.COMMIT) as producer:
        producer.send_in_transaction(encode_message("orders", ORDER), lambda message, arg: TransactionState.COMMIT)
    with tianzhou_cluster.push_consumer("billing", consume_from_where=FIRST) as consumer:
        consumer.subscribe("orders")
        assert decode_body(next(consumer), Order) == ORDER
    replier = tianzhou_cluster.producer("replier")
    replier.start()
    answering = tianzhou_cluster.push_consumer("bank", consume_from_where=FIRST)

    @answering.on("quotes", body=str)
    def answer(pair, message):
        replier.send(create_reply_message(message, encode_message("x", {"pair": pair, "rate": 1.09}).body))

    with answering, tianzhou_cluster.producer("asker") as asker:
        reply = asker.request(encode_message("quotes", "EUR/USD"), 10_000)
    assert decode_body(reply, dict) == {"pair": "EUR/USD", "rate": 1.09}


def attempts_of(cluster, count, *, orderly=False, **options):
    """The seconds at which a handler that always fails is called."""
    cluster.create_topic("orders", queues=1)
    at_s = []
    consumer = cluster.push_consumer("billing", orderly=orderly, consume_from_where=FIRST)

    @consumer.on("orders", **options)
    def fail(message):
        at_s.append(cluster.elapsed.total_seconds())
        raise ValueError("no")

    with consumer:
        cluster.send("orders", "x")
        cluster.wait_until_consumed("billing", "orders", within=timedelta(hours=5))
        cluster.advance(hours=1)
    assert len(at_s) == count
    return [round(later - earlier, 1) for earlier, later in itertools.pairwise(at_s)]


def test_a_policy_decides_how_often_and_when(tianzhou_cluster):
    policy = RetryPolicy(max_attempts=4, delays_s=[1, 30])
    assert attempts_of(tianzhou_cluster, 4, retry=policy) == pytest.approx([1, 30, 30], abs=0.3)
    [dead] = tianzhou_cluster.dead_letters("billing")
    assert dead.body == b"x"


def test_growing_pauses(tianzhou_cluster):
    policy = RetryPolicy.exponential(5, first_s=5, factor=10)
    assert attempts_of(tianzhou_cluster, 5, retry=policy) == pytest.approx([5, 60, 540, 7_200], rel=0.01, abs=0.3)


def test_a_policy_that_drops(tianzhou_cluster, caplog):
    assert attempts_of(tianzhou_cluster, 2, retry=RetryPolicy(max_attempts=2, delays_s=1, dead_letter=False)) == [1]
    assert tianzhou_cluster.dead_letters("billing") == []
    assert any("group billing drops it after 2 attempts" in record.getMessage() for record in caplog.records)


def test_a_policy_in_order(tianzhou_cluster):
    policy = RetryPolicy(max_attempts=4, delays_s=[0.5, 20])
    waits_s = attempts_of(tianzhou_cluster, 4, orderly=True, retry=policy)
    assert waits_s == pytest.approx([0.5, 20, 20], abs=0.5)
    [dead] = tianzhou_cluster.dead_letters("billing")
    assert dead.body == b"x"


def test_two_topics_two_policies(tianzhou_cluster):
    calls = []

    def fail(message):
        calls.append(message.topic)
        raise ValueError("no")

    consumer = tianzhou_cluster.push_consumer("billing", consume_from_where=FIRST)
    consumer.subscribe("orders", handler=fail, retry=RetryPolicy(max_attempts=1))
    consumer.subscribe("bills", handler=fail, retry=RetryPolicy(max_attempts=3, delays_s=1))
    with consumer:
        tianzhou_cluster.send("orders", "x")
        tianzhou_cluster.send("bills", "x")
        tianzhou_cluster.advance(minutes=1)
    assert sorted(calls) == ["bills"] * 3 + ["orders"]
    assert len(tianzhou_cluster.dead_letters("billing")) == 2


def test_what_cannot_be_is_refused_where_it_is_written():
    for kind in (PushConsumer, sync.PushConsumer):
        consumer = kind("G", "127.0.0.1:1")
        with pytest.raises(ClientError, match="body, undecodable and retry are a handler's"):
            consumer.subscribe("T", body=dict)
        with pytest.raises(ConfigError, match="delay levels only"):
            consumer.on("T", retry=RetryPolicy(delays_s=7))(lambda message: None)
        with pytest.raises(ConfigError, match="how to make a object"):
            consumer.on("T", body=object)(lambda value: None)


def test_a_body_that_cannot_be_sent_is_not(tianzhou_cluster):
    with tianzhou_cluster.producer() as producer, pytest.raises(ClientError, match="type object cannot be sent"):
        producer.send_body("orders", object())
    assert tianzhou_cluster.messages("orders") == []
