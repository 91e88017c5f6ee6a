"""Staged messages over time: undecided ones, restarts, snapshots, a full disk."""

from __future__ import annotations

import asyncio
from typing import Any

from broker_bench import Bench, OpenBench, Peer
from staging_talk import (
    DECIDE,
    NOTES,
    PUBLISH,
    STAGE,
    STATE_OF,
    UNITS,
    commit,
    decide,
    decision,
    discard,
    keys,
    message,
    publish,
    settle,
    stage,
    until,
    waiting,
)

from broker_probe import BrokerProbe
from tianzhou.broker.staging import recovery, staging_publisher
from tianzhou.broker.staging.recovery import still_there
from tianzhou.store.results import PutResult, PutStatus
from tianzhou.wire.bodies.staging import (
    DECISION,
    STATE,
    attempt_name,
)
from tianzhou.wire.fields import read_reply


async def test_staged_messages_nobody_decides_are_discarded(broker: OpenBench) -> None:
    async with broker(staged_message_time_out=60_000) as bench:
        peer = bench.peer()
        await stage(peer, "a", [message("1")])
        since = bench.tables.staging.get("W").attempts["a"].since_ms
        rounds = asyncio.ensure_future(bench.parts.staging.run())
        # Virtual time does not wait for the thread that syncs the log. Only the time at which nothing happens yet is
        # certain.
        while bench.clock.now_ms() <= since + 60_000:
            assert waiting(bench) == ["a"]
            await asyncio.sleep(1)
        await until(lambda: not waiting(bench))
        reply = await peer.ask(DECIDE, DECISION.dumps(decision(a=1)))
        assert (reply.code, "given up" in reply.remark) == (604, True)
        bench.settings.staged_writer_reserved_days = 0
        await until(lambda: len(bench.tables.staging) == 0)
        rounds.cancel()


async def test_a_restart_knows_what_was_decided(bench: Bench, peer: Peer) -> None:
    for batch in range(600):
        await stage(peer, f"a{batch}", [message(f"{batch}")], batch=batch)
        await commit(peer, decision(batch, **{f"a{batch}": 1}))
    await stage(peer, "open", [message("open")], batch=600)
    await stage(peer, "gone", [message("gone")], batch=600)
    await settle(peer, "gone", batch=600)
    before = bench.tables.staging.snapshot(0)
    ledger = bench.tables.staging
    ledger.restore(type(before)(), [], [])
    assert len(ledger) == 0
    await bench.parts.staging.load()
    assert ledger.snapshot(0).writers == before.writers
    assert waiting(bench) == ["open"]
    await commit(peer, decision(600, open=1))
    assert keys(bench) == [*map(str, range(600)), "open"]
    assert len(bench.records(NOTES)) < 3 * 600


async def test_a_start_looks_at_few_units_however_long_an_attempt_is_open(broker: OpenBench, monkeypatch: Any) -> None:
    monkeypatch.setattr(staging_publisher, "UNITS_TO_READ", 8)
    looked_at: list[int] = []

    def read_units(*given: Any) -> Any:
        found = recovery.read_units(*given)
        looked_at.append(len(found))
        return found

    monkeypatch.setattr(staging_publisher, "read_units", read_units)

    async with broker() as bench:
        peer, publisher, ledger = bench.peer(), bench.parts.staging, bench.tables.staging
        BrokerProbe(bench.parts).read_staged_units(8)
        for number in range(3):
            await stage(peer, "open", [message(f"open{number}", body=b"x" * 5000)], number=number, writer="V")
        for batch in range(40):
            await stage(peer, f"a{batch}", [message(f"{batch}")], batch=batch)
            await commit(peer, decision(batch, **{f"a{batch}": 1}))
        await stage(peer, "open", [message("open3")], number=3, writer="V")
        assert len(bench.records(UNITS)) == 44
        before = ledger.snapshot(0)
        ledger.restore(type(before)(), [], [])
        await publisher.load()
        assert looked_at[-1] <= 8
        assert ledger.snapshot(0) == before
        await commit(peer, decision(writer="V", open=4))
        assert keys(bench) == [*map(str, range(40)), *(f"open{number}" for number in range(4))]


async def test_a_unit_that_the_log_has_lost_is_not_believed_to_be_there(bench: Bench) -> None:
    peer, ledger = bench.peer(), bench.tables.staging
    for number in range(3):
        await stage(peer, "a", [message(str(number))], number=number)
    snapshot = ledger.snapshot(3)
    assert still_there(bench.store, snapshot) == snapshot
    # A power failure leaves a snapshot of units whose positions are wrong.
    units = snapshot.writers[0].open[0].units
    units[5] += 1
    units[7] = 99
    ledger.restore(still_there(bench.store, snapshot), [], [])
    assert list(ledger.get("W").attempts["a"].units) == [0]
    reply = await stage(peer, "a", [], number=3)
    assert (reply.code, "its unit 1 is not, or no longer" in reply.remark) == (604, True)
    reply = await peer.ask(DECIDE, DECISION.dumps(decision(a=3)))
    assert (reply.code, "has not, or no longer, all" in reply.remark) == (604, True)


