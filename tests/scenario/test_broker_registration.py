"""A broker's name servers and its registrations with them, over loopback."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest
from small_broker import name_server, run, small_broker

from broker_probe import BrokerProbe, note_rounds, register_by
from shared_loop import SharedLoop
from tianzhou.broker.registration import name_servers
from tianzhou.broker.registration.name_servers import CurrentNameServers, resolve
from tianzhou.broker.registration.server_registration import ServerRegistration
from tianzhou.broker.settings import BrokerSettings
from tianzhou.errors import ConnectFailed
from tianzhou.model import BrokerData, MessageQueue
from tianzhou.remoting.client import RemotingClient
from tianzhou.remoting.connection import Connection
from tianzhou.remoting.server import RemotingServer
from tianzhou.wire.bodies.clients import LOCK_REQUEST, LOCKED_QUEUES, LockRequest
from tianzhou.wire.bodies.register import REGISTER_BODY, RegisterCodec
from tianzhou.wire.bodies.route import MEMBER_GROUP, ROUTE
from tianzhou.wire.bodies.topics import DATA_VERSION
from tianzhou.wire.codes import RequestCode
from tianzhou.wire.command import Command
from tianzhou.wire.fields import read_header, write_header, write_reply
from waiting import until_async

pytestmark = pytest.mark.runner.with_args(run)


class Scripted:
    """A name server that records its requests."""

    def __init__(self) -> None:
        self.requests: list[Command] = []
        self.changed = False
        self.known = b""
        self.taken = b""
        self.members: dict[int, str] = {}
        self.server = RemotingServer("127.0.0.1", 0, self._serve)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server.port}"

    def asked(self, code: int) -> list[Command]:
        return [command for command in self.requests if command.code == code]

    def _serve(self, _: Connection, command: Command) -> Command:
        command.body = bytes(command.body)
        self.requests.append(command)
        if command.code == RequestCode.QUERY_DATA_VERSION:
            return command.reply(0, fields=write_reply(322, changed=self.changed), body=command.body)
        if command.code == RequestCode.GET_BROKER_MEMBER_GROUP:
            return command.reply(0, body=MEMBER_GROUP.dumps(BrokerData("broker-a", "c", self.members)))
        if command.code == RequestCode.REGISTER_BROKER:
            return command.reply(0, body=self.taken)
        return command.reply(0)


# --- which name servers -----------------------------------------------------------------------------------------------


async def test_an_address_server_is_queried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[str] = []
    urls: list[str] = []

    async def ask(url: str) -> str:
        urls.append(url)
        if not answers:
            raise ConnectFailed("address server is away")
        return answers[0]

    monkeypatch.setitem(CurrentNameServers.__init__.__kwdefaults__ or {}, "ask", ask)

    async with name_server(tmp_path) as first, name_server(tmp_path) as second, RemotingClient() as client:
        settings: dict[str, Any] = {
            "fetch_namesrv_addr_by_address_server": True, "fetch_namesrv_addr_interval": 50,
            "namesrv_domain": "here:1234", "namesrv_domain_subgroup": "mine",
        }  # fmt: skip
        async with small_broker(tmp_path, **settings) as broker:
            await until_async(lambda: len(urls) > 1)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(broker.ready(), 0.1)
            answers.append(f"127.0.0.1:{first.port}")
            await broker.ready()
            assert set(urls) == {"http://here:1234/rocketmq/mine"}
            answers[0] = f"127.0.0.1:{first.port} ; 127.0.0.1:{second.port}"
            topic = write_header(105, topic="DefaultCluster")

            async def knows() -> bool:
                reply = await client.invoke(f"127.0.0.1:{second.port}", Command(105, fields=topic))
                return reply.code == 0 and ROUTE.loads(reply.body).broker_datas[0].master == broker.address

            await until_async(knows)


async def test_names_are_resolved_and_followed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    found = {"ns.example": ["127.0.0.2:9876", "127.0.0.1:9876"]}

    async def fake(host: str, port: int) -> list[str]:
        if host not in found:
            raise OSError(f"{host} is not known")
        return [address.replace("9876", str(port)) for address in found[host]]

    monkeypatch.setattr(name_servers, "resolve", fake)
    settings = BrokerSettings(namesrv_addr="ns.example:9876", fetch_name_srv_addr_by_dns_lookup=True)

    names = CurrentNameServers(settings)
    assert (names.looked_up, names.addresses) == (True, [])
    assert await names.refresh()
    assert names.addresses == ["127.0.0.1:9876", "127.0.0.2:9876"]
    assert not await names.refresh(), "the same again"
    del found["ns.example"]
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert not await names.refresh()
    assert names.addresses == ["127.0.0.1:9876", "127.0.0.2:9876"], "those of before stay"
    assert [record.getMessage() for record in caplog.records] == [
        "name servers cannot be looked up: ns.example is not known; trying again"
    ]
    settings.fetch_name_srv_addr_by_dns_lookup = False
    assert (names.looked_up, names.addresses) == (False, ["ns.example:9876"])


async def test_addresses_stand_for_themselves() -> None:
    assert await resolve("127.0.0.1", 80) == ["127.0.0.1:80"]
    assert await resolve("::1", 80) == ["[::1]:80"]


# --- contents of registrations
# ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("compressed", [False, True])
async def test_registrations_can_be_compressed(tmp_path: Path, *, compressed: bool) -> None:
    scripted = Scripted()
    async with scripted.server, name_server(tmp_path) as real:
        where = f"{scripted.address};127.0.0.1:{real.port}"
        async with small_broker(tmp_path, namesrv_addr=where, compressed_register=compressed) as broker:
            await broker.ready()
            (said,) = scripted.asked(103)
            header = read_header(said)
            assert header.compressed == compressed
            body = RegisterCodec(compressed=header.compressed).loads(said.body)
            assert "TBW102" in body.table.topic_config_table
            assert bytes(said.body).startswith(b"{") != compressed
            assert real.routes.route("TBW102") is not None


async def test_a_broker_need_not_repeat_what_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tianzhou.broker.registration.server_registration.SHORTEST_PERIOD_MS", 30)

    scripted = Scripted()
    async with scripted.server:
        settings: dict[str, Any] = {
            "namesrv_addr": scripted.address,
            "force_register": False,
            "register_name_server_period": 1,
        }
        async with small_broker(tmp_path, **settings) as broker:
            await broker.ready()
            await until_async(lambda: len(scripted.asked(322)) > 3)
            assert len(scripted.asked(103)) == 1
            assert DATA_VERSION.loads(scripted.asked(322)[0].body) == broker.tables.topics.version
            scripted.changed = True
            await until_async(lambda: len(scripted.asked(103)) > 2)
            scripted.changed = False
            told = len(scripted.asked(103))
            broker.tables.topics.ensure("new", 1, 1)
            await until_async(lambda: len(scripted.asked(103)) > told)


def test_a_period_that_ends_within_the_resolution_of_the_clock_ends_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds = note_rounds(monkeypatch)

    async def check() -> None:
        scripted = Scripted()
        async with scripted.server, small_broker(tmp_path, namesrv_addr=scripted.address) as broker:
            await broker.ready()
            await asyncio.sleep(1)
            loop = asyncio.get_running_loop()
            due_s = rounds[0][1] + 30
            rounds.clear()
            # At this time asyncio already fires the timer of `due_s`, and in virtual time the clock then stands still.
            await asyncio.sleep(due_s - 5e-10 - loop.time())
            await asyncio.sleep(1)
            assert [periodic for periodic, _ in rounds] == [True]
            await asyncio.sleep(30)
            assert [periodic for periodic, _ in rounds] == [True, True]

    with SharedLoop() as loop:
        loop.run(check())


async def test_a_broker_can_wait_before_it_shows_itself(tmp_path: Path) -> None:
    scripted = Scripted()
    async with scripted.server:
        later = {"disappear_time_after_start": 300}
        async with small_broker(tmp_path, later, namesrv_addr=scripted.address) as broker:
            await asyncio.sleep(0.1)
            assert scripted.asked(103) == []
            await broker.ready()
            assert len(scripted.asked(103)) == 1


# --- locks that a majority of members has to grant
# -----------------------------------------------------------------------


class Member:
    """Another broker of the same name that grants some queues."""

    def __init__(self, *granted: int) -> None:
        self.granted = set(granted)
        self.requests: list[tuple[int, LockRequest]] = []
        self.server = RemotingServer("127.0.0.1", 0, self._serve)

    def _serve(self, _: Connection, command: Command) -> Command:
        asked = LOCK_REQUEST.loads(bytes(command.body))
        self.requests.append((command.code, asked))
        granted = [queue for queue in asked.queues if queue.queue_id in self.granted]
        return command.reply(0, body=LOCKED_QUEUES.dumps(granted) if command.code == 41 else b"")


@pytest.mark.parametrize(
    ("strict", "replicas", "expected"),
    [(False, 3, [0, 1, 2]), (True, 1, [0, 1, 2]), (True, 3, [0, 1]), (True, 5, [1])],
)
async def test_a_queue_is_locked_when_most_members_grant_it(
    tmp_path: Path, *, strict: bool, replicas: int, expected: list[int]
) -> None:
    scripted, one, two = Scripted(), Member(0, 1), Member(1)
    async with scripted.server, one.server, two.server, RemotingClient() as client:
        settings: dict[str, Any] = {"namesrv_addr": scripted.address, "lock_in_strict_mode": strict}
        async with small_broker(tmp_path, {"total_replicas": replicas}, **settings) as broker:
            await broker.ready()
            scripted.members = {
                0: broker.address, 1: f"127.0.0.1:{one.server.port}", 2: f"127.0.0.1:{two.server.port}",
                3: "127.0.0.1:1",
            }  # fmt: skip
            queues = [MessageQueue("T", "broker-a", number) for number in range(3)]
            wish = LOCK_REQUEST.dumps(LockRequest("c1", "G", queues))
            reply = await client.invoke(broker.address, Command(41, body=wish))
            granted = sorted(queue.queue_id for queue in LOCKED_QUEUES.loads(reply.body))
            assert granted == expected
            alone = not strict or replicas == 1
            assert [asked.only_this_broker for _, asked in one.requests] == ([] if alone else [True])
            # A request on behalf of another member gets only this broker's answer.
            for_another = LOCK_REQUEST.dumps(LockRequest("c1", "G", queues, only_this_broker=True))
            reply = await client.invoke(broker.address, Command(41, body=for_another))
            assert len(LOCKED_QUEUES.loads(reply.body)) == 3
            assert (await client.invoke(broker.address, Command(42, body=wish))).code == 0
            assert [code for code, _ in two.requests] == ([] if alone else [41, 42])
            # Name servers are queried only from time to time.
            assert len(scripted.asked(901)) == (0 if alone else 1)


async def test_without_a_word_of_name_servers_a_broker_counts_alone(tmp_path: Path) -> None:
    async with RemotingClient() as client:
        settings: dict[str, Any] = {"namesrv_addr": "127.0.0.1:1", "lock_in_strict_mode": True}
        async with small_broker(tmp_path, {"total_replicas": 3}, **settings) as broker:
            wish = LOCK_REQUEST.dumps(LockRequest("c1", "G", [MessageQueue("T", "broker-a", 0)]))
            reply = await client.invoke(broker.address, Command(41, body=wish))
            assert (reply.code, LOCKED_QUEUES.loads(reply.body)) == (0, [])


# --- tables of many topics --------------------------------------------------------------------------------------------


class Careful(Scripted):
    """A name server that returns its settings and versions, like real ones."""

    def __init__(self) -> None:
        super().__init__()
        self.settings = "deleteTopicWithBrokerRegistration=false\n"
        self.connections: list[Connection] = []

    def _serve(self, connection: Connection, command: Command) -> Command:
        self.connections.append(connection)
        reply = super()._serve(connection, command)
        if command.code == RequestCode.GET_NAMESRV_CONFIG:
            return command.reply(0, body=self.settings.encode())
        return reply

    def told(self) -> list[set[str]]:
        """Return the topics of each registration."""
        return [set(REGISTER_BODY.loads(said.body).table.topic_config_table) for said in self.asked(103)]


async def test_of_many_topics_those_that_changed_are_registered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tianzhou.broker.registration.server_registration.MANY_TOPICS", 10)

    careful = Careful()
    async with careful.server, name_server(tmp_path) as real:
        where = f"{careful.address};127.0.0.1:{real.port}"
        async with small_broker(tmp_path, namesrv_addr=where) as broker:
            await broker.ready()
            topics, registrar = broker.tables.topics, BrokerProbe.of(broker).registrar

            async def change(*names: str) -> set[str]:
                before = len(careful.asked(103))
                for name in names:
                    topics.ensure(name, 3, 1)
                assert await registrar.settled()
                assert len(careful.asked(103)) == before + 1
                return careful.told()[-1]

            whole = careful.told()[0]
            assert len(whole) > 10
            assert await change("one") == {"one"}
            assert await change("two", "three") == {"two", "three"}
            version = REGISTER_BODY.loads(careful.asked(103)[-1].body).table.data_version
            assert version == topics.version
            # Queried before: the last registration, and whether the name server drops topics missing in a registration.
            assert DATA_VERSION.loads(careful.asked(322)[0].body) != version
            for name in ("one", "two", "three", "TBW102"):
                route = real.routes.route(name)
                assert route is not None, name
            assert real.routes.data_version("DefaultCluster", broker.address) == version

            # Where a partial registration could lose topics, all are registered.
            careful.settings = "deleteTopicWithBrokerRegistration=true\n"
            assert await change("four") == whole | {"one", "two", "three", "four"}
            careful.settings = "something=else\n"
            assert await change("five") == {"five"}
            careful.changed = True
            assert await change("six") > whole
            careful.changed = False
            topics.delete(["six"], 1)
            assert await registrar.settled()
            assert careful.told()[-1] == whole | {"one", "two", "three", "four", "five"}
            topics.touch(1)
            assert await registrar.settled()
            assert careful.told()[-1] > whole
            assert await change("seven") == {"seven"}
            # Name servers that have the topics get no further registration.
            told = len(careful.asked(103))
            registrar.request()
            assert await registrar.settled()
            assert len(careful.asked(103)) == told


async def test_everything_is_registered_again_after_a_lost_connection_and_every_period(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tianzhou.broker.registration.server_registration.MANY_TOPICS", 10)
    monkeypatch.setattr("tianzhou.broker.registration.server_registration.SHORTEST_PERIOD_MS", 50)

    careful = Careful()
    async with careful.server:
        # One of them never runs, but the others still get the registration.
        where = f"{careful.address};127.0.0.1:1"
        async with small_broker(tmp_path, namesrv_addr=where, register_name_server_period=1) as broker:
            await broker.ready()
            whole = careful.told()[0]
            monkeypatch.setattr("tianzhou.broker.registration.server_registration.RETRY_S", 0.02)
            await until_async(lambda: len(careful.told()) > 2)
            monkeypatch.setattr("tianzhou.broker.registration.server_registration.SHORTEST_PERIOD_MS", 60_000)
            told = len(careful.told())
            careful.connections[-1].abort()
            await until_async(lambda: len(careful.told()) > told)
            assert careful.told()[-1] == whole


# --- name servers with invalid replies
# ----------------------------------------------------------------------------------


@pytest.mark.parametrize("nonsense", [b"{not json", b"[1,2]", b'{"table":[3]}', b'{"table":{"T":{"a":1}}}', bytes(9)])
async def test_a_reply_nobody_can_read_keeps_no_broker_from_registering_there_and_elsewhere(
    tmp_path: Path, nonsense: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tianzhou.broker.registration.server_registration.SHORTEST_PERIOD_MS", 50)
    bad, good = Scripted(), Scripted()
    bad.taken = nonsense
    code = RequestCode.REGISTER_BROKER

    async with bad.server, good.server:
        addresses = f"{bad.address};{good.address}"
        async with small_broker(tmp_path, namesrv_addr=addresses, register_name_server_period=50) as broker:
            await broker.ready()
            await until_async(lambda: len(bad.asked(code)) > 2 and len(good.asked(code)) > 2)
            await until_async(lambda: [one.name for one in broker.troubles.present()])
            assert [one.name for one in broker.troubles.present()] == [f"registration at {bad.address}"]
            bad.taken = b""
            await until_async(lambda: not broker.troubles.present())
        assert broker.left_undone == []


async def test_a_defect_in_registering_at_one_name_server_leaves_the_others_and_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tianzhou.broker.registration.server_registration.RETRY_S", 0.05)
    bad, good = Scripted(), Scripted()
    failures = 2

    async def register(self: ServerRegistration, body: bytes) -> bool:
        nonlocal failures
        if self.address == bad.address and failures:
            failures -= 1
            raise KeyError("a defect")
        return await real(self, body)

    real = register_by(monkeypatch, register)

    async with bad.server, good.server:
        async with small_broker(tmp_path, namesrv_addr=f"{bad.address};{good.address}"):
            await until_async(lambda: good.asked(RequestCode.REGISTER_BROKER))
            await until_async(lambda: bad.asked(RequestCode.REGISTER_BROKER))
        assert failures == 0
