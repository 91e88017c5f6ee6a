"""Half messages and their decisions, and the log after each."""

from __future__ import annotations

import asyncio

import pytest
from broker_bench import Bench, OpenBench, Peer
from transaction_talk import (
    COMMIT,
    GIVEN_UP,
    HALF,
    OP,
    ROLLBACK,
    UNKNOWN,
    bodies,
    checking,
    end,
    fields,
    prepare,
    questions,
)

from store_reads import read_now
from tianzhou.model.names import UNDELIVERABLE_TOPIC
from tianzhou.store.files.lookup_steps import at_once
from tianzhou.store.results import NewRecord
from tianzhou.wire.fields import read_reply
from tianzhou.wire.ids import offset_msg_id
from tianzhou.wire.properties import decode_properties
from tianzhou.wire.undeliverable import kept_message


async def test_a_half_message_is_not_to_be_seen(bench: Bench, peer: Peer) -> None:
    sent = await prepare(peer, queue_id=2, colour="red")
    assert bench.records("T", 2) == []
    (half,) = bench.records(HALF)
    assert (half.queue_offset, half.physical_offset) == (sent.offset, sent.place)
    assert (half.sys_flag, half.prepared_transaction_offset, half.born_timestamp) == (0, 0, 99)
    assert decode_properties(half.properties) == {
        "TAGS": "TagA", "KEYS": "k-U", "TRAN_MSG": "true", "PGROUP": "P", "UNIQ_KEY": "U", "colour": "red",
        "CLUSTER": "DefaultCluster", "MSG_REGION": "DefaultRegion", "TRACE_ON": "true",
        "__transactionId__": "U", "REAL_TOPIC": "T", "REAL_QID": "2",
    }  # fmt: skip
    assert at_once(bench.store.lookups.key_steps("T", "U", 32)).physical_offsets == []


async def test_a_committed_message_is_where_it_was_sent(bench: Bench, peer: Peer) -> None:
    sent = await prepare(peer, queue_id=2)
    (half,) = bench.records(HALF)
    assert (await end(peer, sent, COMMIT)).code == 0
    (message,) = bench.records("T", 2)
    assert (message.sys_flag, message.prepared_transaction_offset) == (8, half.physical_offset)
    assert (message.body, message.properties, message.flag) == (half.body, half.properties, half.flag)
    assert (message.born_timestamp, message.born_port) == (half.born_timestamp, half.born_port)
    assert read_now(bench.store, "T", 2, 0, 1, frozenset({2598919})).count == 1
    for key in ("U", "k-U"):
        assert at_once(bench.store.lookups.key_steps("T", key, 32)).physical_offsets == [message.physical_offset]
    assert bench.stats.put("T").count == 1
    assert len(bench.tables.transactions) == 0


async def test_a_message_rolled_back_stays_unseen(bench: Bench, peer: Peer) -> None:
    sent = await prepare(peer)
    assert (await end(peer, sent, ROLLBACK)).code == 0
    await asyncio.sleep(0.01)
    assert bench.records("T") == []
    (mark,) = bench.records(OP)
    assert (mark.body, mark.sys_flag) == (b"0,", 0)
    assert mark.properties == b"WAIT\x01true\x02TAGS\x01d\x02", "as Apache 5.3.3 writes it"
    assert (mark.born_host, mark.born_port) == (mark.store_host, mark.store_port)
    assert read_now(bench.store, OP, 0, 0, 1, frozenset({100})).count == 1, "tag d"


async def test_oneway_decisions_and_the_ones_not_made_yet(bench: Bench, peer: Peer) -> None:
    one, other = await prepare(peer, "U1"), await prepare(peer, "U2")
    for outcome in (UNKNOWN, 4, 99):
        opaque = peer.post(37, **fields(one, outcome))
        await asyncio.sleep(0.1)
        assert peer.peek(opaque) is None
    assert bench.records("T") == []
    opaque = peer.post(37, oneway=True, **fields(one, COMMIT))
    peer.post(37, oneway=True, **fields(other, ROLLBACK))
    await asyncio.sleep(0.1)
    assert peer.peek(opaque) is None
    assert len(bench.records("T")) == 1


