"""Every attempt in `bypass.rows` to get around access control, run at servers of both kinds."""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from authority import Authority, certified
from bypass import requests, rows
from bypass import stage as bypass
from small_broker import small_broker

from server_ports import server_ports
from tianzhou.admin import Admin
from tianzhou.broker.changeable_settings import RULES as BROKER_RULES
from tianzhou.broker.settings import BrokerSettings
from tianzhou.client import Producer
from tianzhou.embedded import EmbeddedServer, EmbeddedSettings
from tianzhou.model import Message
from tianzhou.namesrv.changeable_settings import RULES as NAME_SERVER_RULES
from tianzhou.namesrv.settings import NamesrvSettings
from tianzhou.remoting.client import RemotingClient
from tianzhou.remoting.signing import signing
from tianzhou.remoting.tls import TlsSettings
from tianzhou.settings import keys_of, parse_properties
from tianzhou.store.settings import StoreSettings
from tianzhou.sync.background import background
from tianzhou.wire import command as wire
from tianzhou.wire.codes import FLAG_RESPONSE, RequestCode
from tianzhou.wire.command import Command
from tianzhou.wire.fields import read_reply
from tianzhou.wire.ids import parse_offset_msg_id

ROOT = {"access_key": bypass.ROOT_USER, "secret_key": bypass.PASSWORDS[bypass.ROOT_USER]}
ACCOUNTS = f"""
globalWhiteRemoteAddresses: [10.9.9.9]
accounts:
- accessKey: {bypass.ROOT_USER}
  secretKey: {bypass.PASSWORDS[bypass.ROOT_USER]}
  admin: true
- &worker
  accessKey: {bypass.WORKER}
  secretKey: {bypass.PASSWORDS[bypass.WORKER]}
  topicPerms: [orders=PUB|SUB]
  groupPerms: [billing=SUB]
- accessKey: {bypass.READER}
  secretKey: {bypass.PASSWORDS[bypass.READER]}
  defaultTopicPerm: PUB|SUB
  defaultGroupPerm: SUB
  topicPerms: [secret=DENY]
- accessKey: {bypass.LEAVER}
  secretKey: {bypass.PASSWORDS[bypass.LEAVER]}
  topicPerms: [orders=PUB|SUB]
  groupPerms: [billing=SUB]
""".replace("- &worker\n  ", "- ")
OPEN = {"enableRemoteAdmin": "true", "configBlackList": "maxMsgsNumBatch;orderMessageEnable"}
VALUES = {
    "4.x": OPEN | {"aclEnable": "true", "requireSignedLookups": "true"},
    "5.3": OPEN
    | {
        "requireSignedLookups": "true",
        "authenticationEnabled": "true",
        "authorizationEnabled": "true",
        "initAuthenticationUser": json.dumps({"username": bypass.ROOT_USER, "password": ROOT["secret_key"]}),
    },
}


async def with_users(admin: Admin) -> None:
    for name in (bypass.WORKER, bypass.READER, bypass.LEAVER):
        await admin.access.create_user(name, bypass.PASSWORDS[name])
    for name in (bypass.WORKER, bypass.LEAVER):
        await admin.access.set_acl(name, ["Topic:orders", "Group:billing"], ["Pub", "Sub"])
    await admin.access.set_acl(bypass.READER, ["Topic:*", "Group:*"], ["Pub", "Sub", "Get"])
    await admin.access.set_acl(bypass.READER, ["Topic:secret"], ["All"], decision="Deny")


async def with_secrets(server: EmbeddedServer) -> tuple[int, tuple[int, int]]:
    """Store messages that only the administrator may see; return the position of a message, and of a half message."""
    async with Producer("owner", server.namesrv_address, **ROOT) as producer:
        stored = await producer.send(Message("secret", bypass.CROWN, keys=["jewel"]))
        await producer.send(Message("secret", bypass.CROWN, delay_level=18))
    fields = bypass.SEND | {"producerGroup": "owner", "properties": "TRAN_MSG\1true\2PGROUP\1owner\2UNIQ_KEY\1HALF\2"}
    async with RemotingClient(hooks=[signing(*ROOT.values())]) as client:  # type: ignore[list-item]
        half = await client.invoke(
            server.broker_address, Command(10, fields=fields | {"sysFlag": "4"}, body=bypass.CROWN)
        )
        header = read_reply(10, half)
    return int(stored.offset_msg_id[16:], 16), (parse_offset_msg_id(header.msg_id)[2], header.queue_offset)


