"""Outboxes, with brokers that stop and return."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from client_suite import read_all
from own_server import own_server
from scripted import within

from server_ports import server_ports
from tianzhou import Message, Producer, SendStatus, sync
from tianzhou.admin import Admin
from tianzhou.client.producer.outbox.outbox_file import OutboxFile
from tianzhou.errors import BrokerError, ClientError, ConfigError, ConnectFailed, OutboxFull
from tianzhou.namesrv.server import NameServer
from tianzhou.namesrv.settings import NamesrvSettings
from tianzhou.wire.batch import decode_batch
from tianzhou.wire.properties import decode_properties
from waiting import until_async

pytestmark = pytest.mark.runner.with_args(within(90))

KEPT = SendStatus.KEPT_IN_OUTBOX


async def test_messages_wait_for_the_cluster_and_arrive_in_order_with_their_keys(tmp_path) -> None:
    port = server_ports()
    options = {"outbox": tmp_path / "outbox", "send_msg_timeout_ms": 1_000}
    async with Producer("P", f"127.0.0.1:{port}", **options) as producer:
        assert producer.outbox.pending == 0
        results = []
        for i in range(300):
            message = Message("T", b"%d" % i, tags="t", keys=f"k{i}", sharding_key=str(i % 3), properties={"n": str(i)})
            results.append(await producer.send(message))
        results.append(await producer.send_batch([Message("T", b"b1"), Message("T", b"b2")]))
        await producer.send_oneway(Message("T", b"oneway"))
        results.append(await producer.send(Message("T", b"z" * 10_000, flag=7, delay_level=1)))
        assert {result.status for result in results} == {KEPT}
        assert results[0].queue.broker_name == results[0].offset_msg_id == ""
        status = producer.outbox
        assert status.pending == 304
        assert status.oldest_ms is not None
        assert "no name server answers" in status.last_error
    async with Producer("P", f"127.0.0.1:{port}", **options) as producer:
        assert producer.outbox.pending == 304  # from before
        assert (await producer.send(Message("T", b"last", sharding_key="0"))).status is KEPT
        async with own_server(tmp_path / "server", namesrv_port=port) as namesrv:
            await until_async(lambda: producer.outbox.pending == 0, "all is sent", within_s=60)
            assert (producer.outbox.sent, producer.outbox.last_error) == (305, None)
            assert (await producer.send(Message("T", b"direct"))).status is SendStatus.SEND_OK
            stored = {message.body: message for message in await read_all(namesrv, "T", 306)}
            assert len(stored) == 306
            for i, result in enumerate(results[:300]):
                found = stored[b"%d" % i]
                assert (found.msg_id, found.tags, found.keys) == (result.msg_id, "t", f"k{i}")
                assert found.user_properties == {"n": str(i)}
            assert [stored[b].msg_id for b in (b"b1", b"b2")] == results[300].msg_id.split(",")
            assert stored[b"z" * 10_000].flag == 7
            for key in range(3):
                mine = [stored[b"%d" % i] for i in range(key, 300, 3)]
                assert len({message.queue_id for message in mine}) == 1
                assert [m.queue_offset for m in mine] == sorted(m.queue_offset for m in mine)
            assert stored[b"last"].queue_offset > stored[b"297"].queue_offset


async def test_a_name_server_without_brokers_is_silence_too(tmp_path) -> None:
    settings = replace(
        NamesrvSettings(),
        bind_address="127.0.0.1",
        listen_port=0,
        kv_config_path=str(tmp_path / "kv.json"),
        config_store_path=str(tmp_path / "namesrv.properties"),
    )
    async with (
        NameServer(settings) as namesrv,
        Producer("P", f"127.0.0.1:{namesrv.port}", outbox=tmp_path / "outbox") as producer,
    ):
        assert (await producer.send(Message("T", b"x"))).status is KEPT
        with pytest.raises(ClientError, match="SCHEDULE_TOPIC_XXXX"):
            await producer.send(Message("SCHEDULE_TOPIC_XXXX", b"x"))
        with pytest.raises(ClientError, match="at least one byte"):
            await producer.send(Message("T", b""))
        assert producer.outbox.pending == 1


def silent(command):
    return asyncio.sleep(60)


async def test_a_lost_answer_leads_to_the_same_message_again_never_to_a_new_one(cluster, broker, tmp_path) -> None:
    broker.answers[310] = silent
    async with Producer("P", cluster.address, outbox=tmp_path, retry_times_when_send_failed=0) as producer:
        result = await producer.send(Message("T", b"x"), timeout_ms=200)
        assert result.status is KEPT
        del broker.answers[310]
        await until_async(lambda: producer.outbox.pending == 0, "it is sent again")
    first, *again = broker.asked(310)
    assert decode_properties(first.properties.encode())["UNIQ_KEY"] == result.msg_id
    assert again
    assert {(a.properties, a.born_timestamp) for a in again} == {(first.properties, first.born_timestamp)}


async def test_only_silence_is_kept_and_what_cannot_be_kept_says_so(cluster, broker, tmp_path) -> None:
    options = {"retry_times_when_send_failed": 0, "send_msg_timeout_ms": 200}
    async with Producer("P", cluster.address, outbox=tmp_path / "a", outbox_max_bytes=500, **options) as producer:
        broker.answers[310] = lambda command: command.reply(13, "too large")
        with pytest.raises(BrokerError, match="too large"):
            await producer.send(Message("T", b"x"))
        assert producer.outbox.pending == 0
        broker.answers[310] = broker.answers[320] = silent
        (queue,) = await producer.queues("T")
        assert (await producer.send(Message("T", b"1"), queue)).queue == queue
        assert (await producer.send(Message("T", b"2"), selector=lambda qs, m, arg: qs[0])).queue == queue
        with pytest.raises(ClientError, match="a selector cannot choose"):
            await producer.send(Message("U", b"3"), selector=lambda qs, m, arg: qs[0])
        with pytest.raises(OutboxFull, match=r"the limit is 500 \(outbox_max_bytes\)"):
            await producer.send(Message("T", b"x" * 400))
        assert producer.outbox.pending == 2
        with pytest.raises(ConfigError, match="in use by another producer"):
            await Producer("P2", cluster.address, outbox=tmp_path / "a").start()
    async with Producer("P", cluster.address, **options) as producer:
        assert producer.outbox is None


@pytest.mark.parametrize(
    ("code", "remark"),
    [
        (1, "in-sync replicas not enough"), (2, "busy"), (14, "disk full"), (215, "flow control"),
        (16, "the broker[127.0.0.1] sending message is forbidden"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("durable", [False, True])
async def test_a_cluster_that_refuses_for_now_gets_the_messages_later_in_order(
    code, remark, durable, cluster, broker, tmp_path
) -> None:
    broker.answers[310] = broker.answers[320] = lambda command: command.reply(code, remark)
    options = {"durable": True, "durable_timeout_ms": 400} if durable else {"send_msg_timeout_ms": 400}
    async with Producer("P", cluster.address, outbox=tmp_path, retry_times_when_send_failed=1, **options) as producer:
        for text in (b"a", b"b", b"c"):
            assert (await producer.send(Message("T", text))).status is KEPT
        # As many refusals as set a message aside that the broker finds illegal.
        await until_async(lambda: len(broker.asked(310)) + len(broker.asked(320)) > 4, "it is sent again")
        assert (producer.outbox.pending, producer.outbox.refused) == (3, 0)
        accepted: list[bytes] = []

        def accept(command):
            is_batch = command.code == 320
            accepted.extend([bytes(text) for _, text, _ in decode_batch(command.body)] if is_batch else [command.body])
            return broker._on_310(command)

        broker.answers[310] = broker.answers[320] = accept
        await until_async(lambda: producer.outbox.pending == 0, "the broker accepts it", within_s=30)
        assert accepted == [b"a", b"b", b"c"]


async def test_a_zero_loss_broker_without_its_slave_gets_the_messages_when_it_needs_none(tmp_path) -> None:
    two = {"total_replicas": 2, "in_sync_replicas": 2, "min_in_sync_replicas": 2, "broker_role": "SYNC_MASTER"}
    async with (
        own_server(tmp_path / "server", store_options=two) as namesrv,
        Producer("P", namesrv, outbox=tmp_path / "outbox", send_msg_timeout_ms=1_000) as producer,
        Admin(namesrv) as admin,
    ):
        results = [await producer.send(Message("T", b"%d" % n, sharding_key="k")) for n in range(3)]
        assert {result.status for result in results} == {KEPT}
        (broker,) = (await admin.cluster.info()).broker_addr_table.values()
        await admin.cluster.update_broker_config(
            broker.broker_addrs[0], {"minInSyncReplicas": "1", "inSyncReplicas": "1"}
        )
        await until_async(lambda: producer.outbox.pending == 0, "the broker accepts them", within_s=30)
        assert [one.body for one in await read_all(namesrv, "T", 3)] == [b"0", b"1", b"2"]


async def test_a_topic_that_is_closed_for_a_while_gets_the_messages_later(tmp_path) -> None:
    async with (
        own_server(tmp_path / "server") as namesrv,
        Producer("P", namesrv, outbox=tmp_path / "outbox", send_msg_timeout_ms=1_000) as producer,
        Admin(namesrv) as admin,
    ):
        await admin.topics.create("T", read_queue_nums=1, write_queue_nums=1, perm=4)
        assert (await producer.send(Message("T", b"x"))).status is KEPT
        await admin.topics.create("T", read_queue_nums=1, write_queue_nums=1, perm=6)
        await until_async(lambda: producer.outbox.pending == 0, "the topic can be written", within_s=60)
        assert [one.body for one in await read_all(namesrv, "T", 1)] == [b"x"]


async def test_what_brokers_refuse_is_set_aside_and_holds_nobody_up(cluster, broker, tmp_path) -> None:
    port = server_ports()
    async with Producer("P", f"127.0.0.1:{port}", outbox=tmp_path) as producer:
        for text in (b"a", b"bad", b"c"):
            await producer.send(Message("T", text))

    def refuse(command):
        bodies = [bytes(text) for _, text, _ in decode_batch(command.body)] if command.code == 320 else [command.body]
        if b"bad" in bodies:
            return command.reply(13, "illegal")
        return broker._on_310(command)

    broker.answers[310] = broker.answers[320] = refuse
    async with Producer("P", cluster.address, outbox=tmp_path) as producer:
        await until_async(lambda: producer.outbox.pending == 0, "the others are sent")
        assert (producer.outbox.sent, producer.outbox.refused) == (2, 1)
    stored = [bytes(text) for text in broker.bodies_of(310)]
    assert stored == [b"a", b"bad", b"c"]
    (line,) = (tmp_path / "refused.jsonl").read_text().splitlines()
    aside = json.loads(line)
    assert "illegal" in aside["error"]
    assert aside["message"]["topic"] == "T"


async def test_a_busy_broker_is_waited_for(cluster, broker, tmp_path) -> None:
    async with Producer("P", f"127.0.0.1:{server_ports()}", outbox=tmp_path) as producer:
        await producer.send(Message("T", b"x"))
    answers = iter([2, 14, 2])
    broker.answers[310] = lambda command: (
        command.reply(next(answers, 0), "busy") if len(broker.asked(310)) <= 3 else broker._on_310(command)
    )
    async with Producer("P", cluster.address, outbox=tmp_path, retry_times_when_send_failed=0) as producer:
        await until_async(lambda: producer.outbox.pending == 0, "it is taken at last", within_s=20)
        assert producer.outbox.refused == 0
    assert len(broker.asked(310)) == 4


async def test_many_senders_share_a_sync_and_the_blocking_producer_keeps_too(tmp_path, monkeypatch) -> None:
    port = server_ports()
    syncs = 0
    real = OutboxFile.write

    def counting(file, payloads) -> None:
        nonlocal syncs
        syncs += 1
        real(file, payloads)

    monkeypatch.setattr(OutboxFile, "write", counting)
    async with Producer("P", f"127.0.0.1:{port}", outbox=tmp_path / "a", auto_batch=True) as producer:
        results = await asyncio.gather(*(producer.send(Message("T", b"%d" % i)) for i in range(500)))
        assert {result.status for result in results} == {KEPT}
        assert len({result.msg_id for result in results}) == 500
        assert producer.outbox.pending == 500
    assert 0 < syncs < 100
    with sync.Producer("P", f"127.0.0.1:{port}", outbox=tmp_path / "b") as producer:
        assert producer.send(Message("T", b"x")).status is KEPT
        assert producer.outbox.pending == 1
    with sync.Producer("P", f"127.0.0.1:{port}") as producer, pytest.raises(ConnectFailed):
        producer.send(Message("T", b"x"))


CHILD = """
import asyncio, sys
from tianzhou import Message, Producer

