"""A broker process that is killed by SIGKILL under load, again and again."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from processes import Tianzhou

from tianzhou.admin import Admin
from waiting import until_async


class KilledBroker:
    """A name server, and a broker on one folder and port over all its restarts; a test adds the load.

    Args:
        folder: folder of all files.
        seed: seed of every choice.
        settings: further settings of the broker, by key.

    Attributes:
        round: number of the present run under load.
        restart_seconds: duration of each start.
    """

    def __init__(self, folder: Path, seed: int, **settings: object) -> None:
        print(f"seed {seed}")
        self.folder = folder
        self.settings = {"mappedFileSizeCommitLog": 1_048_576, "diskMaxUsedSpaceRatio": 99} | settings
        self.rng = random.Random(seed)
        self.namesrv = ""
        self.port = self.round = 0
        self.restart_seconds: list[float] = []

    def start(self) -> Tianzhou:
        """Start a new process of the broker, and return it when it is ready."""
        conf = self.folder / "broker.conf"
        own = {
            "brokerName": "broker-a", "brokerIP1": "127.0.0.1", "listenPort": self.port,
            "storePathRootDir": self.folder / "store",
        }  # fmt: skip
        conf.write_text("".join(f"{key}={value}\n" for key, value in (own | self.settings).items()))
        broker = Tianzhou(self.folder, "broker", "-c", conf, "-n", self.namesrv, "-o", "json")
        began = time.monotonic()
        self.port = broker.ready()["port"]
        self.restart_seconds.append(time.monotonic() - began)
        return broker

    @asynccontextmanager
    async def killed(self, kills: int, queues: int, *topics: str) -> AsyncIterator[None]:
        """Create topics, and run the broker under load several times, each ended by SIGKILL; the name server runs until
        the end of the context.
        """
        with Tianzhou(self.folder, "namesrv", "--port", 0, "-o", "json") as namesrv:
            self.namesrv = f"127.0.0.1:{namesrv.ready()['port']}"
            with self.start():
                async with Admin(self.namesrv) as admin:
                    for topic in topics:
                        await admin.topics.create(topic, read_queue_nums=queues, write_queue_nums=queues)
            for self.round in range(kills):
                with self.start() as broker:
                    await self.under_load(broker)
            yield

    async def under_load(self, broker: Tianzhou) -> None:
        """One life; ends with `kill`."""
        raise NotImplementedError

    async def kill(
        self, broker: Tianzhou, after: int, counted: Callable[[], int], writers: Iterable[Coroutine[Any, Any, None]]
    ) -> None:
        """Kill the broker under load, and wait for the writers, which end when the broker is down.

        Args:
            broker: present process of the broker.
            after: number of further messages that `counted` must count before the kill.
            counted: function that counts the acknowledged or delivered messages of all processes of the broker.
            writers: coroutines that write until the broker is down.
        """
        wanted = counted() + after
        writing = [asyncio.create_task(writer) for writer in writers]
        await until_async(lambda: counted() >= wanted, f"{after} more messages", every_s=0.001)
        os.kill(broker.pid, signal.SIGKILL)
        broker.process.wait()
        await asyncio.gather(*writing)
