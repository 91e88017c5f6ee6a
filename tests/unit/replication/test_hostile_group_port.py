"""Hostile requests at the port of a group's nodes: no request stops the node (broker.md §19.8).

The requests are drawn from a seed, which is printed; set HOSTILE_SEED to repeat them.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import os
import random
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from lone_node import HOST, node

from broker_probe import NodeProbe
from tianzhou.clock import SystemClock
from tianzhou.errors import StoreError, TianzhouError
from tianzhou.records.codec import Record, encode_record
from tianzhou.records.entry import HEADER_SIZE, EntryHeader
from tianzhou.remoting.client import RemotingClient
from tianzhou.store.entries.entry_log import EntryLog
from tianzhou.wire.codes import DLedgerRequestCode as Code
from tianzhou.wire.codes import DLedgerResponseCode, ResponseCode
from tianzhou.wire.command import Command
from waiting import until_async

SEED = int(os.environ.get("HOSTILE_SEED", "0")) or random.randrange(1 << 30)
REQUESTS = 700
GOOD_LIMIT_MS = 10_000
"""Limit of a good request in ms; a busy machine may reply late."""
MIB = 1 << 20
NUMBERS = [0, -1, 1, 2, 7, 1 << 31, -(1 << 31), (1 << 63) - 1, -(1 << 63), 1 << 63, 1 << 70, 10**400, 1.5]
ODD: list[Any] = [None, True, "", "n1", "n0", "n9", "x" * 70_000, [], {}, [[]], "NaN", "\x00", "天舟" * 99]
NAMES = ["n0", "n1", "n2", "n3", "", None]


def entry_json(rng: random.Random, index: int, term: int, position: int) -> dict[str, Any]:
    body = record(rng, position + HEADER_SIZE)
    header = EntryHeader(index, term, position, len(body), HEADER_SIZE + len(body))
    return {
        "body": list(body) if rng.random() < 0.1 else base64.b64encode(body).decode(),
        "bodyCrc": 0, "chainCrc": 0, "channel": 0, "index": index, "magic": header.magic, "pos": position,
        "size": header.size, "term": term,
    }  # fmt: skip


def record(rng: random.Random, place: int) -> bytes:
    """Return the record of an entry, or bytes that are no record."""
    if rng.random() < 0.3:
        return rng.randbytes(rng.randrange(300))
    good = encode_record(Record("T", rng.randrange(4), 0, place, 0, 0, 1, HOST, 5, 1, HOST, 5, 0, 0, b"body", b""))
    if rng.random() < 0.5:
        good = bytearray(good)
        good[rng.randrange(len(good))] ^= 1 << rng.randrange(8)
    return bytes(good)


def request(rng: random.Random, term: int, end: int, position: int) -> Command:
    """Return a request that resembles a good one closely enough to reach deep code."""
    code = rng.choice(list(Code))
    index = rng.choice([end, end + 1, end + 1, end + 2, 0])
    entry = entry_json(rng, index, rng.choice([term, term, term - 1]), rng.choice([position, position, 0, 99]))
    members: dict[str, Any] = {
        "group": "g", "remoteId": "n0", "localId": rng.choice(["n1", "n2"]), "leaderId": "n1", "code": 200,
        "term": term + rng.choice([0, 0, 0, 1]), "ledgerEndIndex": rng.choice([end, end + 1, -1]),
        "ledgerEndTerm": term, "entry": entry, "type": rng.choice(["APPEND", "COMMIT", "COMPARE", "TRUNCATE", 1]),
        "batchEntry": [entry] * rng.choice([0, 0, 1, 3]), "commitIndex": rng.choice([end, -1, end + 5]),
        "beginIndex": index, "transferId": "n1", "transfereeId": rng.choice(["n0", "n1"]),
        "takeLeadershipLedgerIndex": end, "tianzhou": rng.choice([0, 1]), "count": 1, "endIndex": end + 1,
        "previousIndex": index - 1, "previousTerm": rng.choice([term, term - 1, -1]),
    }  # fmt: skip
    for name in rng.sample(sorted(members), rng.choice([0, 0, 1, 1, 2, 5])):
        if name in {"localId", "leaderId", "remoteId", "group"} and rng.random() < 0.7:
            continue
        members[name] = rng.choice([*NUMBERS, *ODD, *NAMES])
    if code is Code.STRETCH:
        body = rng.randbytes(rng.randrange(200))
        if rng.random() < 0.7:
            raw = record(rng, position + HEADER_SIZE)
            body = EntryHeader(index, term, position, len(raw), HEADER_SIZE + len(raw)).encode() + raw
        return Command(code, fields={name: str(value)[:32_000] for name, value in members.items()}, body=body)
    body = json.dumps(members).encode()
    if rng.random() < 0.1:
        body = rng.choice([b"", b"[" * 100_000, b'{"a":' * 50_000, b"\xff\xfe", body[: len(body) // 2], b"null", b"7"])
    return Command(code, fields={"brokerAddr": "x" * rng.choice([0, 9, 30_000])}, body=body)


def test_nothing_a_stranger_sends_ends_a_node(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    print(f"HOSTILE_SEED={SEED}")
    caplog.set_level(logging.WARNING)
    rng = random.Random(SEED)
    unexpected: list[dict[str, Any]] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: unexpected.append(context))
        async with node(tmp_path) as (one, address, supervisor), RemotingClient(clock=SystemClock()) as stranger:

            async def send(command: Command, limit_ms: int = 100) -> int:
                try:
                    # A push may wait for the entries before it.
                    return (await stranger.invoke(address, command, limit_ms)).code
                except TianzhouError:
                    return -1

            await one_of(send)
            tracemalloc.start()
            codes: dict[int, int] = {}
            entries = NodeProbe(one).entries
            assert entries is not None
            for number in range(REQUESTS):
                end, position = entries.end_index, entries.end_position
                code = await send(request(rng, max(one.standing.term, 1), end, position))
                codes[code] = codes.get(code, 0) + 1
                if number % 50 == 0:
                    assert await one_of(send) == DLedgerResponseCode.SUCCESS
            taken = tracemalloc.get_traced_memory()[0]
            tracemalloc.stop()
            print(codes, entries.end_index, entries.committed_index, one.standing)
            assert codes[DLedgerResponseCode.SUCCESS] > REQUESTS // 10, "most fail before they come anywhere"
            assert await one_of(send) == DLedgerResponseCode.SUCCESS
            assert not supervisor.troubles.present()
            assert taken < 20 * MIB

    async def one_of(send: Any) -> int:
        """Return the code of the node's reply to a good request."""
        for _ in range(50):
            code = int(await send(Command(Code.METADATA, body=b"{}"), GOOD_LIMIT_MS))
            if code != ResponseCode.SYSTEM_BUSY:
                return code
            await asyncio.sleep(0.01)
        return code

    asyncio.run(main())
    assert unexpected == []
    assert len(caplog.records) < 200, "strangers fill the log"


