"""Sends: 10, 310, 320."""

import asyncio
import random

import pytest
from broker_bench import Bench, OpenBench, Peer

from store_probe import StoreProbe
from store_reads import read_now
from tianzhou.model import TopicConfig
from tianzhou.records.codec import decode_records
from tianzhou.store.files.lookup_steps import at_once
from tianzhou.wire.batch import encode_batch
from tianzhou.wire.codes import RequestCode, ResponseCode
from tianzhou.wire.fields import read_reply
from tianzhou.wire.hashing import tags_code
from tianzhou.wire.properties import decode_properties, encode_properties

BROKER_PROPERTIES = {"CLUSTER": "DefaultCluster", "MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}


async def test_a_message_is_stored_and_its_place_returned(bench: Bench, peer: Peer) -> None:
    sent = {"TAGS": "TagA", "KEYS": "k1 k2", "UNIQ_KEY": "U1", "WAIT": "true", "colour": "red"}
    for code, place in ((310, 0), (310, 1), (10, 2)):
        reply = await peer.send("T", b"hello", code=code, queue_id=1, properties=sent, flag=7, born_timestamp=99)
        assert reply.code == 0
        header = read_reply(code, reply)
        assert (header.queue_id, header.queue_offset, header.transaction_id) == (1, place, "U1")
        assert (header.msg_region, header.trace_on) == ("DefaultRegion", True)
        stored = bench.records("T", 1)[place]
        assert header.msg_id == f"7F00000100007923{stored.physical_offset:016X}"
        assert (stored.body, stored.flag, stored.born_timestamp) == (b"hello", 7, 99)
        assert (stored.born_host, stored.born_port) == (b"\x7f\0\0\1", peer.connection.remote_port)
        assert decode_properties(stored.properties) == sent | BROKER_PROPERTIES
    assert at_once(bench.store.lookups.key_steps("T", "k2", 32)).physical_offsets
    assert at_once(bench.store.lookups.key_steps("T", "U1", 32)).physical_offsets
    assert read_now(bench.store, "T", 1, 0, 32, frozenset({2598919})).count == 3
    assert bench.stats.put_count == 3


async def test_the_first_send_creates_the_topic(bench: Bench) -> None:
    await bench.peer().send("fresh", default_topic_queue_nums=3)
    assert bench.tables.topics.get("fresh") == TopicConfig("fresh", 3, 3, 6)


async def test_no_auto_creation_no_topic(broker: OpenBench) -> None:
    async with broker(auto_create_topic_enable=False) as bench:
        reply = await bench.peer().send("fresh")
        assert reply.code == 17
        assert "topic[fresh] not exist" in (reply.remark or "")
        assert reply.fields["MSG_REGION"] == "DefaultRegion"


async def test_oneway_is_stored_and_not_answered(bench: Bench, peer: Peer) -> None:
    await peer.send("T")
    opaques = [peer.post_send("T", oneway=True) for _ in range(3)]
    await peer.send("T")
    assert all(peer.peek(opaque) is None for opaque in opaques)
    assert len(bench.records("T")) == 5


async def test_what_a_client_says_of_hosts_is_not_believed(bench: Bench) -> None:
    await bench.peer().send("T", sys_flag=0x31)
    await bench.peer().send("T", sys_flag=0x31)
    assert [record.sys_flag for record in bench.records("T")] == [1, 1]


async def test_queues(bench: Bench, peer: Peer) -> None:
    bench.tables.topics.put(TopicConfig("T", 2, 2), 1)
    bench.tables.topics.put(TopicConfig("wide", 5, 2), 1)
    beyond = await peer.send("T", queue_id=2)
    assert beyond.code == 29
    assert "queueId[2]" in (beyond.remark or "")
    assert (await peer.send("wide", queue_id=4)).code == 0
    chosen = {read_reply(310, await peer.send("T", queue_id=-1)).queue_id for _ in range(40)}
    assert chosen == {0, 1}
    assert (await peer.send("T", queue_id=2)).code == 29, "also once the topic is known to be fit"


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        ("SCHEDULE_TOPIC_XXXX", 16), ("RMQ_SYS_TRANS_HALF_TOPIC", 16), ("OFFSET_MOVED_EVENT", 16),
        ("bad name", 29), ("x" * 128, 29), ("BenchmarkTest", 0), ("TBW102", 0),
    ],
)  # fmt: skip
async def test_topics_that_may_not_be_sent_to(bench: Bench, topic: str, code: int) -> None:
    for _ in range(2):
        assert (await bench.peer().send(topic)).code == code


async def test_a_broker_without_write_permission_refuses_only_ordered_topics(broker: OpenBench) -> None:
    async with broker(broker_permission=4) as bench:
        bench.tables.topics.put(TopicConfig("ordered", order=True), 1)
        bench.tables.topics.put(TopicConfig("plain", perm=4), 1)
        assert (await bench.peer().send("ordered")).code == 16
        assert (await bench.peer().send("plain")).code == 0