@pytest.fixture(scope="module", params=["4.x", "5.3"])
def stage(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[bypass.Stage]:
    kind, folder, loop = request.param, tmp_path_factory.mktemp("bypass"), background()
    (folder / "plain_acl.yml").write_text(ACCOUNTS)
    server = EmbeddedServer(EmbeddedSettings(folder, namesrv_port=0, broker_port=0, values=VALUES[kind]))

    async def begin() -> tuple[int, tuple[int, int]]:
        await server.__aenter__()
        async with Admin(server.namesrv_address, **ROOT) as admin:
            for topic in ("orders", "secret"):
                await admin.topics.create(topic, read_queue_nums=1, write_queue_nums=1)
            if kind == "5.3":
                await with_users(admin)
        return await with_secrets(server)

    async def remove(name: str) -> None:
        async with RemotingClient(hooks=[signing(*ROOT.values())]) as client:  # type: ignore[list-item]
            request = (
                Command(51, fields={"accessKey": name}) if kind == "4.x" else Command(3003, fields={"username": name})
            )
            assert (await client.invoke(server.broker_address, request)).code == 0

    place, half = loop.run(begin())
    broker, namesrv = (int(where.rpartition(":")[2]) for where in (server.broker_address, server.namesrv_address))
    ports = {"broker": broker, "fast": broker - 2, "namesrv": namesrv}
    yield bypass.Stage(kind, ports, place, half, lambda name: loop.run(remove(name)))
    loop.run(server.__aexit__(None, None, None))


def end_of(stage: bypass.Stage, topic: str) -> int:
    with stage.connect() as peer:
        fields = bypass.signed({"topic": topic, "queueId": "0"}, who=bypass.ROOT_USER)
        peer.sendall(bypass.frame(RequestCode.GET_MAX_OFFSET, fields))
        return int(read_reply(30, next(bypass.replies(peer))).offset)


@pytest.mark.parametrize("attempt", rows.attempts(), ids=lambda row: row.what[:60])
def test_an_attempt_comes_to_nothing(stage: bypass.Stage, attempt: rows.Attempt) -> None:
    stage.bodies.clear()
    before = end_of(stage, "secret")
    assert attempt.act(stage) in attempt.outcome.split(" or ")
    assert end_of(stage, "secret") == before
    assert not any(bypass.CROWN in body for body in stage.bodies)


def test_the_administrator_finds_what_nobody_else_did(stage: bypass.Stage) -> None:
    """Otherwise the attempts would fail for another reason."""
    stage.bodies.clear()
    assert stage.asks(11, bypass.PULL, who=bypass.ROOT_USER) == bypass.SERVED
    assert any(bypass.CROWN in body for body in stage.bodies)
    assert stage.asks(12, bypass.KEY, who=bypass.ROOT_USER) == bypass.SERVED
    assert (
        stage.asks(11, bypass.PULL | {"topic": "SCHEDULE_TOPIC_XXXX", "queueId": "17"}, who=bypass.ROOT_USER)
        == bypass.SERVED
    )
    assert requests.end_transaction(stage, {}, who=bypass.ROOT_USER) == bypass.SERVED


SETTINGS = {
    "broker": (25, 26, BROKER_RULES, (BrokerSettings, StoreSettings), "maxMsgsNumBatch"),
    "namesrv": (318, 319, NAME_SERVER_RULES, (NamesrvSettings,), "orderMessageEnable"),
}


@pytest.mark.parametrize("to", SETTINGS)
def test_no_administrator_changes_paths_ports_roles_or_security_from_afar(stage: bypass.Stage, to: str) -> None:
    change, show, rules, classes, black = SETTINGS[to]
    fixed = sorted(keys_of(*classes) - rules.changeable)
    assert {"listenPort", "bindAddress", "configBlackList", "enableRemoteAdmin", "aclEnable", "authConfigPath"} <= {
        *fixed
    }
    before = shown(stage, show, to)
    for key in (*fixed, black, *sorted(keys_of(TlsSettings))):
        value = before.get(key, "")
        other = {"true": "false", "false": "true"}.get(value, "7" if value != "7" else "8")
        for text in {other, "/tmp/elsewhere", "127.0.0.1"} - {value}:
            answer = stage.asks(change, {}, f"{key}={text}".encode(), who=bypass.ROOT_USER, to=to)
            # Keys of other parts, such as TLS, are ignored, like by Apache's.
            assert key not in before or answer != bypass.SERVED, (key, text)
    assert shown(stage, show, to) == before


def shown(stage: bypass.Stage, code: int, to: str) -> dict[str, str]:
    stage.bodies.clear()
    assert stage.asks(code, who=bypass.ROOT_USER, to=to) == bypass.SERVED
    return parse_properties(stage.bodies[0].decode())


def test_the_reference_page_says_what_is_tested() -> None:
    how = "print it again: PYTHONPATH=src:tests/fault python -m bypass.rows > docs/reference/bypass.md"
    assert rows.PAGE.read_text(encoding="utf-8") == rows.page(), how
    for row in rows.elsewhere():
        path, _, name = row.test.partition("::")
        assert f"def {name}(" in (rows.ROOT / path).read_text(encoding="utf-8"), row.test


def heartbeat(client_id: str, who: str, producer: str = "", consumer: str = "") -> bytes:
    body = json.loads(requests.heartbeat_body(consumer, "orders", client_id))
    if not consumer:
        body["consumerDataSet"] = []
    body["producerDataSet"] = [{"groupName": producer}] if producer else []
    text = json.dumps(body).encode()
    return bypass.frame(RequestCode.HEART_BEAT, bypass.signed({}, text, who), text)


def reply_to(client_id: str) -> bytes:
    properties = f"REPLY_TO_CLIENT\1{client_id}\2CORRELATION_ID\1c\2MSG_TYPE\1reply\2"
    fields = bypass.SHORT | {"b": "DefaultCluster_REPLY_TOPIC", "i": properties}
    return bypass.frame(RequestCode.SEND_REPLY_MESSAGE_V2, bypass.signed(fields, b"the answer"), b"the answer")


def test_answers_count_on_the_connection_that_was_asked_and_show_no_signature(stage: bypass.Stage) -> None:
    with stage.connect() as consumer, stage.connect() as asker, stage.connect() as forger:
        assert stage.talk(consumer, heartbeat("asked", bypass.WORKER, consumer="billing")) == bypass.SERVED
        asker.sendall(
            bypass.frame(307, bypass.signed({"consumerGroup": "billing", "clientId": "asked"}, who=bypass.ROOT_USER))
        )
        question = next(one for one in bypass.replies(consumer) if one.code == RequestCode.GET_CONSUMER_RUNNING_INFO)
        assert question.fields == {"consumerGroup": "billing", "clientId": "asked"}, (
            "who has it could sign as the asker"
        )
        numbers = range(question.opaque - 50, question.opaque + 50)
        forged = b"".join(wire.encode(Command(0, number, FLAG_RESPONSE, body=b"forged")) for number in numbers)
        assert stage.talk(forger, forged) == bypass.SILENT
        consumer.sendall(wire.encode(Command(0, question.opaque, FLAG_RESPONSE, body=b"true")))
        assert next(bypass.replies(asker)).body == b"true"


def test_requests_to_clients_are_not_taken_by_brokers(stage: bypass.Stage) -> None:
    for code in (39, 40, 220, 221, 326):
        assert stage.sends(bypass.frame(code, {})) == bypass.REFUSED
        for who in (bypass.WORKER, bypass.ROOT_USER):
            assert stage.asks(code, {"consumerGroup": "billing", "topic": "orders"}, who=who) == bypass.UNKNOWN


def test_a_client_id_stays_with_its_account(stage: bypass.Stage) -> None:
    owner, thief = stage.connect(), stage.connect()
    with owner, thief, stage.connect() as replier, stage.connect() as again:
        assert stage.talk(owner, heartbeat("who-asked", bypass.READER, producer="P")) == bypass.SERVED
        assert stage.talk(thief, heartbeat("who-asked", bypass.WORKER, producer="P")) == bypass.REFUSED
        for connection in (owner, again):
            if connection is again:
                assert stage.talk(again, heartbeat("who-asked", bypass.READER, producer="P")) == bypass.SERVED
            replier.sendall(reply_to("who-asked"))
            pushed = next(bypass.replies(connection))
            assert (pushed.code, pushed.body) == (RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, b"the answer")
            connection.sendall(wire.encode(Command(0, pushed.opaque, FLAG_RESPONSE)))
            assert next(bypass.replies(replier)).code == 0
        assert stage.talk(thief, b"") == bypass.SILENT


def test_certificates_open_their_own_account_alone(tmp_path: Path) -> None:
    authority, loop, data = Authority(tmp_path), background(), tmp_path / "data"
    data.mkdir()
    (data / "plain_acl.yml").write_text(ACCOUNTS)
    tls = replace(
        certified(authority), server_mode="enforcing", server_auth_client=True, need_client_auth="optional",
        server_trust_cert_path=str(authority.path), account_from="CN",
    )  # fmt: skip
    server = EmbeddedServer(EmbeddedSettings(data, namesrv_port=0, broker_port=0, values=VALUES["4.x"]), tls=tls)
    loop.run(server.__aenter__())
    try:
        port = int(server.broker_address.rpartition(":")[2])

        def sends(name: str, data: bytes) -> str:
            context = ssl.create_default_context(cafile=str(authority.path))
            if name:
                context.load_cert_chain(*authority.issue(name))
            stage = bypass.Stage("4.x", {"broker": port}, 0, (0, 0), lambda _: None)
            with stage.connect() as plain, context.wrap_socket(plain, server_hostname="127.0.0.1") as peer:
                return stage.talk(peer, data)

        to_orders, to_secret = (bypass.frame(310, bypass.SHORT | {"b": topic}, b"x") for topic in ("orders", "secret"))
        assert sends(bypass.WORKER, to_orders) == bypass.SERVED
        assert sends(bypass.WORKER, to_secret) == bypass.REFUSED
        for name in ("", "*", "nobody-knows", f"{bypass.ROOT_USER},CN=x"):
            assert sends(name, to_orders) == bypass.REFUSED, name
        as_root = bypass.signed(bypass.SHORT, b"x") | {"AccessKey": bypass.ROOT_USER}
        for name in ("", bypass.WORKER, bypass.ROOT_USER):
            assert sends(name, bypass.frame(310, as_root, b"x")) == bypass.REFUSED, "the signature is another's"
    finally:
        loop.run(server.__aexit__(None, None, None))


async def test_members_ports_serve_only_administrators(tmp_path: Path) -> None:
    port = server_ports()
    store = {
        "enable_d_leger_commit_log": True, "d_leger_group": "broker-a", "d_leger_peers": f"n0-127.0.0.1:{port}",
        "d_leger_self_id": "n0",
    }  # fmt: skip
    (tmp_path / "plain_acl.yml").write_text(ACCOUNTS)
    inner = json.dumps({"accessKey": bypass.ROOT_USER, "secretKey": bypass.PASSWORDS[bypass.ROOT_USER]})
    more = {"acl_enable": True, "inner_client_authentication_credentials": inner}
    more["acl_config_path"] = str(tmp_path / "plain_acl.yml")
    async with small_broker(tmp_path, store, **more), RemotingClient() as client:
        for code in (50000, 50002, 51001, 51002, 51003, 51004, 51005, 31101, 31102, 310, 999_999):
            for fields in ({}, bypass.signed({}), bypass.signed({}) | {"AccessKey": bypass.ROOT_USER}):
                reply = await client.invoke(f"127.0.0.1:{port}", Command(code, fields=fields), 10_000)
                assert "AclException: " in (reply.remark or ""), (code, fields)
        reply = await client.invoke(f"127.0.0.1:{port}", Command(50000, fields=bypass.signed({}, who=bypass.ROOT_USER)))
        assert "AclException: " not in (reply.remark or "")
