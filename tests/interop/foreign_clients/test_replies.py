"""Requests and replies between Apache's clients and ours, through our broker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import toolchain
from own_server import own_server

from tianzhou import ConsumeFromWhere, Message, Producer, PushConsumer

COUNT = 20


@asynccontextmanager
async def java(version: str, home: Path, *arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Yield our Java program, which ends with the context."""
    try:
        classpath = toolchain.java_client(version)
        program = toolchain.tool("java")
    except toolchain.ToolchainMissingError as error:
        pytest.skip(str(error))
    process = await asyncio.create_subprocess_exec(
        program, "-Xmx256m", *toolchain.SHORT_LIVED, f"-Duser.home={home}",
        "-cp", classpath, "Replies", *arguments,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
        env=toolchain.environment(), cwd=home,
    )  # fmt: skip
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def lines(process: asyncio.subprocess.Process) -> AsyncIterator[str]:
    """Yield the program's output lines, without its logging."""
    assert process.stdout is not None
    async for line in process.stdout:
        text = line.decode().strip()
        if text.startswith(("reply ", "error ", "ready")):
            yield text


@pytest.mark.parametrize("version", toolchain.JAVA_CLIENTS)
async def test_java_asks_and_we_answer(version: str, tmp_path: Path) -> None:
    async with asyncio.timeout(120), own_server(tmp_path) as namesrv, Producer("R", namesrv) as replier:
        consumer = PushConsumer("G", namesrv, consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)

        @consumer.on("asked")
        async def answer(message: object) -> None:
            if "CORRELATION_ID" in message.properties:
                await replier.reply(message, b"re: " + message.body)

        await replier.send(Message("asked", b"so that the topic is there"))
        async with consumer, java(version, tmp_path, "ask", namesrv, "asked", str(COUNT)) as process:
            found = [line async for line in lines(process)]
    parts = sorted(line.removeprefix("reply ").split("|") for line in found)
    assert parts == sorted([f"re: question {i}", "DefaultCluster_REPLY_TOPIC", "127.0.0.1"] for i in range(COUNT)), (
        found
    )


@pytest.mark.parametrize("version", toolchain.JAVA_CLIENTS)
async def test_we_ask_and_java_answers(version: str, tmp_path: Path) -> None:
    async with asyncio.timeout(120), own_server(tmp_path) as namesrv, Producer("P", namesrv) as producer:
        await producer.queues("asked")
        await producer.send_oneway(Message("asked", b"so that the topic is there"))
        async with java(version, tmp_path, "answer", namesrv, "asked", "G") as process:
            assert await anext(lines(process)) == "ready"
            replies = await asyncio.gather(
                *(producer.request(Message("asked", b"question %d" % i), 60_000) for i in range(COUNT))
            )
    assert [reply.body for reply in replies] == [b"re: question %d" % i for i in range(COUNT)]