async def test_too_early(broker: OpenBench) -> None:
    async with broker(start_accept_send_request_time_stamp=1 << 60) as bench:
        assert (await bench.peer().send("T")).code == 1


@pytest.mark.over_limit("maxPropertiesBytes")
@pytest.mark.over_limit("maxMessageSize")
async def test_illegal_messages(broker: OpenBench) -> None:
    async with broker(store={"max_message_size": 1_000}) as bench:
        peer = bench.peer()
        await peer.send("T")
        too_long = await peer.send("T", properties={"UNIQ_KEY": "U", "x": "v" * 32_768})
        assert too_long.code == 13
        assert "32767" in (too_long.remark or "")
        assert (await peer.send("T", properties={"UNIQ_KEY": "U", "x": "v" * 30_000})).code == 0
        assert (await peer.send("T", b"x" * 1_000)).code == 0
        assert (await peer.send("T", b"x" * 1_001)).code == 13
        assert (await peer.send("T", b"")).code == 1
        assert (await peer.send("T", sys_flag=0x80)).code == 13
        assert (await peer.send("T", sys_flag=0x40)).code == 13
        assert len(bench.records("T")) == 3
        assert await peer.refused() == {"maxPropertiesBytes": "1", "maxMessageSize": "1"}


async def test_a_message_without_unique_key_gets_one(bench: Bench, peer: Peer) -> None:
    await peer.send("T")
    for properties in ({}, {"TAGS": "TagA"}):
        reply = read_reply(310, await peer.send("T", properties=properties))
        stored = decode_properties(bench.records("T")[reply.queue_offset].properties)
        assert stored["UNIQ_KEY"] == reply.transaction_id
        assert len(reply.transaction_id) == 32


async def test_properties_survive_as_they_are(bench: Bench, peer: Peer) -> None:
    await peer.send("T")
    await peer.reply(peer.post(
        310, b"x", producer_group="P", topic="T", default_topic="TBW102", default_topic_queue_nums=4, queue_id=0,
        sys_flag=0, born_timestamp=1, flag=0, properties="a\x01b\x01c\x02junk\x02属性\x01值\x02UNIQ_KEY\x01U",
    ))  # fmt: skip
    stored = decode_properties(bench.records("T")[1].properties)
    assert stored == {"a": "b\x01c", "属性": "值", "UNIQ_KEY": "U"} | BROKER_PROPERTIES


async def test_the_short_way_reads_properties_as_the_long_one_does(bench: Bench, peer: Peer) -> None:
    await peer.send("T")
    pieces = [
        "TAGS\x01A",
        "KEYS\x01k",
        "a\x01b\x01c",
        "a\x01",
        "\x01b",
        "junk",
        "",
        "é\x01ü",
        "TAGS\x01B",
        "WAIT\x01false",
    ]
    chance = random.Random(7)
    for n in range(1, 300):
        chosen = [*chance.sample(pieces, chance.randrange(5)), "UNIQ_KEY\x01U"]
        chance.shuffle(chosen)
        text = "\x02".join(chosen) + chance.choice(["", "\x02"])
        await peer.reply(
            peer.post(
                310,
                b"x",
                producer_group="P",
                topic="T",
                default_topic="TBW102",
                default_topic_queue_nums=4,
                queue_id=0,
                sys_flag=0,
                born_timestamp=1,
                flag=0,
                properties=text,
            )
        )
        (stored,) = decode_records(b"".join(read_now(bench.store, "T", 0, n, 1).parts))
        expected = decode_properties(text.encode())
        assert decode_properties(stored.properties) == expected | BROKER_PROPERTIES, text
        tag = expected.get("TAGS")
        assert read_now(bench.store, "T", 0, n, 1, frozenset({tags_code(tag)})).count == 1, text


async def test_pop_handles_are_taken_off(bench: Bench) -> None:
    await bench.peer().send("T", properties={"UNIQ_KEY": "U", "POP_CK": "1 2 3"})
    assert "POP_CK" not in decode_properties(bench.records("T")[0].properties)


async def test_timers_are_refused_not_taken_for_ordinary(bench: Bench, peer: Peer) -> None:
    await peer.send("T")
    assert (await peer.send("T", properties={"UNIQ_KEY": "U", "TIMER_DELAY_SEC": "5"})).code == 1
    assert len(bench.records("T")) == 1


def batch(*entries: dict[str, str]) -> bytes:
    return encode_batch([(n, f"body {n}".encode(), encode_properties(entry)) for n, entry in enumerate(entries)])


