"""`tianzhou prove` on brokers: one, a pair, a pair that differs, and one that stops meanwhile."""

from __future__ import annotations

import asyncio
import io
import shutil
from contextlib import AsyncExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from small_broker import name_server, small_broker

from tianzhou.admin import Admin
from tianzhou.bench.proof import replicas
from tianzhou.bench.proof.acknowledged import read_lines
from tianzhou.bench.proof.load import LoadOrder
from tianzhou.bench.proof.run import GROUP_PREFIX, ProofOutcome, ProofPlan, prove
from tianzhou.broker.server import Broker
from tianzhou.errors import BrokerError, ClientError
from tianzhou.wire.codes import ResponseCode
from waiting import until_async


def run(main: Any) -> None:
    asyncio.run(asyncio.wait_for(main, 60))


pytestmark = pytest.mark.runner.with_args(run)


def broker(folder: Path, namesrv: str, role: str = "ASYNC_MASTER", broker_id: int = 0, **settings: Any) -> Broker:
    store = {
        "broker_role": role,
        "store_path_root_dir": str(folder / role),
        "max_index_num": 40_000,
        "ha_slave_cut_max": 0,
    }
    return small_broker(folder / role, store, namesrv_addr=namesrv, broker_id=broker_id, **settings)


def order(count: int | None = 200, seconds: float | None = None, rate: float = 0) -> LoadOrder:
    return LoadOrder("orders", count, seconds, rate, 64, 16, 20_000)


async def proof(namesrv: str, **values: Any) -> ProofOutcome:
    return await prove(ProofPlan(**{"topic": "orders", "queues": 4, "wait_s": 30.0} | values), namesrv)


async def test_one_broker_proves_what_it_acknowledged_and_no_group_is_left(tmp_path: Path) -> None:
    async with name_server(tmp_path) as names:
        namesrv = f"127.0.0.1:{names.port}"
        async with broker(tmp_path, namesrv) as master:
            await master.ready()
            ledger = io.StringIO()
            outcome = await proof(namesrv, load=order(), ledger=ledger)
            verdict = outcome.verdict
            assert verdict.settled
            assert (verdict.acknowledged, verdict.on_majority, verdict.consumed) == (200, 200, 200)
            assert [(one.address, one.messages) for one in outcome.readings] == [(master.address, 200)]
            assert any("ASYNC_FLUSH" in note for note in outcome.notes)
            acknowledged = read_lines(ledger.getvalue().splitlines(keepends=True), "ledger")
            # A second proof begins at the topic's end, one with a ledger at its first message.
            assert (await proof(namesrv, load=order(50))).readings[0].messages == 50
            again = (await proof(namesrv, acknowledged=acknowledged)).verdict
            assert again.proven
            assert again.acknowledged == 200
            async with Admin(namesrv) as admin:
                assert not [name for name in await admin.groups.names() if name.startswith(GROUP_PREFIX)]