async def test_topics_that_keep_the_last_of_each_key_need_keys(bench: Bench, peer: Peer) -> None:
    bench.tables.topics.ensure("K", 1, 0).attributes["cleanup.policy"] = "COMPACTION"
    reply = await stage(peer, "a", [message("1", topic="K"), message("2", topic="K", KEYS=" ")])
    assert (reply.code, read_reply(STAGE, reply).refused) == (13, 1)
    assert "Required message key is missing: topic K keeps the last message of each key" in reply.remark
    assert bench.records(UNITS) == []
    assert (await stage(peer, "a", [message("1", topic="K")])).code == 0
    await commit(peer, decision(a=1))
    assert keys(bench, "K") == ["1"]


async def test_a_writer_that_fails_again_and_again_learns_how_often(bench: Bench, peer: Peer) -> None:
    for run in range(3):
        state = STATE.loads((await peer.ask(STATE_OF, writer="W")).body)
        assert state.refusals == 2 * run
        names = [attempt_name(state.refusals, f"{run}.{task}") for task in range(2)]
        for name in names:
            await stage(peer, name, [message(name)])
        for _ in range(2):
            await settle(peer, *names)
        await discard(peer, *names)
    assert waiting(bench) == []
    refusals = [record for record in bench.records(NOTES) if b'"kind":"refused"' in record.body]
    assert len(refusals) == 3, "said again, they are not written again"


async def test_a_snapshot_keeps_to_the_limits_of_the_store(broker: OpenBench) -> None:
    async with broker(store={"max_message_size": 20_000}) as bench:
        peer = bench.peer()
        refused = [f"{n}-{'x' * 190}" for n in range(300)]
        for begin in range(0, 300, 50):
            assert await settle(peer, *refused[begin : begin + 50]) is None
        await bench.parts.staging.load()
        await asyncio.sleep(1)
        parts = [record for record in bench.records(NOTES) if b'"kind":"snapshot"' in record.body]
        assert len(parts) > 3
        assert max(len(record.body) for record in parts) <= 20_000
        count = len(bench.records(NOTES))
        await bench.parts.staging.load()
        assert set(bench.tables.staging.get("W").refused) == set(refused)
        BrokerProbe(bench.parts).forget_staging_snapshot()
        await bench.parts.staging.round()
        await bench.parts.staging.round()
        await asyncio.sleep(1)
        assert len(bench.records(NOTES)) < count + 3 * len(parts), "once for the start, once for the round"


async def test_a_snapshot_that_cannot_be_written_is_not_tried_every_second(bench: Bench) -> None:
    peer, tried = bench.peer(), []
    await settle(peer, "a")
    real = bench.store.append

    def append(record: Any, **how: Any) -> Any:
        if b'"kind":"snapshot"' not in record.body:
            return real(record, **how)
        tried.append(bench.clock.monotonic())
        return PutResult(PutStatus.MESSAGE_ILLEGAL, remark="too long")

    bench.store.append = append
    for _ in range(150):
        await bench.parts.staging.round()
        await asyncio.sleep(1)
    assert 2 <= len(tried) <= 3
    await settle(peer, "b")
    assert "b" in bench.tables.staging.get("W").refused, "notes are written meanwhile"
    bench.store.append = real
    await asyncio.sleep(60)
    await bench.parts.staging.round()
    await asyncio.sleep(1)
    assert b'"kind":"snapshot"' in bench.records(NOTES)[-1].body


async def test_publishing_goes_on_when_the_disk_has_room_again(bench: Bench, peer: Peer) -> None:
    await stage(peer, "a", [message(str(n)) for n in range(700)])
    real = bench.store.append
    full = [False]

    def append(record: Any, **how: Any) -> Any:
        if record.topic == "T" and record.uniq_key == "400" and not full[0]:
            full[0] = True
            bench.store.flags.put_up(flag, "disk full: no room")
        return real(record, **how)

    from tianzhou.store.flags import RunningFlag

    flag = RunningFlag.DISK_FULL
    bench.store.append = append
    decided = await decide(peer, decision(a=1))
    reply = await peer.ask(PUBLISH, DECISION.dumps(decided))
    assert reply.code == 14
    assert "disk full" in reply.remark
    assert len(keys(bench)) == 400
    bench.store.flags.take_down(flag)
    await publish(peer, decided)
    assert keys(bench) == [str(n) for n in range(700)]
