"""The loop that the tests of a module share: its open resources, its virtual time, its sockets."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from authority import Authority, certified

import shared_loop as module
import socket_loop
from shared_loop import SharedLoop
from tianzhou.clock import SystemClock


@asynccontextmanager
async def echoing(tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """Run a server that echoes every line, and yield its port."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            writer.write(line)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls) as server:
        yield server.sockets[0].getsockname()[1]


@pytest.fixture(scope="module")
def port(shared_loop: SharedLoop) -> int:
    """Return the port of an echo server that all tests of this module share."""
    return shared_loop.open(echoing())


@pytest.mark.parametrize("line", [b"one\n", b"two\n"])
async def test_a_server_outlives_a_test(port: int, line: bytes) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(line)
    assert await reader.readline() == line
    writer.close()


async def test_an_hour_takes_no_time(port: int) -> None:
    clock, began_s = SystemClock(), time.monotonic()
    before_ms = clock.now_ms()
    await asyncio.sleep(3600)
    assert clock.now_ms() - before_ms == pytest.approx(3_600_000, abs=1)
    assert time.monotonic() - began_s < 30


@pytest.mark.parametrize("kind", ["plain", "tls"])
async def test_no_time_passes_while_bytes_are_on_their_way(
    port: int, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The loop is never idle here, and on a busy machine the lines take longer than that.
    monkeypatch.setattr(socket_loop, "BUSY_S", 3600)
    if kind == "tls":
        authority = Authority(tmp_path)
        settings = certified(authority)
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(settings.server_cert_path, settings.server_key_path)
        client = ssl.create_default_context(cafile=str(authority.path))
        client.check_hostname = False
    else:
        tls = client = None
    loop = asyncio.get_running_loop()
    async with echoing(tls) as own_port:
        began_s = loop.time()
        reader, writer = await asyncio.open_connection("127.0.0.1", own_port, ssl=client)
        for number in range(200):
            line = b"%d" % number * 5_000 + b"\n"
            writer.write(line)
            # The limit is one virtual millisecond: time that moves before the reply ends the wait.
            async with asyncio.timeout(0.001):
                assert await reader.readexactly(len(line)) == line
        assert loop.time() == began_s
        writer.close()


def test_what_a_test_opened_is_left_with_the_loop() -> None:
    steps: list[str] = []

    @asynccontextmanager
    async def noted() -> AsyncIterator[str]:
        async with asyncio.timeout(3600):  # leaving it in another task is an error
            steps.append("entered")
            yield "value"
            steps.append("left")

    async def test() -> None:
        steps.append("tested")

    with SharedLoop() as loop:
        assert loop.open(noted()) == "value"
        loop.run(test())
        loop.run(test())
    assert steps == ["entered", "tested", "tested", "left"]


def test_what_does_not_open_says_why() -> None:
    @asynccontextmanager
    async def broken() -> AsyncIterator[None]:
        raise OSError("the port is taken")
        yield

    with SharedLoop() as loop, pytest.raises(OSError, match="the port is taken"):
        loop.open(broken())


def test_a_test_that_hangs_in_real_time_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TEST_LIMIT_S", 0.05)

    async def hang() -> None:
        await asyncio.get_running_loop().create_future()

    with SharedLoop() as loop, pytest.raises(AssertionError, match=r"did not end within 0\.05 s of real time"):
        loop.run(hang())


async def test_pipes_of_a_process_are_no_sockets(port: int) -> None:
    process = await asyncio.create_subprocess_exec("cat", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"x")
    process.stdin.close()
    assert await process.stdout.read() == b"x"
    await asyncio.sleep(1)
    await process.wait()


async def test_time_passes_slowly_while_the_loop_is_never_quiet(
    shared_loop: SharedLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket_loop, "BUSY_S", 0.05)
    monkeypatch.setattr(socket_loop, "BUSY_RATE", 0.5)
    loop = asyncio.get_running_loop()
    began_s, real_s = loop.time(), time.monotonic()

    async def be_busy() -> None:
        while time.monotonic() - real_s < 60:
            await asyncio.sleep(0)

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(be_busy(), 0.1)
    took_s = time.monotonic() - real_s
    assert loop.time() - began_s == pytest.approx(0.1, abs=0.01)
    assert 0.1 < took_s < 60


async def test_bytes_that_stay_in_flight_do_not_hold_the_time_for_long(
    shared_loop: SharedLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket_loop, "HOLD_S", 0.2)
    monkeypatch.setattr(socket_loop, "BUSY_S", 3600)
    stuck = {("sender", "receiver"): socket_loop.Counts(sent=2, received=1)}
    monkeypatch.setattr(socket_loop, "bytes_in_flight", lambda _selector: stuck)
    loop = asyncio.get_running_loop()
    began_s, real_s = loop.time(), time.monotonic()
    for _ in range(100):
        await asyncio.sleep(3600)
    assert loop.time() - began_s == pytest.approx(360_000)
    assert 0.2 <= time.monotonic() - real_s < 15  # only the first sleep waits for the bytes
    stuck = {("sender", "receiver"): socket_loop.Counts(sent=3, received=2)}
    real_s = time.monotonic()
    await asyncio.sleep(3600)
    assert time.monotonic() - real_s >= 0.2  # the counts changed, so the connection holds the time again
