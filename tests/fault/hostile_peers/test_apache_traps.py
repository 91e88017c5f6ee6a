"""Cases in which Apache's broker loses or misplaces messages (`docs/spec/traps.md` part 2), and ours as a process does
not.

The rows that need no process of their own are tested with their module.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import struct
from pathlib import Path

import pytest
from processes import Tianzhou, serve

from tianzhou import MessageQueue, PullConsumer
from tianzhou.admin import Admin
from tianzhou.wire.codes import RequestCode, ResponseCode
from tianzhou.wire.command import Command, encode
from tianzhou.wire.fields import write_header

TOPIC, QUEUES, COUNT = "Traps", 2, 900
IPV6_HOSTS = 0x30


async def send_all(ready: dict[str, str]) -> list[tuple[int, int, bytes]]:
    """Send without waiting for replies, over one connection; return queue, offset and body as acknowledged.

    Every third message has wrong flags about the lengths of its addresses.
    """
    async with Admin(ready["namesrv"]) as admin:
        await admin.topics.create(TOPIC, read_queue_nums=QUEUES, write_queue_nums=QUEUES)
    host, _, port = ready["broker"].rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    sent = []
    for number in range(COUNT):
        code, body = RequestCode.SEND_MESSAGE_V2, b"%d " % number * (1 + number % 40)
        header = write_header(
            code, producer_group="P", topic=TOPIC, default_topic="TBW102", default_topic_queue_nums=4,
            queue_id=number % QUEUES, sys_flag=0 if number % 3 else IPV6_HOSTS, born_timestamp=1, flag=0,
            properties=f"UNIQ_KEY\x01T{number}\x02", reconsume_times=0, unit_mode=False, batch=False,
        )  # fmt: skip
        writer.write(encode(Command(code, opaque=number, fields=header, body=body)))
        sent.append(body)
    answers = {}
    for _ in range(COUNT):
        (length,) = struct.unpack(">i", await reader.readexactly(4))
        frame = await reader.readexactly(length)
        parsed = json.loads(frame[4 : 4 + (int.from_bytes(frame[:4], "big") & 0xFFFFFF)])
        assert parsed["code"] == ResponseCode.SUCCESS, parsed
        answers[parsed["opaque"]] = int(parsed["extFields"]["queueOffset"])
    writer.close()
    await writer.wait_closed()
    return [(number % QUEUES, answers[number], body) for number, body in enumerate(sent)]


async def read_all(namesrv: str) -> list[list[tuple[int, bytes]]]:
    """Return offset and body of all messages, by queue."""
    found: list[list[tuple[int, bytes]]] = []
    async with PullConsumer("auditor", namesrv) as consumer:
        for queue_id in range(QUEUES):
            queue = MessageQueue(TOPIC, "broker-a", queue_id)
            messages, offset = [], 0
            end = await consumer.max_offset(queue)
            while offset < end:
                result = await consumer.pull(queue, offset)
                assert result.next_offset > offset
                messages += [(message.queue_offset, message.body) for message in result.messages]
                offset = result.next_offset
            found.append(messages)
    return found


def filled(folder: Path) -> tuple[Tianzhou, list[list[tuple[int, bytes]]]]:
    """Return a running server with messages, and the expected messages of each of its queues."""
    server = serve(folder)
    try:
        sent = asyncio.run(send_all(server.ready()))
    except BaseException:
        server.__exit__(None, None, None)
        raise
    return server, [[(offset, body) for at, offset, body in sent if at == queue_id] for queue_id in range(QUEUES)]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_lies_about_addresses_and_sends_on_one_connection_neither_lose_nor_mix_messages(
    number: int, tmp_path: Path
) -> None:
    server, expected = filled(tmp_path)
    with server:
        for messages in expected:
            # They arrived in the order of the sends.
            assert [offset for offset, _ in messages] == list(range(COUNT // QUEUES))
        assert asyncio.run(read_all(server.ready()["namesrv"])) == expected
        server.interrupt(number)
    with serve(tmp_path) as again:
        assert asyncio.run(read_all(again.ready()["namesrv"])) == expected


@pytest.mark.parametrize("lost", ["consumequeue", "index", "checkpoint", "consumequeue/Traps/1"])
def test_what_is_missing_after_a_clean_stop_is_rebuilt(lost: str, tmp_path: Path) -> None:
    server, expected = filled(tmp_path)
    with server:
        server.interrupt(signal.SIGTERM)
    path = tmp_path / "data" / "store" / lost
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
    with serve(tmp_path) as again:
        assert asyncio.run(read_all(again.ready()["namesrv"])) == expected
