"""Topics with special queues: inner batches of BatchCQ topics, light queues."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from broker_bench import Bench, Peer

from tianzhou.broker.server import make_tables
from tianzhou.broker.settings import BrokerSettings
from tianzhou.broker.state_files import StateFiles
from tianzhou.broker.tables.consumer_offsets import ConsumerOffsetTable
from tianzhou.records.codec import decode_records
from tianzhou.store.files.config_file import JsonFile
from tianzhou.store.settings import StoreSettings
from tianzhou.wire.batch import encode_batch
from tianzhou.wire.codes import RequestCode, ResponseCode
from tianzhou.wire.fields import read_reply
from tianzhou.wire.properties import decode_properties
from tianzhou.wire.pulled import to_message

LIGHT = {"enable_lmq": True, "enable_multi_dispatch": True}


def batch_of(count: int) -> bytes:
    return encode_batch((n, b"inner %d" % n, b"UNIQ_KEY\x01M%d\x02TAGS\x01T\x02" % n) for n in range(count))


BATCHED = "+queue.type=BatchCQ"


async def send_batch(peer: Peer, topic: str, count: int, properties: dict[str, str] | None = None) -> Any:
    return await peer.send(
        topic, batch_of(count), code=RequestCode.SEND_BATCH_MESSAGE, batch=True,
        properties={"UNIQ_KEY": f"B{count}"} if properties is None else properties,
    )  # fmt: skip


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
async def test_a_batch_to_a_batchcq_topic_is_one_record(broker: Any, flush: str) -> None:
    async with broker(store={"flush_disk_type": flush}) as bench:
        peer = bench.peer()
        assert (await peer.create_topic("B", 2, attributes=BATCHED)).code == ResponseCode.SUCCESS
        for base, count in ((0, 3), (3, 2)):
            reply = await send_batch(peer, "B", count)
            assert reply.code == ResponseCode.SUCCESS, reply.remark
            sent = read_reply(RequestCode.SEND_BATCH_MESSAGE, reply)
            assert (sent.queue_offset, sent.batch_uniq_id, sent.transaction_id) == (base, f"B{count}", f"B{count}")
            assert "," not in sent.msg_id
        alone = read_reply(RequestCode.SEND_MESSAGE_V2, await peer.send("B"))
        assert (alone.queue_offset, alone.batch_uniq_id) == (5, None)

        reply = await peer.pull("B")
        assert reply.code == ResponseCode.SUCCESS
        header = read_reply(RequestCode.PULL_MESSAGE, reply)
        assert (header.next_begin_offset, header.min_offset, header.max_offset) == (6, 0, 6)
        first, second, third = decode_records(reply.body)
        assert (first.sys_flag, second.sys_flag, third.sys_flag) == (0xC0, 0xC0, 0)
        properties = decode_properties(second.properties)
        assert (properties["INNER_NUM"], properties["INNER_BASE"]) == ("2", "3")
        messages = [message for record in (first, second, third) for message in to_message(record, "broker-a")]
        assert [message.queue_offset for message in messages] == list(range(6))
        assert [message.body for message in messages[3:5]] == [b"inner 0", b"inner 1"]
        assert messages[4].properties["UNIQ_KEY"] == "M1"


async def test_a_batch_without_a_unique_key_is_an_ordinary_one(peer: Peer) -> None:
    assert (await peer.create_topic("B", 2, attributes=BATCHED)).code == ResponseCode.SUCCESS
    await send_batch(peer, "B", 2)
    sent = read_reply(RequestCode.SEND_BATCH_MESSAGE, await send_batch(peer, "B", 3, {}))
    assert (sent.queue_offset, sent.batch_uniq_id, sent.msg_id.count(",")) == (2, None, 2)
    records = list(decode_records((await peer.pull("B")).body))
    assert [record.queue_offset for record in records] == [0, 2, 3, 4]
    assert [record.sys_flag & 0xC0 for record in records] == [0xC0, 0, 0, 0]


async def test_only_the_broker_makes_inner_batches(peer: Peer) -> None:
    assert (await peer.create_topic("B", 2, attributes=BATCHED)).code == ResponseCode.SUCCESS
    assert (await peer.create_topic("S", 2)).code == ResponseCode.SUCCESS
    for topic in ("B", "S"):
        forged = await peer.send(topic, batch_of(2), sys_flag=0xC0)
        assert forged.code == ResponseCode.MESSAGE_ILLEGAL
        forged = await peer.send(topic, properties={"UNIQ_KEY": "K", "INNER_NUM": "2"})
        assert forged.code == ResponseCode.MESSAGE_ILLEGAL
    sent = read_reply(RequestCode.SEND_BATCH_MESSAGE, await send_batch(peer, "S", 2))
    assert (sent.batch_uniq_id, sent.msg_id.count(",")) == (None, 1)


async def test_a_topic_made_again_may_be_of_another_type(bench: Bench, peer: Peer) -> None:
    root = bench.store_settings.root
    for attributes, family, other in (
        ("+queue.type=BatchCQ", "batchconsumequeue", "consumequeue"),
        ("", "consumequeue", "batchconsumequeue"),
        ("+queue.type=BatchCQ", "batchconsumequeue", "consumequeue"),
    ):
        assert (await peer.create_topic("B", 2, attributes=attributes)).code == ResponseCode.SUCCESS
        assert (await send_batch(peer, "B", 2)).code == ResponseCode.SUCCESS
        assert bench.store.max_offset("B", 0) == 2
        assert (root / family / "B" / "0").is_dir()
        assert not (root / other / "B" / "0").exists()
        assert (await peer.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic="B")).code == ResponseCode.SUCCESS
        assert bench.store.max_offset("B", 0) == 0


async def test_a_message_is_found_in_the_light_queues_it_names(broker: Any) -> None:
    async with broker(store=LIGHT) as bench:
        peer = bench.peer()
        waits = peer.post_pull("%LMQ%b", sys_flag=6)
        for number, named in enumerate(("%LMQ%a", "%LMQ%a,%LMQ%b", "%LMQ%a")):
            sent = await peer.send("T", b"%d" % number, properties={"UNIQ_KEY": "K", "INNER_MULTI_DISPATCH": named})
            assert sent.code == ResponseCode.SUCCESS
        assert [r.body for r in decode_records((await peer.reply(waits)).body)] == [b"1"]
        reply = await peer.pull("%LMQ%a")
        header = read_reply(RequestCode.PULL_MESSAGE, reply)
        assert (header.next_begin_offset, header.max_offset) == (3, 3)
        records = list(decode_records(reply.body))
        assert [(record.topic, record.body) for record in records] == [("T", b"0"), ("T", b"1"), ("T", b"2")]
        assert decode_properties(records[1].properties)["INNER_MULTI_QUEUE_OFFSET"] == "1,0"
        assert (await peer.pull("%LMQ%a", queue_id=1)).code == ResponseCode.INVALID_PARAMETER
        assert (await peer.pull("%LMQ%unused")).code == ResponseCode.PULL_NOT_FOUND
        assert "%LMQ%a" not in bench.tables.topics.all()


async def test_without_the_setting_light_queues_are_no_topics(bench: Bench, peer: Peer) -> None:
    await peer.send("T", properties={"UNIQ_KEY": "K", "INNER_MULTI_DISPATCH": "%LMQ%a"})
    assert (await peer.pull("%LMQ%a")).code == ResponseCode.TOPIC_NOT_EXIST
    assert bench.store.topics() == ["T"]


async def test_groups_of_light_queues_commit_without_being_created(broker: Any) -> None:
    async with broker(store=LIGHT, auto_create_subscription_group=False) as bench:
        peer = bench.peer()
        group, topic = "%LMQ%g", "%LMQ%a"
        committed = await peer.ask(
            RequestCode.UPDATE_CONSUMER_OFFSET, consumer_group=group, topic=topic, queue_id=0, commit_offset=7
        )
        assert committed.code == ResponseCode.SUCCESS
        asked = await peer.ask(RequestCode.QUERY_CONSUMER_OFFSET, consumer_group=group, topic=topic, queue_id=0)
        assert read_reply(RequestCode.QUERY_CONSUMER_OFFSET, asked).offset == 7
        assert group not in bench.tables.groups.all()


def test_offsets_of_light_groups_have_their_own_table() -> None:
    offsets = ConsumerOffsetTable(light=True)
    offsets.commit("%LMQ%g", "%LMQ%a", 0, 7, 1)
    offsets.commit("G", "%LMQ%a", 0, 8, 1)
    value = offsets.to_json()
    assert value["lmqOffsetTable"] == {"%LMQ%a@%LMQ%g": 7}
    assert value["offsetTable"] == {"%LMQ%a@G": {0: 8}}
    again = ConsumerOffsetTable(light=True)
    again.load(value)
    assert (again.committed("%LMQ%g", "%LMQ%a", 0), again.committed("G", "%LMQ%a", 0)) == (7, 8)
    assert "lmqOffsetTable" not in ConsumerOffsetTable().to_json()


@pytest.mark.parametrize("before", [False, True])
def test_groups_go_on_where_they_were_when_light_queues_are_turned_on_or_off(before: bool, tmp_path: Path) -> None:
    for light in (before, not before):
        store = StoreSettings(store_path_root_dir=str(tmp_path), enable_lmq=light)
        tables = make_tables(BrokerSettings(broker_ip1="127.0.0.1"), store, 0)
        files = StateFiles(tables, tmp_path / "config")
        files.load()
        if light is before:
            tables.offsets.commit("G", "T", 1, 5, 0)
        assert tables.offsets.committed("G", "T", 1) == 5
        files.close()
        name = "lmqConsumerOffset.json" if light else "consumerOffset.json"
        assert JsonFile(tmp_path / "config" / name).load()["offsetTable"] == {"T@G": {1: 5}}
