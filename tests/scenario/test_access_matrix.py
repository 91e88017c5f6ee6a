"""Every request code with every kind of credentials: access at each port and over each transport.

The expected results come from the rows of `tianzhou.access.needs`; docs/reference/access-matrix.md compares them with
Apache's servers.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest
from access_requests import (
    ACCOUNTS,
    ADMINISTRATOR,
    BROKER,
    GROUP,
    MEMBERS,
    NAMESRV,
    REQUESTS,
    SECRET,
    TO_MEMBERS,
    TOPIC,
    USERS,
    Asked,
    Credentials,
    Who,
    is_refusal,
    signed,
)
from authority import Authority, certified, trusting
from small_broker import small_broker

from server_ports import server_ports
from tianzhou.access.needs import ACCOUNT, LOOKUPS, ROWS
from tianzhou.admin import Admin
from tianzhou.broker.router import NOT_ON_FAST_PORT
from tianzhou.embedded import EmbeddedServer, EmbeddedSettings
from tianzhou.remoting.client import RemotingClient
from tianzhou.remoting.tls import client_context
from tianzhou.wire.codes import DLedgerRequestCode, RequestCode
from tianzhou.wire.command import Command

KINDS = (ACCOUNTS, USERS)
AT_ONCE = 64
FAST = "fast port"
_numbers = count(1)


def settings_of(kind: str) -> dict[str, str]:
    if kind == ACCOUNTS:
        return {"aclEnable": "true"}
    first = f'{{"username":"{ADMINISTRATOR}","password":"{SECRET}"}}'
    return {"authenticationEnabled": "true", "authorizationEnabled": "true", "initAuthenticationUser": first}


@asynccontextmanager
async def served(
    folder: Path, kind: str, credentials: Credentials, more: Mapping[str, str] | None = None
) -> AsyncIterator[tuple[EmbeddedServer, Authority]]:
    """Run both servers with all accounts; plain, TLS, and TLS with a client's certificate on each port."""
    authority = Authority(folder)
    tls = replace(
        certified(authority),
        server_auth_client=True,
        need_client_auth="optional",
        server_trust_cert_path=str(authority.path),
    )
    data = folder / "data"
    data.mkdir()
    if kind == ACCOUNTS:
        file = data / "plain_acl.yml"
        file.write_text(credentials.accounts_file())
        file.chmod(0o600)
    settings = EmbeddedSettings(data, namesrv_port=0, broker_port=0, values={**settings_of(kind), **(more or {})})
    async with EmbeddedServer(settings, tls=tls) as server:
        keys = {"access_key": ADMINISTRATOR, "secret_key": SECRET}
        async with Admin(server.namesrv_address, **keys) as admin:
            await admin.topics.create(TOPIC, read_queue_nums=1, write_queue_nums=1)
            await admin.groups.create(GROUP)
        await make_users(server.broker_address, credentials)
        await decide_batch(server.broker_address)
        yield server, authority


async def make_users(address: str, credentials: Credentials) -> None:
    async with RemotingClient() as client:
        for request in credentials.making():
            fields = signed({name: str(value) for name, value in request.fields.items()}, request.body, ADMINISTRATOR)
            reply = await client.invoke(address, Command(request.code, fields=fields, body=request.body), 20_000)
            assert reply.code == 0, reply.remark


async def decide_batch(address: str) -> None:
    """Decide the batch that a request of the matrix publishes: these requests are sent together, in no order."""
    (request,) = (one for one in REQUESTS if one.code == RequestCode.DECIDE_BATCH)
    fields = signed({}, request.body, ADMINISTRATOR)
    async with RemotingClient() as client:
        reply = await client.invoke(address, Command(request.code, fields=fields, body=request.body), 20_000)
    assert reply.code == 0, reply.remark


def contexts(authority: Authority) -> dict[str, ssl.SSLContext | None]:
    """Return the TLS contexts of clients by transport."""
    client = trusting(authority)
    certificate, key = authority.issue("somebody")
    shown = replace(client, client_cert_path=certificate, client_key_path=key)
    return {"plain": None, "TLS": client_context(client), "mutual TLS": client_context(shown)}


def over_tls(transport: int, port: int) -> tuple[Asked, ...]:
    """Return the third of all requests that a port gets over a transport with TLS.

    The gate asks an account's rights after the transport has read a request. So each port gets all requests without
    TLS, and each transport with TLS carries each request to one of the three ports.
    """
    return REQUESTS[(transport + port) % 3 :: 3]


async def outcomes(
    client: RemotingClient, address: str, asked: tuple[Asked, ...], credentials: Credentials
) -> dict[tuple[int, Who], tuple[int, str]]:
    """Return the reply to each request with each of the four credentials."""

    async def one(request: Asked, who: Who) -> tuple[int, str]:
        fields, body = request.numbered(next(_numbers))
        command = Command(request.code, fields=credentials.sign(request, who, fields, body), body=body)
        reply = await client.invoke(address, command, 20_000)
        return reply.code, reply.remark or ""

    cells = [(request, who) for who in Who for request in asked]
    found: dict[tuple[int, Who], tuple[int, str]] = {}
    for first in range(0, len(cells), AT_ONCE):
        part = cells[first : first + AT_ONCE]
        answers = await asyncio.gather(*(one(*cell) for cell in part))
        found.update({(request.code, who): answer for (request, who), answer in zip(part, answers, strict=True)})
    return found


