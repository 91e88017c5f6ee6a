"""Misuse of clients: each mistake raises an error immediately, whose text names the mistake and the correct call."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest
from own_server import own_server
from scripted import within

from client_probe import ClientProbe
from tianzhou import Message, MessageQueue, Producer, PullConsumer, PushConsumer, sync
from tianzhou.client import ClientInstance, TransactionProducer
from tianzhou.errors import ClientError, ConfigError, RemotingError, TianzhouError
from tianzhou.testing import Cluster

pytestmark = pytest.mark.runner.with_args(within(30))

NOWHERE = "127.0.0.1:1"


# --- arguments ------------------------------------------------------------------------------------------------

MESSAGES = {
    "text": ("hello", "a message to send is a tianzhou.Message, got str; make one, as in Message\\('topic'"),
    "none": (None, "a message to send is a tianzhou.Message, got NoneType"),
    "bytes as topic": (Message(b"T", b"x"), "the topic is b'T', of type bytes; give its name as str"),  # type: ignore[arg-type]
    "several tags": (Message("T", b"x", tags=["a"]), "a message has one tag, a str"),  # type: ignore[arg-type]
    "a number as key": (Message("T", b"x", keys=5), "keys is 5; they are one str or several, convert them first"),  # type: ignore[arg-type]
    "numbers as keys": (Message("T", b"x", keys=[1]), r"keys is \[1\]; they are one str or several"),  # type: ignore[list-item]
    "keys that are gone once read": (Message("T", b"x", keys=iter("ab")), "keys can be read only once; give a list"),
    "a number as sharding key": (Message("T", b"x", sharding_key=5), r"as in str\(order_id\)"),  # type: ignore[arg-type]
    "text as delay level": (Message("T", b"x", delay_level="3"), "delay_level is '3'; it is a number"),  # type: ignore[arg-type]
    "properties that are none": (Message("T", b"x", properties=[1]), "properties are a dict of str to str, got list"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("name", MESSAGES)
async def test_what_is_no_message_is_reported(name: str, tmp_path) -> None:
    message, text = MESSAGES[name]
    async with own_server(tmp_path) as namesrv, Producer("P", namesrv) as producer:
        for send in (producer.send, producer.send_oneway, lambda m: producer.send_batch([m])):
            with pytest.raises(ClientError, match=text):
                await send(message)


async def test_wrong_ways_to_say_where_a_message_goes_are_reported(tmp_path) -> None:
    async with own_server(tmp_path) as namesrv, Producer("P", namesrv) as producer:
        message = Message("T", b"x")
        with pytest.raises(ClientError, match=r"a queue is a MessageQueue, got 3; take one of those"):
            await producer.send(message, queue=3)
        with pytest.raises(ClientError, match=r"selector failed.*takes 1 positional.*called with the list of"):
            await producer.send(message, selector=lambda queues: queues[0])
        with pytest.raises(ClientError, match="send_batch takes several messages and got one"):
            await producer.send_batch(message)
        await producer.send(message)
        async with PullConsumer("G", namesrv) as consumer:
            for wrong in (consumer.pull("T", 0), consumer.max_offset("T")):
                with pytest.raises(ClientError, match="a queue is a MessageQueue, got 'T'"):
                    await wrong
            with pytest.raises(ClientError, match="a queue is a MessageQueue, got 'T'"):
                consumer.assign(["T"])
            (delivered,) = [m for q in await consumer.queues("T") for m in (await consumer.pull(q, 0)).messages]
        with pytest.raises(ClientError, match="a delivered message cannot be sent as it is; make a new one"):
            await producer.send(delivered)
    with pytest.raises(ClientError, match="got str"):
        async with TransactionProducer("P", NOWHERE, check=lambda m: None) as transactions:
            await transactions.send_in_transaction("hello", lambda m, arg: None)


SETTINGS = {
    "send_msg_timeout_ms is -3; it has to be at least 1": (Producer, {"send_msg_timeout_ms": -3}),
    "retry_times_when_send_failed is '2'; it has to be a number": (Producer, {"retry_times_when_send_failed": "2"}),
    "Producer has no option retries; did you mean .*retry_times_when_send_failed": (Producer, {"retries": 3}),
    "PushConsumer has no option concurrency; did you mean .*consume_concurrency": (PushConsumer, {"concurrency": 3}),
    "message_model is 'BROADCASTING'; use one of MessageModel.CLUSTERING, MessageModel.BROADCASTING": (
        PushConsumer,
        {"message_model": "BROADCASTING"},
    ),
    "consume_from_where is 'FIRST'; use one of": (PullConsumer, {"consume_from_where": "FIRST"}),
    "consume_concurrency is '5'; it has to be a number": (PushConsumer, {"consume_concurrency": "5"}),
    "consume_concurrency is 1001; it has to be 1 to 1000": (PushConsumer, {"consume_concurrency": 1001}),
    "allocate_message_queue_strategy is 'AVG'; use a strategy": (
        PullConsumer,
        {"allocate_message_queue_strategy": "AVG"},
    ),
    "pull_batch_size is 0; it has to be 1 to 1024": (PullConsumer, {"pull_batch_size": 0}),
    "auto_commit_interval_ms is 0; it has to be at least 1": (PullConsumer, {"auto_commit_interval_ms": 0}),
    "instance is 'x'; it has to be a tianzhou.client.ClientInstance": (Producer, {"instance": "x"}),
}


@pytest.mark.parametrize("text", SETTINGS)
def test_settings_that_cannot_be_are_reported(text: str) -> None:
    kind, options = SETTINGS[text]
    with pytest.raises(ConfigError, match=text):
        kind("G", NOWHERE, **options)


async def test_options_of_an_instance_go_to_the_instance() -> None:
    async with ClientInstance(NOWHERE) as instance:
        with pytest.raises(ConfigError, match=r"instance and namespace are both given.*namespace to the Client"):
            Producer("P", instance=instance, namespace="space")


@pytest.mark.parametrize(
    ("handler", "text"),
    [
        (5, "the handler of topic T is 5; it has to be a function"),
        (lambda: None, "cannot be called; it takes the message"),
        (lambda a, b, c: None, "cannot be called; it takes the message"),
        (lambda message: (yield), "has a yield, so calling it would do nothing"),
    ],
)
def test_what_is_no_handler_is_reported_before_a_message_is_lost_on_it(handler: object, text: str) -> None:
    with pytest.raises(ClientError, match=text):
        PushConsumer("G", NOWHERE).subscribe("T", handler=handler)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "handler", [lambda m: None, lambda m, c: None, lambda m, *rest: None, lambda m, other=1: None, [].append]
)
def test_whatever_takes_a_message_is_a_handler(handler: Callable[..., None]) -> None:
    PushConsumer("G", NOWHERE).subscribe("T", handler=handler)


# --- life -----------------------------------------------------------------------------------------------------


async def test_what_is_not_started_or_stopped_says_so(tmp_path) -> None:
    async with own_server(tmp_path) as namesrv:
        producer, consumer, puller = Producer("P", namesrv), PushConsumer("G", namesrv), PullConsumer("H", namesrv)
        start = r"is not running; start it with 'async with' \('with' in tianzhou.sync\) or start\(\)"
        with pytest.raises(ClientError, match="producer of group P " + start):
            await producer.send(Message("T", b"x"))
        with pytest.raises(ClientError, match="consumer of group G " + start):
            await anext(consumer)
        puller.subscribe("T")
        with pytest.raises(ClientError, match="consumer of group H " + start):
            await puller.poll(0)
        async with producer, consumer, puller:
            await producer.send(Message("T", b"x"))
            queue = (await puller.queues("T"))[0]
            with pytest.raises(ClientError, match="group G has no subscription, so nothing would ever come"):
                await anext(consumer)
        for again in (producer.send(Message("T", b"x")), producer.start()):
            with pytest.raises(ClientError, match="producer of group P is stopped; make a new one"):
                await again
        with pytest.raises(ClientError, match="consumer of group G is stopped; make a new one"):
            consumer.subscribe("T")
        for again in (puller.poll(), puller.commit(), puller.start()):
            with pytest.raises(ClientError, match="consumer of group H is stopped; make a new one"):
                await again
        with pytest.raises(RemotingError, match="the client is closed; make a new one"):
            await puller.pull(queue, 0)


async def test_two_tasks_do_not_iterate_one_consumer(tmp_path) -> None:
    async with own_server(tmp_path) as namesrv, PushConsumer("G", namesrv) as consumer:
        consumer.subscribe("T")
        first = asyncio.create_task(anext(consumer))
        await asyncio.sleep(0)
        with pytest.raises(ClientError, match="two tasks iterate the consumer of group G; iterate in one"):
            await anext(consumer)
        first.cancel()
        with suppress(asyncio.CancelledError):
            await first


def test_a_client_says_that_it_belongs_to_another_event_loop() -> None:
    with Cluster() as cluster:
        namesrv = cluster.namesrv_addr
        producer, consumer = Producer("P", namesrv), PullConsumer("G", namesrv)

        async def first() -> MessageQueue:
            await producer.start()
            await consumer.start()
            return (await producer.send(Message("T", b"x"))).queue

        queue = asyncio.run(first())
        steps = [
            lambda: producer.send(Message("T", b"x")),
            lambda: producer.send_batch([Message("T", b"x")]),
            lambda: producer.send_oneway(Message("T", b"x")),
            lambda: producer.queues("other"),
            lambda: consumer.pull(queue, 0),
            lambda: consumer.start(),
            lambda: producer.stop(),
            lambda: consumer.stop(),
        ]
        for step in steps:

            async def second(step: Callable[[], Awaitable[object]] = step) -> None:
                await step()

            with pytest.raises(ClientError, match=r"belongs to another event loop.*or use tianzhou.sync"):
                asyncio.run(second())


def test_the_blocking_face_says_the_same() -> None:
    with Cluster() as cluster:
        namesrv = cluster.namesrv_addr
        producer = sync.Producer("P", namesrv)
        with pytest.raises(ClientError, match=r"\('with' in tianzhou.sync\)"):
            producer.send(Message("T", b"x"))
        with producer:
            producer.send(Message("T", b"x"))

            async def inside() -> None:  # blocks this loop, but works: notebooks always run one
                producer.send(Message("T", b"x"))

            asyncio.run(inside())

            async def from_within() -> None:  # in the loop that would have to do the work
                producer.send(Message("T", b"x"))

            with pytest.raises(ClientError, match=r"use tianzhou.client there"):
                ClientProbe(producer).run(from_within())
        with pytest.raises(TianzhouError, match="is stopped; make a new one"):
            producer.send(Message("T", b"x"))