async def main():
    async with Producer("P", sys.argv[1], outbox=sys.argv[2]) as producer:
        for i in range(100_000):
            result = await producer.send(Message("T", b"%d" % i, sharding_key="k"))
            print(i, result.status.name, result.msg_id, flush=True)

asyncio.run(main())
"""


async def test_a_killed_producer_loses_nothing_that_was_acknowledged(tmp_path) -> None:
    port = server_ports()
    address = f"127.0.0.1:{port}"
    told: list[list[str]] = []
    for _ in range(3):
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, address, str(tmp_path / "outbox")],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2] / "src")},
        )
        assert child.stdout is not None
        for line in child.stdout:
            told.append(line.split())
            if len(told) % 60 == 59:
                child.send_signal(signal.SIGKILL)
                break
        told += [line.split() for line in child.stdout.read().splitlines() if line.count(" ") == 2]
        child.wait(10)
        child.stdout.close()
    assert {status for _, status, _ in told} == {"KEPT_IN_OUTBOX"}
    async with (
        own_server(tmp_path / "server", namesrv_port=port) as namesrv,
        Admin(namesrv) as admin,
        Producer("P", address, outbox=tmp_path / "outbox") as producer,
    ):
        assert producer.outbox.pending >= len(told)
        await until_async(lambda: producer.outbox.pending == 0, "all is sent", within_s=60)
        assert "T" in await admin.topics.names()
        stored = await read_all(namesrv, "T", len(told))
    keys = [message.msg_id for message in sorted(stored, key=lambda m: m.queue_offset)]
    assert {message.queue_id for message in stored} == {stored[0].queue_id}
    assert set(keys) >= {key for _, _, key in told}
    order = {key: n for n, key in enumerate(keys)}
    places = [order[key] for _, _, key in told]
    assert places == sorted(places)
