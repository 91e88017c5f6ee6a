"""What a consumer of last week's messages costs the others.

Writes a store larger than the reads, drops it from the page cache, and measures how long sends take while nobody
reads, while a consumer reads the cold messages, and the same with the cold path switched off (every read faults its
pages in on the loop).

Example: python benchmarks/cold_reads.py --folder /var/tmp/cold --gib 2 --seconds 10
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

from tianzhou.broker.server import Broker, free_port
from tianzhou.broker.settings import BrokerSettings
from tianzhou.remoting.client import RemotingClient
from tianzhou.store import MessageStore, NewRecord, StoreSettings
from tianzhou.wire.codes import ResponseCode
from tianzhou.wire.command import Command
from tianzhou.wire.fields import read_reply, write_header

BODY = 4096
READERS = 4


def store_settings(folder: Path) -> StoreSettings:
    """A store with ordinary segments."""
    return StoreSettings(store_path_root_dir=str(folder), mapped_file_size_commit_log=256 << 20)


def fill(folder: Path, size: int) -> None:
    """Write so many bytes of old messages."""
    store = MessageStore(store_settings(folder))
    store.open()
    body = os.urandom(BODY)
    while store.end_offset < size:
        store.append(NewRecord("Old", 0, body, b""))
    store.close_now()


def forget(folder: Path) -> None:
    """Drop the store from the page cache."""
    for path in folder.rglob("*"):
        if path.is_file():
            fd = os.open(path, os.O_RDONLY)
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(fd)
    if os.geteuid() == 0:
        Path("/proc/sys/vm/drop_caches").write_text("1")


async def serve(folder: Path, port: int, *, plain: bool) -> None:
    """Run the broker; `plain` without the cold path."""
    if plain:
        MessageStore.read = MessageStore.get  # type: ignore[method-assign]
    settings = replace(
        BrokerSettings(), broker_ip1="127.0.0.1", bind_address="127.0.0.1", listen_port=port, namesrv_addr=""
    )
    async with Broker(settings, store_settings(folder)) as broker:
        broker.tables.topics.ensure("Old", 1, 0)
        print("ready", flush=True)
        await asyncio.Event().wait()


async def sends(address: str, seconds: float, rate: int) -> list[float]:
    """Send at a steady rate and give the times, in ms."""
    times: list[float] = []
    header = write_header(
        310, producer_group="P", topic="Hot", default_topic="TBW102", default_topic_queue_nums=4, queue_id=0,
        sys_flag=0, born_timestamp=1, flag=0, properties="UNIQ_KEY\x01u\x02",
    )  # fmt: skip
    async with RemotingClient() as client:

        async def one() -> None:
            began = time.perf_counter()
            reply = await client.invoke(address, Command(310, fields=dict(header), body=b"x" * 1000))
            assert reply.code == ResponseCode.SUCCESS, reply.remark
            times.append((time.perf_counter() - began) * 1000)

        begin = time.perf_counter()
        pending: set[asyncio.Task[None]] = set()
        for number in range(int(seconds * rate)):
            wait = begin + number / rate - time.perf_counter()
            if wait > 0:
                await asyncio.sleep(wait)
            task = asyncio.ensure_future(one())
            pending.add(task)
            task.add_done_callback(pending.discard)
        await asyncio.gather(*pending)
    return times


async def read_all(address: str, messages: int, seconds: float) -> None:
    """Read from several places of the old messages at once, and print how many bytes came."""
    got = [0]
    try:
        async with asyncio.timeout(seconds):
            await asyncio.gather(*(read_old(address, n * messages // READERS, got) for n in range(READERS)))
    except TimeoutError:
        pass
    print(got[0])


async def read_old(address: str, offset: int, got: list[int]) -> None:
    """Pull old messages until cancelled."""
    async with RemotingClient() as client:
        while True:
            header = write_header(
                11, consumer_group="G", topic="Old", queue_id=0, queue_offset=offset, max_msg_nums=32, sys_flag=4,
                commit_offset=0, suspend_timeout_millis=1000, subscription="*", sub_version=0,
            )  # fmt: skip
            reply = await client.invoke(address, Command(11, fields=header), 20_000)
            offset = read_reply(11, reply).next_begin_offset
            got[0] += len(reply.body)


async def measure(folder: Path, seconds: float, rate: int, *, read: bool, plain: bool) -> str:
    """One run with a fresh broker and a cold store."""
    forget(folder)
    port = free_port("127.0.0.1")
    arguments = [sys.executable, __file__, "--folder", str(folder), "--serve", str(port)]
    broker = subprocess.Popen(  # noqa: ASYNC220 - nothing else runs yet
        [*arguments, *(["--plain"] if plain else [])], stdout=subprocess.PIPE, text=True
    )
    try:
        assert broker.stdout is not None
        assert broker.stdout.readline().strip() == "ready"
        address = f"127.0.0.1:{port}"
        await sends(address, 1, rate)
        reading = [sys.executable, __file__, "--folder", str(folder), "--read", address]
        reader = subprocess.Popen(  # noqa: ASYNC220
            [*reading, "--seconds", str(seconds)], stdout=subprocess.PIPE, text=True
        )
        if not read:
            reader.kill()
        times = sorted(await sends(address, seconds, rate))
        said, _ = reader.communicate()
    finally:
        broker.terminate()
        broker.wait()
    p50, p99, p999 = (times[int(len(times) * part)] for part in (0.5, 0.99, 0.999))
    figures = f"p50 {p50:6.2f}  p99 {p99:6.2f}  p99.9 {p999:6.2f}  max {times[-1]:6.2f} ms"
    return f"{figures}  read {int(said or 0) / seconds / 1e6:4.0f} MB/s"


def main() -> None:
    """Parse, fill, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--gib", type=float, default=2)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--rate", type=int, default=1000, help="sends a second")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--serve", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--read", default="", help=argparse.SUPPRESS)
    parser.add_argument("--plain", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        asyncio.run(serve(given.folder, given.serve, plain=given.plain))
        return
    if given.read:
        asyncio.run(read_all(given.read, int(os.environ["OLD_MESSAGES"]), given.seconds))
        return
    shutil.rmtree(given.folder, ignore_errors=True)
    fill(given.folder, int(given.gib * (1 << 30)))
    os.environ["OLD_MESSAGES"] = str(int(given.gib * (1 << 30)) // (BODY + 95))
    for _ in range(given.rounds):
        for name, read, plain in (
            ("nobody reads old messages", False, False),
            ("four read, beside the loop", True, False),
            ("four read, on the loop", True, True),
        ):
            figures = asyncio.run(measure(given.folder, given.seconds, given.rate, read=read, plain=plain))
            print(f"{name:28}", figures, flush=True)
    shutil.rmtree(given.folder)


if __name__ == "__main__":
    main()
