"""A broker without sockets: real handlers over a real store, commands in, replies out, time by request."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from store_reads import read_now
from tianzhou.broker.delays.delay_scheduler import DelayScheduler
from tianzhou.broker.server import make_parts, make_tables
from tianzhou.broker.services import Services
from tianzhou.broker.settings import BrokerSettings
from tianzhou.broker.stats.stats import BrokerStats
from tianzhou.model import ConsumerData, HeartbeatData, MessageModel, SubscriptionData
from tianzhou.records.codec import Record, decode_records
from tianzhou.remoting.client import RemotingClient
from tianzhou.remoting.connection import Connection
from tianzhou.remoting.gates.access_gate import AccessGate
from tianzhou.remoting.group import ConnectionGroup
from tianzhou.remoting.session import MAX_FRAME
from tianzhou.store.settings import StoreSettings
from tianzhou.store.store import MessageStore
from tianzhou.supervision import Supervisor
from tianzhou.testing.clock import VirtualClock
from tianzhou.testing.memory import MemoryTransport
from tianzhou.wire.bodies.heartbeat import HEARTBEAT
from tianzhou.wire.bodies.tables import KV_TABLE
from tianzhou.wire.codes import FLAG_ONEWAY, RequestCode
from tianzhou.wire.command import Command, encode, split
from tianzhou.wire.fields import write_header
from tianzhou.wire.properties import encode_properties
from waiting import until_async

BROKER_HOST = b"\x7f\x00\x00\x01"
BROKER_PORT = 31_011


class Peer:
    """A client on a connection of memory."""

    connection: Connection
    transport: MemoryTransport

    def __init__(self, port: int) -> None:
        self.port = port
        self.requests: list[Command] = []
        self._replies: dict[int, Command] = {}
        self._read = 0
        self._opaque = 0

    def connect(self, group: ConnectionGroup) -> Self:
        """Connect to the broker and join the given group of connections."""
        self.connection = Connection(group)
        self.transport = MemoryTransport(self.connection, ("127.0.0.1", self.port))
        return self

    def post(self, code: int, body: bytes = b"", *, oneway: bool = False, version: int = 479, **header: Any) -> int:
        """Send a request; return its opaque."""
        opaque, flag = self.next_opaque(), FLAG_ONEWAY if oneway else 0
        command = Command(code, opaque, flag, version=version, fields=write_header(code, **header), body=body)
        self.transport.feed(encode(command))
        return opaque

    def next_opaque(self) -> int:
        """Return the opaque of the next request."""
        self._opaque += 1
        return self._opaque

    def answer(self, question: Command, code: int = 0, remark: str | None = None, body: bytes = b"") -> None:
        """Reply to a request of the broker."""
        self.transport.feed(encode(question.reply(code, remark, {}, body)))

    def post_frame(self, frame: bytes) -> None:
        """Send an encoded frame."""
        self.transport.feed(frame)

    async def reply(self, opaque: int, patience_s: float = 60.0) -> Command:
        """Wait for the reply to a request and return it."""
        async with asyncio.timeout(patience_s):
            while (found := self.peek(opaque)) is None:
                await asyncio.sleep(0.001)
        # Side effects of a message, dispatch first of all, run in the next iteration of the loop.
        await asyncio.sleep(0)
        return found

    def peek(self, opaque: int) -> Command | None:
        """Return the reply to a request, or None while there is none."""
        self._drain()
        return self._replies.pop(opaque, None)

    async def ask(self, code: int, body: bytes = b"", **header: Any) -> Command:
        """Send a request and wait for its reply."""
        return await self.reply(self.post(code, body, **header))

    async def send(self, topic: str, body: bytes = b"body", **more: Any) -> Command:
        """Send a message with an ordinary header; see `post_send`."""
        return await self.reply(self.post_send(topic, body, **more))

    def post_send(
        self,
        topic: str,
        body: bytes = b"body",
        *,
        queue_id: int = 0,
        code: int = RequestCode.SEND_MESSAGE_V2,
        properties: dict[str, str] | None = None,
        **header: Any,
    ) -> int:
        """Send like `send`, without waiting."""
        text = encode_properties({"UNIQ_KEY": f"K{self._opaque}"} if properties is None else properties).decode()
        fields = {
            "producer_group": "P", "topic": topic, "default_topic": "TBW102", "default_topic_queue_nums": 4,
            "queue_id": queue_id, "sys_flag": 0, "born_timestamp": 1, "flag": 0, "properties": text,
            "reconsume_times": 0, "unit_mode": False, "batch": False,
        }  # fmt: skip
        return self.post(code, body, **fields | header)

    async def pull(self, topic: str, offset: int = 0, **header: Any) -> Command:
        """Pull with a subscription to all tags in the request."""
        return await self.reply(self.post_pull(topic, offset, **header))

    def post_pull(self, topic: str, offset: int = 0, **header: Any) -> int:
        """Pull like `pull`, without waiting."""
        fields = {
            "consumer_group": "G", "topic": topic, "queue_id": 0, "queue_offset": offset, "max_msg_nums": 32,
            "sys_flag": 4, "commit_offset": 0, "suspend_timeout_millis": 20_000, "subscription": "*",
            "sub_version": 0, "expression_type": "TAG",
        }  # fmt: skip
        return self.post(RequestCode.PULL_MESSAGE, **fields | header)

    async def heartbeat(
        self,
        client_id: str,
        *topics: str,
        group: str = "G",
        expression: str = "*",
        version: int = 1,
        producer: str | None = None,
        model: MessageModel = MessageModel.CLUSTERING,
        kind: str = "TAG",
    ) -> Command:
        """Announce a consumer of the topics, or a producer."""
        subscriptions = [
            SubscriptionData(topic, expression, expression_type=kind, sub_version=version) for topic in topics
        ]
        consumers = [ConsumerData(group, message_model=model, subscription_data_set=subscriptions)] if topics else []
        said = HeartbeatData(client_id, [producer] if producer else [], consumers)
        return await self.ask(RequestCode.HEART_BEAT, HEARTBEAT.dumps(said))

    def create_topic(self, topic: str, queues: int = 1, **header: Any) -> Coroutine[Any, Any, Command]:
        """Create a topic with as many read queues as write queues, unless the header overrides them."""
        fields = {
            "topic": topic, "default_topic": "TBW102", "read_queue_nums": queues, "write_queue_nums": queues, "perm": 6,
            "topic_filter_type": "SINGLE_TAG", "topic_sys_flag": 0, "order": False,
        }  # fmt: skip
        return self.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, **fields | header)

    def create_group(self, group: str, **config: Any) -> Coroutine[Any, Any, Command]:
        """Create a consumer group, with fields of its JSON configuration."""
        body = json.dumps({"groupName": group} | config).encode()
        return self.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body)

    async def figures(self) -> dict[str, str]:
        """Return the broker's runtime info."""
        return KV_TABLE.loads((await self.ask(RequestCode.GET_BROKER_RUNTIME_INFO)).body)

    async def refused(self) -> dict[str, str]:
        """Return the number of refusals by each limit's name."""
        figures = await self.figures()
        return {key.removeprefix("refused_"): value for key, value in figures.items() if key.startswith("refused_")}

    def received(self, code: int) -> list[Command]:
        """Return the requests with a code that the broker has sent this peer since the last call."""
        self._drain()
        found = [command for command in self.requests if command.code == code]
        self.requests = [command for command in self.requests if command.code != code]
        return found

    async def question(self, code: int) -> Command:
        """Wait for the next request with a code from the broker."""
        found: list[Command] = await until_async(lambda: self.received(code), within_s=1, every_s=0.001)
        (question,) = found
        return question

    def notices(self) -> int:
        """Return how often this peer was notified that its group changed, since the last call."""
        told = self.received(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED)
        assert all(command.flag & FLAG_ONEWAY for command in told)
        self.requests.clear()
        return len(told)

    def _drain(self) -> None:
        fresh = bytes(self.transport.written[self._read :])
        commands, read = split(fresh, 0, len(fresh), MAX_FRAME)
        self._read += read
        for command in commands:
            if command.is_response:
                self._replies[command.opaque] = command
            else:
                self.requests.append(command)


