"""A slave whose master lost the end of its log: with zero-loss it halts with its own log, otherwise it saves a copy of
the part it cuts.
"""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
from pathlib import Path

import pytest
from two_stores import bodies, caught_up, followed, halting_slave, master, put, slave, store_of

from tianzhou.replication import ha_client
from tianzhou.replication.halted_slave import Halt, halt_line, halt_reason
from tianzhou.store.offline.import_export import Selection, rows, selected, visible_topics
from tianzhou.store.offline.kept_records import keep_records
from tianzhou.store.offline.scan import StoreScan
from tianzhou.store.startup.marked_cut import PERMISSION, allow_cut, is_cut_allowed
from waiting import until_async

AGREED, LOST = 200, 50
"""Messages that both brokers have, and messages that only the slave has after the master's backup is restored."""


@pytest.fixture
def lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[int, int]:
    """Restore an older copy of a master's folder; return the position up to which both logs agree, and the end of the
    slave's.
    """
    monkeypatch.setattr(ha_client, "AGAIN_S", 0.05)

    async def main() -> tuple[int, int]:
        async with master(tmp_path / "m") as (store, server), slave(tmp_path / "s", server) as copy:
            put(store, AGREED)
            await caught_up(store, copy)
            at = store.end_offset
        shutil.copytree(tmp_path / "m", tmp_path / "backup")
        async with master(tmp_path / "m") as (store, server), slave(tmp_path / "s", server) as copy:
            put(store, LOST, first=AGREED)
            await caught_up(store, copy)
            end = store.end_offset
        shutil.rmtree(tmp_path / "m")
        shutil.move(tmp_path / "backup", tmp_path / "m")
        return at, end

    return asyncio.run(main())


def kept(folder: Path) -> list[bytes]:
    """Return the bodies in an export of a folder."""
    scan = StoreScan(folder)
    wanted = Selection(topics=visible_topics(scan) or frozenset({"T"}))
    return [str(row["body"]).encode() for _, record in selected(scan, wanted) for row in rows(record)]


@pytest.mark.parametrize("stored", [0, 1, 400], ids=["the master ends earlier", "one other message", "a longer log"])
def test_with_zero_loss_a_slave_keeps_its_log_and_names_both_commands(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, lost: tuple[int, int], stored: int
) -> None:
    at, end = lost
    caplog.set_level(logging.INFO)
    caplog.clear()

    async def main() -> None:
        async with master(tmp_path / "m") as (store, server):
            put(store, stored, first=5000)
            async with halting_slave(tmp_path / "s", server, config_file="slave.conf") as (copy, client, again):
                await until_async(lambda: client.halted, "halted")
                assert f"{end - at} bytes with {LOST} messages from {at} on are only here" in client.halted
                had = bodies(copy)
                for _ in range(3):
                    compared = caplog.text.count("is sent the log from")
                    client.master_changed()
                    await until_async(
                        lambda n=compared: caplog.text.count("is sent the log from") > n, "compared again"
                    )
                    await until_async(lambda: not client.following, "and halted again")
                assert caplog.text.count("the log is copied from") <= 1
                put(store, 10, first=9000)
                await asyncio.sleep(0.2)
                assert (copy.end_offset, bodies(copy), again.is_set()) == (end, had, False)
                assert sum(map(len, had)) == AGREED + LOST
                address = f"127.0.0.1:{server.port}"

        (line,) = [
            record.message for record in caplog.records if record.levelname == "ERROR" and "zero-loss" in record.message
        ]
        for part in (
            address, str(end), str(at), "tianzhou broker -c slave.conf --promote",
            "tianzhou broker -c slave.conf --allow-cut",
        ):  # fmt: skip
            assert part in line
        # The slave that is promoted has it all.
        async with store_of(tmp_path / "s", "ASYNC_MASTER") as promoted:
            assert promoted.end_offset == end

    asyncio.run(main())


@pytest.mark.parametrize("stored", [0, 30, 900], ids=["empty", "shorter", "longer"])
def test_a_second_master_with_another_log_takes_nothing_from_a_zero_loss_slave(tmp_path: Path, stored: int) -> None:
    """Two brokers of one name have the id 0, and the name server's route changes to the other one."""

    async def main() -> None:
        async with master(tmp_path / "m") as (store, server), halting_slave(tmp_path / "s", server) as (copy, _, _):
            put(store, AGREED)
            await caught_up(store, copy)
        async with (
            master(tmp_path / "other") as (other, second),
            halting_slave(tmp_path / "s", second, config_file="slave.conf") as (copy, client, again),
        ):
            put(other, stored, first=3000)
            await until_async(lambda: client.halted, "halted")
            assert "has no record" in client.halted
            assert "tianzhou broker -c slave.conf --promote" in client.halted
            assert (sum(map(len, bodies(copy))), again.is_set()) == (AGREED, False)

    asyncio.run(main())


def test_a_slave_that_halted_goes_on_when_its_master_has_the_messages_again(
    tmp_path: Path, lost: tuple[int, int]
) -> None:
    shutil.copytree(tmp_path / "s", tmp_path / "whole")

    async def main() -> None:
        async with master(tmp_path / "m") as (_, server), halting_slave(tmp_path / "s", server) as (_, client, _):
            await until_async(lambda: client.halted, "halted")
        async with (
            master(tmp_path / "whole") as (store, server),
            halting_slave(tmp_path / "s", server) as (copy, client, _),
        ):
            put(store, 5, first=700)
            await caught_up(store, copy)
            assert client.halted == ""

    asyncio.run(main())


