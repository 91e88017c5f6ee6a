"""Our client over TLS against Apache's name server and broker 5.3.3, which accept only TLS and check client
certificates.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from apache import ApacheBroker, ApacheNamesrv
from at_once import Outcomes, outcomes, selected, tell
from authority import Authority, certified, trusting
from client_suite import CHECKS, DELAY_LEVELS, FIRST, Check, fresh
from toolchain import ToolchainMissingError

from tianzhou import Message, Producer, PushConsumer, SendStatus
from tianzhou.admin import Admin
from tianzhou.client.cluster.tls import CONFIG_FILE_ENV, ENABLE_ENV
from tianzhou.errors import TianzhouError
from tianzhou.remoting.tls import TlsSettings
from waiting import until_async

pytestmark = pytest.mark.slow


class Apache:
    """Both servers with certificates of one authority; clients must present theirs."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority(folder)
        self.identity = certified(self.authority)
        certificate, key = self.authority.issue("client")
        self.client = replace(trusting(self.authority), client_cert_path=certificate, client_key_path=key)
        client_keys = [
            "tls.test.mode.enable=false",
            "tls.client.authServer=true",
            f"tls.client.trustCertPath={self.authority.path}",
            f"tls.client.certPath={certificate}",
            f"tls.client.keyPath={key}",
        ]
        server_keys = [
            "tls.server.need.client.auth=require",
            "tls.server.authClient=true",
            f"tls.server.trustCertPath={self.authority.path}",
            f"tls.server.certPath={self.identity.server_cert_path}",
            f"tls.server.keyPath={self.identity.server_key_path}",
        ]
        self.client_file = folder / "client.tls"
        self.client_file.write_text("\n".join(client_keys) + "\n")
        server_file = folder / "server.tls"
        server_file.write_text("\n".join([*client_keys, *server_keys]) + "\n")
        properties = {
            "tls.server.mode": "enforcing",
            "tls.enable": "true",
            "tls.test.mode.enable": "false",
            "tls.config.file": server_file,
        }
        self.namesrv = ApacheNamesrv(properties=properties)
        self.address = self.namesrv.address
        self.broker = ApacheBroker(self.address, conf={"messageDelayLevel": DELAY_LEVELS}, properties=properties)
        self.broker.tls_identity = (certificate, key)

    def start(self) -> None:
        self.namesrv.start()
        self.broker.start()

    def end(self) -> None:
        for server in (self.broker, self.namesrv):
            server.kill()
            server._remove_home()


@pytest.fixture(scope="module")
def apache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Apache]:
    made = Apache(tmp_path_factory.mktemp("tls"))
    try:
        made.start()
        yield made
    except ToolchainMissingError as error:
        pytest.skip(str(error))
    finally:
        made.end()


@pytest.fixture(scope="module")
def ran(apache: Apache, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    """Return the outcomes of the suite's checks, with TLS as the default of all clients."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(ENABLE_ENV, "true")
        patch.setenv(CONFIG_FILE_ENV, str(apache.client_file))
        return outcomes(selected(request), apache.address, tmp_path_factory.mktemp("checks"))


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_everything_works_over_tls_with_apache(check: Check, ran: Outcomes) -> None:
    tell(ran, check)


async def test_apache_refuses_who_is_plain_or_unknown(apache: Apache) -> None:
    for tls in (False, True, trusting(apache.authority)):
        async with Admin(apache.address, tls=tls) as admin:
            with pytest.raises(TianzhouError):
                await admin.topics.names()
    async with Admin(apache.address, tls=apache.client) as admin:
        assert await admin.topics.names()


def test_who_lives_through_a_change_of_apaches_certificates_goes_on(apache: Apache, tmp_path: Path) -> None:
    """Last in this file, because the servers have other certificates afterwards."""
    new = Authority(tmp_path, "new")
    both = ssl.create_default_context(cafile=str(apache.authority.path))
    both.check_hostname = False
    both.load_verify_locations(str(new.path))
    both.load_cert_chain(apache.client.client_cert_path, apache.client.client_key_path)

    async def knows_the_new(tls: TlsSettings) -> bool:
        async with Admin(apache.address, tls=tls) as admin:
            try:
                return bool(await admin.topics.names())
            except TianzhouError:
                return False

    async def main() -> None:
        topic, seen = fresh("T"), []
        async with Admin(apache.address, tls=both) as admin:
            await admin.topics.create(topic, read_queue_nums=1, write_queue_nums=1)
        consumer = PushConsumer(fresh("G"), apache.address, tls=both, consume_from_where=FIRST)
        consumer.subscribe(topic, handler=lambda message: seen.append(message.body))
        async with Producer(fresh("P"), apache.address, tls=both) as producer, consumer:
            await producer.send(Message(topic, b"old"))
            await until_async(lambda: seen == [b"old"], "it came")
            for path, source in zip(apache.identity.server_identity, new.issue("fresh"), strict=False):
                Path(path).write_bytes(Path(source).read_bytes())
            only_new = replace(apache.client, client_trust_cert_path=str(new.path))
            await until_async(lambda: knows_the_new(only_new), "the new certificate is in force", within_s=30)
            for client in (producer, consumer):
                for peer in (apache.address, *client.instance.routes.addresses()):
                    connection = client.instance.remoting.connected(peer)
                    if connection is not None:
                        connection.abort()
            assert (await producer.send(Message(topic, b"new"))).status is SendStatus.SEND_OK
            await until_async(lambda: seen == [b"old", b"new"], "it works again")

    asyncio.run(asyncio.wait_for(main(), 120))
