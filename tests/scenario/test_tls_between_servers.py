"""A pair and a group whose ports all require TLS with a known certificate, and accounts: members, and strangers."""

from __future__ import annotations

import asyncio
import logging
import re
import ssl
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from authority import Authority
from small_broker import name_server, run, small_broker

from server_ports import server_ports
from tianzhou.admin import Admin
from tianzhou.broker.replication.group import GroupReplication
from tianzhou.broker.server import FAST_PORT_BELOW, Broker, free_port_pair
from tianzhou.client import Producer, PullConsumer
from tianzhou.model import Message, SendStatus
from tianzhou.namesrv.server import NameServer
from tianzhou.remoting.tls import TlsSettings, client_context
from tianzhou.wire.codes import DLedgerRequestCode, RequestCode
from tianzhou.wire.command import Command, encode
from tianzhou.wire.ha import encode_report
from waiting import until_async

pytestmark = pytest.mark.runner.with_args(run)
CLIENT = {"access_key": "shop-account", "secret_key": "shop-secret"}
OF_SERVERS = '{"accessKey": "the-servers", "secretKey": "servers-secret"}'
ACCOUNTS = """
accounts:
- {accessKey: the-servers, secretKey: servers-secret, admin: true}
- {accessKey: shop-account, secretKey: shop-secret, defaultTopicPerm: PUB|SUB, defaultGroupPerm: SUB}
"""


@dataclass
class Place:
    """A folder of servers with one authority and one file of accounts."""

    folder: Path
    authority: Authority

    def tls(self, name: str, **more: Any) -> TlsSettings:
        """Return the settings of a server that accepts only known certificates, and presents its own when it
        connects.
        """
        certificate, key = self.authority.issue(name)
        known = str(self.authority.path)
        settings = TlsSettings(
            server_mode="enforcing", enable=True, test_mode_enable=False,
            server_cert_path=certificate, server_key_path=key, client_cert_path=certificate, client_key_path=key,
            need_client_auth="require", server_auth_client=True, server_trust_cert_path=known,
            client_auth_server=True, client_trust_cert_path=known, account_from="CN",
        )  # fmt: skip
        return replace(settings, **more)

    def context(self) -> ssl.SSLContext:
        """Return the TLS context of our clients of these servers."""
        return client_context(self.tls("shop"))

    @property
    def access(self) -> dict[str, Any]:
        return {
            "acl_enable": True, "acl_config_path": str(self.folder / "plain_acl.yml"),
            "inner_client_authentication_credentials": OF_SERVERS,
        }  # fmt: skip

    def name_server(self) -> NameServer:
        return name_server(self.folder, self.tls("the-servers"), **self.access)

    def broker(self, namesrv: str, name: str, store: dict[str, Any], **more: Any) -> Broker:
        store = {"store_path_root_dir": str(self.folder / name / "store"), **store}
        settings = {"tls": self.tls("the-servers"), "namesrv_addr": namesrv, **self.access, **more}
        return small_broker(self.folder / name, store, listen_port=free_port_pair("127.0.0.1"), **settings)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    (tmp_path / "plain_acl.yml").write_text(ACCOUNTS)
    (tmp_path / "plain_acl.yml").chmod(0o600)
    return Place(tmp_path, Authority(tmp_path))


@asynccontextmanager
async def pair(place: Place) -> AsyncIterator[tuple[NameServer, AsyncExitStack, Broker, Broker]]:
    """Yield name server, exit stack of the master, master, slave."""
    async with place.name_server() as names, AsyncExitStack() as stack:
        namesrv = f"127.0.0.1:{names.port}"
        of_master = await stack.enter_async_context(AsyncExitStack())
        master = place.broker(namesrv, "master", {"broker_role": "SYNC_MASTER"})
        await of_master.enter_async_context(master)
        await master.ready()
        slave = place.broker(namesrv, "slave", {"broker_role": "SLAVE"}, broker_id=1)
        await stack.enter_async_context(slave)
        await slave.ready()
        await until_async(lambda: slave.replication.near_master, "the slave copies")
        yield names, of_master, master, slave


