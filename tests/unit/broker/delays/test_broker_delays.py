"""Delayed messages, messages sent back, dead letters: through the schedule topic and out again."""

import asyncio
from typing import Any

import pytest
from broker_bench import Bench, OpenBench, Peer

from open_fixtures import open_for_test
from store_reads import read_now
from tianzhou.model import SubscriptionGroupConfig, TopicConfig
from tianzhou.wire.fields import read_reply
from tianzhou.wire.properties import decode_properties

SCHEDULE = "SCHEDULE_TOPIC_XXXX"
STEPS_S = [10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200]

SELDOM_MS = {
    "flush_interval_commit_log": 60_000,
    "flush_interval_consume_queue": 60_000,
    "clean_resource_interval": 60_000,
}
"""Long intervals of the store's own tasks, which would otherwise run thousands of times in hours of virtual time."""


@pytest.fixture
def bench(broker: OpenBench, request: pytest.FixtureRequest) -> Bench:
    return open_for_test(request, broker(store=SELDOM_MS))


def properties(record: Any) -> dict[str, str]:
    return decode_properties(record.properties)


@pytest.mark.parametrize(("level", "seconds"), [("1", 1), ("3", 10), ("18", 7200), ("99", 7200)])
async def test_a_delayed_message_waits_its_time(bench: Bench, level: str, seconds: int) -> None:
    bench.deliver_delayed()
    sent_at = bench.clock.now_ms()
    reply = await bench.peer().send(
        "T", queue_id=2, properties={"UNIQ_KEY": "U", "TAGS": "TagA", "DELAY": level, "TIMER_DELAY_MS": "9"}
    )
    header = read_reply(310, reply)
    assert (reply.code, header.queue_id, header.transaction_id) == (0, 2, "U")
    capped = min(int(level), 18)
    (waiting,) = bench.records(SCHEDULE, capped - 1)
    assert header.msg_id.endswith(f"{waiting.physical_offset:016X}")
    assert properties(waiting)["REAL_TOPIC"] == "T"
    assert properties(waiting)["REAL_QID"] == "2"
    assert properties(waiting)["DELAY"] == str(capped)
    assert "TIMER_DELAY_MS" not in properties(waiting)
    await asyncio.sleep(seconds - 0.5)
    assert bench.records("T", 2) == []
    await asyncio.sleep(0.6)
    (delivered,) = bench.records("T", 2)
    assert abs(delivered.store_timestamp - sent_at - seconds * 1000) <= 50
    assert delivered.properties == waiting.properties
    assert (delivered.body, delivered.born_timestamp) == (waiting.body, waiting.born_timestamp)
    assert read_now(bench.store, "T", 2, 0, 1, frozenset({2598919})).count == 1
    assert bench.tables.delays.offset(capped) == 1


async def test_a_hundred_at_once_are_all_in_time(bench: Bench, peer: Peer) -> None:
    bench.deliver_delayed()
    for n in range(100):
        await peer.send("T", properties={"UNIQ_KEY": f"U{n}", "DELAY": "2"})
    await asyncio.sleep(6)
    late = [
        r.store_timestamp - w.store_timestamp
        for r, w in zip(bench.records("T"), bench.records(SCHEDULE, 1), strict=True)
    ]
    assert len(late) == 100
    assert all(5_000 <= one <= 5_100 for one in late)


async def test_levels_do_not_wait_for_each_other(bench: Bench, peer: Peer) -> None:
    bench.deliver_delayed()
    for level in ("5", "1", "3"):
        await peer.send("T", level.encode(), properties={"UNIQ_KEY": "U", "DELAY": level})
    await asyncio.sleep(61)
    assert [record.body for record in bench.records("T")] == [b"1", b"3", b"5"]


async def test_delivery_goes_on_where_it_stopped(bench: Bench, peer: Peer) -> None:
    for n in range(3):
        await peer.send("T", properties={"UNIQ_KEY": f"U{n}", "DELAY": "1"})
    bench.tables.delays.advance(1, 2, 1)
    await asyncio.sleep(60)
    bench.deliver_delayed()
    await asyncio.sleep(1)
    assert [properties(record)["UNIQ_KEY"] for record in bench.records("T")] == ["U2"]


async def test_positions_from_another_life_are_brought_into_bounds(bench: Bench) -> None:
    await bench.peer().send("T", properties={"UNIQ_KEY": "U", "DELAY": "1"})
    bench.tables.delays.advance(1, 50, 1)
    bench.deliver_delayed()
    await asyncio.sleep(1)
    await bench.peer().send("T", properties={"UNIQ_KEY": "V", "DELAY": "1"})
    await asyncio.sleep(3)
    assert [properties(record)["UNIQ_KEY"] for record in bench.records("T")] == ["V"]


async def test_positions_that_outlived_their_queue(bench: Bench) -> None:
    bench.tables.delays.advance(1, 50, 1)
    bench.deliver_delayed()
    await asyncio.sleep(1)
    await bench.peer().send("T", properties={"UNIQ_KEY": "V", "DELAY": "1"})
    await asyncio.sleep(3)
    assert [properties(record)["UNIQ_KEY"] for record in bench.records("T")] == ["V"]


async def test_what_cannot_be_delivered_does_not_block_the_level(bench: Bench) -> None:
    from tianzhou.store.results import NewRecord

    bench.store.append(NewRecord(SCHEDULE, 0, b"x", b"DELAY\x011\x02"))
    await bench.peer().send("T", properties={"UNIQ_KEY": "U", "DELAY": "1"})
    bench.deliver_delayed()
    await asyncio.sleep(2)
    assert len(bench.records("T")) == 1


