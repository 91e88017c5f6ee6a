"""A stranger: one member of another group, or of another life of the group, which fills a folder with foreign entries.

The stranger runs on its own network and is alone in its list of members. It accepts messages and changes of tables that
the simulated cluster never sent. Its folder is then given to a member of the cluster.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, Final

from tianzhou.errors import TianzhouError
from tianzhou.remoting.client import RemotingClient
from tianzhou.testing.simulation.load import TOPIC
from tianzhou.testing.simulation.machines import Machine
from tianzhou.testing.simulation.members import STRANGER
from tianzhou.testing.simulation.servers import MEMBER_PORT, BrokerOn
from tianzhou.testing.simulation.table_changes import group_change, topic_change
from tianzhou.wire.codes import RequestCode
from tianzhou.wire.command import Command

ADDRESS: Final = "10.0.9.1"
FOREIGN_VALUE: Final = 12
"""Value of the stranger's topics and groups; no operator of the cluster sets it."""
FOREIGN_OFFSET: Final = 1_000
"""Offset of consumer groups at the stranger; no queue of the cluster is so long."""
_LEADS_S: Final = 8.0
"""Maximum virtual seconds until the stranger leads."""
_LOOK_S: Final = 0.1
_LIMIT_MS: Final = 3_000

MakeMachine = Callable[[str, str], Machine]


class Stranger:
    """A member of another group, see the module.

    Args:
        make_machine: returns a machine with a name and an address.
        rng: source of random numbers.
        broker: settings of the broker.
        store: settings of the store, without its list of members.
        groups: consumer groups whose offsets the stranger stores.
        queues: number of queues of the topic.

    Attributes:
        server: the broker.
    """

    def __init__(
        self,
        make_machine: MakeMachine,
        rng: Random,
        broker: dict[str, Any],
        store: dict[str, Any],
        groups: list[str],
        queues: int,
    ) -> None:
        self._machine = make_machine(STRANGER, ADDRESS)
        self._client = make_machine(f"{STRANGER}-client", "10.0.9.2")
        self._rng = rng
        peers = f"{store['d_leger_self_id']}-{ADDRESS}:{MEMBER_PORT}"
        self.server = BrokerOn(self._machine, rng, "", broker=broker, store=store | {"d_leger_peers": peers})
        self._machine.on_death = self.server.died
        self._groups = groups
        self._queues = queues

    async def live(self, source: Path | None) -> Path | None:
        """Append foreign messages and changes of tables; return the folder, or None when the stranger never led.

        Args:
            source: initial folder; None for an empty one.
        """
        loop = asyncio.get_running_loop()
        if source is not None:
            self._machine.exchange(source)
        self.server.start()
        limit_s = loop.time() + _LEADS_S
        while not self.server.leads:
            if loop.time() > limit_s or self.server.failure is not None:
                return None
            await asyncio.sleep(_LOOK_S)
        done = loop.create_future()
        self._client.start(lambda: self._send(done))
        await done
        if self._rng.random() < 0.5:
            await self.server.stop()
        else:
            self._machine.die(power=False)
        return self._machine.folder

    def end(self) -> None:
        """Kill the stranger."""
        self._client.die(power=False)
        self._machine.die(power=False)

    async def _send(self, done: asyncio.Future[None]) -> None:
        rng = self._rng
        async with RemotingClient(clock=self._client.clock) as client:
            for command in self._changes():
                try:
                    await client.invoke(self.server.address, command, _LIMIT_MS)
                except TianzhouError:
                    break
            for number in range(rng.randint(5, 60)):
                body = f"foreign-{number}/".encode() + rng.randbytes(rng.randrange(150)).hex().encode()
                fields = {
                    "producerGroup": "P_foreign", "topic": TOPIC, "defaultTopic": "TBW102",
                    "defaultTopicQueueNums": "4", "queueId": str(rng.randrange(self._queues)), "sysFlag": "0",
                    "bornTimestamp": str(self._client.clock.now_ms()), "flag": "0", "properties": "",
                    "reconsumeTimes": "0", "unitMode": "false",
                }  # fmt: skip
                try:
                    await client.invoke(
                        self.server.address, Command(RequestCode.SEND_MESSAGE, fields=fields, body=body), _LIMIT_MS
                    )
                except TianzhouError:
                    break
        self._client.stopped()
        if not done.done():
            done.set_result(None)

    def _changes(self) -> list[Command]:
        commands = [topic_change(TOPIC, self._queues)[1]]
        for number in range(2):
            commands += [topic_change(f"Table_{number}", FOREIGN_VALUE)[1]]
            commands += [group_change(f"Readers_{number}", FOREIGN_VALUE)[1]]
        for group in self._groups:
            commands.append(group_change(group, FOREIGN_VALUE)[1])
            for queue in range(self._queues):
                fields = {
                    "consumerGroup": group, "topic": TOPIC, "queueId": str(queue), "commitOffset": str(FOREIGN_OFFSET),
                }  # fmt: skip
                commands.append(Command(RequestCode.UPDATE_CONSUMER_OFFSET, fields=fields))
        return commands