def wrong_cells(
    found: dict[tuple[int, Who], tuple[int, str]],
    asked: tuple[Asked, ...],
    port: str,
    kind: str,
    lookups: frozenset[int] = LOOKUPS,
) -> list[str]:
    """Return the cells that differ from the rows.

    Args:
        found: replies by request code and credentials.
        asked: the requests.
        port: port of the requests.
        kind: of access control.
        lookups: codes that a name server answers to every peer.
    """
    server = BROKER if port == FAST else port
    wrong = []
    for request in asked:
        row = ROWS[request.code]
        served = request.served(server, kind) and not (port == FAST and request.code in NOT_ON_FAST_PORT)
        # Members check the row whether they serve the code or not.
        for_all = (row.plain if kind == ACCOUNTS else row.policy) == ACCOUNT or not (served or port == MEMBERS)
        for who in Who:
            code, remark = found[request.code, who]
            let_in = not is_refusal(code, remark)
            open_to_all = port == NAMESRV and request.code in lookups
            if let_in != (open_to_all or who is Who.PERMITTED or (who is Who.STRANGER and for_all)):
                wrong.append(f"{request.code} {who}: {code} {remark}")
            elif who is Who.PERMITTED and not (request.is_answered(code, remark) if served else code == 3):
                wrong.append(f"{request.code} answers {code}: {remark}")
    return wrong


def test_every_code_has_one_request() -> None:
    assert Counter(request.code for request in REQUESTS) == Counter(map(int, RequestCode))
    assert Counter(request.code for request in TO_MEMBERS) == Counter(map(int, DLedgerRequestCode))


@pytest.mark.parametrize("whole", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", KINDS)
async def test_who_is_let_in_is_what_the_rows_say_at_every_port_over_every_transport(
    tmp_path: Path, kind: str, whole: bool
) -> None:
    credentials = Credentials(kind, REQUESTS)
    async with served(tmp_path, kind, credentials) as (server, authority):
        host, _, port = server.broker_address.rpartition(":")
        ports = {
            BROKER: server.broker_address,
            FAST: f"{host}:{int(port) - 2}",
            NAMESRV: server.namesrv_address,
        }
        wrong = {}
        for transport_number, (transport, context) in enumerate(contexts(authority).items()):
            async with RemotingClient(tls=context) as client:
                for port_number, (name, address) in enumerate(ports.items()):
                    asked = REQUESTS if whole or context is None else over_tls(transport_number, port_number)
                    found = await outcomes(client, address, asked, credentials)
                    if cells := wrong_cells(found, asked, name, kind):
                        wrong[f"{name}, {transport}"] = cells
        assert wrong == {}


@pytest.mark.parametrize("kind", KINDS)
async def test_one_key_closes_a_name_server_to_peers_without_an_account(tmp_path: Path, kind: str) -> None:
    credentials = Credentials(kind, REQUESTS)
    asked = tuple(request for request in REQUESTS if request.code in LOOKUPS)
    async with (
        served(tmp_path, kind, credentials, {"requireSignedLookups": "true"}) as (server, _),
        RemotingClient() as client,
    ):
        found = await outcomes(client, server.namesrv_address, asked, credentials)
        assert wrong_cells(found, asked, NAMESRV, kind, frozenset()) == []


@pytest.mark.parametrize("kind", KINDS)
async def test_the_port_of_members_is_for_who_may_speak_for_a_broker(tmp_path: Path, kind: str) -> None:
    asked = REQUESTS + TO_MEMBERS
    credentials = Credentials(kind, asked)
    file = tmp_path / "plain_acl.yml"
    file.write_text(credentials.accounts_file() if kind == ACCOUNTS else "")
    file.chmod(0o600)
    # The other two never start: one member alone does not lead, but still replies.
    ports = [server_ports() for _ in range(3)]
    store = {
        "enable_d_leger_commit_log": True, "d_leger_group": "broker-a", "d_leger_self_id": "n0",
        "d_leger_peers": ";".join(f"n{number}-127.0.0.1:{port}" for number, port in enumerate(ports)),
    }  # fmt: skip
    settings = {re.sub("([A-Z])", r"_\1", key).lower(): value for key, value in settings_of(kind).items()}
    values = {key: value == "true" if value in ("true", "false") else value for key, value in settings.items()}
    # A member of a group copies users from its leader, so create them before it becomes a member.
    async with small_broker(tmp_path, acl_config_path=str(file), **values) as before:
        await make_users(before.address, credentials)
    async with small_broker(tmp_path, store, acl_config_path=str(file), **values), RemotingClient() as client:
        found = await outcomes(client, f"127.0.0.1:{ports[0]}", asked, credentials)
        assert wrong_cells(found, asked, MEMBERS, kind) == []