def member_stores(count: int) -> list[dict[str, Any]]:
    peers = ";".join(f"n{n}-127.0.0.1:{server_ports()}" for n in range(count))
    return [
        {
            "enable_d_leger_commit_log": True, "d_leger_group": "broker-a", "d_leger_peers": peers,
            "d_leger_self_id": f"n{n}", "d_leger_heart_beat_time_interval_ms": 200,
            "d_leger_min_vote_interval_ms": 50, "d_leger_max_vote_interval_ms": 200,
        }
        for n in range(count)
    ]  # fmt: skip


async def stored(place: Place, namesrv: str, count: int) -> set[bytes]:
    found: set[bytes] = set()
    async with PullConsumer("shop", namesrv, tls=place.context(), **CLIENT) as consumer:
        queues = await consumer.queues("orders")
        consumer.assign(queues)
        for queue in queues:
            await consumer.seek(queue, 0)
        while len(found) < count:
            found |= {message.body for message in await consumer.poll(timeout_ms=500)}
    return found


async def answer(port: int, data: bytes, context: ssl.SSLContext | None) -> bytes:
    """Return a port's reply to a stranger; empty when it ends the connection."""
    try:
        async with asyncio.timeout(10):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
            try:
                writer.write(data)
                return await reader.read(100)
            finally:
                writer.transport.abort()
    except OSError:
        return b""


async def get_nowhere(place: Place, ports: Iterable[int], hello: bytes) -> None:
    """Check that strangers of three kinds get no reply from any of the ports."""
    other = Authority(place.folder, "other")
    anybody = TlsSettings(test_mode_enable=False)
    certificate, key = other.issue("administrator")
    strangers = [
        None,
        client_context(anybody),
        client_context(replace(anybody, client_cert_path=certificate, client_key_path=key)),
    ]
    said = [answer(port, hello, stranger) for port in ports for stranger in strangers]
    assert await asyncio.gather(*said) == [b""] * len(said)


async def test_a_pair_replicates_and_fails_over_and_strangers_get_nowhere(place: Place) -> None:
    asks_figures = encode(Command(RequestCode.GET_BROKER_RUNTIME_INFO))
    async with pair(place) as (names, of_master, master, slave):
        namesrv = f"127.0.0.1:{names.port}"
        async with Producer("shop", namesrv, tls=place.context(), **CLIENT) as producer:
            for number in range(20):
                result = await producer.send(Message("orders", b"%d" % number))
                assert result.status is SendStatus.SEND_OK  # the slave has it
        await until_async(lambda: "orders" in slave.tables.topics, "the slave has asked for the master's tables")
        ha_port = int(master.replication.ha_address.rpartition(":")[2])
        ports = [names.port, *(one.port - below for one in (master, slave) for below in (0, FAST_PORT_BELOW))]
        assert b"" not in [await answer(port, asks_figures, place.context()) for port in ports]
        await get_nowhere(place, ports, asks_figures)
        await get_nowhere(place, [ha_port], encode_report(0))
        # A certificate of the authority is not sufficient to copy the log: its account must be a server's.
        assert await answer(ha_port, encode_report(0), place.context()) == b""
        assert await answer(ha_port, encode_report(0), client_context(place.tls("the-servers"))) != b""
        await of_master.aclose()
        assert await stored(place, namesrv, 20) == {b"%d" % number for number in range(20)}