async def test_a_delay_that_is_no_number(bench: Bench) -> None:
    reply = await bench.peer().send("T", properties={"UNIQ_KEY": "U", "DELAY": "soon"})
    assert reply.code == 1
    assert "soon" in (reply.remark or "")
    for none in ("0", "-1"):
        assert (await bench.peer().send("T", properties={"UNIQ_KEY": "U", "DELAY": none})).code == 0
    assert len(bench.records("T")) == 2


async def send_back(peer: Peer, record: Any, **more: Any) -> Any:
    fields = {"offset": record.physical_offset, "group": "G", "delay_level": 0, "origin_topic": "T", "unit_mode": False}
    return await peer.ask(36, **fields | more)


async def test_the_sixteen_steps_and_the_dead_letter(bench: Bench, peer: Peer) -> None:
    bench.deliver_delayed()
    await peer.send("T", b"poison", queue_id=3, flag=5, properties={"UNIQ_KEY": "U", "TAGS": "t", "KEYS": "k"})
    (original,) = bench.records("T", 3)
    record = original
    for step, seconds in enumerate(STEPS_S):
        since = bench.clock.now_ms()
        assert (await send_back(peer, record)).code == 0
        await asyncio.sleep(seconds + 0.2)
        retried = bench.records("%RETRY%G")
        assert len(retried) == step + 1
        record = retried[-1]
        assert abs(record.store_timestamp - since - seconds * 1000) <= 100
        assert record.reconsume_times == step + 1
    assert (await send_back(peer, record)).code == 0
    await asyncio.sleep(8_000)
    assert len(bench.records("%RETRY%G")) == 16
    (dead,) = bench.records("%DLQ%G")
    assert bench.tables.topics.get("%DLQ%G") == TopicConfig("%DLQ%G", 1, 1, 6)
    assert (dead.body, dead.flag, dead.reconsume_times) == (b"poison", 5, 17)
    kept = properties(dead)
    assert kept["RETRY_TOPIC"] == "T"
    assert kept["ORIGIN_MESSAGE_ID"] == f"7F00000100007923{original.physical_offset:016X}"
    assert (kept["UNIQ_KEY"], kept["TAGS"], kept["WAIT"], kept["DELAY"]) == ("U", "t", "false", "0")


async def test_levels_and_limits_of_a_message_sent_back(bench: Bench, peer: Peer) -> None:
    await peer.send("T")
    (record,) = bench.records("T")
    await send_back(peer, record, delay_level=5)
    await send_back(peer, record, delay_level=99)
    assert (len(bench.records(SCHEDULE, 4)), len(bench.records(SCHEDULE, 17))) == (1, 1)
    await send_back(peer, record, delay_level=-1)
    await send_back(peer, record, max_reconsume_times=0)
    assert len(bench.records("%DLQ%G")) == 2
    await send_back(peer, record, max_reconsume_times=0, version=120)
    assert len(bench.records("%DLQ%G")) == 2, "clients below 3.4.9 do not set the limit"
    bench.tables.groups.put(SubscriptionGroupConfig("few", retry_max_times=0), 1)
    await send_back(peer, record, group="few")
    assert len(bench.records("%DLQ%few")) == 1


async def test_sending_back_that_is_refused(bench: Bench, peer: Peer) -> None:
    await peer.send("T")
    (record,) = bench.records("T")
    assert (await peer.ask(36, offset=1 << 40, group="G", delay_level=0)).code == 1
    bench.tables.groups.put(SubscriptionGroupConfig("none", retry_queue_nums=0), 1)
    assert (await send_back(peer, record, group="none")).code == 0
    assert "%RETRY%none" not in bench.tables.topics
    bench.tables.topics.put(TopicConfig("%RETRY%shut", 1, 1, 4), 1)
    assert (await send_back(peer, record, group="shut")).code == 16
    bench.settings.broker_permission = 4
    assert (await send_back(peer, record)).code == 16
    bench.tables.groups.auto_create = False
    assert (await send_back(peer, record, group="new")).code == 26


async def test_clients_that_retry_by_themselves(bench: Bench, peer: Peer) -> None:
    assert (await peer.send("%RETRY%G", reconsume_times=16)).code == 0
    assert len(bench.records("%RETRY%G")) == 1
    reply = await peer.send("%RETRY%G", reconsume_times=17, properties={"UNIQ_KEY": "U", "DELAY": "5"})
    assert read_reply(310, reply).queue_id == 0
    (dead,) = bench.records("%DLQ%G")
    assert properties(dead)["DELAY"] == "-1"
    assert (await peer.send("%RETRY%G", reconsume_times=3, max_reconsume_times=2)).code == 0
    assert len(bench.records("%DLQ%G")) == 2


async def test_while_a_group_consumes_in_order_its_retries_go_to_the_dead_letters(bench: Bench) -> None:
    from tianzhou.model import MessageQueue

    bench.tables.locks.lock("G", "c1", [MessageQueue("T", "broker-a", 0)], int(bench.clock.monotonic() * 1000))
    await bench.peer().send("%RETRY%G", reconsume_times=1)
    assert len(bench.records("%DLQ%G")) == 1
    await asyncio.sleep(61)
    await bench.peer().send("%RETRY%G", reconsume_times=1)
    assert len(bench.records("%RETRY%G")) == 1


async def test_retry_topics_of_long_groups(bench: Bench) -> None:
    topic = "%RETRY%" + "g" * 200
    assert (await bench.peer().send(topic)).code == 0
    assert len(bench.records(topic)) == 1