class Bench:
    """The handlers of a broker with a store in a folder."""

    def __init__(self, folder: Path, clock: VirtualClock, settings: dict[str, Any], store: dict[str, Any]) -> None:
        self.clock = clock
        self.settings = replace(
            BrokerSettings(), broker_name="broker-a", broker_ip1="127.0.0.1", namesrv_addr="", **settings
        )
        small = {
            "mapped_file_size_commit_log": 1 << 20, "mapped_file_size_consume_queue": 20_000,
            "max_hash_slot_num": 100, "max_index_num": 400,
        }  # fmt: skip
        self.store_settings = replace(StoreSettings(), store_path_root_dir=str(folder), **small | store)
        self.tables = make_tables(self.settings, self.store_settings, clock.now_ms())
        self.stats = BrokerStats(clock.now_ms())
        self.store = MessageStore(self.store_settings, clock, store_host=BROKER_HOST, store_port=BROKER_PORT)
        self.fast = False
        self.runs = True
        self.access: AccessGate | None = None
        self._port = 40_000
        self.early: list[Peer] = []

    async def __aenter__(self) -> Self:
        await self.store.start()
        supervisor = Supervisor("broker", self.clock)
        address = f"127.0.0.1:{BROKER_PORT}"
        self.services = Services(
            self.tables,
            self.store,
            self.stats,
            self.clock,
            supervisor,
            address,
            (BROKER_HOST, BROKER_PORT),
            access=self.access,
        )
        self.parts = make_parts(
            self.services,
            client=RemotingClient(clock=self.clock),
            written=self._written,
            settings_changed=self._changed,
        )
        self._group = ConnectionGroup(
            self.parts.router.serve, idle_timeout_s=0, clock=self.clock, bounds=self.tables.bounds
        )
        self._group.fast_paths = self.fast_paths = self.parts.router.fast_paths if self.runs else {}
        self._group.start()
        self.answering = asyncio.ensure_future(self.parts.acks.run())
        self._tasks = [self.answering]
        for peer in self.early:
            peer.connect(self._group)
        return self

    async def __aexit__(self, *exc: object) -> None:
        for task in self._tasks:
            task.cancel()
        await self._group.close(0.1)
        await self.store.close()

    async def _written(self) -> None:
        """The bench writes no state files; only the store is on disk."""

    def _changed(self, keys: set[str]) -> None:
        self.parts.send.settings_changed()

    def peer(self) -> Peer:
        """Return a new connection."""
        return self._next_peer().connect(self._group)

    def early_peer(self) -> Peer:
        """Return a connection that opens when the broker opens."""
        self.early.append(self._next_peer())
        return self.early[-1]

    def _next_peer(self) -> Peer:
        self._port += 1
        return Peer(self._port)

    def records(self, topic: str, queue_id: int = 0) -> list[Record]:
        """Return all messages of a queue."""
        found: list[Record] = []
        while True:
            got = read_now(self.store, topic, queue_id, len(found), 32)
            if not got.parts:
                return found
            found += decode_records(b"".join(got.parts))

    def deliver_delayed(self) -> asyncio.Task[None]:
        """Begin to deliver delayed messages; the delivery ends with the bench."""
        task = asyncio.ensure_future(DelayScheduler(self.services).run())
        self._tasks.append(task)
        return task


OpenBench = Callable[..., Bench]
"""Type of the fixture `broker`."""