@pytest.mark.parametrize(("group", "learned"), [("g", ["10.0.0.7:10911"]), ("another", [])])
def test_where_brokers_are_is_learned_from_nodes_of_the_group_only(
    group: str, learned: list[str], tmp_path: Path
) -> None:
    async def main() -> None:
        async with node(tmp_path) as (one, address, _), RemotingClient(clock=SystemClock()) as stranger:
            await until_async(lambda: NodeProbe(one).member is not None, "it takes part")
            vote = {"group": group, "remoteId": "n0", "localId": "n1", "leaderId": "n1", "term": 1,
                    "ledgerEndIndex": -1, "ledgerEndTerm": -1}  # fmt: skip
            command = Command(Code.VOTE, fields={"brokerAddr": "10.0.0.7:10911"}, body=json.dumps(vote).encode())
            await stranger.invoke(address, command, 2_000)
            assert one.broker_addresses == learned

    asyncio.run(main())


def test_a_node_that_cannot_read_its_log_begins_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The node drops its half-made decision and does not continue with it."""

    async def main() -> None:
        async with node(tmp_path) as (one, _, supervisor):
            await until_async(lambda: NodeProbe(one).member is not None, "it takes part")
            first, refusing = NodeProbe(one).member, iter([True])

            def end_index(entries: EntryLog) -> int:
                if next(refusing, False):
                    raise StoreError("entry 7 is not in the log any more")
                return -1

            monkeypatch.setattr(EntryLog, "end_index", property(end_index))
            await until_async(lambda: NodeProbe(one).member not in (None, first), "it begins again")
            assert [trouble.why for trouble in supervisor.troubles.present()] != []

    asyncio.run(main())
