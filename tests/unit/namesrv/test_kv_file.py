"""KV values are on the disk before the reply, also when many requests come together."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from tianzhou.errors import ConfigError
from tianzhou.namesrv import files
from tianzhou.namesrv.kv import KvConfig


def run(main: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(20):
            await main

    asyncio.run(bounded())


pytestmark = pytest.mark.runner.with_args(run)


class Disk:
    """Counted writes that block until the test releases them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.texts: list[str] = []
        self.go = threading.Event()
        self.error: ConfigError | None = None
        self._replace = files.replace_text
        monkeypatch.setattr(files, "replace_text", self._write)

    def _write(self, path: Path, text: str) -> None:
        assert threading.current_thread() is not threading.main_thread()
        assert self.go.wait(20)
        self.texts.append(text)
        if self.error is not None:
            raise self.error
        self._replace(path, text)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


async def test_many_puts_are_two_writes(tmp_path: Path, disk: Disk) -> None:
    kv = KvConfig(tmp_path / "kv.json")
    first = asyncio.ensure_future(kv.put("n", "first", "1"))
    await asyncio.sleep(0.01)
    others = [asyncio.ensure_future(kv.put("n", f"k{n}", "v")) for n in range(2000)]
    gone = asyncio.ensure_future(kv.delete("n", "k7"))
    assert kv.get("n", "k1999") == "v"
    await asyncio.sleep(0.01)
    assert not any(one.done() for one in (first, gone, *others))
    disk.go.set()
    await asyncio.gather(first, gone, *others)
    assert len(disk.texts) == 2
    table = json.loads((tmp_path / "kv.json").read_text())["configTable"]["n"]
    assert len(table) == 2000
    assert "k7" not in table


async def test_who_waits_hears_that_it_could_not_be_written_and_the_next_write_is_tried(
    tmp_path: Path, disk: Disk
) -> None:
    kv = KvConfig(tmp_path / "kv.json")
    disk.go.set()
    disk.error = ConfigError("no space")
    for _ in range(2):
        with pytest.raises(ConfigError, match="no space"):
            await kv.put("n", "k", "1")
    disk.error = None
    await kv.put("n", "l", "2")
    fresh = KvConfig(tmp_path / "kv.json")
    fresh.load()
    assert fresh.namespace("n") == {"k": "1", "l": "2"}
    await kv.delete("n", "nothing")
    await kv.delete("none", "k")
    assert len(disk.texts) == 3


async def test_a_server_that_stops_waits_for_the_write(tmp_path: Path, disk: Disk) -> None:
    kv = KvConfig(tmp_path / "kv.json")
    put = asyncio.ensure_future(kv.put("n", "k", "1"))
    await asyncio.sleep(0.01)
    # The connection is lost, but the value is still written.
    put.cancel()
    closing = asyncio.ensure_future(kv.close())
    await asyncio.sleep(0.01)
    assert not closing.done()
    disk.go.set()
    await closing
    assert json.loads((tmp_path / "kv.json").read_text()) == {"configTable": {"n": {"k": "1"}}}


async def test_a_stop_does_not_fail_because_of_the_disk(tmp_path: Path, disk: Disk) -> None:
    kv = KvConfig(tmp_path / "kv.json")
    disk.go.set()
    disk.error = ConfigError("no space")
    put = asyncio.ensure_future(kv.put("n", "k", "1"))
    await kv.close()
    with pytest.raises(ConfigError):
        await put
