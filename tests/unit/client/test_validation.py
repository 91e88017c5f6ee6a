"""The error for a request refused before sending names the limit, the value and the remedy."""

import pytest

from tianzhou.client.validation import (
    check_batch,
    check_group,
    check_message,
    check_new_topic,
    check_topic,
)
from tianzhou.errors import ClientError
from tianzhou.model import Message

LIMIT = 4 * 1024 * 1024


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (Message("", b"x"), "topic is blank"),
        (Message(" ", b"x"), "topic is blank"),
        (Message("a b", b"x"), "may only hold letters"),
        (Message("ü", b"x"), "may only hold letters"),
        (Message("t" * 128, b"x"), "128 characters, the limit is 127"),
        (Message("SCHEDULE_TOPIC_XXXX", b"x"), "written by the broker alone"),
        (Message("T", b""), "at least one byte"),
        (Message("T", None), "a message body is bytes, got NoneType"),
        (Message("T", "text"), "a message body is bytes, got str; encode it first"),
        (Message("T", b"x" * (LIMIT + 1)), "4194305 bytes, the limit is 4194304"),
        (Message("T", b"x", properties={"UNIQ_KEY": "1", "TAGS": "A"}), "belongs to the system"),
        (Message("T", b"x", properties={"a": " "}), "blank name or value"),
        (Message("T", b"x", properties={"a": 1}), "names and values are str"),
        (Message("T", b"x", properties={"a\x01b": "c"}), "U\\+0001"),
        (Message("T", b"x", properties={"a": "c\x02"}), "U\\+0002"),
        (Message("T", b"x", tags="A\x02"), "U\\+0002"),
        (Message("T", b"x", tags="A || B"), "a message has one"),
        (Message("T", b"x", keys=["a", "b\x02"]), "U\\+0002"),
    ],
)
def test_messages_that_cannot_be_sent(message, text):
    with pytest.raises(ClientError, match=text):
        check_message(message, LIMIT)


def test_messages_that_can():
    check_message(Message("%RETRY%g|x-1_", bytearray(b"x"), "A", ["k1", "k2"], properties={"a": "b\x01c"}), LIMIT)
    check_message(Message("t" * 127, b"x" * LIMIT), LIMIT)


def test_groups():
    check_group("g" * 255, default="DEFAULT_PRODUCER")
    for name, text in [("", "blank"), ("g" * 256, "256 characters"), ("DEFAULT_PRODUCER", "placeholder")]:
        with pytest.raises(ClientError, match=text):
            check_group(name, default="DEFAULT_PRODUCER")


@pytest.mark.parametrize("topic", ["TBW102", "RMQ_SYS_TRACE_TOPIC", "rmq_sys_x", "SELF_TEST_TOPIC"])
def test_system_topics_are_not_created(topic):
    check_topic(topic)
    with pytest.raises(ClientError, match="belongs to the system"):
        check_new_topic(topic)


@pytest.mark.parametrize(
    ("batch", "text"),
    [
        ([], "the batch is empty"),
        ([Message("T", b"x"), Message("U", b"x")], "one topic"),
        ([Message("T", b"x"), Message("T", b"x", wait_store_ok=False)], "same wait_store_ok"),
        ([Message("T", b"x", delay_level=1)], "one by one"),
        ([Message("T", b"x", properties={"TIMER_DELAY_SEC": "5"})], "one by one"),
        ([Message("%RETRY%G", b"x")], "one by one"),
        ([Message("T", b"x"), Message("T", b"")], "at least one byte"),
    ],
)
def test_batches_that_cannot_be_sent(batch, text):
    with pytest.raises(ClientError, match=text):
        check_batch(batch, LIMIT)