def test_a_cut_that_an_operator_allows_is_made_once(tmp_path: Path, lost: tuple[int, int]) -> None:
    at, end = lost

    async def main() -> None:
        async with master(tmp_path / "m") as (store, server):
            async with halting_slave(tmp_path / "s", server, ha_slave_cut_max=10) as (_, client, again):
                await until_async(lambda: client.halted, "halted")
                # The running slave notices the permission; no restart is needed.
                allow_cut(tmp_path / "s")
                await until_async(again.is_set, "to be reopened")
            async with halting_slave(tmp_path / "s", server) as (copy, _, _):
                assert copy.end_offset == at
                put(store, 5, first=700)
                await caught_up(store, copy)
        assert not is_cut_allowed(tmp_path / "s")

    asyncio.run(main())
    assert len(kept(tmp_path / "s" / "cut" / f"{at:020d}-{end:020d}")) == LOST


def test_a_permission_that_is_not_needed_does_not_stay(tmp_path: Path) -> None:
    async def main() -> None:
        async with master(tmp_path / "m") as (store, server):
            put(store, 10)
            (tmp_path / "s").mkdir()
            allow_cut(tmp_path / "s")
            async with halting_slave(tmp_path / "s", server) as (copy, _, _):
                await caught_up(store, copy)
                await until_async(lambda: not (tmp_path / "s" / PERMISSION).exists(), "taken away")
        allow_cut(tmp_path / "s")
        async with store_of(tmp_path / "s", "ASYNC_MASTER"):
            assert not is_cut_allowed(tmp_path / "s")

    asyncio.run(main())


def test_a_mark_of_before_the_key_was_set_cuts_nothing(tmp_path: Path, lost: tuple[int, int]) -> None:
    at, end = lost

    async def main() -> None:
        async with store_of(tmp_path / "s", "SLAVE") as copy:
            copy.cut_at_next_start(at, "of a test")
        async with store_of(tmp_path / "s", "SLAVE", durability="zero-loss") as copy:
            assert copy.end_offset == end

    asyncio.run(main())


def test_in_other_modes_the_cut_messages_are_kept_aside_and_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, lost: tuple[int, int]
) -> None:
    at, end = lost
    (tmp_path / "s" / "config").mkdir()
    (tmp_path / "s" / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": {"T": {}}}))

    async def main() -> None:
        async with master(tmp_path / "m") as (store, server):
            put(store, 20, first=5000)
            ends = await followed(tmp_path / "s", server, lambda copy: copy.copy.whole == store.end_offset, "copied")
            assert ends == [end, at]

    asyncio.run(main())
    folder = tmp_path / "s" / "cut" / f"{at:020d}-{end:020d}"
    assert kept(folder) == [b"body %d" % i * (i % 50 + 1) for i in range(AGREED, AGREED + LOST)]
    (line,) = [record.message for record in caplog.records if record.message.startswith("the commit log is cut at")]
    for part in (f"cut at {at}, it ended at {end}", f"{LOST} messages from {at} to {end} are kept in {folder}"):
        assert part in line


def test_a_cut_larger_than_the_bound_keeps_its_beginning_and_old_cuts_go_first(tmp_path: Path) -> None:
    async def main() -> tuple[int, int]:
        async with store_of(tmp_path / "s", "ASYNC_MASTER") as store:
            put(store, 300)
            middle = store.end_offset
            put(store, 300, first=300)
            return middle, store.end_offset

    middle, end = asyncio.run(main())
    root, log = tmp_path / "s", [tmp_path / "s" / "commitlog"]
    whole = keep_records(root, log, middle, end, 1 << 30)
    assert (whole.messages, whole.end) == (300, end)
    part = keep_records(root, log, 0, end, 20_000)
    assert part.folder is not None
    assert 0 < part.end <= 20_000
    assert 0 < part.messages < 600
    assert f"the last {end - part.end} bytes are not kept (haSlaveCutKeepMax)" in part.described(end)
    assert [path.name for path in (root / "cut").iterdir()] == [part.folder.name]
    assert kept(part.folder) == [b"body %d" % i * (i % 50 + 1) for i in range(part.messages)]
    none = keep_records(root, log, 0, end, 0)
    assert (none.folder, none.messages) == (None, 0)
    assert "none of them is kept" in none.described(end)


def test_a_slave_whose_disk_refuses_the_copies_cuts_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, lost: tuple[int, int]
) -> None:
    _, end = lost
    (tmp_path / "s" / "cut").write_text("a file where the folder should be")

    async def main() -> None:
        async with (
            master(tmp_path / "m") as (_, server),
            halting_slave(tmp_path / "s", server, durability="") as (copy, client, again),
        ):
            await until_async(lambda: client.halted, "halted")
            assert "haSlaveCutKeepMax=0" in client.halted
            assert (copy.end_offset, again.is_set()) == (end, False)

    asyncio.run(main())


def test_one_message_and_very_many_are_counted_in_words() -> None:
    halt = Halt("h:1", 100, 100, 200, 1, "", "/store")
    assert "100 bytes with 1 message from 100 on" in halt_reason(halt)
    assert "tianzhou broker -c FILE --promote" in halt_line(halt)
    many = Halt("h:1", 100, 100, 200, 1_000_001, "", "/store")
    assert "more than 1000000 messages" in halt_reason(many)