async def test_a_batch_becomes_messages_with_consecutive_offsets(bench: Bench, peer: Peer) -> None:
    members = batch(
        {"UNIQ_KEY": "A", "TAGS": "TagA", "KEYS": "k"}, {"UNIQ_KEY": "B"}, {"UNIQ_KEY": "C", "WAIT": "false"}
    )
    reply = await peer.send("T", members, code=320, batch=True, properties={"WAIT": "true"})
    header = read_reply(320, reply)
    stored = bench.records("T")
    assert (reply.code, header.queue_offset, header.transaction_id) == (0, 0, None)
    assert header.msg_id == ",".join(f"7F00000100007923{one.physical_offset:016X}" for one in stored)
    assert [(one.queue_offset, one.flag, one.body) for one in stored] == [
        (0, 0, b"body 0"), (1, 1, b"body 1"), (2, 2, b"body 2"),
    ]  # fmt: skip
    assert decode_properties(stored[0].properties) == (
        {"UNIQ_KEY": "A", "TAGS": "TagA", "KEYS": "k", "WAIT": "true"} | BROKER_PROPERTIES
    )
    assert read_now(bench.store, "T", 0, 0, 32, frozenset({2598919})).count == 1
    again = await peer.send("T", members, code=10, batch=True, properties={"UNIQ_KEY": "SHARED"})
    assert read_reply(10, again).transaction_id == "SHARED"
    assert decode_properties(bench.records("T")[3].properties)["UNIQ_KEY"] == "SHARED"


async def test_batches_that_are_refused(bench: Bench, peer: Peer) -> None:
    good = batch({"UNIQ_KEY": "A"})
    for topic, data, properties, code in (
        ("%RETRY%G", good, {}, 13),
        ("x" * 128, good, {}, 29),
        ("T", good, {"DELAY": "3"}, 13),
        ("T", good, {"TRAN_MSG": "true"}, 13),
        ("T", good + b"\0\0", {}, 1),
        ("T", b"\0\0\0\x05" + good[4:], {}, 1),
        ("T", good[:-1], {}, 1),
        ("T", b"", {}, 1),
    ):
        reply = await peer.send(topic, data, code=320, batch=True, properties=properties)
        assert reply.code == code, (topic, data, properties, reply.remark)
    assert bench.records("T") == []


async def test_sync_flush_answers_when_the_disk_has_it(broker: OpenBench) -> None:
    async with broker(store={"flush_disk_type": "SYNC_FLUSH"}) as bench:
        peer = bench.peer()
        for properties in ({"UNIQ_KEY": "U"}, {"UNIQ_KEY": "U"}, {"UNIQ_KEY": "U", "WAIT": "false"}):
            reply = read_reply(310, await peer.send("T", properties=properties))
            if "WAIT" not in properties:
                assert bench.store.flushed.value > int(reply.msg_id[16:], 16)
        waiting = [peer.post_send("T") for _ in range(5)]
        assert [(await peer.reply(one)).code for one in waiting] == [0] * 5


async def test_a_disk_that_is_too_slow_is_reported_and_the_message_is_stored(broker: OpenBench) -> None:
    async with broker(store={"flush_disk_type": "SYNC_FLUSH"}) as bench:
        peer = bench.peer()
        await peer.send("T")

        async def never() -> None:
            await asyncio.Event().wait()

        StoreProbe(bench.store).replace_flush(never)
        since = bench.clock.now_ms()
        late = [peer.post_send("T", queue_id=1) for _ in range(3)]
        for opaque in late:
            reply = await peer.reply(opaque)
            assert reply.code == 10
            assert read_reply(310, reply).queue_id == 1
            assert reply.fields["TRACE_ON"] == "true"
        assert bench.clock.now_ms() - since == pytest.approx(5_000, abs=100)
        assert (await peer.send("T", properties={"UNIQ_KEY": "U", "WAIT": "false"})).code == 0


async def test_a_disk_that_refuses_is_reported(broker: OpenBench) -> None:
    async with broker(store={"flush_disk_type": "SYNC_FLUSH"}) as bench:
        peer = bench.peer()
        await peer.send("T")
        waiting = [peer.post_send("T") for _ in range(3)]
        StoreProbe(bench.store).fail_flush(OSError("worn out"))
        assert [(await peer.reply(opaque)).code for opaque in waiting] == [10, 10, 10]
        assert (await peer.send("T")).code == 14


async def test_a_store_that_cannot_take_it_says_so(bench: Bench, peer: Peer) -> None:
    await peer.send("T")
    bench.store.close_now()
    refused = await peer.send("T")
    assert refused.code == 14
    assert refused.remark
    assert (await peer.send("T", batch({"a": "b"}), batch=True)).code == 14


async def test_a_missing_field_is_named(peer: Peer) -> None:
    reply = await peer.ask(RequestCode.SEND_MESSAGE, b"x", topic="T", queue_id=0)
    assert reply.code == 1
    assert "producerGroup" in (reply.remark or "")


async def test_topics_that_keep_the_last_of_each_key_want_a_key(bench: Bench, peer: Peer) -> None:
    bench.tables.topics.put(TopicConfig("C", attributes={"cleanup.policy": "COMPACTION"}), 1)
    for properties in ({"UNIQ_KEY": "U"}, {"UNIQ_KEY": "U", "KEYS": " "}):
        for _ in range(2):
            refused = await peer.send("C", properties=properties)
            assert refused.code == ResponseCode.MESSAGE_ILLEGAL
            assert refused.remark is not None
            assert refused.remark.startswith("Required message key is missing")
    assert (await peer.send("C", properties={"UNIQ_KEY": "U", "KEYS": "k"})).code == ResponseCode.SUCCESS
