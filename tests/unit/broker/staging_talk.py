"""Requests and checks for tests of staged messages at a broker."""

from __future__ import annotations

from functools import partial
from typing import Any

from broker_bench import Bench, Peer

from tianzhou.wire.bodies.staging import (
    ATTEMPTS,
    DECISION,
    AttemptList,
    BatchDecision,
    StagedAttempt,
)
from tianzhou.wire.fields import read_reply
from tianzhou.wire.properties import decode_properties, encode_properties
from tianzhou.wire.staging import StagedMessage, encode_unit
from waiting import until_async

STATE_OF, STAGE, DECIDE, PUBLISH, SETTLE, DISCARD = range(31001, 31007)
UNITS, NOTES = "rmq_sys_STAGED_TOPIC", "rmq_sys_STAGED_OP_TOPIC"
HERE = "broker-a"


def message(key: str, *, topic: str = "T", queue_id: int = 0, body: bytes = b"", **properties: str) -> StagedMessage:
    pairs = {"UNIQ_KEY": key, "KEYS": f"k-{key}", "TAGS": "TagA"} | properties
    return StagedMessage(topic, queue_id, 7, 0, encode_properties(pairs), body or key.encode())


async def stage(
    peer: Peer, attempt: str, messages: list[StagedMessage], *, batch: int = 0, number: int = 0, **more: Any
) -> Any:
    fields = {
        "writer": "W", "batch": batch, "attempt": attempt, "number": number, "coordinator": HERE,
        "born_timestamp": 99, "last": True, "default_topic": "TBW102", "default_topic_queue_nums": 4,
    }  # fmt: skip
    return await peer.ask(STAGE, encode_unit(messages), **fields | more)


def decision(batch: int = 0, writer: str = "W", coordinator: str = HERE, **attempts: int) -> BatchDecision:
    """Return a decision: attempts, and their numbers of units at this broker."""
    return BatchDecision(
        writer, batch, coordinator, [StagedAttempt(name, {HERE: count}) for name, count in attempts.items()]
    )


async def decide(peer: Peer, wanted: BatchDecision) -> BatchDecision:
    reply = await peer.ask(DECIDE, DECISION.dumps(wanted))
    assert reply.code == 0, reply.remark
    return DECISION.loads(reply.body)


async def publish(peer: Peer, decided: BatchDecision) -> None:
    for _ in range(20):
        reply = await peer.ask(PUBLISH, DECISION.dumps(decided))
        assert reply.code == 0, reply.remark
        if read_reply(PUBLISH, reply).published:
            return
    raise AssertionError("not published")


async def commit(peer: Peer, wanted: BatchDecision) -> BatchDecision:
    decided = await decide(peer, wanted)
    if decided.batch == wanted.batch:
        await publish(peer, decided)
    return decided


async def settle(peer: Peer, *attempts: str, batch: int = 0, coordinator: str = HERE) -> BatchDecision | None:
    reply = await peer.ask(SETTLE, ATTEMPTS.dumps(AttemptList("W", batch, coordinator, list(attempts))))
    assert reply.code == 0, reply.remark
    return DECISION.loads(reply.body) if reply.body else None


async def discard(peer: Peer, *attempts: str, batch: int = 0) -> None:
    reply = await peer.ask(DISCARD, ATTEMPTS.dumps(AttemptList("W", batch, HERE, list(attempts))))
    assert reply.code == 0, reply.remark


def keys(bench: Bench, topic: str = "T", queue_id: int = 0) -> list[str]:
    return [decode_properties(record.properties)["UNIQ_KEY"] for record in bench.records(topic, queue_id)]


def waiting(bench: Bench, writer: str = "W") -> list[str]:
    found = bench.tables.staging.get(writer)
    return [] if found is None else sorted(found.attempts)


until = partial(until_async, within_s=3600)
"""Let virtual time pass until a condition is true; the sync thread may take any amount of it."""
