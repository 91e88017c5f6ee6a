"""Messages found through admin at a broker: by time, with their fate; dead letters, transactions, delays."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import Any

import pytest

from tianzhou import sync
from tianzhou.admin import Resent, TrackType
from tianzhou.client.tracing.trace_reading import TraceKind
from tianzhou.model import ConsumeFromWhere, Message, MessageExt, TransactionState
from waiting import until

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


def test_messages_are_found_by_time_the_newest_first(tianzhou_cluster: Any) -> None:
    tianzhou_cluster.create_topic("orders", queues=3)
    with (
        sync.Producer("shop", tianzhou_cluster.namesrv_addr) as producer,
        sync.Admin(tianzhou_cluster.namesrv_addr) as admin,
    ):
        sent = [producer.send(Message("orders", b"%d" % number)).msg_id for number in range(100)]
        middle_ms = time.time_ns() // 1_000_000 + 1
        until(lambda: time.time_ns() // 1_000_000 > middle_ms)
        sent += [producer.send(Message("orders", b"%d" % number)).msg_id for number in range(100, 150)]
        until(lambda: len(admin.messages.by_time("orders", limit=1_000)) == 150)

        def found(*args: int, limit: int = 1_000) -> list[str]:
            return [one.msg_id for one in admin.messages.by_time("orders", *args, limit=limit)]

        assert set(found(middle_ms)) == set(sent[100:])
        assert set(found(0, middle_ms)) == set(sent[:100])
        assert found(middle_ms + 3_600_000) == found(0, 1_000) == []
        stored = [one.store_timestamp for one in admin.messages.by_time("orders", limit=70)]
        assert len(stored) == 70
        assert stored == sorted(stored, reverse=True)
        # In pages, like the console's: every message is on one of them.
        pages: set[str] = set()
        end_ms = 2**63 - 1
        for _ in range(200):
            page = admin.messages.by_time("orders", 0, end_ms, limit=40)
            pages |= {one.msg_id for one in page}
            if len(page) < 40:
                break
            end_ms = page[-1].store_timestamp - (page[0].store_timestamp == page[-1].store_timestamp)
        assert pages == set(sent)
        parts = admin.messages.newest_records("orders", 10)
        assert [(end - begin, bool(pieces)) for _, begin, end, pieces in parts] == [(10, True)] * 3


def test_what_a_group_has_done_with_a_message(tianzhou_cluster: Any) -> None:
    tianzhou_cluster.create_topic("orders", queues=1)
    namesrv = tianzhou_cluster.namesrv_addr
    with sync.Producer("shop", namesrv, trace=True) as producer, sync.Admin(namesrv) as admin:
        first = producer.send(Message("orders", b"1")).msg_id
        message = until(lambda: admin.messages.by_unique_key("orders", first))
        assert admin.messages.tracks(message) == []
        seen: list[str] = []
        consumer = sync.PushConsumer("billing", namesrv, trace=True)
        consumer.subscribe("orders", handler=lambda one: seen.append(one.msg_id))
        with consumer:
            second = producer.send(Message("orders", b"2")).msg_id
            until(lambda: second in seen)
            message = admin.messages.view("orders", second)
            (track,) = until(lambda: [one for one in admin.messages.tracks(message) if one.consumer_offset == 2])
            assert (track.group, track.kind) == ("billing", TrackType.CONSUMED)
        (track,) = admin.messages.tracks(message)
        assert track.kind is TrackType.NOT_ONLINE

        def traced() -> list[TraceKind]:
            return [record.kind for record in admin.messages.trace(second)]

        until(lambda: admin.topics.exists("RMQ_SYS_TRACE_TOPIC"), within_s=20)
        until(lambda: traced() == [TraceKind.SENT, TraceKind.CONSUMING, TraceKind.CONSUMED], within_s=20)


def test_dead_letters_are_counted_listed_and_sent_again(tianzhou_cluster: Any) -> None:
    namesrv = tianzhou_cluster.namesrv_addr
    tianzhou_cluster.create_topic("orders", queues=1)
    with sync.Producer("shop", namesrv) as producer, sync.Admin(namesrv) as admin:
        assert (admin.dead_letters.count("billing"), admin.dead_letters.list("billing")) == (0, [])

        def fail(_: object) -> None:
            raise ValueError("not today")

        consumer = sync.PushConsumer("billing", namesrv, max_reconsume_times=0)
        consumer.subscribe("orders", handler=fail)
        with consumer:
            for number in range(3):
                producer.send(Message("orders", b"%d" % number, keys=f"k{number}", properties={"colour": "red"}))
            until(lambda: admin.dead_letters.count("billing") == 3, within_s=20)
        letters = admin.dead_letters.list("billing", limit=2)
        assert len(letters) == 2
        steps: list[Resent] = []
        assert admin.dead_letters.resend(letters, progress=steps.append) == Resent(2)
        assert steps == [Resent(1), Resent(2)]
        got: dict[str, list[MessageExt]] = {"billing": [], "audit": []}
        with ExitStack() as stack:
            for group, messages in got.items():
                member = sync.PushConsumer(group, namesrv, consume_from_where=FIRST)
                member.subscribe("orders", handler=messages.append)
                stack.enter_context(member)
            until(lambda: len(got["billing"]) == 2 and len(got["audit"]) == 3, within_s=20)
        assert {one.topic for one in got["billing"]} == {"orders"}
        assert {one.reconsume_times for one in got["billing"]} == {0}
        assert {one.properties["colour"] for one in got["billing"]} == {"red"}
        assert {one.properties["origin_id"] for one in got["billing"]} == {letter.msg_id for letter in letters}
        assert not [one for one in got["audit"] if "origin_id" in one.properties]
        assert not [one for one in admin.messages.by_time("orders") if "origin_id" in one.properties]
        failed = admin.dead_letters.resend(letters, to="no such topic!")
        assert (failed.sent, failed.failed) == (0, 2)
        assert "no such topic!" in failed.error


def test_what_waits_for_a_decision_or_its_time(tianzhou_cluster: Any) -> None:
    namesrv = tianzhou_cluster.namesrv_addr
    tianzhou_cluster.create_topic("orders", queues=1)
    with sync.Admin(namesrv) as admin:
        with sync.TransactionProducer("shop", namesrv, check=lambda _: TransactionState.UNKNOWN) as producer:
            for state in (TransactionState.UNKNOWN, TransactionState.COMMIT, TransactionState.ROLLBACK):
                producer.send_in_transaction(Message("orders", b"half"), lambda _, state: state, state)
            sent = producer.send(Message("orders", b"later", delay_level=9))
            (broker,) = until(lambda: [one for one in admin.transactions.open() if len(one.halves) == 1], within_s=20)
        (half,) = broker.halves
        assert (half.topic, half.producer_group, half.checks, broker.unread) == ("orders", "shop", 0, 0)
        (level,) = until(lambda: [one for one in admin.delays.levels() if one.waiting])
        assert (level.level, level.delay_ms, [due.msg_id for due in level.next]) == (9, 300_000, [sent.msg_id])
        assert level.next[0].topic == "orders"
        assert level.next[0].due_ms == pytest.approx(time.time() * 1000 + 300_000, abs=30_000)
