"""Our client through SOCKS proxies."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from client_suite import CHECKS, FIRST, Check, fresh, make_topic
from own_server import own_server
from socks_server import socks_server

from shared_loop import SharedLoop
from tianzhou import Message, Producer, PullConsumer, PushConsumer, sync
from tianzhou.admin import Admin
from tianzhou.client import ClientInstance
from tianzhou.errors import ConfigError, ConnectFailed
from tianzhou.remoting.tls import TlsSettings
from waiting import until_async

CARRIED = {
    "a_lost_connection_is_replaced",
    "members_share_the_messages_and_keep_their_progress",
    "large_bodies_travel_compressed",
}


def config(port: int, network: str = "0.0.0.0/0", **login: str) -> dict[str, dict[str, str]]:
    return {network: {"addr": f"127.0.0.1:{port}", **login}}


@pytest.fixture(scope="module")
def namesrv(shared_loop: SharedLoop, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the address of a name server with a broker; clients reach both through a proxy."""
    return shared_loop.open(own_server(tmp_path_factory.mktemp("server")))


@pytest.mark.parametrize(
    "login",
    [{}, {"username": "me", "password": "secret"}, {"username": "mé", "password": "geheimß"}, {"username": "me"}],
    ids=["open", "login", "utf-8", "no password"],
)
async def test_every_connection_goes_through_the_proxy(login: dict[str, str], namesrv: str) -> None:
    users = {login["username"]: login.get("password", "")} if login else None

    async with asyncio.timeout(60), socks_server(users) as proxy:
        given = json.dumps(config(proxy.port, **login))
        topic, seen = fresh("T"), []
        async with Admin(namesrv, socks_proxy_config=given) as admin:
            await admin.topics.create(topic, read_queue_nums=1, write_queue_nums=1)
        consumer = PushConsumer(fresh("G"), namesrv, consume_from_where=FIRST, socks_proxy_config=given)
        consumer.subscribe(topic, handler=lambda message: seen.append(message.body))
        async with consumer, Producer(fresh("P"), namesrv, socks_proxy_config=given) as producer:
            result = await producer.send(Message(topic, b"around the corner"))
            await until_async(lambda: seen == [b"around the corner"], "it came")
        async with PullConsumer(fresh("G"), namesrv, socks_proxy_config=given) as reader:
            assert len((await reader.pull(result.queue, 0)).messages) == 1
        assert proxy.asked.count(namesrv) == 4
        assert len(set(proxy.asked)) == 2  # the name server and the broker
        assert len(proxy.asked) == 8


async def test_a_broker_is_greeted_again_over_a_new_tunnel(namesrv: str) -> None:
    async with asyncio.timeout(60), socks_server() as proxy:
        topic, seen = await make_topic(namesrv, 1), []
        consumer = PushConsumer(fresh("G"), namesrv, consume_from_where=FIRST, socks_proxy_config=config(proxy.port))
        consumer.subscribe(topic, handler=lambda message: seen.append(message.body))
        async with consumer, Producer(fresh("P"), namesrv) as producer:
            await producer.send(Message(topic, b"one"))
            await until_async(lambda: seen == [b"one"], "the first came")
            for connection in list(consumer.instance.remoting.group.connections):
                assert str(connection) in proxy.asked  # it is named by the server's address, not the proxy's
                connection.abort()
            await producer.send(Message(topic, b"two"))
            await until_async(lambda: seen == [b"one", b"two"], "the second came")


async def test_names_are_looked_up_behind_the_proxy_and_networks_choose(namesrv: str) -> None:
    async with asyncio.timeout(60), socks_server() as proxy:
        port = namesrv.rpartition(":")[2]
        proxy.names["names.nowhere.test"] = "127.0.0.1"
        hidden = f"names.nowhere.test:{port}"
        async with Admin(hidden, socks_proxy_config=config(proxy.port)) as admin:
            assert await admin.topics.names()
        assert hidden in proxy.asked
        proxy.asked.clear()
        elsewhere = config(proxy.port, "10.0.0.0/8") | config(1, "192.168.0.0/16")
        async with Admin(namesrv, socks_proxy_config=elsewhere) as admin:
            assert await admin.topics.names()
        assert proxy.asked == []


@pytest.mark.usefixtures("shared_loop")
async def test_tls_goes_through_it_and_the_blocking_face_too(tmp_path: Path) -> None:
    tls = TlsSettings("enforcing", enable=True)
    async with asyncio.timeout(60), own_server(tmp_path, tls=tls) as namesrv, socks_server() as proxy:
        given = config(proxy.port)

        def blocking() -> None:
            with sync.Producer(fresh("P"), namesrv, socks_proxy_config=given, tls=True) as producer:
                producer.send(Message(fresh("T"), b"x"))

        await asyncio.to_thread(blocking)
        assert len(set(proxy.asked)) == 2


async def _fails(namesrv: str, text: str, given: dict[str, dict[str, str]], **options: int) -> None:
    async with ClientInstance(namesrv, socks_proxy_config=given, **options) as instance:
        with pytest.raises(ConnectFailed, match=text):
            await instance.remoting.connect(namesrv)


async def test_what_a_proxy_does_not_do_is_reported(namesrv: str) -> None:
    async with asyncio.timeout(60):
        async with socks_server({"me": "secret"}) as proxy:
            await _fails(namesrv, "wants a log-in; give username and password", config(proxy.port))
            await _fails(namesrv, "does not take user 'me'", config(proxy.port, username="me", password="wrong"))
        async with socks_server() as proxy:
            proxy.refuse = 2
            await _fails(namesrv, "its rules do not allow that", config(proxy.port))
            proxy.refuse = 77
            await _fails(namesrv, "its code is 77", config(proxy.port))
            proxy.refuse = 0
            await _fails("127.0.0.1:1", "the server refused the connection", config(proxy.port))
        dead = proxy.port
        await _fails(namesrv, rf"through SOCKS proxy 127.0.0.1:{dead}: Connection refused", config(dead))
        other = int(namesrv.rpartition(":")[2])  # a name server is no proxy
        await _fails(namesrv, "ended the connection|speaks no SOCKS|within", config(other), connect_timeout_ms=500)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("{", "no JSON"),
        ("[]", "no object"),
        ({"nowhere": {"addr": "p:1"}}, "'nowhere' is no network"),
        ({"10.0.0.0/8": "p:1"}, "without an addr"),
        ({"10.0.0.0/8": {"addr": "p"}}, "no host:port"),
        ({"10.0.0.0/8": {"addr": "p:1", "user": "x"}}, "unknown key 'user'"),
        ({"10.0.0.0/8": {"addr": "p:1", "username": "x" * 256}}, "more than 255 bytes"),
    ],
)
def test_a_wrong_configuration_is_reported(given: object, text: str) -> None:
    with pytest.raises(ConfigError, match=f"socks_proxy_config: .*{text}.*it looks like"):
        ClientInstance("127.0.0.1:9876", socks_proxy_config=given)


@pytest.mark.parametrize("check", [one for one in CHECKS if one.__name__ in CARRIED], ids=lambda check: check.__name__)
async def test_checks_of_the_suite_hold_through_a_proxy(
    check: Check, namesrv: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with asyncio.timeout(120), socks_server() as proxy:
        made = ClientInstance.__init__
        monkeypatch.setattr(
            ClientInstance,
            "__init__",
            lambda self, *args, **options: made(self, *args, **options | {"socks_proxy_config": config(proxy.port)}),
        )
        await check(namesrv, tmp_path / "client")
        assert proxy.asked
