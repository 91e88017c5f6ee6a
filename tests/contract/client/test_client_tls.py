"""Our client over TLS against our own servers that accept only TLS."""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from authority import Authority, certified, trusting
from client_suite import CHECKS, FIRST, Check, fresh, make_topic
from consumer_suite import CHECKS as CONSUMER_CHECKS
from own_server import own_server

from broker_probe import ConnectionProbe
from shared_loop import SharedLoop
from tianzhou import Message, Producer, PullConsumer, PushConsumer, SendStatus, TransactionProducer, sync
from tianzhou.admin import Admin
from tianzhou.client import ClientInstance
from tianzhou.client.cluster.tls import CONFIG_FILE_ENV, ENABLE_ENV
from tianzhou.errors import ConfigError, TianzhouError
from tianzhou.model import TransactionState
from tianzhou.remoting.tls import TlsSettings
from waiting import until_async

ENFORCING = TlsSettings("enforcing", enable=True)


def enforcing(folder: Path, tls: TlsSettings = ENFORCING) -> AbstractAsyncContextManager[str]:
    return own_server(folder / "server", tls=replace(tls, server_mode="enforcing", enable=True))


def context(authority: Authority, *, host_names: bool = False) -> ssl.SSLContext:
    made = ssl.create_default_context(cafile=str(authority.path))
    made.check_hostname = host_names
    return made


