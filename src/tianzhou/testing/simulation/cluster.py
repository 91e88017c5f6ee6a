"""The simulated cluster: its machines, their programs, and the faults that strike it."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
from collections.abc import Iterator
from contextvars import Context, copy_context
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final

from tianzhou.admin import Admin
from tianzhou.errors import TianzhouError
from tianzhou.store.log.flush import WORK
from tianzhou.testing.disk import ForgetfulDisk
from tianzhou.testing.simulation.faults import LEADER, NAME, Planned
from tianzhou.testing.simulation.folders import FolderExchanges
from tianzhou.testing.simulation.history import Fault, History, PowerLoss, QueuePlace, Remains, Rot, Serves, Stored
from tianzhou.testing.simulation.load import TOPIC, ConsumerOn, ProducerOn
from tianzhou.testing.simulation.loop import SimulationLoop
from tianzhou.testing.simulation.machines import Machine
from tianzhou.testing.simulation.network import Network
from tianzhou.testing.simulation.remains import remains_of
from tianzhou.testing.simulation.scenarios import BrokerPlan, ClusterLayout
from tianzhou.testing.simulation.servers import MEMBER_PORT, BrokerOn, NameServerOn
from tianzhou.testing.simulation.strangers import Stranger
from tianzhou.testing.simulation.table_changes import Operator, TableFolders

GROUPS: Final = {"Shipping": False, "Ledger": True}
"""Consumer groups, and whether they consume in order; each has two members."""
QUEUES: Final = 3
LOOK_S: Final = 0.5
FORCED_S: Final = 1.0
"""Seconds after which a death that waits for a step or a sync happens without it."""

Node = NameServerOn | BrokerOn | ProducerOn | ConsumerOn


class SimulatedCluster:
    """The simulated cluster, see the module.

    Args:
        layout: the servers and the load.
        loop: the event loop of the cluster.
        root: folder of the machines.
        rng: source of all random numbers.
        history: records the events.

    Attributes:
        brokers: by machine.
        producers: two, one of which sends all messages to one queue.
        consumers: two members of each of `GROUPS`.
        clients: all producers and consumers.
    """

    def __init__(self, layout: ClusterLayout, loop: SimulationLoop, root: Path, rng: Random, history: History) -> None:
        self._layout = layout
        self._loop = loop
        self._root = root
        self._rng = rng
        self._history = history
        self._machines: dict[str, Machine] = {}
        self._nodes: dict[str, Node] = {}
        self._gone: set[str] = set()
        self._strikes: list[asyncio.Task[None]] = []
        self._operations: list[asyncio.Task[None]] = []
        self._seen: dict[tuple[str, str, QueuePlace], int] = {}
        self.network = loop.network = Network(loop, rng, history.note)
        name_servers = [
            NameServerOn(self._machine(f"namesrv-{number}", f"10.0.0.{number}"), rng)
            for number in range(1, layout.name_servers + 1)
        ]
        self.namesrv_addr = ";".join(one.address for one in name_servers)
        self.brokers: dict[str, BrokerOn] = {}
        for number, plan in enumerate(layout.brokers, 1):
            machine = self._machine(plan.machine, f"10.0.1.{number}", forgets=True)
            self.brokers[plan.machine] = BrokerOn(
                machine,
                rng,
                self.namesrv_addr,
                broker={"broker_name": plan.name, "broker_id": plan.broker_id} | layout.access,
                store=plan.store | self._membership(plan),
            )
        names = {one.address: one.broker_settings["broker_name"] for one in self.brokers.values()}
        options: dict[str, Any] = {
            "namesrv_addr": self.namesrv_addr,
            "poll_name_server_interval_ms": 5_000,
            "heartbeat_broker_interval_ms": 5_000,
        }
        self.producers = [
            ProducerOn(
                self._machine(f"producer-{number}", f"10.0.2.{number}"),
                rng,
                history,
                options,
                messages=layout.messages,
                pause_s=layout.load_s / 36 * 60 / layout.messages,
                keyed=number == 1,
            )
            for number in (1, 2)
        ]
        members = [(group, orderly) for group, orderly in GROUPS.items() for _ in range(2)]
        self.consumers = [
            ConsumerOn(
                self._machine(f"consumer-{number}", f"10.0.3.{number}"),
                rng,
                history,
                options,
                group=group,
                orderly=orderly,
                brokers=names,
            )
            for number, (group, orderly) in enumerate(members, 1)
        ]
        self._operator: Operator | None = None
        self._folders: TableFolders | None = None
        if layout.grouped:
            dice = Random(rng.random())
            operator = self._machine("operator", "10.0.5.1")
            self._operator = Operator(operator, dice, history, lambda: self.brokers[self._leader()].address)
            self._folders = TableFolders(root, dice, history)
        self._exchanges: FolderExchanges | None = None
        if layout.exchanges:
            self._exchanges = FolderExchanges(root, Random(rng.random()), history, self.brokers)
        self.clients: list[ProducerOn | ConsumerOn] = [*self.producers, *self.consumers]
        self._servers: list[NameServerOn | BrokerOn] = [*name_servers, *self.brokers.values()]
        nodes: list[Node] = [*self._servers, *self.clients]
        for node in nodes:
            self._nodes[node.machine.name] = node
            if not isinstance(node, NameServerOn):
                node.machine.on_death = partial(self._is_no_more, node)

    def _machine(self, name: str, address: str, *, forgets: bool = False) -> Machine:
        machine = Machine(name, address, self._root, self._loop, self.network, self._rng, forgets=forgets)
        self._machines[name] = machine
        return machine

    def _membership(self, plan: BrokerPlan) -> dict[str, Any]:
        """Return the settings of a group's member that depend on the other members."""
        if not plan.member:
            return {}
        places = enumerate(self._layout.brokers, 1)
        peers = ";".join(f"{one.member}-10.0.1.{number}:{MEMBER_PORT}" for number, one in places)
        return {"d_leger_self_id": plan.member, "d_leger_peers": peers}

    def disks(self) -> Iterator[ForgetfulDisk]:
        """Return the disks of the running machines."""
        return (machine.disk for machine in self._machines.values() if machine.disk is not None)

    # a run, step by step

    async def start(self) -> None:
        """Start the servers, create the topic, start the clients."""
        for server in self._servers:
            server.start()
        await asyncio.sleep(0.5)
        await self._machine("admin", "10.0.4.1").start(self._create_topic)
        for client in self.clients:
            client.start()
        if self._operator is not None:
            self._operator.start()

    async def _create_topic(self) -> None:
        machine = self._machines["admin"]
        async with Admin(
            namesrv_addr=self.namesrv_addr, clock=machine.clock, rng=self._rng, client_id="admin"
        ) as admin:
            while True:
                try:
                    await admin.topics.create(TOPIC, read_queue_nums=QUEUES, write_queue_nums=QUEUES)
                except TianzhouError:
                    # A group elects its leader first.
                    if not self._layout.grouped:
                        raise
                    await asyncio.sleep(0.5)
                else:
                    break
        machine.stopped()

    def _is_no_more(self, node: BrokerOn | ProducerOn | ConsumerOn) -> None:
        node.died()
        self._serves_no_more(node.name)

    def _serves_no_more(self, name: str) -> None:
        if self._layout.grouped and name in self.brokers:
            self._history.add(Serves, self.brokers[name].broker_settings["broker_name"], 0, name, False)

    def _leader(self) -> str:
        """Return the member that leads the group; any member without a leader."""
        leading = [name for name, server in self.brokers.items() if server.leads]
        return self._rng.choice(leading or [*self.brokers])

    def strike(self, planned: Planned) -> None:
        """Start a fault; it ends after its time."""
        if planned.machine == LEADER:
            planned = replace(planned, machine=self._leader())
        self._history.add(Fault, planned.line)
        # An operator continues exchanges of folders after the end of all faults.
        tasks = self._operations if planned.kind == "folder" else self._strikes
        tasks.append(asyncio.get_running_loop().create_task(self._struck(planned)))

    async def mend(self) -> None:
        """End all faults, and start every stopped machine, except a machine that is gone for good."""
        for strike in self._strikes:
            strike.cancel()
        await asyncio.gather(*self._strikes, return_exceptions=True)
        self.network.heal()
        for machine in self._machines.values():
            machine.thaw()
            machine.spare()
        for name in sorted(self._gone):
            self._machines[name].die(power=False)
        if self._exchanges is not None and self._exchanges.stranger is not None:
            self._exchanges.stranger.end()
        self._history.add(Fault, "all is mended")
        if self._operator is not None:
            self._operator.stop()
        for broker in self.brokers.values():
            if broker.broker is not None and WORK in broker.broker.troubles:
                # The disk failed, so only a restart makes the broker write again. The operator has repaired the disk
                # before it.
                broker.machine.die(power=broker.name in self._layout.powerless)
        for name, node in self._nodes.items():
            if isinstance(node, BrokerOn) and node.stopping:
                await node.stop()
            if name not in self._gone:
                node.start()

    async def watch(self) -> None:
        """Record the offsets that brokers have stored, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            for server in self.brokers.values():
                broker = server.broker
                if broker is None or (self._exchanges is not None and server.name in self._exchanges.exchanged):
                    continue
                life = f"{server.name}.{server.lives}"
                for group in GROUPS:
                    for queue, offset in broker.tables.offsets.queues(group, TOPIC).items():
                        place = QueuePlace(broker.settings.broker_name, TOPIC, queue)
                        if self._seen.get((life, group, place)) != offset:
                            self._seen[life, group, place] = offset
                            self._history.add(Stored, life, group, place, offset)

    async def obey(self) -> None:
        """Do the operator's work for members with exchanged folders, until cancelled."""
        if self._exchanges is not None:
            await self._exchanges.watch()

    # faults

    async def _struck(self, planned: Planned) -> None:
        kind, network = planned.kind, self.network
        if kind in {"kill", "power", "disk", "leave", "rot"}:
            await self._death(planned)
            return
        if kind == "restart":
            node = self._nodes[planned.machine]
            if isinstance(node, BrokerOn):
                await node.stop()
                node.start()
            return
        if kind == "jump":
            self._machines[planned.machine].clock.jump(planned.amount)
            return
        if kind in {"stop", "election", "blackout"}:
            await self._members_struck(planned)
            return
        if kind in {"backup", "stranger", "folder"}:
            await self._folder_struck(planned)
            return
        if kind == "slow":
            network.slow = planned.amount
        elif kind == "halves":
            machines = [*self.brokers, *(client.name for client in self.clients)]
            one = [name for at, name in enumerate(machines) if planned.amount >> at & 1]
            network.halves(self._addresses(one), self._addresses(name for name in machines if name not in one))
        elif kind in {"alone", "deaf", "mute"}:
            # The fault may also cut the connections to clients.
            machines = [*self.brokers, *(client.name for client in self.clients if planned.amount)]
            (here,) = self._addresses([planned.machine])
            for there in self._addresses(name for name in machines if name != planned.machine):
                if kind != "mute":
                    network.cut(there, here)
                if kind != "deaf":
                    network.cut(here, there)
        else:
            source, target = self._addresses((planned.machine, planned.other))
            network.cut(source, target)
            if kind == "cut":
                network.cut(target, source)
        await asyncio.sleep(planned.for_s)
        network.heal()
        self._history.add(Fault, "the network is mended")

    async def _members_struck(self, planned: Planned) -> None:
        """Strike members of a group with their own faults, except for cuts."""
        if planned.kind == "stop":
            machine = self._machines[planned.machine]
            machine.freeze()
            self._serves_no_more(planned.machine)
            await asyncio.sleep(planned.for_s)
            machine.thaw()
            self._history.add(Fault, f"{planned.machine} goes on")
            return
        if planned.kind == "election":
            outside = copy_context()
            for server in self.brokers.values():
                if server.machine.process is not None:
                    server.machine.process.on_vote = partial(self._voted, server.name, planned, outside)
            await self._death(replace(planned, kind=self._end_of(planned.machine, planned), amount=0))
            return
        if planned.kind == "blackout":
            power = "power" if planned.amount else "kill"
            await asyncio.gather(
                *(self._death(replace(planned, kind=power, machine=name, amount=0)) for name in self.brokers)
            )

    async def _folder_struck(self, planned: Planned) -> None:
        """Do an operator's work with folders of members."""
        name, kind, exchanges = planned.machine, planned.other, self._exchanges
        assert exchanges is not None
        if planned.kind == "backup":
            exchanges.back_up(name)
        elif planned.kind == "folder":
            await exchanges.exchange(name, kind, planned.for_s, hasty=bool(planned.amount))
        else:
            server = self.brokers[name]
            store = server.store_settings | ({"d_leger_group": "broker-z"} if kind == NAME else {})
            make = partial(self._machine, forgets=True)
            stranger = Stranger(make, self._rng, server.broker_settings, store, [*GROUPS], QUEUES)
            await exchanges.estrange(name, kind, stranger)

    def _end_of(self, name: str, planned: Planned) -> str:
        return "power" if planned.amount & 1 and name in self._layout.powerless else "kill"

    def _voted(self, voter: str, planned: Planned, outside: Context, candidate: str) -> None:
        """Kill the voter, which restarts at once, and a little later the elected candidate, for longer."""
        for server in self.brokers.values():
            if server.machine.process is not None:
                server.machine.process.on_vote = None
        winner = next(one.machine for one in self._layout.brokers if one.member == candidate)
        # Steps are even numbers, because odd numbers count differently in a power failure.
        deaths = ((voter, planned.amount >> 1 & 6, 0.2 * planned.for_s), (winner, planned.amount >> 3 & 30, 3.0))
        for name, steps, for_s in deaths:
            death = replace(planned, kind=self._end_of(name, planned), machine=name, amount=steps, for_s=for_s)
            self._strikes.append(asyncio.get_running_loop().create_task(self._death(death), context=outside))

    def _addresses(self, names: Any) -> list[str]:
        return [self._machines[name].address for name in names]

    async def _death(self, planned: Planned) -> None:
        machine = self._machines[planned.machine]
        process, disk = machine.process, machine.disk
        if process is None:
            return
        power = planned.kind in {"power", "disk"}
        if planned.kind == "leave":
            self._gone.add(planned.machine)
        if planned.kind == "disk" and disk is not None:

            def refuse(_path: Path) -> None:
                raise OSError(errno.EIO, os.strerror(errno.EIO))

            disk.before_sync = refuse
            await asyncio.sleep(planned.for_s)
        elif power and planned.amount % 2 and disk is not None:
            disk.fail_at = disk.operations + 1 + planned.amount // 4
            await asyncio.sleep(FORCED_S)
        elif planned.amount:
            steps = process.steps + planned.amount

            def step() -> None:
                if process.steps >= steps:
                    machine.die(power=power)

            process.on_step = step
            await asyncio.sleep(FORCED_S)
        if machine.process is process:
            machine.die(power=power)
        if power:
            self._history.add(PowerLoss, f"{machine.name} has lost its power")
        else:
            self._history.add(Fault, f"{machine.name} is dead")
        if planned.kind == "rot":
            self._history.add(Rot, self._flip(machine))
        if planned.kind != "leave":
            await asyncio.sleep(planned.for_s)
            self._history.add(Fault, f"{machine.name} is started")
            if self._folders is not None and machine.name in self.brokers:
                self._folders.before_start(machine)
            self._nodes[machine.name].start()

    def _flip(self, machine: Machine) -> str:
        """Flip a bit of the log; return its place."""
        logs = sorted((machine.folder / "store" / "commitlog").iterdir())
        chosen = self._rng.choice([path for path in logs if path.stat().st_size])
        content = bytearray(chosen.read_bytes())
        used = len(content.rstrip(b"\0"))
        at = self._rng.randrange(max(used, 1))
        content[at] ^= 1 << self._rng.randrange(8)
        chosen.write_bytes(content)
        return f"byte {at} of {chosen.name}"

    # final content

    def settled(self) -> str:
        """Return why it is too early to read the final content; empty when it is not."""
        if self._exchanges is not None and (
            self._exchanges.exchanged or not all(task.done() for task in self._operations)
        ):
            return f"folders of {' and '.join(self._exchanges.exchanged) or 'members'} are exchanged"
        for name, server in self.brokers.items():
            if name in self._gone:
                continue
            if server.broker is None:
                return f"{name} does not run: {server.failure}"
            if server.broker.store.dispatch_behind_bytes:
                return f"queues of {name} do not show all that its log holds"
        if self._history.pending:
            return "sends have no answer yet"
        if self._layout.grouped:
            return self._group_settled()
        if self._gone:
            return ""
        for server in self.brokers.values():
            assert server.broker is not None
            if not server.is_master:
                for master in self.brokers.values():
                    end = None if master.broker is None else master.broker.store.end_offset
                    if master.is_master and end != server.broker.store.end_offset:
                        return f"{server.name} has not everything that {master.name} has"
        return ""

    def _group_settled(self) -> str:
        """Return the reason of `settled` for the members of a group."""
        members = {name: server.broker for name, server in self.brokers.items() if name not in self._gone}
        leading = [name for name, server in self.brokers.items() if server.leads]
        if len(leading) != 1:
            return f"{' and '.join(leading) or 'nobody'} leads"
        (leader,) = leading
        stores = {name: broker.store for name, broker in members.items() if broker is not None}
        end = stores[leader].end_offset
        for name, store in stores.items():
            if store.end_offset != end:
                return f"{name} has not everything that {leader} has"
            assert store.entries is not None
            if store.entries.committed_position != end:
                return f"{name} does not know that everything is committed"
        return ""

    def diverged(self) -> list[BrokerOn]:
        """Return the slaves that report data which their master does not have."""
        found = []
        for server in self.brokers.values():
            if self._layout.grouped or server.is_master or server.broker is None:
                continue
            if any("empty the slave's store folder" in trouble.why for trouble in server.broker.troubles.present()):
                found.append(server)
        return found

    async def empty(self, slave: BrokerOn) -> None:
        """Restart a diverged slave with an empty folder, as it requests."""
        if not self._layout.powerless:
            self._history.add(Fault, f"{slave.name} has what its master has not, and no machine lost its power")
        await slave.stop()
        slave.machine.empty()
        slave.start()

    def remains(self) -> list[Remains]:
        """Return the content of every running broker."""
        return [remains_of(server, self._history) for server in self.brokers.values() if server.broker is not None]

    def tear_down(self) -> None:
        """Release all resources of running and dead programs."""
        tasks: list[asyncio.Task[Any]] = []
        for machine in self._machines.values():
            machine.on_death = lambda: None
            if machine.process is not None:
                machine.process.ended = True
            tasks += machine.dead_tasks
            machine.dead_tasks = []
        self._loop.abandon(tasks)
        stranger = None if self._exchanges is None else self._exchanges.stranger
        for server in [*self.brokers.values(), *([] if stranger is None else [stranger.server])]:
            for broker in server.all:
                with contextlib.suppress(Exception):
                    if broker.store._opened:
                        broker.store._release()
