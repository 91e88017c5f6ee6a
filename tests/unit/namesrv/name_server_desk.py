"""A name server, and clients that send requests to it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from tianzhou.model import DataVersion, TopicConfig
from tianzhou.namesrv.server import NameServer
from tianzhou.namesrv.settings import NamesrvSettings
from tianzhou.records.checksum import crc32
from tianzhou.remoting.client import RemotingClient
from tianzhou.testing.clock import VirtualClock
from tianzhou.wire.bodies.register import RegisterBody, RegisterCodec
from tianzhou.wire.bodies.route import ROUTE
from tianzhou.wire.bodies.topics import TopicTable
from tianzhou.wire.codes import RequestCode
from tianzhou.wire.command import Command
from tianzhou.wire.fields import write_header

BROKER = "10.0.0.1:10911"
Ask = Callable[..., Awaitable[Command]]


class Desk:
    """A name server, a client of it, and its clock."""

    def __init__(self, home: Path, **settings: Any) -> None:
        self.clock = VirtualClock()
        usual = NamesrvSettings(
            bind_address="127.0.0.1",
            listen_port=0,
            kv_config_path=str(home / "kvConfig.json"),
            config_store_path=str(home / "namesrv.properties"),
        )
        self.server = NameServer(replace(usual, **settings), clock=self.clock)
        self.client = RemotingClient()

    async def __aenter__(self) -> Self:
        await self.server.start()
        self.address = f"127.0.0.1:{self.server.port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.client.close()
        await self.server.close()

    async def ask(self, code: int, body: bytes = b"", version: int = 479, **fields: str) -> Command:
        return await self.client.invoke(self.address, Command(code, fields=fields, body=body, version=version))

    async def register(
        self,
        *topics: str,
        address: str = BROKER,
        client: RemotingClient | None = None,
        compressed: bool = False,
        version: int = 479,
        counter: int = 1,
        crc: int | None = None,
        mappings: dict[str, Any] | None = None,
        **changes: Any,
    ) -> Command:
        table = TopicTable({name: TopicConfig(name, 4, 4) for name in topics}, DataVersion(counter, 1_700_000_000_000))
        table.topic_queue_mapping_info_map = mappings or {}
        body = RegisterCodec(version, compressed).dumps(RegisterBody(table))
        header: dict[str, Any] = {
            "broker_name": "broker-a",
            "broker_addr": address,
            "cluster_name": "DefaultCluster",
            "ha_server_addr": "10.0.0.1:10912",
            "broker_id": 0,
            "compressed": compressed,
            "body_crc32": crc32(body) if crc is None else crc,
        }
        if version >= 413:
            header["enable_acting_master"] = False
        fields = write_header(RequestCode.REGISTER_BROKER, **(header | changes))
        command = Command(RequestCode.REGISTER_BROKER, fields=fields, body=body, version=version)
        return await (client or self.client).invoke(self.address, command)

    async def route(self, topic: str, version: int = 479, **fields: str) -> Any:
        reply = await self.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic=topic, version=version, **fields)
        return ROUTE.loads(reply.body) if reply.code == 0 else reply.code
