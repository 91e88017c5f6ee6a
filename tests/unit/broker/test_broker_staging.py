"""Staged messages at the broker: what is seen when, what the log holds, what is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tianzhou.broker import staging_history, staging_publisher
from tianzhou.broker.staging_history import still_there
from tianzhou.broker.staging_notes import Decided, Refused
from tianzhou.store.results import PutResult, PutStatus
from tianzhou.wire.bodies.staging import (
    ATTEMPTS,
    DECISION,
    STATE,
    AttemptList,
    BatchDecision,
    StagedAttempt,
    attempt_name,
)
from tianzhou.wire.fields import read_reply
from tianzhou.wire.properties import decode_properties, encode_properties
from tianzhou.wire.staging import StagedMessage, encode_unit

Run = Callable[..., None]
STATE_OF, STAGE, DECIDE, PUBLISH, SETTLE, DISCARD = range(31001, 31007)
UNITS, NOTES = "rmq_sys_STAGED_TOPIC", "rmq_sys_STAGED_OP_TOPIC"
HERE = "broker-a"


def message(key: str, *, topic: str = "T", queue_id: int = 0, body: bytes = b"", **properties: str) -> StagedMessage:
    pairs = {"UNIQ_KEY": key, "KEYS": f"k-{key}", "TAGS": "TagA"} | properties
    return StagedMessage(topic, queue_id, 7, 0, encode_properties(pairs), body or key.encode())


async def stage(
    peer: Any, attempt: str, messages: list[StagedMessage], *, batch: int = 0, number: int = 0, **more: Any
) -> Any:
    fields = {
        "writer": "W", "batch": batch, "attempt": attempt, "number": number, "coordinator": HERE,
        "born_timestamp": 99, "last": True, "default_topic": "TBW102", "default_topic_queue_nums": 4,
    }  # fmt: skip
    return await peer.ask(STAGE, encode_unit(messages), **fields | more)


def decision(batch: int = 0, writer: str = "W", coordinator: str = HERE, **attempts: int) -> BatchDecision:
    """Attempts and how many units they have at this broker."""
    return BatchDecision(
        writer, batch, coordinator, [StagedAttempt(name, {HERE: count}) for name, count in attempts.items()]
    )


async def decide(peer: Any, wanted: BatchDecision) -> BatchDecision:
    reply = await peer.ask(DECIDE, DECISION.dumps(wanted))
    assert reply.code == 0, reply.remark
    return DECISION.loads(reply.body)


async def publish(peer: Any, decided: BatchDecision) -> None:
    for _ in range(20):
        reply = await peer.ask(PUBLISH, DECISION.dumps(decided))
        assert reply.code == 0, reply.remark
        if read_reply(PUBLISH, reply).published:
            return
    raise AssertionError("not published")


async def commit(peer: Any, wanted: BatchDecision) -> BatchDecision:
    decided = await decide(peer, wanted)
    if decided.batch == wanted.batch:
        await publish(peer, decided)
    return decided


async def settle(peer: Any, *attempts: str, batch: int = 0, coordinator: str = HERE) -> BatchDecision | None:
    reply = await peer.ask(SETTLE, ATTEMPTS.dumps(AttemptList("W", batch, coordinator, list(attempts))))
    assert reply.code == 0, reply.remark
    return DECISION.loads(reply.body) if reply.body else None


async def discard(peer: Any, *attempts: str, batch: int = 0) -> None:
    reply = await peer.ask(DISCARD, ATTEMPTS.dumps(AttemptList("W", batch, HERE, list(attempts))))
    assert reply.code == 0, reply.remark


def keys(bench: Any, topic: str = "T", queue_id: int = 0) -> list[str]:
    return [decode_properties(record.properties)["UNIQ_KEY"] for record in bench.records(topic, queue_id)]


def waiting(bench: Any, writer: str = "W") -> list[str]:
    found = bench.tables.staging.get(writer)
    return [] if found is None else sorted(found.attempts)


async def until(holds: Callable[[], bool]) -> None:
    """Let (virtual) time pass until something holds; the thread that syncs the log may take any amount of it."""
    async with asyncio.timeout(3600):
        while not holds():
            await asyncio.sleep(0.01)


def test_staged_messages_are_seen_when_their_batch_is_decided(broker: Run) -> None:
    async def body(bench: Any) -> None:
        peer = bench.peer()
        assert (await stage(peer, "a", [message("1"), message("2", queue_id=1)])).code == 0
        assert (await stage(peer, "b", [message("3", body=b"three", colour="red")])).code == 0
        assert keys(bench) == []
        assert bench.store.query("T", "1", 32).physical_offsets == []
        assert (await decide(peer, decision(a=1, b=1))).names() == ["a", "b"]
        await publish(peer, decision(a=1, b=1))
        assert (keys(bench), keys(bench, queue_id=1)) == (["1", "3"], ["2"])
        units = {unit.physical_offset for unit in bench.records(UNITS)}
        record = bench.records("T")[1]
        assert (record.body, record.flag, record.sys_flag, record.born_timestamp) == (b"three", 7, 0, 99)
        assert record.prepared_transaction_offset in units
        assert decode_properties(record.properties) == {
            "UNIQ_KEY": "3", "KEYS": "k-3", "TAGS": "TagA", "colour": "red",
            "CLUSTER": "DefaultCluster", "MSG_REGION": "DefaultRegion", "TRACE_ON": "true",
        }  # fmt: skip
        for key in ("3", "k-3"):
            assert bench.store.query("T", key, 32).physical_offsets == [record.physical_offset]
        assert bench.store.get("T", 0, 0, 9, frozenset({2598919})).count == 2, "found by tag"
        assert bench.stats.put("T").count == 3
        assert waiting(bench) == []

    broker(body)


def test_a_decision_stands_whoever_asks_again(broker: Run) -> None:
    async def body(bench: Any) -> None:
        peer = bench.peer()
        await stage(peer, "a", [message("1")])
        await decide(peer, decision(a=1))
        # The driver died; the batch is run again, and staged before anybody has asked what became of it.
        reply = await stage(peer, "b", [message("2")])
        assert (reply.code, read_reply(STAGE, reply).decided) == (0, True)
        decided = await commit(peer, decision(b=1))
        assert (decided.batch, "b" in decided.names()) == (0, False)
        await publish(peer, decided)
        assert keys(bench) == ["1"]
        # All of it is published: nobody is told who it was any more, and whoever asks has nothing to do.
        decided = await decide(peer, decision(b=1))
        assert decided == BatchDecision("W", 0, HERE, [])
        await publish(peer, decided)
        assert keys(bench) == ["1"]
        reply = await peer.ask(STATE_OF, writer="W")
        state = STATE.loads(reply.body)
        assert (state.version, state.broker_name, state.coordinator) == (1, HERE, HERE)
        assert (state.decided, state.published) == (0, 0)

    broker(body)


def test_only_the_listed_attempts_count_and_older_batches_are_history(broker: Run) -> None:
    async def body(bench: Any) -> None:
        peer = bench.peer()
        for attempt in "abc":
            await stage(peer, attempt, [message(attempt)], batch=4)
        await stage(peer, "later", [message("5")], batch=5)
        await commit(peer, decision(4, b=1))
        assert keys(bench) == ["b"]
        assert waiting(bench) == ["later"]
        assert (await commit(peer, decision(3, a=1))).batch == 4
        assert read_reply(STAGE, await stage(peer, "x", [message("x")], batch=3)).decided
        await commit(peer, decision(5, later=1))
        assert keys(bench) == ["b", "5"]

    broker(body)


def test_units_of_an_attempt_keep_their_order_and_repetitions_count_once(broker: Run) -> None:
    async def body(bench: Any) -> None:
        peer = bench.peer()
        for number in (1, 0, 2, 1):
            reply = await stage(peer, "a", [message(f"{number}.{n}") for n in range(300)], number=number, last=False)
            assert reply.code == 0
        assert (await stage(peer, "a", [], number=3)).code == 0, "only waits for the disk"
        assert len(bench.records(UNITS)) == 3
        await commit(peer, decision(a=3))
        assert keys(bench) == [f"{number}.{n}" for number in range(3) for n in range(300)]

    broker(body)


def test_an_attempt_with_a_hole_is_not_complete(broker: Run) -> None:
    async def body(bench: Any) -> None:
        peer = bench.peer()
        # Unit 0 was answered before the disk had it, and the power failed.
        for number, messages in ((1, [message("1")]), (1, [message("1")]), (2, [])):
            reply = await stage(peer, "a", messages, number=number)
            assert reply.code == 604
            assert "but its unit 0 is not, or no longer, at broker broker-a" in reply.remark
            assert "run the task again" in reply.remark
        reply = await stage(peer, "b", [], number=1_000_000)
        assert reply.code != 0
        assert (await stage(peer, "none", [])).code == 0, "a task without rows"
        assert (await stage(peer, "a", [message("0")], last=False)).code == 0
        assert (await stage(peer, "a", [], number=2)).code == 0, "now it is complete"
        await commit(peer, decision(a=2))
        assert keys(bench) == ["0", "1"]

    broker(body)


def test_a_trial_that_failed_is_not_taken_for_one_under_way(broker: Run) -> None:
    async def body(bench: Any) -> None:
        peer, publisher = bench.peer(), bench.parts.staging
        await stage(peer, "a", [message("1")])
        failed = asyncio.ensure_future(asyncio.sleep(0))
        await failed
        publisher._tasks["W"] = failed
        await commit(peer, decision(a=1))
        assert keys(bench) == ["1"]

    broker(body)


def test_others_are_served_while_a_long_unit_is_checked(broker: Run) -> None:
    async def body(bench: Any) -> None:
        peer, other = bench.peer(), bench.peer()
        ledger = bench.tables.staging
        await stage(other, "b", [message("b")])
        many = [message(str(n)) for n in range(3000)]
        # What happens in between is looked at: the attempt is given up, the batch is decided.
        from tianzhou.broker.handlers import staging as handler

        real, met = handler.records.problem, []

        def problem(given: StagedMessage, limit: int) -> str | None:
            if given.body == b"1000" and met[-1:] != ["given up"]:
                met.append("given up")
                bench.parts.staging._note(Refused(AttemptList("W", 0, HERE, ["a"])))
            if given.body == b"2000" and met[-1:] != ["decided"]:
                met.append("decided")
                bench.parts.staging._note(Decided(decision(b=1), HERE))
            return real(given, limit)

        handler.records.problem = problem
        try:
            reply = await stage(peer, "a", many[:2000])
            assert (reply.code, "was given up" in reply.remark) == (604, True)
            reply = await stage(peer, "c", many)
            assert (reply.code, read_reply(STAGE, reply).decided) == (0, True)
        finally:
            handler.records.problem = real
        assert met == ["given up", "decided"] or met == ["given up", "given up", "decided"]
        assert sorted(ledger.get("W").attempts) == ["b"]
        assert len(bench.records(UNITS)) == 1
        reply = await stage(peer, "d", [*many[:700], message("x", queue_id=-1)], batch=1)
        assert read_reply(STAGE, reply).refused == 700

    broker(body)


def test_attempts_that_are_given_up_can_no_longer_be_decided(broker: Run) -> None:
    async def body(bench: Any) -> None:
        peer = bench.peer()
        await stage(peer, "a", [message("1")])
        await stage(peer, "b", [message("2")])
        assert await settle(peer, "a") is None
        await discard(peer, "a")
        assert waiting(bench) == ["b"]
        reply = await peer.ask(DECIDE, DECISION.dumps(decision(a=1, b=1)))
        assert reply.code == 604
        assert "the attempts a were given up" in reply.remark
        reply = await stage(peer, "a", [message("1")], number=1)
        assert (reply.code, "was given up" in reply.remark) == (604, True)
        await decide(peer, decision(b=1))
        found = await settle(peer, "b")
        assert found is not None
        await publish(peer, decision(b=1))
        assert await settle(peer, "b") == BatchDecision("W", 0, HERE, []), "what is decided is not given up"
        await discard(peer, "b")
        assert keys(bench) == ["2"]

    broker(body)


def test_a_decision_needs_everything_that_was_staged(broker: Run) -> None:
    async def body(bench: Any) -> None:
        peer = bench.peer()
        await stage(peer, "a", [message("1")])
        for wanted in (decision(a=2), decision(a=1, b=1)):
            reply = await peer.ask(DECIDE, DECISION.dumps(wanted))
            assert reply.code == 604
            assert "has not, or no longer, all that the attempts" in reply.remark
        assert (await commit(peer, decision(a=1))).names() == ["a"]
        reply = await peer.ask(PUBLISH, DECISION.dumps(decision(1, a=1)))
        assert (reply.code, "was not decided here" in reply.remark) == (604, True)

    broker(body)


def test_a_delay_counts_from_the_decision(broker: Run) -> None:
    async def body(bench: Any) -> None:
        peer = bench.peer()
        await stage(peer, "a", [message("1", DELAY="2"), message("2"), message("3", DELAY="0")])
        await asyncio.sleep(60)
        await commit(peer, decision(a=1))
        delivering = bench.deliver_delayed()
        await asyncio.sleep(3)
        assert keys(bench) == ["2", "3"]
        await asyncio.sleep(3)
        assert keys(bench) == ["2", "3", "1"]
        assert decode_properties(bench.records("T")[2].properties)["DELAY"] == "2"
        delivering.cancel()

    broker(body)


@pytest.mark.parametrize(
    ("given", "code", "text"),
    [
        (message("x", queue_id=99), 29, "queueId[99] is illegal"),
        (message("x", topic="no topic"), 29, "illegal characters"),
        (message("x", topic="SCHEDULE_TOPIC_XXXX"), 16, "forbidden"),
        (message("x", topic=UNITS), 16, "forbidden"),
        (message("x")._replace(body=b""), 13, "has no body"),
        (message("x", TRAN_MSG="true"), 13, "TRAN_MSG"),
        (message("x", DELAY="soon"), 13, "DELAY='soon'"),
        (message("x", TIMER_DELAY_SEC="5"), 13, "TIMER_DELAY_SEC"),
        (message("x", INNER_NUM="2"), 13, "inner batches"),
        (message("x")._replace(sys_flag=0x80), 13, "inner batches"),
        (message("x")._replace(sys_flag=0x5), 13, "sysFlag 0x5 says transaction"),
        (message("x")._replace(sys_flag=0xC), 13, "sysFlag 0xc says transaction"),
        (message("x", queue_id=-1), 13, "queueId -1"),
        (message("x", INNER_MULTI_DISPATCH="%LMQ%a"), 13, "INNER_MULTI_DISPATCH"),
        (message("x", long="y" * 32_500), 13, "the limit is"),
        (message("")._replace(body=b"x"), 13, "no UNIQ_KEY"),
    ],
)
def test_a_message_that_could_not_be_published_is_refused_at_once(
    broker: Run, given: StagedMessage, code: int, text: str
) -> None:
    async def body(bench: Any) -> None:
        peer = bench.peer()
        reply = await stage(peer, "a", [message("1"), given])
        assert (reply.code, read_reply(STAGE, reply).refused) == (code, 1)
        assert text in reply.remark
        assert bench.records(UNITS) == []

    broker(body)


@pytest.mark.parametrize(
    ("header", "text"),
    [
        ({"writer": ""}, "writer=''"),
        ({"attempt": "x" * 201}, "1 to 200 printable characters, it has 201"),
        ({"batch": -1}, "numbers begin at 0"),
        ({"number": -1}, "numbers begin at 0"),
        ({"number": 2_000_000_000}, "at most 1000000 units"),
        ({"coordinator": "x" * 256}, "coordinator='xxx"),
    ],
)
def test_requests_that_make_no_sense(broker: Run, header: dict[str, Any], text: str) -> None:
    async def body(bench: Any) -> None:
        reply = await stage(bench.peer(), "a", [message("1")], **header) if "attempt" not in header else None
        if reply is None:
            reply = await stage(bench.peer(), header["attempt"], [message("1")])
        assert reply.code == 29
        assert text in reply.remark

    broker(body)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (decision(-1, a=1), "batch=-1: expected 0 to"),
        (decision(1 << 63, a=1), "batch=9223372036854775808"),
        (decision(writer="", a=1), "writer=''"),
        (decision(writer="x" * 201, a=1), "expected 1 to 200 printable characters, it has 201"),
        (decision(a=-1), "attempt a has -1 units at broker broker-a"),
        (decision(a=1 << 40), "attempt a has 1099511627776 units at broker broker-a"),
        (decision(**{"\n": 1}), "attempt='\\n'"),
        (BatchDecision("W", 0, HERE, [StagedAttempt("a", {HERE: 1})] * 2), "attempt a is named twice"),
        (BatchDecision("W", 0, HERE, [StagedAttempt("a", {"": 1})]), "broker=''"),
        (decision(coordinator="x" * 256), "coordinator='xxx"),
        (AttemptList("W", -1, HERE, ["a"]), "batch=-1"),
        (AttemptList("W", 0, HERE, ["x" * 201]), "attempt='xxx"),
    ],
)
def test_bodies_that_make_no_sense(broker: Run, given: BatchDecision | AttemptList, text: str) -> None:
    async def body(bench: Any) -> None:
        peer = bench.peer()
        assert (await stage(peer, "a", [message("1")])).code == 0
        decides = isinstance(given, BatchDecision)
        for code in (DECIDE, PUBLISH) if decides else (SETTLE, DISCARD):
            reply = await peer.ask(code, DECISION.dumps(given) if decides else ATTEMPTS.dumps(given))
            assert reply.code == 29
            assert text in reply.remark
        assert waiting(bench) == ["a"]
        assert bench.records(NOTES) == []

    broker(body)


def test_one_broker_decides_for_a_writer(broker: Run) -> None:
    async def body(bench: Any) -> None:
        peer = bench.peer()
        await stage(peer, "a", [message("1")])
        reply = await stage(peer, "b", [message("2")], coordinator="broker-b")
        assert (reply.code, "is decided by broker broker-a, not by broker-b" in reply.remark) == (604, True)
        reply = await peer.ask(DECIDE, DECISION.dumps(decision(coordinator="broker-b", a=1)))
        assert (reply.code, "is decided by broker broker-b, this one is broker-a" in reply.remark) == (604, True)
        reply = await peer.ask(PUBLISH, DECISION.dumps(decision(coordinator="broker-b", a=1)))
        assert (reply.code, "is decided by broker broker-a, not by broker-b" in reply.remark) == (604, True)
        for code in (DECIDE, PUBLISH, SETTLE, DISCARD):
            reply = await peer.ask(code, b"{]")
            assert (reply.code, "the body cannot be read" in reply.remark) == (29, True)

    broker(body)


def test_staged_messages_nobody_decides_are_discarded(broker: Run) -> None:
    async def body(bench: Any) -> None:
        peer = bench.peer()
        await stage(peer, "a", [message("1")])
        since = bench.tables.staging.get("W").attempts["a"].since_ms
        rounds = asyncio.ensure_future(bench.parts.staging.run())
        # Virtual time does not wait for the thread that syncs the log; what is certain is when nothing happens yet.
        while bench.clock.now_ms() <= since + 60_000:
            assert waiting(bench) == ["a"]
            await asyncio.sleep(1)
        await until(lambda: not waiting(bench))
        reply = await peer.ask(DECIDE, DECISION.dumps(decision(a=1)))
        assert (reply.code, "given up" in reply.remark) == (604, True)
        bench.settings.staged_writer_reserved_days = 0
        await until(lambda: len(bench.tables.staging) == 0)
        rounds.cancel()

    broker(body, staged_message_time_out=60_000)


def test_a_restart_knows_what_was_decided(broker: Run) -> None:
    async def body(bench: Any) -> None:
        peer = bench.peer()
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

    broker(body)


def test_a_start_looks_at_few_units_however_long_an_attempt_is_open(broker: Run, monkeypatch: Any) -> None:
    monkeypatch.setattr(staging_publisher, "UNITS_TO_READ", 8)
    looked_at: list[int] = []

    def read_units(*given: Any) -> Any:
        found = staging_history.read_units(*given)
        looked_at.append(len(found))
        return found

    monkeypatch.setattr(staging_publisher, "read_units", read_units)

    async def body(bench: Any) -> None:
        peer, publisher, ledger = bench.peer(), bench.parts.staging, bench.tables.staging
        publisher._units_to_read = 8
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

    broker(body)


def test_a_unit_that_the_log_has_lost_is_not_believed_to_be_there(broker: Run) -> None:
    async def body(bench: Any) -> None:
        peer, ledger = bench.peer(), bench.tables.staging
        for number in range(3):
            await stage(peer, "a", [message(str(number))], number=number)
        snapshot = ledger.snapshot(3)
        assert still_there(bench.store, snapshot) == snapshot
        # What a power failure leaves: a snapshot of units that are not where it says.
        units = snapshot.writers[0].open[0].units
        units[5] += 1
        units[7] = 99
        ledger.restore(still_there(bench.store, snapshot), [], [])
        assert list(ledger.get("W").attempts["a"].units) == [0]
        reply = await stage(peer, "a", [], number=3)
        assert (reply.code, "its unit 1 is not, or no longer" in reply.remark) == (604, True)
        reply = await peer.ask(DECIDE, DECISION.dumps(decision(a=3)))
        assert (reply.code, "has not, or no longer, all" in reply.remark) == (604, True)

    broker(body)


def test_topics_that_keep_the_last_of_each_key_need_keys(broker: Run) -> None:
    async def body(bench: Any) -> None:
        peer = bench.peer()
        bench.tables.topics.ensure("K", 1, 0).attributes["cleanup.policy"] = "COMPACTION"
        reply = await stage(peer, "a", [message("1", topic="K"), message("2", topic="K", KEYS=" ")])
        assert (reply.code, read_reply(STAGE, reply).refused) == (13, 1)
        assert "Required message key is missing: topic K keeps the last message of each key" in reply.remark
        assert bench.records(UNITS) == []
        assert (await stage(peer, "a", [message("1", topic="K")])).code == 0
        await commit(peer, decision(a=1))
        assert keys(bench, "K") == ["1"]

    broker(body)


def test_a_writer_that_fails_again_and_again_is_told_how_often(broker: Run) -> None:
    async def body(bench: Any) -> None:
        peer = bench.peer()
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

    broker(body)


def test_a_snapshot_keeps_to_the_limits_of_the_store(broker: Run) -> None:
    async def body(bench: Any) -> None:
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
        bench.parts.staging._snapshot_place = -1
        await bench.parts.staging.round()
        await bench.parts.staging.round()
        await asyncio.sleep(1)
        assert len(bench.records(NOTES)) < count + 3 * len(parts), "once for the start, once for the round"

    broker(body, store={"max_message_size": 20_000})


def test_a_snapshot_that_cannot_be_written_is_not_tried_every_second(broker: Run) -> None:
    async def body(bench: Any) -> None:
        peer, tried = bench.peer(), []
        await settle(peer, "a")
        real = bench.store.append

        def append(record: Any) -> Any:
            if b'"kind":"snapshot"' not in record.body:
                return real(record)
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

    broker(body)


def test_publishing_goes_on_when_the_disk_has_room_again(broker: Run) -> None:
    async def body(bench: Any) -> None:
        peer = bench.peer()
        await stage(peer, "a", [message(str(n)) for n in range(700)])
        real = bench.store.append
        full = [False]

        def append(record: Any) -> Any:
            if record.topic == "T" and record.uniq_key == "400" and not full[0]:
                full[0] = True
                bench.store.put_up(flag, "disk full: no room")
            return real(record)

        from tianzhou.store.flags import RunningFlag

        flag = RunningFlag.DISK_FULL
        bench.store.append = append
        decided = await decide(peer, decision(a=1))
        reply = await peer.ask(PUBLISH, DECISION.dumps(decided))
        assert reply.code == 14
        assert "disk full" in reply.remark
        assert len(keys(bench)) == 400
        bench.store.take_down(flag)
        await publish(peer, decided)
        assert keys(bench) == [str(n) for n in range(700)]

    broker(body)