async def test_a_pair_has_everything_twice(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        names = await stack.enter_async_context(name_server(tmp_path))
        namesrv = f"127.0.0.1:{names.port}"
        master = await stack.enter_async_context(broker(tmp_path, namesrv, "SYNC_MASTER"))
        await master.ready()
        slave = await stack.enter_async_context(broker(tmp_path, namesrv, "SLAVE", 1))
        await slave.ready()
        outcome = await proof(namesrv, load=order(), copies=2)
        assert outcome.verdict.settled
        assert {(one.address, one.messages) for one in outcome.readings} == {
            (master.address, 200), (slave.address, 200),
        }  # fmt: skip


async def test_a_slave_that_is_missing_leaves_it_unproven(tmp_path: Path) -> None:
    async with name_server(tmp_path) as names:
        namesrv = f"127.0.0.1:{names.port}"
        async with broker(tmp_path, namesrv) as master:
            await master.ready()
            verdict = (await proof(namesrv, load=order(20), copies=2, wait_s=0.5)).verdict
            assert not verdict.proven
            assert len(verdict.unproven) == 20
            assert verdict.consumed == 20


async def test_a_message_that_a_replica_has_not_is_lost_and_named_with_its_place(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        names = await stack.enter_async_context(name_server(tmp_path))
        namesrv = f"127.0.0.1:{names.port}"
        ledger = io.StringIO()
        async with broker(tmp_path, namesrv) as master:
            await master.ready()
            assert (await proof(namesrv, load=order(100), ledger=ledger)).verdict.proven
        acknowledged = read_lines(ledger.getvalue().splitlines(keepends=True), "ledger")
        key, place = list(acknowledged.items())[70]
        other = key[:-6] + "FACADE"
        changed_copy(tmp_path / "ASYNC_MASTER", tmp_path / "SLAVE", key, other)
        master = await stack.enter_async_context(broker(tmp_path, namesrv))
        await master.ready()
        slave = await stack.enter_async_context(broker(tmp_path, namesrv, "SLAVE", 1))
        await slave.ready()
        outcome = await proof(namesrv, acknowledged=acknowledged, wait_s=1.0)
        verdict = outcome.verdict
        assert not verdict.proven
        assert [(one.key, one.place, one.on, one.copies) for one in verdict.lost] == [
            (key, place, (master.address,), 2)
        ]
        assert [(one.place, one.keys) for one in verdict.differing] == [
            (place, {master.address: key, slave.address: other})
        ]
        assert verdict.on_majority == 99


def changed_copy(store: Path, copy: Path, key: str, other: str) -> None:
    """A store's files with another unique key in the place of one."""
    shutil.copytree(store, copy, dirs_exist_ok=True)
    changed = 0
    for path in (copy / "commitlog").iterdir():
        data = path.read_bytes()
        changed += data.count(key.encode())
        path.write_bytes(data.replace(key.encode(), other.encode()))
    assert changed == 1


async def test_a_broker_that_goes_away_while_it_is_proved_loses_nothing(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        names = await stack.enter_async_context(name_server(tmp_path))
        namesrv = f"127.0.0.1:{names.port}"
        ledger = io.StringIO()
        async with broker(tmp_path, namesrv) as master:
            await master.ready()
            port = master.port
            proving = asyncio.ensure_future(proof(namesrv, load=order(None, 3.0, 300), ledger=ledger))
            await until_async(lambda: ledger.getvalue().count("\n") > 100, "some are acknowledged")
        before = ledger.getvalue().count("\n")
        again = await stack.enter_async_context(broker(tmp_path, namesrv, listen_port=port))
        await again.ready()
        verdict = (await proving).verdict
        assert verdict.proven
        assert verdict.acknowledged > before


async def test_keys_of_a_topic_that_is_not_there_are_refused(tmp_path: Path) -> None:
    async with name_server(tmp_path) as names:
        namesrv = f"127.0.0.1:{names.port}"
        async with broker(tmp_path, namesrv) as master:
            await master.ready()
            with pytest.raises(ClientError, match="topic orders does not exist"):
                await proof(namesrv, acknowledged={"K": None})


async def test_a_replica_that_serves_no_pulls_is_asked_key_by_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with name_server(tmp_path) as names:
        namesrv = f"127.0.0.1:{names.port}"
        async with broker(tmp_path, namesrv) as master:
            await master.ready()

            async def no_pulls(*arguments: Any, **more: Any) -> Any:
                raise BrokerError(ResponseCode.SYSTEM_BUSY, "[REJECTREQUEST]system busy")

            # Replace the name in this module only: the proof's consumer must still pull, else the proof waits for it.
            monkeypatch.setattr(replicas, "pulling", SimpleNamespace(pull=no_pulls))
            outcome = await proof(namesrv, load=order(40))
            assert outcome.verdict.on_majority == 40
            assert outcome.readings[0].messages == 40
            assert outcome.readings[0].whole