@pytest.fixture(scope="module")
def namesrv(shared_loop: SharedLoop, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the address of a name server that accepts TLS connections only; so does its broker."""
    return shared_loop.open(enforcing(tmp_path_factory.mktemp("servers")))


@pytest.mark.parametrize("check", [*CHECKS, *CONSUMER_CHECKS], ids=lambda check: check.__name__)
async def test_everything_works_over_tls(
    check: Check, namesrv: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ENABLE_ENV, "true")

    async with asyncio.timeout(120):
        await check(namesrv, tmp_path / "client")


async def test_every_client_takes_every_form_of_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path)

    async with asyncio.timeout(60), enforcing(tmp_path, certified(authority)) as namesrv:
        for tls in (True, context(authority), trusting(authority)):
            topic, seen = fresh("T"), []
            async with Admin(namesrv, tls=tls) as admin:
                await admin.topics.create(topic, read_queue_nums=1, write_queue_nums=1)
            consumer = PushConsumer(fresh("G"), namesrv, tls=tls, consume_from_where=FIRST)
            consumer.subscribe(topic, handler=lambda message, seen=seen: seen.append(message.body))
            async with consumer, Producer(fresh("P"), namesrv, tls=tls) as producer:
                await producer.send(Message(topic, b"plainly"))
                async with TransactionProducer(
                    fresh("P"), namesrv, check=lambda _: TransactionState.COMMIT, tls=tls
                ) as both:
                    await both.send_in_transaction(Message(topic, b"both"), lambda *_: TransactionState.COMMIT)
                await until_async(lambda seen=seen: sorted(seen) == [b"both", b"plainly"], "they came")
            async with PullConsumer(fresh("G"), namesrv, tls=tls, consume_from_where=FIRST) as reader:
                reader.assign(await reader.queues(topic))
                assert [message.body for message in await reader.poll(10_000)][:1] == [b"plainly"]


async def test_the_blocking_twins_take_it_as_well(tmp_path: Path) -> None:
    def blocking(namesrv: str) -> None:
        topic = fresh("T")
        with sync.Admin(namesrv, tls=True) as admin, sync.Producer(fresh("P"), namesrv, tls=True) as producer:
            admin.topics.create(topic)
            assert producer.send(Message(topic, b"x")).status is SendStatus.SEND_OK
        with sync.PullConsumer(fresh("G"), namesrv, tls=True, consume_from_where=FIRST) as reader:
            reader.assign(reader.queues(topic))
            assert [message.body for message in reader.poll(10_000)] == [b"x"]

    async with asyncio.timeout(60), enforcing(tmp_path) as namesrv:
        await asyncio.to_thread(blocking, namesrv)


async def test_plain_is_refused_by_who_enforces_and_no_excuse_for_another_tls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority, other = Authority(tmp_path), Authority(tmp_path, "other")
    monkeypatch.setenv(ENABLE_ENV, "true")

    async def refused(namesrv: str, says: str, **options: Any) -> None:
        async with Admin(namesrv, **options) as admin:
            with pytest.raises(TianzhouError, match=says):
                await admin.topics.names()

    async with asyncio.timeout(60), enforcing(tmp_path, certified(authority, hosts=())) as namesrv:
        await refused(namesrv, "connection", tls=False)
        await refused(namesrv, r"is not trusted .*have the ssl\.SSLContext given as tls", tls=context(other))
        await refused(namesrv, r"is not trusted .*trustCertPath", tls=trusting(other))
        await refused(
            namesrv, r"is not trusted .*a name the certificate is for", tls=context(authority, host_names=True)
        )


async def test_the_configuration_file_of_the_environment_says_whom_to_trust(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority, other = Authority(tmp_path), Authority(tmp_path, "other")
    file = tmp_path / "tls.properties"
    monkeypatch.setenv(CONFIG_FILE_ENV, str(file))

    async with asyncio.timeout(60), enforcing(tmp_path, certified(authority)) as namesrv:
        for trusted, believed in ((authority, True), (other, False)):
            file.write_text(f"tls.client.authServer=true\ntls.client.trustCertPath={trusted.path}\n")
            async with Admin(namesrv, tls=True) as admin:
                if believed:
                    assert await admin.topics.names()
                else:
                    with pytest.raises(TianzhouError, match="is not trusted"):
                        await admin.topics.names()


async def test_a_server_knows_its_clients_by_their_certificates(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.issue("client", password="sesame")
    known = replace(
        trusting(authority), client_cert_path=certificate, client_key_path=key, client_key_password="sesame"
    )
    # The broker is a client of the name server, and shows the same certificate.
    server = replace(
        known,
        server_cert_path=certified(authority).server_cert_path,
        server_key_path=certified(authority).server_key_path,
        need_client_auth="require",
        server_auth_client=True,
        server_trust_cert_path=str(authority.path),
    )

    async with asyncio.timeout(60), enforcing(tmp_path, server) as namesrv:
        topic = fresh("T")
        async with Admin(namesrv, tls=known) as admin, Producer(fresh("P"), namesrv, tls=known) as producer:
            await admin.topics.create(topic)
            assert (await producer.send(Message(topic, b"x"))).status is SendStatus.SEND_OK
        async with Admin(namesrv, tls=trusting(authority)) as nobody:
            with pytest.raises(TianzhouError):
                await nobody.topics.names()


async def test_who_lives_through_a_change_of_certificates_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Both authorities are trusted while certificates change, as in a real rotation; in the end the old one is not in
    use.
    """
    old, new = Authority(tmp_path, "old"), Authority(tmp_path, "new")
    settings = certified(old)
    both = context(old)
    both.load_verify_locations(str(new.path))

    caplog.set_level(logging.INFO, "tianzhou.remoting.tls")
    async with asyncio.timeout(60), enforcing(tmp_path, settings) as namesrv:
        topic, seen = fresh("T"), []
        async with Admin(namesrv, tls=both) as admin:
            await admin.topics.create(topic, read_queue_nums=1, write_queue_nums=1)
        consumer = PushConsumer(fresh("G"), namesrv, tls=both, consume_from_where=FIRST)
        consumer.subscribe(topic, handler=lambda message: seen.append(message.body))
        async with Producer(fresh("P"), namesrv, tls=both) as producer, consumer:
            await producer.send(Message(topic, b"old"))
            await until_async(lambda: seen == [b"old"], "it came")
            for path, fresh_one in zip(settings.server_identity, new.issue("fresh"), strict=False):
                Path(path).write_bytes(Path(fresh_one).read_bytes())
            await until_async(lambda: caplog.text.count("are in force") == 2, "name server and broker changed")
            await producer.send(Message(topic, b"over the old connection"))
            for client in (producer, consumer):
                for address in (namesrv, *client.instance.routes.addresses()):
                    connection = client.instance.remoting.connected(address)
                    if connection is not None:
                        connection.abort()
            await producer.send(Message(topic, b"new"))
            # Handlers in threads may end in another order than they began.
            await until_async(lambda: sorted(seen) == [b"new", b"old", b"over the old connection"], "it works again")
        async with Admin(namesrv, tls=context(old)) as admin:
            with pytest.raises(TianzhouError, match="is not trusted"):
                await admin.topics.names()
        async with Admin(namesrv, tls=context(new)) as admin:
            assert topic in await admin.topics.names()


@pytest.mark.parametrize(
    ("tls", "environment", "says"),
    [
        (None, {ENABLE_ENV: "yes"}, "TIANZHOU_TLS_ENABLE=yes: expected true or false"),
        (
            True,
            {CONFIG_FILE_ENV: "away.properties"},
            "TIANZHOU_TLS_CONFIG_FILE: tls.config.file=away.properties: No such",
        ),
        ("true", {}, "tls='true': expected True, False, an ssl.SSLContext or TlsSettings"),
        (TlsSettings(client_auth_server=True), {}, "test_mode_enable trusts everybody"),
        (TlsSettings(client_trust_cert_path="ca.pem"), {}, "test_mode_enable trusts everybody"),
        (
            TlsSettings(test_mode_enable=False, client_auth_server=True, client_trust_cert_path="away.pem"),
            {},
            "tls.client.trustCertPath=away.pem: No such file",
        ),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_sent(
    tls: Any, environment: dict[str, str], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=says):
        Producer("P", "127.0.0.1:9", tls=tls)


async def test_an_instance_decides_for_who_shares_it() -> None:
    makers: list[Callable[..., object]] = [
        lambda **options: Producer("P", **options),
        lambda **options: PushConsumer("G", **options),
        lambda **options: PullConsumer("G", **options),
        Admin,
    ]

    async with ClientInstance("127.0.0.1:9") as plain:
        for make in makers:
            with pytest.raises(ConfigError, match="give tls to the ClientInstance"):
                make(instance=plain, tls=True)
            make(instance=plain)


async def test_plain_and_tls_clients_of_one_process_have_connections_of_their_own(tmp_path: Path) -> None:
    async with asyncio.timeout(60), own_server(tmp_path / "server") as namesrv:
        topic = await make_topic(namesrv)
        async with Producer("P", namesrv) as plain, Producer("P", namesrv, tls=True) as secure:
            for producer, encrypted in ((plain, False), (secure, True), (plain, False)):
                sent = await producer.send(Message(topic, os.urandom(8)))
                address = producer.instance.routes.master(sent.queue.broker_name)
                connection = producer.instance.remoting.connected(address)
                assert connection is not None
                assert (ConnectionProbe(connection).cipher is not None) is encrypted
