"""Messages that a handler failed are sent back to their broker, or wait in the client when no broker accepts them."""

import pytest
from scripted import record, refusing, within

from tianzhou import ConsumeResult, PushConsumer
from tianzhou.client.consumer.push import concurrent
from tianzhou.wire.properties import decode_properties
from waiting import until_async

pytestmark = pytest.mark.runner.with_args(within(20))


def failing_consumer(cluster, attempts, **options):
    consumer = PushConsumer("G", cluster.address, **options)

    @consumer.on("T")
    async def consume(message):
        attempts.append((message.queue_offset, message.reconsume_times))
        return ConsumeResult.RECONSUME_LATER

    return consumer


async def test_what_is_not_consumed_goes_back_to_its_broker(cluster, broker):
    broker.offsets["T", 0] = 0
    attempts = []
    async with failing_consumer(cluster, attempts, max_reconsume_times=5):
        broker.deliver(record("T", 0, properties="UNIQ_KEY\x01ID7\x02"))
        await until_async(lambda: broker.asked(36), "it is handed back")
    (back,) = broker.asked(36)
    assert (back.group, back.origin_topic, back.origin_msg_id, back.offset) == ("G", "T", "ID7", 0)
    assert (back.delay_level, back.max_reconsume_times) == (0, 5)
    assert broker.offsets["T", 0] == 1


async def test_what_no_broker_takes_back_is_sent_to_the_retry_topic(cluster, broker):
    broker.offsets["T", 0] = 0
    broker.answers[36] = refusing(1, "not found")
    attempts = []
    async with failing_consumer(cluster, attempts):
        broker.deliver(record("T", 0, b"body", "UNIQ_KEY\x01ID7\x02a\x01b\x02TRAN_MSG\x01true\x02", reconsume_times=2))
        await until_async(lambda: broker.asked(310), "it is sent")
    (sent_again,) = broker.asked(310)
    assert (sent_again.topic, sent_again.producer_group) == ("%RETRY%G", "CLIENT_INNER_PRODUCER")
    assert (sent_again.reconsume_times, sent_again.max_reconsume_times) == (3, 16)
    assert decode_properties(sent_again.properties.encode()) == {
        "UNIQ_KEY": "ID7",
        "a": "b",
        "ORIGIN_MESSAGE_ID": "ID7",
        "RETRY_TOPIC": "T",
        "DELAY": "5",
    }
    assert broker.bodies_of(310) == [b"body"]
    assert broker.offsets["T", 0] == 1


async def test_what_cannot_be_handed_back_at_all_is_consumed_again_here(cluster, broker, monkeypatch):
    monkeypatch.setattr(concurrent, "SEND_BACK_RETRY_MS", 20)
    broker.offsets["T", 0] = 0
    broker.answers[36] = refusing(1)
    broker.answers[310] = refusing(13)
    attempts = []
    async with failing_consumer(cluster, attempts):
        broker.deliver(record("T", 0))
        await until_async(lambda: len(attempts) >= 3, "it is tried again")
    assert attempts[:3] == [(0, 0), (0, 1), (0, 2)]
    assert broker.offsets["T", 0] == 0


@pytest.mark.parametrize(("wanted", "told"), [(-1, (3, 2, "5")), (7, (3, 16, "7")), (0, (3, 16, "5"))])
async def test_what_no_broker_takes_back_keeps_what_its_handler_wants(cluster, broker, wanted, told):
    broker.offsets["T", 0] = 0
    broker.answers[36] = refusing(1, "not found")
    consumer = PushConsumer("G", cluster.address)

    @consumer.on("T")
    async def consume(message, context):
        context.delay_level = wanted
        return ConsumeResult.RECONSUME_LATER

    async with consumer:
        broker.deliver(record("T", 0, reconsume_times=2))
        await until_async(lambda: broker.asked(310), "it is sent")
    (sent_again,) = broker.asked(310)
    delay = decode_properties(sent_again.properties.encode())["DELAY"]
    # A broker makes a dead letter of a message with more attempts than the request allows.
    assert (sent_again.reconsume_times, sent_again.max_reconsume_times, delay) == told
