"""Requests of a producer and of a test about transactions."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

from broker_bench import Bench, Peer

from tianzhou.records.codec import decode_record
from tianzhou.wire.codes import FLAG_ONEWAY
from tianzhou.wire.fields import read_header, read_reply
from tianzhou.wire.ids import parse_offset_msg_id

HALF = "RMQ_SYS_TRANS_HALF_TOPIC"
OP = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
GIVEN_UP = "TRANS_CHECK_MAX_TIME_TOPIC"
COMMIT, ROLLBACK, UNKNOWN = 8, 12, 0


class Sent(NamedTuple):
    """A producer's identifiers of its half message."""

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
    """Return the checks a producer got since the last call: the answer's identifiers, the header, the message."""
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


def bodies(bench: Bench, topic: str, queue_id: int = 0) -> list[bytes]:
    return [bytes(record.body) for record in bench.records(topic, queue_id)]