async def test_a_group_replicates_and_fails_over_and_strangers_get_nowhere(place: Place) -> None:
    async with place.name_server() as names, AsyncExitStack() as stack:
        namesrv, members, ends = f"127.0.0.1:{names.port}", [], {}
        for store in member_stores(3):
            name = store["d_leger_self_id"]
            ends[name] = await stack.enter_async_context(AsyncExitStack())
            members.append(await ends[name].enter_async_context(place.broker(namesrv, name, store)))

        async def leader() -> Broker:
            return await until_async(  # type: ignore[no-any-return]
                lambda: next((one for one in members if not one.replication.is_slave), None), "a leader"
            )

        first = await leader()
        await first.ready()
        async with Admin(namesrv, tls=place.context(), access_key="the-servers", secret_key="servers-secret") as admin:
            await admin.topics.create("orders", read_queue_nums=1, write_queue_nums=1)
        producer = Producer("shop", namesrv, tls=place.context(), durable=True, **CLIENT)
        async with producer:
            for number in range(20):
                await producer.send(Message("orders", b"%d" % number))
            asks = encode(Command(DLedgerRequestCode.METADATA, body=b"{}"))
            peers = first.store.settings.d_leger_peers.split(";")
            ports = [int(peer.rpartition(":")[2]) for peer in peers]
            # A member of the group, and one whose account is no server's.
            of_servers = client_context(place.tls("the-servers"))
            assert b'"code":200' in await answer(ports[0], asks, of_servers)
            assert b'"code":1,' in await answer(ports[0], asks, place.context())
            await get_nowhere(place, ports, asks)
            members.remove(first)
            await ends[first.store.settings.d_leger_self_id].aclose()
            second = await leader()
            for number in range(20, 30):
                await producer.send(Message("orders", b"%d" % number))
        assert await stored(place, namesrv, 30) == {b"%d" % number for number in range(30)}
        assert isinstance(second.replication, GroupReplication)


def renewed(settings: TlsSettings, authority: Authority) -> None:
    """Replace a server's certificate and key by those of another authority."""
    for path, fresh in zip(settings.server_identity[:2], authority.issue("fresh"), strict=True):
        Path(path).write_bytes(Path(fresh).read_bytes())


async def test_a_broker_registers_at_name_servers_that_it_can_verify(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    """The name server's certificate is of another authority, then of another host, and then correct."""
    other = Authority(place.folder, "other")
    of_names = place.tls("the-servers", need_client_auth="none", server_auth_client=False, account_from="off")
    renewed(of_names, other)
    async with name_server(place.folder, of_names) as names:
        namesrv = f"127.0.0.1:{names.port}"
        mine = replace(place.tls("broker"), need_client_auth="none", server_auth_client=False, account_from="off")
        async with small_broker(place.folder / "b", tls=mine, namesrv_addr=namesrv) as broker:
            said = rf"{namesrv} has not registered this broker: .*not trusted .*; give tls\.client\.trustCertPath"
            await until_async(lambda: re.search(said, caplog.text), said)
            caplog.clear()
            (place.folder / "elsewhere").mkdir()
            certificate, key = place.authority.issue("elsewhere/one", hosts=["mq.example.com"])
            for path, fresh in zip(of_names.server_identity[:2], (certificate, key), strict=True):
                Path(path).write_bytes(Path(fresh).read_bytes())
            caplog.set_level(logging.DEBUG, "tianzhou.broker.registration")
            said = r"it is for mq\.example\.com; .* or set tls\.client\.checkHostName=false"
            await until_async(lambda: re.search(said, caplog.text), said)
            renewed(of_names, place.authority)
            await broker.ready()


async def test_a_plain_broker_is_not_registered_where_tls_is_enforced(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    async with place.name_server() as names:
        namesrv = f"127.0.0.1:{names.port}"
        async with small_broker(place.folder / "b", namesrv_addr=namesrv):
            said = f"{namesrv} has not registered this broker: .*set tls.enable=true here"
            await until_async(lambda: re.search(said, caplog.text), said)
            assert "it speaks no TLS, and tls.server.mode is enforcing" in caplog.text


async def test_a_member_that_cannot_speak_with_the_others_says_what_to_set(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    """One of three has no TLS, and no certificate of the authority."""
    async with AsyncExitStack() as stack:
        for number, store in enumerate(member_stores(3)):
            tls = TlsSettings() if number == 2 else place.tls("the-servers")
            broker = place.broker("", store["d_leger_self_id"], store, tls=tls)
            await stack.enter_async_context(broker)
        for said in (
            r"group broker-a: n0 at \S+ does not answer: .*set tls\.enable=true here",
            r"group broker-a: n2 at \S+ does not answer: .*not trusted .*tls\.client\.trustCertPath",
        ):
            await until_async(lambda said=said: re.search(said, caplog.text), said)  # type: ignore[misc]
