"""Load on a group that records every acknowledgement; a process of its own.

    load.py NAMESRV TOPIC FILE --rate 20000 --producers 4 --batch 20 --body 100

A message's body begins with its key, eight bytes that no other message has. FILE gets `ACKNOWLEDGED` for each batch
that was answered by SEND_OK: time (monotonic s), key of the first message, count, queue, offset of the first message.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
import time
from collections import Counter
from struct import Struct

from tianzhou import Producer
from tianzhou.errors import TianzhouError
from tianzhou.model import Message, SendStatus

ACKNOWLEDGED = Struct("<dQHHq")
KEY = Struct(">Q")
AT_ONCE = 4
"""Maximum number of batches in flight per producer."""
PAUSE_S = 0.02
TEXTS = 200
"""Maximum number of distinct error texts recorded."""


class Load:
    """The state that all producers share."""

    def __init__(self, options: argparse.Namespace, file: int) -> None:
        self._options = options
        self._file = file
        self._next = 0
        self._ends = asyncio.Event()
        self.failures: Counter[str] = Counter()

    def end(self) -> None:
        self._ends.set()

    async def run(self, number: int) -> None:
        """One producer with its batches."""
        options = self._options
        timing = {"durable": True} if options.durable else {"send_msg_timeout_ms": options.send_timeout_ms}
        async with Producer(
            f"load-{number}", options.namesrv, poll_name_server_interval_ms=options.poll_ms, **timing
        ) as producer:
            await asyncio.gather(*(self._batches(producer) for _ in range(AT_ONCE)))

    async def _batches(self, producer: Producer) -> None:
        options = self._options
        every_s = options.batch * options.producers * AT_ONCE / options.rate
        filler = b"." * (options.body - KEY.size)
        due_s = time.monotonic()
        while not self._ends.is_set():
            first = self._next
            self._next += options.batch
            messages = [Message(options.topic, KEY.pack(key) + filler) for key in range(first, self._next)]
            while not await self._acknowledged(producer, first, messages):
                if self._ends.is_set():
                    return
                await asyncio.sleep(PAUSE_S)
            # The load does not catch up on missed sends, so a stall lowers the total.
            now_s = time.monotonic()
            due_s = max(due_s + every_s, now_s)
            await asyncio.sleep(due_s - now_s)

    async def _acknowledged(self, producer: Producer, first: int, messages: list[Message]) -> bool:
        try:
            result = await producer.send_batch(messages)
        except TianzhouError as error:
            text = str(error) if len(self.failures) < TEXTS else ""
            self.failures[f"{type(error).__name__}: {text[:200]}"] += 1
            return False
        if result.status is not SendStatus.SEND_OK:
            self.failures[result.status.name] += 1
            return False
        queue = result.queue.queue_id
        os.write(self._file, ACKNOWLEDGED.pack(time.monotonic(), first, len(messages), queue, result.queue_offset))
        return True


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("namesrv")
    parser.add_argument("topic")
    parser.add_argument("file")
    parser.add_argument("--rate", type=float, default=20_000, help="messages/s of all producers together")
    parser.add_argument("--producers", type=int, default=4)
    parser.add_argument("--batch", type=int, default=20, help="messages of a request")
    parser.add_argument("--body", type=int, default=100, help="bytes of a body")
    parser.add_argument("--send-timeout-ms", type=int, default=1000)
    parser.add_argument("--poll-ms", type=int, default=250, help="poll_name_server_interval_ms")
    parser.add_argument("--durable", action="store_true", help="durable=True in the place of a limit of our own")
    options = parser.parse_args()
    load = Load(options, os.open(options.file, os.O_WRONLY | os.O_CREAT | os.O_APPEND))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, load.end)
    await asyncio.gather(*(load.run(number) for number in range(options.producers)))
    json.dump(load.failures, sys.stdout)


if __name__ == "__main__":
    try:
        import uvloop
    except ImportError:
        asyncio.run(main())
    else:
        uvloop.run(main())
