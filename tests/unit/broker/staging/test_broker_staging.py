"""Staged messages at the broker: visibility over time, contents of the log, refusals."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from broker_bench import Bench, Peer
from staging_talk import (
    DECIDE,
    DISCARD,
    HERE,
    NOTES,
    PUBLISH,
    SETTLE,
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
    waiting,
)

from broker_probe import BrokerProbe
from store_reads import read_now
from tianzhou.broker.staging.log_entries import Decided, UndecidableAttempts
from tianzhou.model.names import UNDELIVERABLE_TOPIC
from tianzhou.store.files.lookup_steps import at_once
from tianzhou.wire.bodies.staging import (
    ATTEMPTS,
    DECISION,
    STATE,
    AttemptList,
    BatchDecision,
    StagedAttempt,
)
from tianzhou.wire.fields import read_reply
from tianzhou.wire.properties import decode_properties
from tianzhou.wire.staging import StagedMessage


async def test_staged_messages_are_seen_when_their_batch_is_decided(bench: Bench, peer: Peer) -> None:
    assert (await stage(peer, "a", [message("1"), message("2", queue_id=1)])).code == 0
    assert (await stage(peer, "b", [message("3", body=b"three", colour="red")])).code == 0
    assert keys(bench) == []
    assert at_once(bench.store.lookups.key_steps("T", "1", 32)).physical_offsets == []
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
        assert at_once(bench.store.lookups.key_steps("T", key, 32)).physical_offsets == [record.physical_offset]
    assert read_now(bench.store, "T", 0, 0, 9, frozenset({2598919})).count == 2, "found by tag"
    assert bench.stats.put("T").count == 3
    assert waiting(bench) == []


async def test_a_decision_stands_whoever_asks_again(bench: Bench, peer: Peer) -> None:
    await stage(peer, "a", [message("1")])
    await decide(peer, decision(a=1))
    # The driver died. The batch runs again, and is staged before any client has queried its outcome.
    reply = await stage(peer, "b", [message("2")])
    assert (reply.code, read_reply(STAGE, reply).decided) == (0, True)
    decided = await commit(peer, decision(b=1))
    assert (decided.batch, "b" in decided.names()) == (0, False)
    await publish(peer, decided)
    assert keys(bench) == ["1"]
    # All units are published: the broker has dropped the batch's record, and a client that queries it has nothing to
    # do.
    decided = await decide(peer, decision(b=1))
    assert decided == BatchDecision("W", 0, HERE, [])
    await publish(peer, decided)
    assert keys(bench) == ["1"]
    reply = await peer.ask(STATE_OF, writer="W")
    state = STATE.loads(reply.body)
    assert (state.version, state.broker_name, state.coordinator) == (1, HERE, HERE)
    assert (state.decided, state.published) == (0, 0)


async def test_only_the_listed_attempts_count_and_older_batches_are_history(bench: Bench, peer: Peer) -> None:
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


async def test_units_of_an_attempt_keep_their_order_and_repetitions_count_once(bench: Bench, peer: Peer) -> None:
    for number in (1, 0, 2, 1):
        reply = await stage(peer, "a", [message(f"{number}.{n}") for n in range(300)], number=number, last=False)
        assert reply.code == 0
    assert (await stage(peer, "a", [], number=3)).code == 0, "only waits for the disk"
    assert len(bench.records(UNITS)) == 3
    await commit(peer, decision(a=3))
    assert keys(bench) == [f"{number}.{n}" for number in range(3) for n in range(300)]


async def test_an_attempt_with_a_hole_is_not_complete(bench: Bench, peer: Peer) -> None:
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


async def test_a_trial_that_failed_is_not_taken_for_one_under_way(bench: Bench) -> None:
    peer = bench.peer()
    await stage(peer, "a", [message("1")])
    failed = asyncio.ensure_future(asyncio.sleep(0))
    await failed
    BrokerProbe(bench.parts).note_trial("W", failed)
    await commit(peer, decision(a=1))
    assert keys(bench) == ["1"]


async def test_others_are_served_while_a_long_unit_is_checked(bench: Bench) -> None:
    peer, other = bench.peer(), bench.peer()
    ledger = bench.tables.staging
    await stage(other, "b", [message("b")])
    many = [message(str(n)) for n in range(3000)]
    # Run steps in between: the attempt is aborted, the batch is decided.
    from tianzhou.broker.handlers import staging as handler

    real, met = handler.records.problem, []

    def problem(staged: StagedMessage, limit: int) -> str | None:
        if staged.body == b"1000" and met[-1:] != ["given up"]:
            met.append("given up")
            BrokerProbe(bench.parts).note_attempt(UndecidableAttempts(AttemptList("W", 0, HERE, ["a"])))
        if staged.body == b"2000" and met[-1:] != ["decided"]:
            met.append("decided")
            BrokerProbe(bench.parts).note_attempt(Decided(decision(b=1), HERE))
        return real(staged, limit)

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


async def test_attempts_that_are_given_up_can_no_longer_be_decided(bench: Bench, peer: Peer) -> None:
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


async def test_a_decision_needs_everything_that_was_staged(peer: Peer) -> None:
    await stage(peer, "a", [message("1")])
    for wanted in (decision(a=2), decision(a=1, b=1)):
        reply = await peer.ask(DECIDE, DECISION.dumps(wanted))
        assert reply.code == 604
        assert "has not, or no longer, all that the attempts" in reply.remark
    assert (await commit(peer, decision(a=1))).names() == ["a"]
    reply = await peer.ask(PUBLISH, DECISION.dumps(decision(1, a=1)))
    assert (reply.code, "was not decided here" in reply.remark) == (604, True)


async def test_a_delay_counts_from_the_decision(bench: Bench, peer: Peer) -> None:
    await stage(peer, "a", [message("1", DELAY="2"), message("2"), message("3", DELAY="0")])
    await asyncio.sleep(60)
    await commit(peer, decision(a=1))
    bench.deliver_delayed()
    await asyncio.sleep(3)
    assert keys(bench) == ["2", "3"]
    await asyncio.sleep(3)
    assert keys(bench) == ["2", "3", "1"]
    assert decode_properties(bench.records("T")[2].properties)["DELAY"] == "2"


@pytest.mark.parametrize(
    ("unfit", "code", "text"),
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
async def test_a_message_that_could_not_be_published_is_refused_at_once(
    bench: Bench, peer: Peer, unfit: StagedMessage, code: int, text: str
) -> None:
    reply = await stage(peer, "a", [message("1"), unfit])
    assert (reply.code, read_reply(STAGE, reply).refused) == (code, 1)
    assert text in reply.remark
    assert bench.records(UNITS) == []


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
async def test_requests_that_make_no_sense(bench: Bench, header: dict[str, Any], text: str) -> None:
    reply = await stage(bench.peer(), "a", [message("1")], **header) if "attempt" not in header else None
    if reply is None:
        reply = await stage(bench.peer(), header["attempt"], [message("1")])
    assert reply.code == 29
    assert text in reply.remark


@pytest.mark.parametrize(
    ("unfit", "text"),
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
async def test_bodies_that_make_no_sense(
    bench: Bench, peer: Peer, unfit: BatchDecision | AttemptList, text: str
) -> None:
    assert (await stage(peer, "a", [message("1")])).code == 0
    decides = isinstance(unfit, BatchDecision)
    for code in (DECIDE, PUBLISH) if decides else (SETTLE, DISCARD):
        reply = await peer.ask(code, DECISION.dumps(unfit) if decides else ATTEMPTS.dumps(unfit))
        assert reply.code == 29
        assert text in reply.remark
    assert waiting(bench) == ["a"]
    assert bench.records(NOTES) == []


async def test_one_broker_decides_for_a_writer(peer: Peer) -> None:
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


async def test_a_decided_message_that_cannot_be_stored_holds_up_neither_its_batch_nor_the_next(
    bench: Bench, peer: Peer
) -> None:
    await stage(peer, "a", [message("1"), message("large", body=b"x" * 5_000), message("2")])
    bench.store_settings.max_message_size = 1_000
    await commit(peer, decision(a=1))
    await stage(peer, "b", [message("3")], batch=1)
    await commit(peer, decision(1, b=1))
    assert keys(bench) == ["1", "2", "3"]
    (aside,) = bench.records(UNDELIVERABLE_TOPIC)
    (unit, _) = bench.records(UNITS)
    assert aside.prepared_transaction_offset == unit.physical_offset
    assert decode_properties(aside.properties)["UNIQ_KEY"] == "large"
    assert (await peer.figures())["undeliverableMessages"] == "1"
