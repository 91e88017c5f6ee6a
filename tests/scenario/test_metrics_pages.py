"""Pages of metrics and probes of whole servers: access, contents, addresses."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import urllib.error
import urllib.request
from dataclasses import replace
from pathlib import Path

import pytest
from authority import Authority, certified
from small_broker import name_server, run, small_broker

from tianzhou.client import Producer
from tianzhou.embedded import EmbeddedServer, EmbeddedSettings, page_port
from tianzhou.errors import ConfigError
from tianzhou.model import Message

pytestmark = pytest.mark.runner.with_args(run)
PAGE = {"metricsExporterType": "PROM", "metricsPromExporterPort": "0"}
ACCOUNTS = """
accounts:
- accessKey: prometheus
  secretKey: prometheus-secret
"""


async def fetch(address: str, path: str = "/metrics", who: tuple[str, str] | None = None) -> tuple[int, str]:
    def get() -> tuple[int, str]:
        request = urllib.request.Request(f"http://{address}{path}")
        if who is not None:
            request.add_header("Authorization", "Basic " + base64.b64encode(":".join(who).encode()).decode())
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    return await asyncio.to_thread(get)


def settings(folder: Path, **values: str) -> EmbeddedSettings:
    return EmbeddedSettings(folder, namesrv_port=0, broker_port=0, values=PAGE | values)


async def test_both_servers_show_their_pages_on_loopback(tmp_path: Path) -> None:
    async with EmbeddedServer(settings(tmp_path)) as server:
        async with Producer("p", server.namesrv_address) as producer:
            await producer.send(Message("orders", b"x"))
        broker, names = server.broker.metrics_address, server.namesrv.metrics_address
        assert broker.startswith("127.0.0.1:")
        assert names.startswith("127.0.0.1:")
        status, page = await fetch(broker)
        assert status == 200
        in_ = 'rocketmq_messages_in_total{cluster="DefaultCluster",node_type="broker",node_id="broker-a",topic="orders"'
        assert in_ in page
        assert 'request_code="send_message",response_code="success"' in page
        status, page = await fetch(names)
        assert (status, "tianzhou_namesrv_brokers{" in page) == (200, True)
        assert json.loads((await fetch(broker, "/readyz"))[1])["ready"] is True
        assert json.loads((await fetch(names, "/readyz"))[1])["ready"] is True
        server.broker.settings.broker_permission = 4
        status, body = await fetch(broker, "/readyz")
        assert status == 503
        assert "brokerPermission=4" in json.loads(body)["reasons"][0]
        assert await fetch(broker, "/healthz") == (200, "ok\n")


async def test_without_the_setting_there_is_no_page(tmp_path: Path) -> None:
    async with EmbeddedServer(EmbeddedSettings(tmp_path, namesrv_port=0, broker_port=0)) as server:
        assert server.metrics_address == server.namesrv.metrics_address == ""


async def test_a_broker_without_its_name_server_is_not_ready_and_says_so(tmp_path: Path) -> None:
    async with name_server(tmp_path) as names:
        namesrv = f"127.0.0.1:{names.port}"
        page = {"metrics_exporter_type": "PROM", "metrics_prom_exporter_port": 0}
        async with small_broker(tmp_path, namesrv_addr="127.0.0.1:1", **page) as lonely:
            status, body = await fetch(lonely.metrics_address, "/readyz")
            assert status == 503
            assert "no name server knows it yet" in json.loads(body)["reasons"][0]
        async with small_broker(tmp_path, name="broker-b", namesrv_addr=namesrv, **page) as found:
            await found.ready()
            assert (await fetch(found.metrics_address, "/readyz"))[0] == 200


async def test_with_accounts_the_page_needs_one(tmp_path: Path) -> None:
    (tmp_path / "plain_acl.yml").write_text(ACCOUNTS)
    async with EmbeddedServer(settings(tmp_path, aclEnable="true")) as server:
        for address in (server.broker.metrics_address, server.namesrv.metrics_address):
            assert (await fetch(address))[0] == 401
            assert (await fetch(address, who=("prometheus", "wrong")))[0] == 403
            assert (await fetch(address, who=("nobody", "prometheus-secret")))[0] == 403
            assert (await fetch(address, who=("prometheus", "prometheus-secret")))[0] == 200
            assert await fetch(address, "/healthz") == (200, "ok\n")
            assert json.loads((await fetch(address, "/readyz"))[1]) == {"ready": True}
        assert server.broker.tables.refusals.counts["access"] >= 2


async def test_addresses_on_the_white_list_need_no_account(tmp_path: Path) -> None:
    (tmp_path / "plain_acl.yml").write_text("globalWhiteRemoteAddresses: [127.0.0.1]\n" + ACCOUNTS)
    async with EmbeddedServer(settings(tmp_path, aclEnable="true")) as server:
        assert (await fetch(server.metrics_address))[0] == 200


async def test_users_need_to_be_allowed_to_look_at_the_cluster(tmp_path: Path) -> None:
    values = {
        "authenticationEnabled": "true", "authorizationEnabled": "true",
        "initAuthenticationUser": '{"username":"root","password":"root-secret"}',
    }  # fmt: skip
    async with EmbeddedServer(settings(tmp_path, **values)) as server:
        address = server.broker.metrics_address
        assert (await fetch(address))[0] == 401
        assert (await fetch(address, who=("root", "wrong")))[0] == 403
        assert (await fetch(address, who=("root", "root-secret")))[0] == 200


@pytest.mark.parametrize(("allowed", "status"), [("127.0.0.0/8", 200), ("10.0.0.0/8", 403), ("::1,10.1.1.1", 403)])
async def test_named_addresses_need_no_account_and_others_get_nothing(
    tmp_path: Path, allowed: str, status: int
) -> None:
    (tmp_path / "plain_acl.yml").write_text(ACCOUNTS)
    async with EmbeddedServer(settings(tmp_path, aclEnable="true", metricsAllowedAddresses=allowed)) as server:
        assert (await fetch(server.metrics_address))[0] == status
        assert (await fetch(server.metrics_address, who=("prometheus", "prometheus-secret")))[0] == status


async def test_servers_that_enforce_tls_show_their_pages_by_https(tmp_path: Path) -> None:
    certificates, data = tmp_path / "certificates", tmp_path / "data"
    certificates.mkdir()
    authority = Authority(certificates)
    tls = replace(certified(authority), server_mode="enforcing", client_auth_server=True,
                  client_trust_cert_path=str(authority.path))  # fmt: skip
    async with EmbeddedServer(settings(data), tls=tls) as server:
        trust = ssl.create_default_context(cafile=str(authority.path))
        for one in (server.broker, server.namesrv):
            assert one.metrics_url == f"https://{one.metrics_address}/metrics"

            def get(url: str) -> str:
                with urllib.request.urlopen(url, timeout=10, context=trust) as answer:
                    return str(answer.read().decode())

            assert "tianzhou_build_info{" in await asyncio.to_thread(get, one.metrics_url)
            assert await asyncio.to_thread(get, f"https://{one.metrics_address}/healthz") == "ok\n"
            status, words = await fetch(one.metrics_address)
            assert (status, "https://" in words) == (400, True)
    plain = replace(tls, metrics_enable=False)
    async with EmbeddedServer(settings(data), tls=plain) as server:
        assert server.metrics_url == f"http://{server.metrics_address}/metrics"
        assert (await fetch(server.metrics_address))[0] == 200


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("metricsExporterType", "OTLP_GRPC", "metricsGrpcExporterTarget"),
        ("metricsExporterType", "STATSD", "DISABLE"),
        ("metricsAllowedAddresses", "prometheus.example", "10.0.0.7"),
        ("metricsLabel", "cluster:x", "taken"),
        ("metricsLabel", "region", "name:value"),
        ("metricsPromExporterPort", "70000", "at most"),
    ],
)
async def test_what_cannot_be_is_refused_with_words(tmp_path: Path, key: str, value: str, words: str) -> None:
    with pytest.raises(ConfigError, match=key) as caught:
        async with EmbeddedServer(settings(tmp_path, **{key: value})):
            pass
    assert words in str(caught.value)


def test_processes_of_one_command_have_ports_of_their_own() -> None:
    assert page_port({}, -1) == {"metricsPromExporterPort": "5556"}
    assert page_port({}, 2) == {"metricsPromExporterPort": "5559"}
    assert page_port({"metricsPromExporterPort": "9000"}, 1) == {"metricsPromExporterPort": "9001"}
    assert page_port({"metricsPromExporterPort": "0"}, 1) == {}
