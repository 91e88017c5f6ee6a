"""Speed of an empty slave that copies its master's log, and dispatches its records to queues and index.

Master and slave are two processes on one machine. The master's store is filled first and read from memory.

    .venv/bin/python benchmarks/catch_up.py --mib 1024 --body 1024
    .venv/bin/python benchmarks/catch_up.py --mib 512 --body 100
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tianzhou.clock import SystemClock
from tianzhou.model import names
from tianzhou.replication.ha_client import SlaveHaClient
from tianzhou.replication.ha_server import HaServer
from tianzhou.store import MessageStore, NewRecord, StoreSettings
from tianzhou.supervision import Supervisor

QUEUES = 8


def store_of(folder: Path, role: str, batch: int) -> MessageStore:
    return MessageStore(
        StoreSettings(
            store_path_root_dir=str(folder),
            broker_role=role,
            ha_transfer_batch_size=batch,
            clean_resource_interval=10**9,
        )
    )


async def fill(store: MessageStore, size: int, body_size: int) -> None:
    body, number = bytes(body_size), 0
    while store.end_offset < size:
        for _ in range(1000):
            key = f"7F0000010001{number:020X}"
            properties = f"{names.UNIQ_KEY}\x01{key}\x02{names.WAIT}\x01true\x02".encode()
            store.append(NewRecord("orders", number % QUEUES, body, properties, uniq_key=key))
            number += 1
        await asyncio.sleep(0)
    print("messages", number, flush=True)


async def serve(folder: Path, size: int, body_size: int, batch: int) -> None:
    async with store_of(folder, "ASYNC_MASTER", batch) as store:
        await fill(store, size, body_size)
        await store.secure(store.end_offset)
        async with HaServer(store, SystemClock(), "127.0.0.1", 0) as server:
            print("port", server.port, store.end_offset, flush=True)
            before = time.process_time()
            await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
            print(f"master CPU {time.process_time() - before:.2f} s", flush=True)


async def follow(folder: Path, port: int, size: int, batch: int, profile: str) -> None:
    supervisor = Supervisor("slave")
    async with store_of(folder, "SLAVE", batch) as store:
        client = SlaveHaClient(store, SystemClock(), lambda: f"127.0.0.1:{port}")
        began, cpu = time.perf_counter(), time.process_time()
        profiler = None
        if profile:
            import cProfile

            profiler = cProfile.Profile()
            profiler.enable()
        task = supervisor.own("copying", lambda: client.run(supervisor))
        copied = 0.0
        while store.copy.whole < size or store.dispatch_behind_bytes:
            if not copied and store.end_offset >= size:
                copied = time.perf_counter() - began
            await asyncio.sleep(0.005)
        took, cpu = time.perf_counter() - began, time.process_time() - cpu
        if profiler is not None:
            profiler.disable()
            profiler.dump_stats(profile)
        assert not task.done()
        await supervisor.end()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
        count = sum(store.max_offset("orders", queue) for queue in range(QUEUES))
        print(
            f"{count} messages, {size / 2**20:.0f} MiB: copied in {copied or took:.2f} s, dispatched in {took:.2f} s = "
            f"{size / took / 1e6:.0f} MB/s, {count / took:,.0f} messages/s, slave CPU {cpu:.2f} s, peak {peak} MiB"
        )


def main() -> None:
    """Fill the master, copy its log to the slave, and print the duration."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=1024, help="bytes of the log, MiB")
    parser.add_argument("--body", type=int, default=1024, help="bytes of a body")
    parser.add_argument("--batch", type=int, default=StoreSettings().ha_transfer_batch_size, help="haTransferBatchSize")
    parser.add_argument("--folder", default="", help="where the stores are made, by default in the system's folder")
    parser.add_argument("--profile", default="", help="file for a profile of the slave")
    parser.add_argument("--master", default="", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    size = arguments.mib << 20
    if arguments.master:
        asyncio.run(serve(Path(arguments.master), size, arguments.body, arguments.batch))
        return
    with tempfile.TemporaryDirectory(dir=arguments.folder or None) as folder:
        command = [
            sys.executable, __file__, "--master", f"{folder}/m", "--mib", str(arguments.mib),
            "--body", str(arguments.body), "--batch", str(arguments.batch),
        ]  # fmt: skip
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as master:
            assert master.stdin is not None
            assert master.stdout is not None
            master.stdout.readline()
            _, port, end = master.stdout.readline().split()
            asyncio.run(follow(Path(folder) / "s", int(port), int(end), arguments.batch, arguments.profile))
            master.stdin.write("\n")
            master.stdin.flush()
            print(master.stdout.readline().strip())


if __name__ == "__main__":
    main()
