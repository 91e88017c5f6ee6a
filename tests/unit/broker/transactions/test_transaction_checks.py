"""Transaction checks: producers get them for undecided half messages, and some half messages are set aside."""

from __future__ import annotations

import asyncio

from broker_bench import Bench, OpenBench, Peer
from transaction_talk import (
    COMMIT,
    GIVEN_UP,
    HALF,
    ROLLBACK,
    UNKNOWN,
    checking,
    end,
    fields,
    prepare,
    questions,
)

from tianzhou.model import TopicConfig
from tianzhou.wire.ids import parse_offset_msg_id
from tianzhou.wire.properties import decode_properties


async def test_fifteen_checks_then_it_is_put_aside(bench: Bench, peer: Peer) -> None:
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


async def test_late_decisions_about_older_copies_count(bench: Bench, peer: Peer) -> None:
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


async def test_nobody_is_checked_before_the_time_the_message_wants(bench: Bench, peer: Peer) -> None:
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


async def test_a_young_message_is_left_alone(bench: Bench, peer: Peer) -> None:
    await peer.heartbeat("c", producer="P")
    async with checking(bench):
        await asyncio.sleep(26)
        await prepare(peer)
        await asyncio.sleep(5)
        assert questions(peer) == []
        await asyncio.sleep(30)
        assert len(questions(peer)) == 1


async def test_members_of_a_group_are_checked_in_turn_and_stand_in_for_each_other(bench: Bench) -> None:
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


async def test_while_no_producer_is_there_nothing_is_counted(bench: Bench) -> None:
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
