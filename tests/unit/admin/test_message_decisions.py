"""Decisions of the admin about messages: tracks, resent dead letters, open half messages, due messages."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tianzhou.admin import MessageTrack, TrackType
from tianzhou.admin.delays import due_of, progress
from tianzhou.admin.queue_reading import ReadAllowance, Tail, newest_first
from tianzhou.admin.tracks import track_of
from tianzhou.admin.transactions import decided_offsets, undecided
from tianzhou.client.validation import check_attributes
from tianzhou.errors import ClientError
from tianzhou.model import ConsumeType, Message, MessageExt, MessageModel, SubscriptionData, names
from tianzhou.model.dead_letters import origin_id, origin_topic, resent
from tianzhou.wire.bodies.clients import Connection, ConsumerConnection


def message(offset: int = 7, body: bytes = b"x", topic: str = "T", **properties: str) -> MessageExt:
    return MessageExt(
        topic, body, 3, properties, "b", 1, offset, 100 + offset, 0, 1_000, "p:1", 2_000 + offset, "b:2", 4, 0, 0, 90,
        f"ID{offset}",
    )  # fmt: skip


def members(**values: Any) -> ConsumerConnection:
    return ConsumerConnection(
        connection_set=[Connection("c@1", "h:1", "PYTHON", 1)],
        consume_type=ConsumeType.CONSUME_PASSIVELY,
        message_model=MessageModel.CLUSTERING,
        **values,
    )


OF_TAG = {"T": SubscriptionData("T", "A", {"A"})}


@pytest.mark.parametrize(
    ("connected", "offset", "expected"),
    [
        (None, 8, TrackType.NOT_ONLINE),
        (ConsumerConnection(), 8, TrackType.NOT_ONLINE),
        (members(), None, TrackType.NOT_CONSUME_YET),
        (members(), 7, TrackType.NOT_CONSUME_YET),
        (members(), 8, TrackType.CONSUMED),
        (members(subscription_table=OF_TAG), 8, TrackType.CONSUMED_BUT_FILTERED),
        (members(subscription_table=OF_TAG), 7, TrackType.NOT_CONSUME_YET),
    ],
)
def test_what_became_of_a_message(connected: Any, offset: int | None, expected: TrackType) -> None:
    assert track_of(message(TAGS="B"), "G", connected, offset) == MessageTrack("G", expected, consumer_offset=offset)


def test_groups_whose_offsets_say_nothing() -> None:
    pulling, broadcasting = members(), members()
    pulling.consume_type = ConsumeType.CONSUME_ACTIVELY
    broadcasting.message_model = MessageModel.BROADCASTING
    assert track_of(message(), "G", pulling, 8).kind is TrackType.PULL
    assert track_of(message(), "G", broadcasting, 8).kind is TrackType.CONSUME_BROADCASTING


def test_a_dead_letter_is_sent_again_as_it_was() -> None:
    letter = message(
        topic="%DLQ%G", RETRY_TOPIC="T", ORIGIN_MESSAGE_ID="OLD", UNIQ_KEY="U", KEYS="k1 k2", TAGS="t", DELAY="3",
        MAX_RECONSUME_TIMES="16", RECONSUME_TIME="5", __SHARDINGKEY="s", colour="red", origin_id="older",
    )  # fmt: skip
    again = resent(letter)
    assert (again.topic, again.body, again.tags, again.keys, again.flag) == ("%RETRY%G", b"x", "t", "k1 k2", 3)
    assert (again.delay_level, again.sharding_key) == (0, "s")
    assert again.properties == {
        "colour": "red", "origin_kind": "dead-letter", "origin_topic": "%DLQ%G", "origin_id": "U",
        "origin_place": "b:1@7", "RETRY_TOPIC": "T",
    }  # fmt: skip
    check_attributes(again)
    to_a_topic = resent(letter, "U2", "replay")
    assert (to_a_topic.topic, "RETRY_TOPIC" in to_a_topic.properties) == ("U2", False)


def test_the_topic_of_before_is_taken_in_retry_topics_alone() -> None:
    check_attributes(Message("%RETRY%G", b"x", properties={"RETRY_TOPIC": "T"}))
    with pytest.raises(ClientError, match="property RETRY_TOPIC belongs to the system"):
        check_attributes(Message("T", b"x", properties={"RETRY_TOPIC": "T"}))


def test_what_a_dead_letter_was() -> None:
    apache = message(DLQ_ORIGIN_TOPIC="first", RETRY_TOPIC="second", DLQ_ORIGIN_MESSAGE_ID="A", ORIGIN_MESSAGE_ID="B")
    assert (origin_topic(apache.properties), origin_id(apache)) == ("first", "A")
    assert (origin_topic({"DLQ_ORIGIN_TOPIC": "", "RETRY_TOPIC": "second"}), origin_id(message())) == ("second", "ID7")
    with pytest.raises(ClientError, match=r"message ID7 of .* does not have the topic that it was first sent to"):
        resent(message(topic="%DLQ%G"))
    with pytest.raises(ClientError, match="message ID7 of T does not have the topic"):
        resent(message(topic="T", RETRY_TOPIC="T"))


@given(st.dictionaries(st.sampled_from(sorted(names.RESERVED)) | st.text(min_size=1), st.text()))
def test_nothing_of_the_systems_is_sent_again(properties: dict[str, str]) -> None:
    again = resent(message(**properties), "T")
    assert not again.properties.keys() & names.RESERVED
    assert properties.items() >= {k: v for k, v in again.properties.items() if not k.startswith("origin_")}.items()


def test_half_messages_without_a_mark_are_open() -> None:
    marks = [message(0, b"1,2,"), message(1, b"5"), message(2, b"\xff,," + b"9" * 40)]
    assert decided_offsets(marks) == {1, 2, 5}
    halves = [
        message(offset, REAL_TOPIC="T", PGROUP="P", UNIQ_KEY=key, TRANSACTION_CHECK_TIMES=checks)
        for offset, key, checks in ((1, "A", "0"), (3, "B", "0"), (4, "C", "many"), (6, "B", "2"))
    ]
    found = undecided(halves, {1, 2, 5})
    assert [(one.msg_id, one.queue_offset, one.checks) for one in found] == [("C", 4, 0), ("B", 6, 2)]
    assert (found[0].topic, found[0].producer_group, found[0].body_bytes) == ("T", "P", 1)


class Queue(Tail):
    """A queue of messages by store time, each of `size` bytes."""

    def __init__(self, times: list[int], size: int = 1) -> None:
        super().__init__(None, "", None, 0, len(times), 0, 1 << 60)  # type: ignore[arg-type]
        self._times, self._size = times, size

    async def fill(self, chunk: int, allowance: ReadAllowance) -> None:
        while not self.messages and not self.is_read and not allowance.is_spent():
            start = max(0, self._end - chunk)
            allowance.left -= self._size * (self._end - start)
            if not allowance.is_spent():
                self.messages = [
                    replace(message(at), store_timestamp=self._times[at]) for at in range(start, self._end)
                ]
                self._end = start


queues = st.lists(st.lists(st.integers(0, 50), max_size=80).map(sorted), max_size=4)


@given(queues, st.integers(1, 400), st.integers(1, 300))
def test_the_newest_messages_of_queues_come_first(times: list[list[int]], limit: int, bytes_left: int) -> None:
    every = sorted((at for one in times for at in one), reverse=True)
    found = asyncio.run(newest_first([Queue(one) for one in times], limit, ReadAllowance(1_000_000)))
    assert [one.store_timestamp for one in found] == every[:limit]
    # A smaller read limit returns fewer messages, but it skips none between them.
    try:
        found = asyncio.run(newest_first([Queue(one) for one in times], limit, ReadAllowance(bytes_left)))
    except ClientError:
        return
    assert [one.store_timestamp for one in found] == every[: len(found)]


def test_messages_too_large_to_be_put_in_order_are_said() -> None:
    with pytest.raises(ClientError, match="newest 10 messages are too large"):
        asyncio.run(newest_first([Queue([1], 5), Queue([2], 5)], 10, ReadAllowance(8)))
    assert asyncio.run(newest_first([], 10, ReadAllowance(8))) == []


def test_levels_are_read_from_the_runtime_info() -> None:
    runtime = {"scheduleMessageOffset_10": "3,5", "scheduleMessageOffset_2": "0,0", "scheduleMessageOffset_x": "1,2"}
    assert progress(
        runtime | {"scheduleMessageOffset_4": "-1,2", "putTps": "3,4", "scheduleMessageOffset_5": "1," + "9" * 5_000}
    ) == {2: (0, 0), 10: (3, 5)}
    (due,) = due_of([message(REAL_TOPIC="T", UNIQ_KEY="U")], 5_000)
    assert (due.due_ms, due.topic, due.msg_id, due.queue_offset) == (7_007, "T", "U", 7)