@pytest.mark.parametrize(("first", "second"), [(COMMIT, ROLLBACK), (ROLLBACK, COMMIT)])
async def test_a_transaction_ends_once(bench: Bench, peer: Peer, first: int, second: int) -> None:
    sent = await prepare(peer)
    assert (await end(peer, sent, first)).code == 0
    late = await end(peer, sent, second)
    assert late.code == 1
    assert "a transaction ends once" in (late.remark or "")
    assert (await end(peer, sent, first)).code == 0, "saying the same again is no error"
    await asyncio.sleep(1)
    assert len(bench.records("T")) == (first == COMMIT)


async def test_decisions_that_are_refused(bench: Bench, peer: Peer) -> None:
    sent, other = await prepare(peer), await prepare(peer, "V")
    await peer.send("T", b"plain", queue_id=1)
    (plain,) = bench.records("T", 1)
    for outcome in (COMMIT, ROLLBACK):
        for wrong, remark in (
            (fields(sent, outcome, group="Q"), "producer group wrong"),
            (fields(sent, outcome) | {"tran_state_table_offset": other.offset}, "state table offset wrong"),
            (
                fields(sent, outcome) | {"commit_log_offset": sent.place + 1},
                "Find prepared transaction message failed",
            ),
            (fields(sent, outcome) | {"commit_log_offset": plain.physical_offset}, "Find prepared"),
            (fields(sent, outcome) | {"commit_log_offset": -1}, "Find prepared"),
            (fields(sent, outcome) | {"commit_log_offset": 1 << 50}, "Find prepared"),
        ):
            reply = await peer.ask(37, **wrong)
            assert reply.code == 1
            assert remark in (reply.remark or ""), wrong
    assert len(bench.tables.transactions) == 2
    bench.services.replication.is_slave = True
    assert (await end(peer, sent, COMMIT)).code == 11
    bench.services.replication.is_slave = False
    assert bench.records("T") == []
    assert (await end(peer, sent, COMMIT)).code == 0


async def test_a_store_that_takes_nothing_keeps_the_transaction_open(bench: Bench, peer: Peer) -> None:
    from tianzhou.store.flags import RunningFlag

    sent = await prepare(peer)
    bench.store.flags.put_up(RunningFlag.DISK_FULL, "disk full; free space")
    reply = await end(peer, sent, COMMIT)
    assert (reply.code, "disk full" in (reply.remark or "")) == (14, True)
    assert len(bench.tables.transactions) == 1
    bench.store.flags.take_down(RunningFlag.DISK_FULL)
    assert (await end(peer, sent, COMMIT)).code == 0
    assert len(bench.records("T")) == 1


async def test_a_broker_that_takes_no_transactions(broker: OpenBench) -> None:
    async with broker(reject_transaction_message=True) as bench:
        peer = bench.peer()
        reply = await peer.send("T", properties={"UNIQ_KEY": "U", "TRAN_MSG": "true", "PGROUP": "P"})
        assert (reply.code, "rejectTransactionMessage" in (reply.remark or "")) == (16, True)
        assert (await peer.send("T")).code == 0


async def test_the_property_alone_makes_a_message_transactional(bench: Bench, peer: Peer) -> None:
    await peer.send("T", b"without bits", properties={"UNIQ_KEY": "A", "TRAN_MSG": "TRUE", "PGROUP": "P"})
    assert bodies(bench, HALF) == [b"without bits"]
    retried = {"UNIQ_KEY": "B", "TRAN_MSG": "true", "DELAY": "1"}
    await peer.send("%RETRY%G", b"retried", properties=retried, reconsume_times=1)
    assert bodies(bench, "SCHEDULE_TOPIC_XXXX") == [b"retried"], "a consumer's retry is no transaction"


