"""TCP links between members of a group that can be cut, cut in one direction, and delayed; a process of its own.

    links.py '[["n0", "n1", 30001, 40001], …]'     from, to, the link's port, the port it leads to

A member's list of peers has the link's port in place of the peer's port. Bytes that a cut holds back arrive after
`mend`, like retransmitted packets. Until then neither side learns of opened or closed connections. On standard input, a
line each, answered by a line: `cut n0 n1` holds what n0 sends n1 in both kinds of connections, `delay n0 n1 50` delays
it by 50 ms, `mend` ends all cuts and delays.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import sys
from functools import partial

CHUNK = 256 << 10
HOST = "127.0.0.1"


class Way:
    """One direction of a link: open or cut, with a delay."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.open.set()
        self.delay_s = 0.0

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Copy bytes from reader to writer until either side closes."""
        with contextlib.suppress(OSError):
            while True:
                chunk = await reader.read(CHUNK)
                if self.delay_s:
                    await asyncio.sleep(self.delay_s)
                await self.open.wait()
                if not chunk:
                    break
                writer.write(chunk)
                await writer.drain()
        writer.close()


async def join(there: Way, back: Way, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Connect an accepted connection to the target port."""
    # The first packet goes in one direction, its reply in the other.
    await there.open.wait()
    await back.open.wait()
    try:
        on_reader, on_writer = await asyncio.open_connection(HOST, port, limit=CHUNK)
    except OSError:
        writer.transport.abort()
        return
    for one in (writer, on_writer):
        one.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    await asyncio.gather(there.carry(reader, on_writer), back.carry(on_reader, writer))


async def main() -> None:
    """Serve the links until standard input ends."""
    ways: dict[tuple[str, str], Way] = {}
    links = json.loads(sys.argv[1])
    for begin, end, _, _ in links:
        ways[begin, end], ways[end, begin] = ways.get((begin, end), Way()), ways.get((end, begin), Way())
    for begin, end, port, to in links:
        await asyncio.start_server(partial(join, ways[begin, end], ways[end, begin], to), HOST, port, limit=CHUNK)
    print("ready", flush=True)
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        verb, *words = line.split()
        if verb == "cut":
            ways[words[0], words[1]].open.clear()
        elif verb == "delay":
            ways[words[0], words[1]].delay_s = float(words[2]) / 1000
        else:
            for way in ways.values():
                way.open.set()
                way.delay_s = 0.0
        print("done", flush=True)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        try:
            import uvloop
        except ImportError:
            asyncio.run(main())
        else:
            uvloop.run(main())
