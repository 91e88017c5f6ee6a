"""The embedded server: its addresses and folders, and readiness that means usable."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from authority import Authority, certified, trusting

from store_probe import StoreProbe
from tianzhou.broker.server import free_port_pair
from tianzhou.client import Producer, PullConsumer
from tianzhou.data_folder import LAYOUT
from tianzhou.embedded import (
    SEGMENT_BYTES,
    EmbeddedServer,
    EmbeddedSettings,
    advertised_address,
    check_advertised,
)
from tianzhou.errors import BrokerError, ConfigError, StoreLocked, TianzhouError
from tianzhou.model import Message, SendStatus
from tianzhou.remoting.tls import TlsSettings


def settings(data: Path, **changes: Any) -> EmbeddedSettings:
    return replace(EmbeddedSettings(data, namesrv_port=0, broker_port=0), **changes)


def served(one: EmbeddedSettings, work: Callable[[EmbeddedServer], Coroutine[Any, Any, Any]]) -> Any:
    async def main() -> Any:
        async with EmbeddedServer(one) as server:
            return await work(server)

    return asyncio.run(asyncio.wait_for(main(), 30))


async def send(server: EmbeddedServer, *bodies: bytes) -> list[SendStatus]:
    async with Producer("tests", server.namesrv_address) as producer:
        return [(await producer.send(Message("orders", body))).status for body in bodies]


async def read(server: EmbeddedServer) -> list[bytes]:
    found = []
    async with PullConsumer("tests", server.namesrv_address) as consumer:
        for queue in await consumer.queues("orders"):
            if await consumer.max_offset(queue):
                found += [message.body for message in (await consumer.pull(queue, 0)).messages]
    return sorted(found)


# --- addresses -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "advertise", "told"),
    [
        ("127.0.0.1", "", "127.0.0.1"),
        ("localhost", "", "localhost"),
        ("::1", "", "[::1]"),
        ("127.0.0.1", "localhost", "localhost"),
        ("127.0.0.1", "127.0.0.9", "127.0.0.9"),
        ("0.0.0.0", "127.0.0.1", "127.0.0.1"),
        ("0.0.0.0", "203.0.113.9", "203.0.113.9"),  # a container's outside address
        ("::", "2001:db8::9", "[2001:db8::9]"),
        ("203.0.113.9", "198.51.100.7", "198.51.100.7"),
    ],
)
def test_clients_get_an_address_they_may_be_able_to_reach(host: str, advertise: str, told: str) -> None:
    assert advertised_address(host, advertise) == told


def test_listening_everywhere_an_address_of_this_machine_is_advertised() -> None:
    told = advertised_address("0.0.0.0", "")
    with socket.socket() as probe:
        probe.bind((told, 0))


@pytest.mark.parametrize(
    ("host", "advertise", "text"),
    [
        ("0.0.0.0", "0.0.0.0", "nobody can connect to it; give this machine's address"),
        ("0.0.0.0", "0.1.2.3", "nobody can connect to it"), ("0.0.0.0", "::", "nobody can connect to it"),
        ("0.0.0.0", "255.255.255.255", "nobody can connect to it"),
        ("0.0.0.0", "240.0.0.1", "nobody can connect to it"), ("0.0.0.0", "239.1.2.3", "nobody can connect to it"),
        ("0.0.0.0", "ff02::1", "nobody can connect to it"), ("0.0.0.0", "two words", "does not resolve"),
        ("0.0.0.0", "127.0.0.1:10911", "without a port"), ("0.0.0.0", "x" * 300, "does not resolve"),
        ("127.0.0.1", "203.0.113.9", "listen on loopback only"),
        ("localhost", "203.0.113.9", "listen on loopback only"),
        ("203.0.113.9", "127.0.0.1", "give 203.0.113.9, or listen on 0.0.0.0"),
    ],
)  # fmt: skip
def test_addresses_nobody_can_reach_are_refused(host: str, advertise: str, text: str) -> None:
    with pytest.raises(ConfigError) as refused:
        advertised_address(host, advertise)
    assert str(refused.value).startswith(f"--advertise {advertise}: ")
    assert text in str(refused.value)


def test_the_key_of_a_file_is_named_as_well() -> None:
    with pytest.raises(ConfigError, match=r"^broker.conf: brokerIP1=0.0.0.0: nobody"):
        check_advertised("broker.conf: brokerIP1=0.0.0.0", "0.0.0.0", "0.0.0.0")


@pytest.mark.parametrize("broker", [30_911, 30_913])
def test_two_of_its_own_ports_may_not_be_the_same(tmp_path: Path, broker: int) -> None:
    with pytest.raises(ConfigError, match="--namesrv-port 30911: the broker takes it"):
        EmbeddedServer(EmbeddedSettings(tmp_path / "data", namesrv_port=30_911, broker_port=broker))


def test_a_pair_of_ports_is_free() -> None:
    port = free_port_pair("127.0.0.1")
    first, last = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    for number in range(port - 2, port + 2):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", number))
        assert not first <= number <= last or last - first > 60_000, "outgoing connections may take it"
    with pytest.raises(ConfigError, match="cannot listen on two words"):
        free_port_pair("two words")


def port_below_ephemeral_ones() -> int:
    """Return a free port, with a free fast port, that no other process gets as a random free port meanwhile."""
    for number in range(20_000 + os.getpid() % 9_000, 32_000, 7):
        with (
            contextlib.suppress(OSError),
            socket.create_server(("127.0.0.1", number)),
            socket.create_server(("127.0.0.1", number - 2)),
        ):
            return number
    raise AssertionError("no free port between 20000 and 32000")


@pytest.mark.parametrize("port", ["namesrv_port", "broker_port"])
def test_a_port_that_is_taken_is_named_with_its_flag_and_nothing_stays_open(tmp_path: Path, port: str) -> None:
    number = port_below_ephemeral_ones()
    refused = pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1:{number}: the port is taken.*--{port[:4]}")
    with socket.create_server(("127.0.0.1", number)), refused:
        served(settings(tmp_path / "data", **{port: number}), read)
    assert served(settings(tmp_path / "data", **{port: number}), lambda server: send(server, b"x"))


# --- folders -------------------------------------------------------------------------------------------------


def test_a_new_folder_is_made_marked_and_used_again(tmp_path: Path) -> None:
    data = tmp_path / "deep" / "data"
    assert served(settings(data), lambda server: send(server, b"one")) == [SendStatus.SEND_OK]
    assert json.loads((data / "tianzhou.json").read_text()) == {"layout": LAYOUT}
    assert not (data / "store" / "abort").exists()
    assert served(settings(data), read) == [b"one"]


def test_a_store_put_into_the_folder_is_taken_over(tmp_path: Path) -> None:
    served(settings(tmp_path / "one"), lambda server: send(server, b"one"))
    (tmp_path / "two" / ".hidden").mkdir(parents=True)
    (tmp_path / "two" / "lost+found").mkdir()
    (tmp_path / "one" / "store").rename(tmp_path / "two" / "store")
    assert served(settings(tmp_path / "two"), read) == [b"one"]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b'{"layout": 4}', "written by a newer Tianzhou (layout 4, this version knows 3); upgrade"),
        (b'{"layout": 3, "members": 3}', "holds a group of 3 members, of which no single broker may serve one"),
        (b'{"layout": 3}', "its tianzhou.json is damaged"),
        (b"{}", "its tianzhou.json is damaged"),
        (b"[]", "its tianzhou.json is damaged"),
        (b'{"layout": "new"}', "its tianzhou.json is damaged"),
        (b"\xff\xfe\0", "its tianzhou.json is damaged"),
        (b"", "its tianzhou.json is damaged"),
    ],
)
def test_a_mark_that_says_something_else_is_respected(tmp_path: Path, content: bytes, text: str) -> None:
    (tmp_path / "tianzhou.json").write_bytes(content)
    with pytest.raises(ConfigError) as refused:
        served(settings(tmp_path), read)
    assert text in str(refused.value)
    assert [path.name for path in tmp_path.iterdir()] == ["tianzhou.json"]


@pytest.mark.parametrize(
    ("made", "data", "text"),
    [
        ("thesis/thesis.txt", "thesis", "holds things that are not the server's (thesis.txt)"),
        ("other/commitlog/x", "other", "is itself a store of RocketMQ; move it to"),
        ("file", "file", "is no folder; give an empty or a new one"),
        ("file", "file/below", "cannot be used (Not a directory)"),
    ],
)
def test_what_belongs_to_something_else_is_left_alone(tmp_path: Path, made: str, data: str, text: str) -> None:
    (tmp_path / made).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / made).write_text("years of work")
    with pytest.raises(ConfigError) as refused:
        served(settings(tmp_path / data), read)
    assert text in str(refused.value)
    assert (tmp_path / made).read_text() == "years of work"
    assert not (tmp_path / data / "tianzhou.json").exists()


def test_a_folder_in_use_is_refused_and_its_server_undisturbed(tmp_path: Path) -> None:
    async def work(server: EmbeddedServer) -> list[bytes]:
        with pytest.raises(StoreLocked, match=r"--data .*; stop that server, or give another folder"):
            await EmbeddedServer(settings(tmp_path / "data")).__aenter__()
        await send(server, b"one")
        return await read(server)

    assert served(settings(tmp_path / "data"), work) == [b"one"]


# --- serving -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "0.0.0.0"])
def test_ready_means_a_client_can_use_it_at_once(tmp_path: Path, host: str) -> None:
    if host == "::1" and not _has_ipv6():
        pytest.skip("no IPv6 on this machine")

    async def work(server: EmbeddedServer) -> list[bytes]:
        assert await send(server, b"one", b"two") == [SendStatus.SEND_OK] * 2
        return await read(server)

    assert served(settings(tmp_path / "data", host=host), work) == [b"one", b"two"]


def test_it_keeps_small_segments_and_deletes_nothing_by_itself(tmp_path: Path) -> None:
    async def work(server: EmbeddedServer) -> None:
        store = server.broker.store_settings
        assert store.mapped_file_size_commit_log == SEGMENT_BYTES
        assert not store.clean_file_forcibly_enable
        await send(server, b"one")

    served(settings(tmp_path / "data"), work)
    (segment,) = (tmp_path / "data" / "store" / "commitlog").iterdir()
    assert segment.stat().st_size == SEGMENT_BYTES


@pytest.mark.parametrize(("free", "accepted"), [(6 << 30, True), (4 << 30, False)])
def test_a_nearly_full_disk_takes_messages_while_gigabytes_are_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, accepted: bool
) -> None:
    usage = SimpleNamespace(total=1 << 40, used=(1 << 40) - free, free=free)
    monkeypatch.setattr("tianzhou.store.upkeep.cleaner.shutil.disk_usage", lambda _: usage)

    async def work(server: EmbeddedServer) -> None:
        store = server.broker.store
        await StoreProbe(store).check_space()
        assert store.writable is accepted
        if accepted:
            assert await send(server, b"one") == [SendStatus.SEND_OK]
        else:
            with pytest.raises(BrokerError, match=r"diskSpaceEnoughFreeBytes=5368709120 \(5.0 GiB\)"):
                await send(server, b"one")

    served(settings(tmp_path / "data"), work)


def test_an_acknowledgement_can_wait_for_the_disk(tmp_path: Path) -> None:
    one = settings(tmp_path / "data", flush="SYNC_FLUSH")
    assert served(one, lambda server: send(server, b"one")) == [SendStatus.SEND_OK]


def _has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


# --- TLS -----------------------------------------------------------------------------------------------------


def test_tls_only_when_configured(tmp_path: Path) -> None:
    async def main() -> None:
        async with EmbeddedServer(settings(tmp_path / "data"), tls=TlsSettings("enforcing")) as server:
            async with Producer("tests", server.namesrv_address, tls=True) as producer:
                assert (await producer.send(Message("orders", b"x"))).status is SendStatus.SEND_OK
            async with Producer("tests", server.namesrv_address, tls=False) as producer:
                with pytest.raises(TianzhouError, match="was lost"):
                    await producer.send(Message("orders", b"x"))

    asyncio.run(asyncio.wait_for(main(), 30))


def test_its_own_broker_needs_no_certificate_that_others_trust(tmp_path: Path) -> None:
    """The only peer to verify is itself; when a server requests a certificate, it presents the server's."""
    authority = Authority(tmp_path)
    tls = replace(
        certified(authority),
        server_mode="enforcing",
        need_client_auth="require",
        server_auth_client=True,
        server_trust_cert_path=str(authority.path),
        client_auth_server=True,
    )

    async def main() -> None:
        async with EmbeddedServer(settings(tmp_path / "data"), tls=tls) as server:
            certificate, key = authority.issue("client")
            known = replace(trusting(authority), client_cert_path=certificate, client_key_path=key)
            async with Producer("tests", server.namesrv_address, tls=known) as producer:
                assert (await producer.send(Message("orders", b"x"))).status is SendStatus.SEND_OK

    asyncio.run(asyncio.wait_for(main(), 30))
