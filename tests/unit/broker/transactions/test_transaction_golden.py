"""The transactions of a store of Apache 5.3.3, continued by ours; our records equal Apache's."""

from __future__ import annotations

import asyncio
import json
import tarfile
from pathlib import Path
from typing import Any

from broker_bench import Bench
from transaction_talk import COMMIT, HALF, OP, ROLLBACK, Sent, checking, end, questions

from tianzhou.broker.state_files import StateFiles
from tianzhou.testing.clock import VirtualClock, run
from tianzhou.wire.json_dialect import loads
from tianzhou.wire.properties import decode_properties

HERE = Path(__file__).resolve().parents[1]
GOLDEN = HERE.parents[1] / "golden" / "store"
SMALL = {
    "mapped_file_size_commit_log": 131_072, "mapped_file_size_consume_queue": 400, "max_hash_slot_num": 100,
    "max_index_num": 400,
}  # fmt: skip
LATER_MS = 60_000


def unpacked(case: str, folder: Path) -> tuple[Path, dict[str, Any]]:
    with tarfile.open(GOLDEN / f"{case}.tar.xz") as archive:
        archive.extractall(folder)
    manifest: dict[str, Any] = json.loads((GOLDEN / f"{case}.json").read_text(encoding="utf-8"))
    return folder / "store", manifest


def test_apaches_undecided_transactions_are_checked_and_end(tmp_path: Path) -> None:
    store, manifest = unpacked("transaction", tmp_path)
    newest = max(message["storeTimestamp"] for message in manifest["messages"])
    halves = {m["queueOffset"]: m for m in manifest["messages"] if m["topic"] == HALF}
    undecided = {halves[n]["uniqKey"] for n in (46, 48, *range(49, 54))}
    committed = [m["uniqKey"] for m in manifest["messages"] if m["topic"] == "D5Tx"]
    clock = VirtualClock(newest + LATER_MS)

    def keys(bench: Bench) -> list[str]:
        found = [record for n in range(4) for record in bench.records("D5Tx", n)]
        return [decode_properties(record.properties)["UNIQ_KEY"] for record in found]

    async def main() -> None:
        async with Bench(store, clock, {"transaction_check_max": 4}, SMALL) as bench:
            bench.tables.offsets.load(loads((store / "config" / "consumerOffset.json").read_bytes()))
            await bench.parts.transactions.load()
            waiting = bench.tables.transactions.waiting()
            assert [half.offset for half in waiting] == [46, 48, 49, 50, 51, 52, 53]
            assert [half.checks for half in waiting] == [0, 0, 2, 2, 2, 2, 2]
            assert {half.identity.unique_key for half in waiting} == undecided
            assert {half.topic for half in waiting} == {"D5Tx"}
            # A decision about a copy that Apache has long written again counts, too.
            original = next(m for m in halves.values() if m["uniqKey"] == halves[49]["uniqKey"])
            peer = bench.peer()
            await peer.heartbeat("c", producer="D5TxP")
            sent = Sent(original["uniqKey"], original["commitLogOffset"], original["queueOffset"])
            assert (await end(peer, sent, COMMIT, group="D5TxP")).code == 0
            first = next(m for m in halves.values() if m["uniqKey"] == committed[0])
            late = Sent(first["uniqKey"], first["commitLogOffset"], first["queueOffset"])
            assert (await end(peer, late, ROLLBACK, group="D5TxP")).code == 1
            async with checking(bench):
                await asyncio.sleep(31)
                asked = questions(peer)
                assert {one.key for one, _, _ in asked} == undecided - {sent.key}
                for one, _, message in asked:
                    assert message.topic == "D5Tx"
                    reply = await end(peer, one, COMMIT, group="D5TxP", check=True)
                    assert reply.code == 0
                await asyncio.sleep(1)
            assert len(bench.tables.transactions) == 0
            assert sorted(keys(bench)) == sorted([*committed, *undecided])

    run(main(), clock)


def test_marks_have_apaches_bytes(tmp_path: Path) -> None:
    _, manifest = unpacked("transaction", tmp_path)
    apaches = next(m for m in manifest["messages"] if m["topic"] == OP and m["queueOffset"] == 2)

    async def main() -> None:
        async with Bench(tmp_path / "ours", clock, {}, {}) as bench:
            ledger = bench.tables.transactions
            ledger.mark([45, 47])
            await bench.parts.transactions.close()
            await asyncio.sleep(0.01)
            (ours,) = bench.records(OP)
            assert decode_properties(ours.properties) == apaches["properties"]
            assert (ours.size, ours.sys_flag, ours.flag) == (apaches["storeSize"], 0, 0)
            assert ours.body == b"45,47,"

    clock = VirtualClock()
    run(main(), clock)
    assert manifest["brokerVersion"] == "5.3.3"


def test_positions_are_written_as_apache_writes_them(tmp_path: Path) -> None:
    store, _ = unpacked("transaction", tmp_path)
    clock = VirtualClock()

    async def main() -> None:
        async with Bench(tmp_path / "ours", clock, {}, {}) as bench:
            files = StateFiles(bench.tables, store / "config")
            files.load()
            before = bench.tables.offsets.snapshot()["offsetTable"]
            assert before == {
                "RMQ_SYS_TRANS_OP_HALF_TOPIC@CID_RMQ_SYS_TRANS": {0: 2},
                "RMQ_SYS_TRANS_HALF_TOPIC@CID_RMQ_SYS_TRANS": {0: 46},
            }
            files.close()

    run(main(), clock)
