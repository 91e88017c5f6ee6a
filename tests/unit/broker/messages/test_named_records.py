"""Requests that name a stored record by its place are allowed by the record's own topic (broker.md §22)."""

from __future__ import annotations

from typing import Any

import pytest
from broker_bench import Bench, OpenBench

from tianzhou.access.needs import plain_needs
from tianzhou.access.plain_config import Account, PlainConfig
from tianzhou.access.plain_rules import PlainRules
from tianzhou.access.signatures import signature
from tianzhou.model import TopicConfig, names
from tianzhou.remoting.gates.access_gate import AccessGate
from tianzhou.store import NewRecord, PutResult
from tianzhou.wire.codes import RequestCode
from tianzhou.wire.command import Command, encode
from tianzhou.wire.fields import write_header

WORKER = Account("worker", "secret", topic_perms=("orders=PUB|SUB", "audit=PUB", "bills=SUB"), group_perms=("G=SUB",))


async def asked(bench: Bench, code: int, **header: Any) -> tuple[int, str]:
    """Code and remark of the reply to a request that the worker signs."""
    peer = bench.peer()
    fields = write_header(code, **header) | {"AccessKey": WORKER.access_key}
    fields["Signature"] = signature(fields, b"", WORKER.secret_key)
    opaque = peer.next_opaque()
    peer.post_frame(encode(Command(code, opaque, version=479, fields=fields)))
    reply = await peer.reply(opaque)
    return reply.code, reply.remark or ""


def guarded(broker: OpenBench) -> Bench:
    """A broker with access control."""
    bench = broker()
    bench.access = AccessGate(PlainRules([PlainConfig(accounts=(WORKER,))], plain_needs), bench.tables.refusals)
    for topic in ("orders", "audit", "bills"):
        bench.tables.topics.put(TopicConfig(topic, 1, 1), 1)
    return bench


def stored(bench: Bench, topic: str, **properties: str) -> int:
    """Commit-log offset of a message."""
    text = "".join(f"{name}\x01{value}\x02" for name, value in properties.items())
    result = bench.store.append(NewRecord(topic, 0, b"secret", text.encode()))
    assert isinstance(result, PutResult)
    return result.physical_offset


@pytest.mark.parametrize(("topic", "allowed"), [("orders", True), ("bills", True), ("audit", False)])
async def test_a_message_of_a_topic_that_may_not_be_read_is_not_sent_back(
    broker: OpenBench, topic: str, allowed: bool
) -> None:
    async with guarded(broker) as bench:
        offset = stored(bench, topic, UNIQ_KEY="U")
        fields = {"offset": offset, "group": "G", "delay_level": 0, "origin_topic": "orders", "unit_mode": False}
        code, remark = await asked(bench, RequestCode.CONSUMER_SEND_MSG_BACK, **fields)
        assert (code, "of a topic you may not read" in remark) == ((0, False) if allowed else (16, True))


@pytest.mark.parametrize(("topic", "allowed"), [("orders", True), ("audit", True), ("bills", False)])
async def test_a_transaction_of_a_topic_that_may_not_be_sent_to_is_not_ended(
    broker: OpenBench, topic: str, allowed: bool
) -> None:
    async with guarded(broker) as bench:
        half = {"UNIQ_KEY": "U", "REAL_TOPIC": topic, "REAL_QID": "0", "PGROUP": "P", "TRAN_MSG": "true"}
        offset = stored(bench, names.HALF_TOPIC, **half)
        fields = {
            "producer_group": "P", "tran_state_table_offset": 0, "commit_log_offset": offset, "commit_or_rollback": 12,
            "from_transaction_check": False, "msg_id": "U", "transaction_id": "U",
        }  # fmt: skip
        code, remark = await asked(bench, RequestCode.END_TRANSACTION, **fields)
        # The half message was not written by a producer, so the broker knows of no transaction that could be ended.
        expected, text = (1, "a transaction ends once") if allowed else (16, "of a topic you may not send to")
        assert (code, text in remark) == (expected, True)
