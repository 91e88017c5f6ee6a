"""Messages are divided into batches that a broker accepts, in order, and each message gets its own result."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tianzhou import Message, MessageQueue, SendResult, SendStatus
from tianzhou.client import split_batches
from tianzhou.client.producer.batch_splitting import batch_counts, results_of_messages
from tianzhou.client.producer.message_properties import message_properties
from tianzhou.errors import ClientError
from tianzhou.wire.batch import encode_batch, entry_size
from tianzhou.wire.properties import encode_properties


@given(st.lists(st.integers(1, 50), max_size=60), st.integers(50, 120))
def test_batches_are_as_full_as_the_limit_allows(sizes: list[int], limit: int) -> None:
    counts = batch_counts(sizes, limit)
    assert sum(counts) == len(sizes)
    begin, batches = 0, []
    for count in counts:
        batches.append(sizes[begin : begin + count])
        begin += count
    assert all(batch and sum(batch) <= limit for batch in batches)
    assert all(sum(batch) + following[0] > limit for batch, following in pairwise(batches))


def encoded(messages: list[Message]) -> bytes:
    key = "K" * 32
    return encode_batch([(0, m.body, encode_properties(message_properties(m, key))) for m in messages])


@given(st.lists(st.tuples(st.binary(min_size=1, max_size=400), st.text(alphabet="aé天", max_size=20)), max_size=40))
def test_no_encoded_batch_is_above_the_limit(parts: list[tuple[bytes, str]]) -> None:
    messages = [Message("T", body, tags="t", keys=keys, properties={"k": f"v{keys}"}) for body, keys in parts]
    batches = split_batches(messages, 1000)
    assert [message for batch in batches for message in batch] == messages
    assert all(len(encoded(batch)) <= 1000 for batch in batches)


def test_the_size_of_an_entry_is_that_of_its_bytes() -> None:
    assert len(encode_batch([(7, b"body", b"properties")])) == entry_size(4, 10)


def test_a_message_above_the_limit_is_named_by_its_place() -> None:
    with pytest.raises(ClientError, match=r"message 1 of the batch has \d+ bytes with its properties"):
        split_batches([Message("T", b"x"), Message("T", b"x" * 60)], 100)
    with pytest.raises(ClientError, match=r"a message to send is a tianzhou\.Message, got str"):
        split_batches(["x"])  # type: ignore[list-item]
    assert split_batches([]) == []


@pytest.mark.parametrize(
    ("offset_ids", "offset", "expected"),
    [
        ("A,B,C", 7, [("a", "A", 7), ("b", "B", 8), ("c", "C", 9)]),
        ("A", 7, [("a", "A", 7), ("b", "A", 8), ("c", "A", 9)]),
        ("", -1, [("a", "", -1), ("b", "", -1), ("c", "", -1)]),
    ],
    ids=["simple queues", "batch queues", "outbox"],
)
def test_each_message_has_its_own_result(offset_ids: str, offset: int, expected: list[tuple[str, str, int]]) -> None:
    batch = SendResult(SendStatus.SEND_OK, "a,b,c", offset_ids, MessageQueue("T", "b", 0), offset)
    found = results_of_messages(batch, 3)
    assert [(one.msg_id, one.offset_msg_id, one.queue_offset) for one in found] == expected
    assert {one.queue for one in found} == {batch.queue}