async def test_a_transaction_with_a_delay_is_delayed_when_it_is_committed(bench: Bench, peer: Peer) -> None:
    bench.deliver_delayed()
    sent = await prepare(peer, queue_id=1, DELAY="2")
    assert bench.records("SCHEDULE_TOPIC_XXXX", 1) == []
    await asyncio.sleep(20)
    assert (await end(peer, sent, COMMIT)).code == 0
    await asyncio.sleep(4.5)
    assert bench.records("T", 1) == []
    await asyncio.sleep(1)
    (message,) = bench.records("T", 1)
    assert (message.sys_flag, message.prepared_transaction_offset) == (8, sent.place)


async def test_compressed_bodies_keep_their_flags(bench: Bench, peer: Peer) -> None:
    await peer.heartbeat("c", producer="P")
    properties = {"TRAN_MSG": "true", "PGROUP": "P", "UNIQ_KEY": "U"}
    reply = read_reply(310, await peer.send("T", b"zipped", properties=properties, sys_flag=0x305))
    async with checking(bench):
        await asyncio.sleep(31)
    ((sent, _, asked),) = questions(peer)
    assert asked.sys_flag == 0x301
    assert sent.offset == reply.queue_offset + 1
    await end(peer, sent, COMMIT, check=True)
    assert bench.records("T")[0].sys_flag == 0x309


async def test_a_committed_message_that_cannot_be_stored_is_set_aside(bench: Bench, peer: Peer) -> None:
    sent, next_one = await prepare(peer, "large", body=b"x" * 5_000), await prepare(peer, "small")
    bench.store_settings.max_message_size = 1_000
    refused = await end(peer, sent, COMMIT)
    assert (refused.code, "committed and set aside" in (refused.remark or "")) == (13, True)
    assert (await end(peer, next_one, COMMIT)).code == 0
    assert bodies(bench, "T") == [b"b"]
    assert len(bench.tables.transactions) == 0
    assert (await end(peer, sent, COMMIT)).code == 0, "its transaction has ended"
    (aside,) = bench.records(UNDELIVERABLE_TOPIC)
    bench.store_settings.max_message_size = 10_000
    msg_id = offset_msg_id(aside.store_host, aside.store_port, aside.physical_offset)
    assert (await peer.ask(323, msg_id=msg_id)).code == 0
    _, delivered = bench.records("T")
    (half, _) = bench.records(HALF)
    assert (delivered.body, delivered.properties, delivered.sys_flag) == (half.body, half.properties, 8)


async def test_half_messages_above_a_lowered_limit_are_checked_and_given_up(broker: OpenBench) -> None:
    async with broker(transaction_check_interval=1_000, transaction_time_out=1_000, transaction_check_max=2) as bench:
        peer = bench.peer()
        await peer.heartbeat("c1", producer="P")
        await prepare(peer, "large", body=b"x" * 5_000)
        bench.store_settings.max_message_size = 1_000
        async with checking(bench):
            await asyncio.sleep(10)
        assert len(questions(peer)) == 2
        assert bodies(bench, GIVEN_UP) == [b"x" * 5_000]
        assert len(bench.tables.transactions) == 0


async def test_half_messages_that_name_no_place_are_set_aside_once(bench: Bench, peer: Peer) -> None:
    bench.store.append(NewRecord(HALF, 0, b"lost", b"UNIQ_KEY\x01L\x02"))
    await prepare(peer, "U")
    for _ in range(2):
        await bench.parts.transactions.load()
        async with checking(bench):
            await asyncio.sleep(3)
    (aside,) = bench.records(UNDELIVERABLE_TOPIC)
    assert kept_message(bytes(aside.body)).body == b"lost"
    assert len(bench.tables.transactions) == 1
