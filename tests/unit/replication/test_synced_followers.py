"""A follower that acknowledges only entries on its disk (broker.md §19.6, docs/adr/0015)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from lone_node import HOST, node

from tianzhou.records.codec import Record, encode_record
from tianzhou.records.entry import HEADER_SIZE, EntryHeader
from tianzhou.remoting.client import RemotingClient
from tianzhou.wire.bodies import dledger
from tianzhou.wire.codes import DLedgerRequestCode, DLedgerResponseCode
from tianzhou.wire.command import Command


def entries(term: int, index: int, position: int, count: int) -> tuple[bytes, int]:
    """Return entries of one term from an index on, and their end position."""
    raw = b""
    for n in range(index, index + count):
        place = position + HEADER_SIZE
        body = encode_record(Record("T", 0, 0, place, n, 0, 1, HOST, 5, 1, HOST, 5, 0, 0, b"%d of %d" % (n, term), b""))
        size = HEADER_SIZE + len(body)
        raw += EntryHeader(n, term, position, len(body), size).encode() + body
        position += size
    return raw, position


def stretch(leader: str, term: int, previous: int, previous_term: int, raw: bytes, count: int) -> Command:
    request = dledger.StretchRequest(
        group="g", leader_id=leader, local_id=leader, remote_id="n0", term=term, previous_index=previous,
        previous_term=previous_term, count=count, end_index=previous + count, commit_index=-1, entries=raw,
        tianzhou=dledger.OURS,
    )  # fmt: skip
    return Command(DLedgerRequestCode.STRETCH, fields=dledger.stretch_fields(request), body=dledger.encode(request))


@pytest.mark.parametrize("flush", ["SYNC_FLUSH", "ASYNC_FLUSH"])
def test_what_comes_behind_a_cut_is_acknowledged_though_the_log_was_longer(tmp_path: Path, flush: str) -> None:
    async def main() -> None:
        async with (
            node(tmp_path, flush_disk_type=flush) as (_, address, _),
            RemotingClient() as peer,
        ):
            first, middle = entries(1, 0, 0, 2)
            rest, _ = entries(1, 2, middle, 20)
            other, _ = entries(2, 2, middle, 1)
            for command, reached in (
                (stretch("n1", 1, -1, -1, first + rest, 22), 21),
                (stretch("n2", 2, 1, 1, other, 1), 2),
            ):
                reply = await peer.invoke(address, command, 10_000)
                answer = dledger.decode(dledger.StretchResponse, reply.body)
                assert (answer.code, answer.index) == (DLedgerResponseCode.SUCCESS, reached)

    asyncio.run(main())
