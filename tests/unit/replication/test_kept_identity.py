"""A running node stores the identity of its group and the reason of its halt (docs/adr/0024)."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from lone_node import HOST, node

from tianzhou.records.entry import HEADER_SIZE, EntryHeader
from tianzhou.records.opening import opening_record
from tianzhou.remoting.client import RemotingClient
from tianzhou.replication.dledger.membership.joint import digest
from tianzhou.wire.bodies import dledger
from tianzhou.wire.codes import DLedgerRequestCode, DLedgerResponseCode
from tianzhou.wire.command import Command

OWN, OTHER = "a" * 32, "b" * 32


def opening(term: int, term_id: str) -> bytes:
    """Return the first entry of a log: the record that opens a term."""
    body = opening_record(term, HEADER_SIZE, 5, HOST, 5, OWN, term_id)
    return EntryHeader(0, term, 0, len(body), HEADER_SIZE + len(body)).encode() + body


def stretch(entries: bytes, previous: int, *, commit: int, looks_at: bytes = b"") -> Command:
    request = dledger.StretchRequest(
        group="g", group_id=OWN, leader_id="n1", local_id="n1", remote_id="n0", term=1, previous_index=previous,
        previous_term=1 if looks_at else -1, count=1 if entries else 0, end_index=0, commit_index=commit,
        entries=entries, tianzhou=dledger.IDENTIFYING, settled=1,
    )  # fmt: skip
    if looks_at:
        request.previous_digest = request.term_digest = digest(looks_at)
        request.term_index = previous
    return Command(DLedgerRequestCode.STRETCH, fields=dledger.stretch_fields(request), body=dledger.encode(request))


async def code_of(peer: RemotingClient, address: str, command: Command) -> int:
    reply = await peer.invoke(address, command, 10_000)
    return dledger.decode(dledger.StretchResponse, reply.body).code


def beat(group_id: str) -> Command:
    request = dledger.HeartBeatRequest(
        group="g", group_id=group_id, leader_id="n1", local_id="n1", remote_id="n0", term=1,
        tianzhou=dledger.IDENTIFYING,
    )  # fmt: skip
    return Command(DLedgerRequestCode.HEART_BEAT, body=dledger.encode(request))


def test_the_identity_is_on_the_disk_before_the_entries_are_acknowledged(tmp_path: Path) -> None:
    async def main() -> None:
        async with node(tmp_path) as (one, address, _), RemotingClient() as peer:
            assert one.group_id == ""
            assert await code_of(peer, address, stretch(opening(1, OTHER), -1, commit=-1)) == 200
            kept = json.loads((tmp_path / "dledger-n0" / "group.json").read_text())
            assert kept == {"group": "g", "id": OWN, "joining": True}
            assert await code_of(peer, address, stretch(b"", 0, commit=0, looks_at=opening(1, OTHER))) == 200
            assert json.loads((tmp_path / "dledger-n0" / "group.json").read_text()) == {"group": "g", "id": OWN}
            assert one.group_id == OWN
        async with node(tmp_path) as (one, address, _), RemotingClient() as peer:
            assert one.group_id == OWN
            reply = await peer.invoke(address, beat(OTHER), 10_000)
            assert dledger.decode(dledger.HeartBeatResponse, reply.body).code == DLedgerResponseCode.UNKNOWN_GROUP
            assert OTHER in one.halted

    asyncio.run(main())


def test_another_committed_entry_stops_the_node_over_restarts(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with node(tmp_path) as (one, address, _), RemotingClient() as peer:
            await code_of(peer, address, stretch(opening(1, OTHER), -1, commit=0))
            assert one.halted == ""
        for _ in range(2):
            async with node(tmp_path) as (one, address, _), RemotingClient() as peer:
                answer = await code_of(peer, address, stretch(b"", 0, commit=0, looks_at=opening(1, OWN)))
                assert answer == DLedgerResponseCode.INCONSISTENT_STATE
                assert "entry 0" in one.halted
                assert "follows no further" in one.halted
        assert "n0 follows no further" in caplog.text
        assert "halted" in json.loads((tmp_path / "dledger-n0" / "group.json").read_text())

    asyncio.run(main())
