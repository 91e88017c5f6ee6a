"""The broker's tables on disk when one table cannot be written, or one file cannot be read."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tianzhou import file_modes
from tianzhou.broker.server import make_tables
from tianzhou.broker.settings import BrokerSettings
from tianzhou.broker.state_files import StateFiles
from tianzhou.errors import StoreError, StoreUnreadable
from tianzhou.model import SubscriptionGroupConfig, TopicConfig
from tianzhou.store.files import config_file
from tianzhou.store.settings import StoreSettings
from tianzhou.supervision import Supervisor
from tianzhou.testing.clock import VirtualClock
from waiting import until_async

FILES = ("topics.json", "subscriptionGroup.json", "consumerOffset.json", "delayOffset.json", "consumerFilter.json")


class Shelf:
    """Tables and the task that writes them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tables = make_tables(BrokerSettings(), StoreSettings(), 0)
        self.supervisor = Supervisor("broker", VirtualClock())
        self.files = StateFiles(self.tables, folder, supervisor=self.supervisor)

    def text(self, name: str) -> Any:
        return json.loads((self.folder / name).read_bytes())

    @property
    def troubles(self) -> list[str]:
        return [trouble.name for trouble in self.supervisor.troubles.present()]


@asynccontextmanager
async def shelf(folder: Path) -> Any:
    one = Shelf(folder)
    one.files.load()
    writing = asyncio.ensure_future(one.files.run())
    try:
        async with asyncio.timeout(30):
            yield one
    finally:
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)
        one.files.close()


def nested(levels: int) -> Any:
    value: Any = {}
    for _ in range(levels):
        value = {"next": value}
    return value


async def test_a_group_nobody_can_write_down_keeps_no_other_change_from_the_disk(tmp_path: Path) -> None:
    async with shelf(tmp_path) as one:
        one.tables.groups.put(SubscriptionGroupConfig("deep", group_retry_policy=nested(300)), 1)
        with pytest.raises(StoreError, match=r"no text can be made of .*deep.*lost when the broker stops"):
            await one.files.settled()
        assert one.troubles == ["state file subscriptionGroup.json"]
        # All other tables are still written: topics, other groups, offsets.
        one.tables.topics.put(TopicConfig("orders", 4, 4), 2)
        await one.files.settled()
        assert "orders" in one.text("topics.json")["topicConfigTable"]
        one.tables.groups.put(SubscriptionGroupConfig("plain"), 3)
        await one.files.settled()
        groups = one.text("subscriptionGroup.json")["subscriptionGroupTable"]
        assert "plain" in groups
        assert "deep" not in groups
        one.tables.offsets.commit("plain", "orders", 0, 17, 4)
    assert any("deep" in what for what in one.files.unwritten)
    again = Shelf(tmp_path)
    again.files.load()
    assert again.tables.offsets.committed("plain", "orders", 0) == 17
    assert "plain" in again.tables.groups


async def test_when_the_group_is_mended_the_trouble_is_over(tmp_path: Path) -> None:
    async with shelf(tmp_path) as one:
        one.tables.groups.put(SubscriptionGroupConfig("deep", group_retry_policy=nested(300)), 1)
        with pytest.raises(StoreError):
            await one.files.settled()
        one.tables.groups.put(SubscriptionGroupConfig("deep"), 2)
        await one.files.settled()
        assert one.troubles == []
        assert "deep" in one.text("subscriptionGroup.json")["subscriptionGroupTable"]
    assert one.files.unwritten == []


async def test_a_full_disk_answers_who_waits_and_is_written_to_when_it_has_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = True
    write = file_modes.replace_file

    def replace_file(path: Path, text: bytes) -> None:
        if full and path.name.startswith("topics.json"):
            raise OSError(errno.ENOSPC, "No space left on device")
        write(path, text)

    monkeypatch.setattr(config_file, "replace_file", replace_file)
    monkeypatch.setattr("tianzhou.broker.state_files.RETRY_S", 0.02)

    async with shelf(tmp_path) as one:
        one.tables.topics.put(TopicConfig("orders", 4, 4), 1)
        with pytest.raises(StoreError, match=r"topics\.json cannot be written .*free space.*the change counts now"):
            await one.files.settled()
        assert one.troubles == ["state file topics.json"]
        # A table with a writable file does not wait for one without.
        one.tables.groups.put(SubscriptionGroupConfig("G"), 2)
        await one.files.settled()
        assert "G" in one.text("subscriptionGroup.json")["subscriptionGroupTable"]
        full = False
        await until_async(lambda: not one.troubles)
        assert "orders" in one.text("topics.json")["topicConfigTable"]
    assert one.files.unwritten == []


def test_what_cannot_be_written_at_the_stop_is_reported_and_the_rest_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = file_modes.replace_file

    def replace_file(path: Path, text: bytes) -> None:
        if path.name.startswith("consumerOffset.json"):
            raise OSError(errno.EIO, "Input/output error")
        write(path, text)

    one = Shelf(tmp_path)
    one.files.load()
    one.tables.topics.put(TopicConfig("orders", 4, 4), 1)
    monkeypatch.setattr(config_file, "replace_file", replace_file)
    one.files.close()
    assert "orders" in one.text("topics.json")["topicConfigTable"]
    (told,) = one.files.unwritten
    assert "consumerOffset.json could not be written (OSError" in told


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", [b"[1,2]", b'{"offsetTable":{"T@G":[1]},"topicConfigTable":7', b"null", b"[" * 3000])
def test_a_torn_file_gives_way_to_its_copy_and_is_put_aside(
    tmp_path: Path, name: str, damage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    before = Shelf(tmp_path)
    before.files.load()
    before.tables.topics.put(TopicConfig("orders", 4, 4), 1)
    before.tables.offsets.commit("G", "orders", 0, 17, 1)
    before.files.close()
    file = tmp_path / name
    file.with_name(name + ".bak").write_bytes(file.read_bytes())
    file.write_bytes(damage)
    again = Shelf(tmp_path)
    with caplog.at_level(logging.WARNING):
        again.files.load()
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert f"{name}.bak, is used; the damaged file is saved as {name}.damaged-" in record.getMessage()
    (aside,) = tmp_path.glob(f"{name}.damaged-*")
    assert aside.read_bytes() == damage
    assert "orders" in again.tables.topics
    assert again.tables.offsets.committed("G", "orders", 0) == 17
    again.files.close()
    assert file.read_bytes() != damage


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_holds_something_else_is_one_line_and_no_traceback(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"[1,2]")
    with pytest.raises(StoreUnreadable, match=rf"{name}: expected a JSON object, found list; .*put back a copy"):
        Shelf(tmp_path).files.load()
