"""Transactions at the broker: half messages, decisions, checks; what the log looks like after each."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import pytest
from broker_bench import Bench, OpenBench, Peer

from store_reads import read_now
from tianzhou.model import TopicConfig
from tianzhou.records.codec import decode_record
from tianzhou.store.files.lookup_steps import at_once
from tianzhou.store.results import NewRecord
from tianzhou.wire.codes import FLAG_ONEWAY
from tianzhou.wire.fields import read_header, read_reply
from tianzhou.wire.ids import parse_offset_msg_id
from tianzhou.wire.properties import decode_properties

HALF = "RMQ_SYS_TRANS_HALF_TOPIC"
OP = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
GIVEN_UP = "TRANS_CHECK_MAX_TIME_TOPIC"
GROUP = "CID_RMQ_SYS_TRANS"
COMMIT, ROLLBACK, UNKNOWN = 8, 12, 0


class Sent(NamedTuple):
    """What a producer knows of its half message."""

    key: str
    place: int
    offset: int


async def prepare(
    peer: Peer, key: str = "U", *, queue_id: int = 0, group: str = "P", body: bytes = b"b", **more: str
) -> Sent:
    properties = {"TAGS": "TagA", "KEYS": f"k-{key}", "TRAN_MSG": "true", "PGROUP": group, "UNIQ_KEY": key} | more
    reply = await peer.send("T", body, queue_id=queue_id, properties=properties, sys_flag=4, born_timestamp=99)
    assert reply.code == 0, reply.remark
    header = read_reply(310, reply)
    assert (header.queue_id, header.transaction_id) == (queue_id, key)
    return Sent(key, parse_offset_msg_id(header.msg_id)[2], header.queue_offset)


def fields(sent: Sent, outcome: int, *, group: str = "P", check: bool = False, **more: Any) -> dict[str, Any]:
    return {
        "producer_group": group, "tran_state_table_offset": sent.offset, "commit_log_offset": sent.place,
        "commit_or_rollback": outcome, "from_transaction_check": check, "msg_id": sent.key, "transaction_id": sent.key,
    } | more  # fmt: skip


async def end(peer: Peer, sent: Sent, outcome: int, **more: Any) -> Any:
    return await peer.ask(37, **fields(sent, outcome, **more))


def questions(peer: Peer) -> list[tuple[Sent, Any, Any]]:
    """The checks a producer got since last asked: what it would answer with, the header, the message."""
    asked = peer.received(39)
    assert all(command.flag & FLAG_ONEWAY for command in asked)
    found = []
    for command in asked:
        header = read_header(command)
        sent = Sent(header.transaction_id, header.commit_log_offset, header.tran_state_table_offset)
        found.append((sent, header, decode_record(command.body)))
    return found


@contextlib.asynccontextmanager
async def checking(bench: Bench) -> AsyncIterator[None]:
    task = asyncio.ensure_future(bench.parts.transactions.run())
    try:
        yield
    finally:
        task.cancel()


async def on_disk(bench: Bench) -> None:
    """Let the flush thread come to its end, which needs time that is not virtual."""
    end = bench.store.end_offset
    await asyncio.sleep(1)
    for turn in range(5_000):
        if bench.store.flushed.value >= end:
            break
        time.sleep(0.001)
        # A flush that was under way when the last record came is followed by one that waits for virtual time.
        await asyncio.sleep(0.5 if turn % 200 == 199 else 0)
    assert bench.store.flushed.value >= end
    await asyncio.sleep(3)


def bodies(bench: Bench, topic: str, queue_id: int = 0) -> list[bytes]:
    return [bytes(record.body) for record in bench.records(topic, queue_id)]


async def test_a_half_message_is_not_to_be_seen(broker: OpenBench) -> None:
    async with broker() as bench:
        peer = bench.peer()
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


async def test_a_committed_message_is_where_it_was_sent(broker: OpenBench) -> None:
    async with broker() as bench:
        peer = bench.peer()
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


async def test_a_message_rolled_back_stays_unseen(broker: OpenBench) -> None:
    async with broker() as bench:
        peer = bench.peer()
        sent = await prepare(peer)
        assert (await end(peer, sent, ROLLBACK)).code == 0
        await asyncio.sleep(0.01)
        assert bench.records("T") == []
        (mark,) = bench.records(OP)
        assert (mark.body, mark.sys_flag) == (b"0,", 0)
        assert mark.properties == b"WAIT\x01true\x02TAGS\x01d\x02", "as Apache 5.3.3 writes it"
        assert (mark.born_host, mark.born_port) == (mark.store_host, mark.store_port)
        assert read_now(bench.store, OP, 0, 0, 1, frozenset({100})).count == 1, "tag d"


async def test_oneway_decisions_and_the_ones_not_made_yet(broker: OpenBench) -> None:
    async with broker() as bench:
        peer = bench.peer()
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
async def test_a_transaction_ends_once(broker: OpenBench, first: int, second: int) -> None:
    async with broker() as bench:
        peer = bench.peer()
        sent = await prepare(peer)
        assert (await end(peer, sent, first)).code == 0
        late = await end(peer, sent, second)
        assert late.code == 1
        assert "a transaction ends once" in (late.remark or "")
        assert (await end(peer, sent, first)).code == 0, "saying the same again is no error"
        await asyncio.sleep(1)
        assert len(bench.records("T")) == (first == COMMIT)


async def test_decisions_that_are_refused(broker: OpenBench) -> None:
    async with broker() as bench:
        peer = bench.peer()
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
        bench.store.settings.broker_role = "SLAVE"
        assert (await end(peer, sent, COMMIT)).code == 11
        bench.store.settings.broker_role = "ASYNC_MASTER"
        assert bench.records("T") == []
        assert (await end(peer, sent, COMMIT)).code == 0


async def test_a_store_that_takes_nothing_keeps_the_transaction_open(broker: OpenBench) -> None:
    async with broker() as bench:
        from tianzhou.store.flags import RunningFlag

        peer = bench.peer()
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


async def test_what_is_transactional_is_said_by_the_property_alone(broker: OpenBench) -> None:
    async with broker() as bench:
        peer = bench.peer()
        await peer.send("T", b"without bits", properties={"UNIQ_KEY": "A", "TRAN_MSG": "TRUE", "PGROUP": "P"})
        assert bodies(bench, HALF) == [b"without bits"]
        retried = {"UNIQ_KEY": "B", "TRAN_MSG": "true", "DELAY": "1"}
        await peer.send("%RETRY%G", b"retried", properties=retried, reconsume_times=1)
        assert bodies(bench, "SCHEDULE_TOPIC_XXXX") == [b"retried"], "a consumer's retry is no transaction"


async def test_a_transaction_with_a_delay_is_delayed_when_it_is_committed(broker: OpenBench) -> None:
    async with broker() as bench:
        bench.deliver_delayed()
        peer = bench.peer()
        sent = await prepare(peer, queue_id=1, DELAY="2")
        assert bench.records("SCHEDULE_TOPIC_XXXX", 1) == []
        await asyncio.sleep(20)
        assert (await end(peer, sent, COMMIT)).code == 0
        await asyncio.sleep(4.5)
        assert bench.records("T", 1) == []
        await asyncio.sleep(1)
        (message,) = bench.records("T", 1)
        assert (message.sys_flag, message.prepared_transaction_offset) == (8, sent.place)


async def test_compressed_bodies_keep_their_flags(broker: OpenBench) -> None:
    async with broker() as bench:
        peer = bench.peer()
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


async def test_marks_share_messages(broker: OpenBench) -> None:
    async with broker() as bench:
        peer = bench.peer()
        sent = [await prepare(peer, f"U{n}") for n in range(30)]
        async with checking(bench):
            for one in sent[:10]:
                assert (await end(peer, one, COMMIT)).code == 0
            assert bodies(bench, OP) == [], "a commit can be read off the log, so its mark may wait"
            await asyncio.sleep(4)
            assert bodies(bench, OP) == [b"0,1,2,3,4,5,6,7,8,9,"]
            for one in sent[10:14]:
                peer.post(37, oneway=True, **fields(one, COMMIT))
            peer.post(37, oneway=True, **fields(sent[20], ROLLBACK))
            await asyncio.sleep(0.01)
            assert bodies(bench, OP)[1:] == [b"10,11,12,13,20,"], "a roll-back does not wait"


async def test_marks_are_written_when_there_are_many(broker: OpenBench) -> None:
    async with broker(transaction_op_msg_max_size=20) as bench:
        peer = bench.peer()
        sent = [await prepare(peer, f"U{n}") for n in range(12)]
        for one in sent:
            await end(peer, one, COMMIT)
        marks = bodies(bench, OP)
        assert marks
        assert all(len(mark) <= 20 for mark in marks)
        await bench.parts.transactions.close()
        await asyncio.sleep(0.01)
        assert sorted(int(n) for mark in bodies(bench, OP) for n in mark.decode().split(",") if n) == [*range(12)]


async def test_fifteen_checks_then_it_is_put_aside(broker: OpenBench) -> None:
    async with broker() as bench:
        peer = bench.peer()
        await peer.heartbeat("c", producer="P")
        began = bench.clock.now_ms()
        first = await prepare(peer, queue_id=3)
        times = []
        async with checking(bench):
            for step in range(1, 16):
                while not (asked := questions(peer)):
                    await asyncio.sleep(1)
                    assert bench.clock.now_ms() - began < 600_000
                ((sent, header, message),) = asked
                times.append(bench.clock.now_ms() - began)
                assert (header.topic, header.bname, header.msg_id) == (HALF, "broker-a", "U")
                assert parse_offset_msg_id(header.offset_msg_id)[2] == sent.place
                assert (message.topic, message.queue_id, message.body) == ("T", 3, b"b")
                assert (message.queue_offset, message.physical_offset) == (sent.offset, sent.place)
                assert decode_properties(message.properties)["TRANSACTION_CHECK_TIMES"] == str(step)
                assert message.born_timestamp == 99
                newest = bench.records(HALF)[-1]
                assert (newest.queue_offset, newest.physical_offset) == (sent.offset, sent.place)
                assert newest.properties == message.properties
                peer.post(37, **fields(sent, UNKNOWN, check=True))
            assert all(step * 30_000 <= at <= step * 30_000 + 3_000 for step, at in enumerate(times, 1)), times
            await asyncio.sleep(40)
            assert questions(peer) == []
            (aside,) = bench.records(GIVEN_UP)
            assert decode_properties(aside.properties)["TRANSACTION_CHECK_TIMES"] == "15"
            assert decode_properties(aside.properties)["REAL_TOPIC"] == "T"
            assert bench.tables.topics.get(GIVEN_UP) == TopicConfig(GIVEN_UP, 1, 1, 6)
            await asyncio.sleep(100)
            assert len(bench.records(HALF)) == 16
        assert bench.records("T", 3) == []
        assert (await end(peer, first, COMMIT)).code == 0, "a producer that took its time"
        assert len(bench.records("T", 3)) == 1
        assert (await end(peer, first, ROLLBACK)).code == 1


async def test_what_was_put_aside_is_checked_again_on_request(broker: OpenBench) -> None:
    async with broker(transaction_check_max=1) as bench:
        peer = bench.peer()
        await peer.heartbeat("c", producer="P")
        await prepare(peer)
        async with checking(bench):
            await asyncio.sleep(62)
            (aside,) = bench.records(GIVEN_UP)
            questions(peer)
            msg_id = f"7F00000100007923{aside.physical_offset:016X}"
            assert (await peer.ask(323, msg_id=msg_id, topic=GIVEN_UP)).code == 0
            assert decode_properties(bench.records(HALF)[-1].properties)["TRANSACTION_CHECK_TIMES"] == "0"
            twice = await peer.ask(323, msg_id=msg_id, topic=GIVEN_UP)
            assert twice.code == 604
            await asyncio.sleep(31)
            ((sent, _, _),) = questions(peer)
            assert (await end(peer, sent, COMMIT, check=True)).code == 0
            assert (await peer.ask(323, msg_id=msg_id, topic=GIVEN_UP)).code == 604, "committed by now"
            for wrong in ("nonsense", f"7F00000100007923{sent.place:016X}"):
                assert (await peer.ask(323, msg_id=wrong, topic=GIVEN_UP)).code == 1
        assert len(bench.records("T")) == 1


async def test_late_decisions_about_older_copies_count(broker: OpenBench) -> None:
    async with broker() as bench:
        peer = bench.peer()
        await peer.heartbeat("c", producer="P")
        first, other = await prepare(peer, "U1", queue_id=1), await prepare(peer, "U2", queue_id=2)
        async with checking(bench):
            await asyncio.sleep(61)
            copies = [sent for sent, _, _ in questions(peer)]
            assert [sent.key for sent in copies] == ["U1", "U2", "U1", "U2"]
            assert (await end(peer, first, COMMIT)).code == 0
            assert (await end(peer, copies[1], ROLLBACK, check=True)).code == 0
            for sent in (first, copies[0], copies[2]):
                assert (await end(peer, sent, ROLLBACK, check=True)).code == 1
                assert (await end(peer, sent, COMMIT, check=True)).code == 0
            for sent in (other, copies[1], copies[3]):
                assert (await end(peer, sent, COMMIT, check=True)).code == 1
            await asyncio.sleep(100)
            assert questions(peer) == []
        assert (len(bench.records("T", 1)), len(bench.records("T", 2))) == (1, 0)


async def test_nobody_is_asked_before_the_time_the_message_wants(broker: OpenBench) -> None:
    async with broker() as bench:
        peer = bench.peer()
        await peer.heartbeat("c", producer="P")
        sent = await prepare(peer, CHECK_IMMUNITY_TIME_IN_SECONDS="100")
        await prepare(peer, "V")
        async with checking(bench):
            await asyncio.sleep(95)
            assert {one.key for one, _, _ in questions(peer)} == {"V"}
            await asyncio.sleep(30)
            assert "U" in {one.key for one, _, _ in questions(peer)}
            late = await end(peer, sent, COMMIT)
            assert (late.code, "answer its check" in (late.remark or "")) == (604, True)
            assert (await end(peer, sent, COMMIT, check=True)).code == 0
        assert len(bench.records("T")) == 1


async def test_a_young_message_is_left_alone(broker: OpenBench) -> None:
    async with broker() as bench:
        peer = bench.peer()
        await peer.heartbeat("c", producer="P")
        async with checking(bench):
            await asyncio.sleep(26)
            await prepare(peer)
            await asyncio.sleep(5)
            assert questions(peer) == []
            await asyncio.sleep(30)
            assert len(questions(peer)) == 1


async def test_members_of_a_group_are_asked_in_turn_and_stand_in_for_each_other(broker: OpenBench) -> None:
    async with broker() as bench:
        peers = [bench.peer() for _ in range(3)]
        for n, peer in enumerate(peers):
            await peer.heartbeat(f"c{n}", producer="P")
        stranger = bench.peer()
        await stranger.heartbeat("other", producer="Q")
        await prepare(peers[0])
        async with checking(bench):
            await asyncio.sleep(95)
            assert [len(questions(peer)) for peer in peers] == [1, 1, 1]
            peers[0].transport.close()
            await asyncio.sleep(60)
            assert sum(len(questions(peer)) for peer in peers[1:]) == 2
            peers[1].transport.close()
            await asyncio.sleep(30)
            ((sent, _, _),) = questions(peers[2])
            assert (await end(peers[2], sent, COMMIT, check=True)).code == 0
        assert questions(stranger) == []
        assert len(bench.records("T")) == 1


async def test_while_no_producer_is_there_nothing_is_counted(broker: OpenBench) -> None:
    async with broker() as bench:
        await prepare(bench.peer())
        async with checking(bench):
            await asyncio.sleep(3_600)
            assert len(bench.records(HALF)) == 1
            back = bench.peer()
            await back.heartbeat("c", producer="P")
            await asyncio.sleep(31)
            sent, _, message = questions(back)[0]
            assert decode_properties(message.properties)["TRANSACTION_CHECK_TIMES"] == "1"
            await end(back, sent, COMMIT, check=True)
        assert len(bench.records("T")) == 1


async def test_what_waits_for_longer_than_messages_are_kept_is_put_aside(broker: OpenBench) -> None:
    async with broker(store={"file_reserved_time": 1}) as bench:
        await prepare(bench.peer())
        async with checking(bench):
            await asyncio.sleep(3_590)
            assert bench.records(GIVEN_UP) == []
            await asyncio.sleep(60)
            assert len(bench.records(GIVEN_UP)) == 1
            assert len(bench.tables.transactions) == 0


async def test_positions_follow(broker: OpenBench) -> None:
    async with broker(store={"flush_commit_log_thorough_interval": 100}) as bench:
        peer = bench.peer()
        await peer.heartbeat("c", producer="P")

        def committed(topic: str) -> int | None:
            found: int | None = bench.tables.offsets.committed(GROUP, topic, 0)
            return found

        assert (committed(HALF), committed(OP)) == (None, None)
        sent = [await prepare(peer, f"U{n}") for n in range(5)]
        async with checking(bench):
            for one in (sent[0], sent[1], sent[3]):
                await end(peer, one, COMMIT)
            await asyncio.sleep(4)
            await on_disk(bench)
            assert bodies(bench, OP) == [b"0,1,3,"]
            assert (committed(HALF), committed(OP)) == (2, 0)
            await asyncio.sleep(24)
            await on_disk(bench)
            assert (committed(HALF), committed(OP)) == (5, 1), "2 and 4 were written anew"
            for one, _, _ in questions(peer):
                await end(peer, one, ROLLBACK, check=True)
            await on_disk(bench)
            assert (committed(HALF), committed(OP)) == (7, 3)


async def test_positions_wait_for_the_disk(broker: OpenBench) -> None:
    async with broker(
        store={"flush_interval_commit_log": 10_000, "flush_commit_log_thorough_interval": 10_000}
    ) as bench:
        peer = bench.peer()
        store = bench.store
        async with checking(bench):
            await end(peer, await prepare(peer), ROLLBACK)
            await asyncio.sleep(9)
            assert bench.tables.offsets.committed(GROUP, HALF, 0) is None
            assert store.flushed.value < store.end_offset
            await asyncio.sleep(5)
            await on_disk(bench)
            assert bench.tables.offsets.committed(GROUP, HALF, 0) == 1


async def test_marks_of_4_9_are_read(broker: OpenBench) -> None:
    async with broker() as bench:
        peer = bench.peer()
        for n in range(4):
            await prepare(peer, f"U{n}")
        for mark in (b"0", b"2,3,"):
            bench.store.append(NewRecord(OP, 0, mark, b"TAGS\x01d\x02"))
        await asyncio.sleep(0.1)
        again = type(bench.tables.transactions)()
        checker = bench.parts.transactions
        checker._ledger = again
        await checker.load()
        assert [half.identity.unique_key for half in again.waiting()] == ["U1"]
