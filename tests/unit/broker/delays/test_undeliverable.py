"""Messages that cannot be delivered: set aside after a few tries, named, and delivered on request."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from broker_bench import Bench, OpenBench, Peer

from open_fixtures import open_for_test
from tianzhou.broker.undeliverable.keeper import UndeliverableKeeper
from tianzhou.metrics.exposition import pieces
from tianzhou.model import SubscriptionGroupConfig, TopicConfig
from tianzhou.model.names import SCHEDULE_TOPIC, UNDELIVERABLE_TOPIC
from tianzhou.store.results import OF_CLIENTS, AppendPlan, NewRecord, PutResult, PutStatus
from tianzhou.wire.ids import offset_msg_id
from tianzhou.wire.properties import decode_properties
from tianzhou.wire.undeliverable import kept_message

LONG_GROUP = "g" * 250
RETRY = "%RETRY%" + LONG_GROUP


@pytest.fixture
def bench(broker: OpenBench, request: pytest.FixtureRequest) -> Bench:
    return open_for_test(request, broker())


def delayed(key: str) -> dict[str, str]:
    return {"UNIQ_KEY": key, "DELAY": "1"}


def keys(bench: Bench, topic: str) -> list[str]:
    return [decode_properties(record.properties).get("UNIQ_KEY", "") for record in bench.records(topic)]


def kept_id(record: Any) -> str:
    return offset_msg_id(record.store_host, record.store_port, record.physical_offset)


async def test_a_delayed_message_above_a_lowered_limit_holds_up_no_other(
    bench: Bench, peer: Peer, caplog: pytest.LogCaptureFixture
) -> None:
    await peer.send("T", b"x" * 5_000, properties=delayed("large"))
    for number in range(10):
        await peer.send("T", b"small", properties=delayed(f"small{number}"))
    bench.store_settings.max_message_size = 1_000
    bench.deliver_delayed()
    await asyncio.sleep(5)
    assert keys(bench, "T") == [f"small{number}" for number in range(10)]
    (aside,) = bench.records(UNDELIVERABLE_TOPIC)
    message = kept_message(bytes(aside.body))
    assert (message.topic, message.queue, message.body) == ("T", 0, b"x" * 5_000)
    assert decode_properties(message.properties)["UNIQ_KEY"] == "large"
    named = [line for line in caplog.messages if "large" in line and "maxMessageSize is 1000" in line]
    assert len(named) == 1
    figures = await peer.figures()
    assert (figures["undeliverableMessages"], figures["undeliverableTopics"]) == ("1", "T 1")
    assert "maxMessageSize is 1000" in figures["undeliverableReason"]


async def test_what_was_set_aside_is_delivered_on_request_and_once(bench: Bench, peer: Peer) -> None:
    await peer.send("T", b"x" * 5_000, properties=delayed("large"))
    bench.store_settings.max_message_size = 1_000
    bench.deliver_delayed()
    await asyncio.sleep(5)
    (aside,) = bench.records(UNDELIVERABLE_TOPIC)
    still = await peer.ask(323, msg_id=kept_id(aside), topic="T")
    assert still.code == 13
    assert "still cannot be delivered" in (still.remark or "")
    bench.store_settings.max_message_size = 10_000
    assert (await peer.ask(323, msg_id=kept_id(aside), topic="T")).code == 0
    (delivered,) = bench.records("T")
    assert (bytes(delivered.body), keys(bench, "T")) == (b"x" * 5_000, ["large"])
    assert "undeliverableMessages" not in await peer.figures()
    again = await peer.ask(323, msg_id=kept_id(aside), topic="T")
    assert "delivered before" in (again.remark or "")
    assert len(bench.records("T")) == 1


async def test_messages_that_are_set_aside_are_known_after_a_restart(bench: Bench, peer: Peer) -> None:
    for key in ("one", "two"):
        await peer.send("T", b"x" * 5_000, properties=delayed(key))
    bench.store_settings.max_message_size = 1_000
    bench.deliver_delayed()
    await asyncio.sleep(5)
    first, _ = bench.records(UNDELIVERABLE_TOPIC)
    bench.store_settings.max_message_size = 10_000
    assert (await peer.ask(323, msg_id=kept_id(first))).code == 0
    bench.tables.undeliverable.clear()
    await UndeliverableKeeper(bench.services).load()
    figures = await peer.figures()
    assert (figures["undeliverableMessages"], figures["undeliverableTopics"]) == ("1", "T 1")
    assert "delivered before" in ((await peer.ask(323, msg_id=kept_id(first))).remark or "")


async def test_a_message_that_says_no_place_is_kept_and_may_go_elsewhere(bench: Bench, peer: Peer) -> None:
    bench.store.append(NewRecord(SCHEDULE_TOPIC, 0, b"lost", b"DELAY\x011\x02UNIQ_KEY\x01K\x02"))
    await peer.send("T", properties=delayed("next"))
    bench.deliver_delayed()
    await asyncio.sleep(5)
    assert keys(bench, "T") == ["next"]
    (aside,) = bench.records(UNDELIVERABLE_TOPIC)
    assert (await peer.ask(323, msg_id=kept_id(aside))).code == 17
    await peer.create_topic("Found")
    assert (await peer.ask(323, msg_id=kept_id(aside), topic="Found")).code == 0
    assert [bytes(record.body) for record in bench.records("Found")] == [b"lost"]


async def test_a_retry_that_no_topic_can_hold_is_set_aside_and_retries_of_others_come(bench: Bench, peer: Peer) -> None:
    bench.deliver_delayed()
    await peer.send("T", b"poison", properties={"UNIQ_KEY": "U"})
    (record,) = bench.records("T")
    sent_back = {"offset": record.physical_offset, "delay_level": 0, "origin_topic": "T", "unit_mode": False}
    assert (await peer.ask(36, group=LONG_GROUP, **sent_back)).code == 0
    assert (await peer.ask(36, group="G", **sent_back)).code == 0
    await asyncio.sleep(11)
    assert keys(bench, "%RETRY%G") == ["U"]
    (aside,) = bench.records(UNDELIVERABLE_TOPIC)
    message = kept_message(bytes(aside.body))
    assert (message.topic, message.body, message.reconsume_times) == (RETRY, b"poison", 1)
    assert (await peer.ask(323, msg_id=kept_id(aside), topic="T")).code == 0
    assert len(bench.records("T")) == 2


async def test_a_retry_stored_by_an_earlier_version_does_not_stall_its_level(bench: Bench, peer: Peer) -> None:
    waiting = f"DELAY\x013\x02REAL_TOPIC\x01{RETRY}\x02REAL_QID\x010\x02UNIQ_KEY\x01U\x02".encode()
    bench.store.append(NewRecord(SCHEDULE_TOPIC, 2, b"poison", waiting))
    await peer.send("T", properties={"UNIQ_KEY": "next", "DELAY": "3"})
    bench.deliver_delayed()
    await asyncio.sleep(15)
    assert keys(bench, "T") == ["next"]
    (aside,) = bench.records(UNDELIVERABLE_TOPIC)
    assert kept_message(bytes(aside.body)).topic == RETRY


async def test_a_dead_letter_that_no_topic_can_hold_is_set_aside(bench: Bench, peer: Peer) -> None:
    group = "g" * 200
    await peer.send("T", b"poison")
    (record,) = bench.records("T")
    reply = await peer.ask(36, offset=record.physical_offset, group=group, delay_level=-1, origin_topic="T")
    assert reply.code == 0
    (aside,) = bench.records(UNDELIVERABLE_TOPIC)
    assert kept_message(bytes(aside.body)).topic == f"%DLQ%{group}"


async def test_a_refusal_that_passes_sets_nothing_aside(
    bench: Bench, peer: Peer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await peer.send("T", properties=delayed("patient"))
    append, refused = bench.store.append, {"refuses": True}

    def busy(record: NewRecord, plan: AppendPlan = OF_CLIENTS) -> PutResult:
        if refused["refuses"]:
            return PutResult(PutStatus.OS_PAGE_CACHE_BUSY, remark="the disk is slow")
        return append(record, plan)

    monkeypatch.setattr(bench.store, "append", busy)
    bench.deliver_delayed()
    await asyncio.sleep(30)
    assert bench.records(UNDELIVERABLE_TOPIC) == []
    assert sum("the disk is slow" in line for line in caplog.messages) == 1
    refused["refuses"] = False
    await asyncio.sleep(2)
    assert keys(bench, "T") == ["patient"]


async def test_a_message_that_makes_delivery_fail_is_set_aside(
    bench: Bench, peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = bench.store.append

    def fails(record: NewRecord, plan: AppendPlan = OF_CLIENTS) -> PutResult:
        if record.topic == "T" and bytes(record.body) == b"odd":
            raise ValueError("an odd message")
        return append(record, plan)

    await peer.send("T", b"odd", properties=delayed("odd"))
    await peer.send("T", b"even", properties=delayed("even"))
    monkeypatch.setattr(bench.store, "append", fails)
    bench.deliver_delayed()
    await asyncio.sleep(5)
    assert keys(bench, "T") == ["even"]
    (aside,) = bench.records(UNDELIVERABLE_TOPIC)
    assert bytes(kept_message(bytes(aside.body)).body) == b"odd"


async def test_nobody_sends_to_the_topic_of_undeliverable_messages(bench: Bench, peer: Peer) -> None:
    assert (await peer.send(UNDELIVERABLE_TOPIC)).code == 16
    assert (await peer.ask(215, topic=UNDELIVERABLE_TOPIC)).code != 0


async def test_a_delayed_message_for_a_queue_that_was_cut_goes_to_one_that_is_read(bench: Bench, peer: Peer) -> None:
    await peer.create_topic("T", 4)
    await peer.send("T", queue_id=3, properties=delayed("U"))
    await peer.create_topic("T", 2)
    bench.deliver_delayed()
    await asyncio.sleep(2)
    assert [len(bench.records("T", queue)) for queue in range(4)] == [0, 1, 0, 0]


def group_of(queues: int) -> SubscriptionGroupConfig:
    return replace(SubscriptionGroupConfig("G"), retry_queue_nums=queues)


async def test_a_retry_topic_grows_along_with_its_group(bench: Bench, peer: Peer) -> None:
    bench.deliver_delayed()
    await peer.create_group("G", retryQueueNums=1)
    await peer.send("T")
    (record,) = bench.records("T")
    sent_back = {"offset": record.physical_offset, "group": "G", "delay_level": 1, "origin_topic": "T"}
    await peer.ask(36, **sent_back)
    await peer.create_group("G", retryQueueNums=4)
    assert bench.tables.topics.get("%RETRY%G") == TopicConfig("%RETRY%G", 4, 4, 6)
    for _ in range(40):
        await peer.ask(36, **sent_back)
    await asyncio.sleep(2)
    assert all(bench.records("%RETRY%G", queue) for queue in range(4))


async def test_messages_sent_back_go_to_queues_that_are_read(bench: Bench, peer: Peer) -> None:
    bench.deliver_delayed()
    bench.tables.topics.put(TopicConfig("%RETRY%G", 2, 2), 1)
    bench.tables.groups.put(group_of(8), 1)
    await peer.send("T")
    (record,) = bench.records("T")
    for _ in range(40):
        await peer.ask(36, offset=record.physical_offset, group="G", delay_level=1, origin_topic="T")
    await asyncio.sleep(2)
    assert sum(len(bench.records("%RETRY%G", queue)) for queue in (0, 1)) == 40


async def test_retries_in_queues_beyond_those_that_are_read_are_found_at_a_start(bench: Bench, peer: Peer) -> None:
    from tianzhou.broker.messages.retry_queues import widen_to_stored

    bench.tables.topics.put(TopicConfig("%RETRY%G", 1, 1), 1)
    bench.store.append(NewRecord("%RETRY%G", 3, b"failed", b""))
    await asyncio.sleep(0)
    bench.tables.offsets.commit("G", "%RETRY%G", 3, 1, 1)
    assert widen_to_stored(bench.tables, bench.store, 2) == [], "its members have read it"
    bench.tables.offsets.commit("G", "%RETRY%G", 3, 0, 1)
    assert widen_to_stored(bench.tables, bench.store, 2) == ["%RETRY%G"]
    pulled = await peer.pull("%RETRY%G", queue_id=3)
    assert (pulled.code, b"failed" in bytes(pulled.body)) == (0, True)


async def test_metrics_count_messages_that_are_set_aside(broker: OpenBench) -> None:
    async with broker(metrics_exporter_type="PROM", metrics_prom_exporter_port=0) as bench:
        await bench.peer().send("T", b"x" * 5_000, properties=delayed("large"))
        bench.store_settings.max_message_size = 1_000
        bench.deliver_delayed()
        await asyncio.sleep(5)
        metrics = bench.parts.metrics
        await metrics.start(None)
        try:
            assert metrics.exporter is not None
            families = await metrics.exporter.collector.families()
            text = b"".join(pieces(families, metrics.exporter.collector.common)).decode()
        finally:
            await metrics.close()
    (sample,) = [line for line in text.splitlines() if line.startswith("tianzhou_undeliverable_messages{")]
    assert all(part in sample for part in ('ledger="delay"', 'topic="T"', "} 1"))
    assert [line.split()[-1] for line in text.splitlines() if line.startswith("tianzhou_undeliverable_total{")] == ["1"]
