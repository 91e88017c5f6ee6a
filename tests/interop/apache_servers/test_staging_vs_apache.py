"""Exactly-once writes and Apache's broker: it refuses them and stores no message; a store with staged messages stays
usable.

A store with published, undecided and aborted batches moves from our broker to Apache's and back. Apache's serves the
published messages and adds others. Ours then has the added messages, and still knows the decisions.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from apache import ApacheBroker, ApacheNamesrv
from frames import create_topic
from own import OwnBroker
from servers import Ports
from toolchain import ToolchainMissingError

from tianzhou import Message, MessageQueue, Producer, PullConsumer
from tianzhou.admin import Admin
from tianzhou.client.staging import CannotStage, Staging, StagingTask
from tianzhou.wire.bodies.staging import AttemptList, BatchDecision, StagedAttempt

TOPIC, WRITER = "handed_rows", "query"
CONF = {"mappedFileSizeCommitLog": 1 << 20}


async def stage(staging: Staging, batch: int, name: str, bodies: list[str]) -> StagedAttempt:
    task = StagingTask(staging, WRITER, batch, await staging.coordinator(WRITER), name)
    await task.add([(Message(TOPIC, body.encode(), keys=f"k{body}", tags="A"), None) for body in bodies])
    return await task.finish()


async def commit(staging: Staging, batch: int, *attempts: StagedAttempt) -> BatchDecision:
    wanted = BatchDecision(WRITER, batch, await staging.coordinator(WRITER), list(attempts))
    decision = await staging.decide(wanted)
    await staging.publish(decision)
    return decision


async def write(namesrv: str) -> None:
    """Write two published batches, one undecided attempt and one aborted attempt."""
    staging = Staging(namesrv, timeout_ms=10_000)
    await staging.start()
    for batch in range(2):
        await commit(staging, batch, await stage(staging, batch, f"a{batch}", [f"{batch}.{n}" for n in range(50)]))
    await stage(staging, 2, "open", ["never"])
    bad = await stage(staging, 2, "bad", ["never"])
    given = AttemptList(WRITER, 2, await staging.coordinator(WRITER), [bad.name])
    await staging.give_up(given, sorted(bad.units))
    await staging.stop()


async def read(namesrv: str) -> list[str]:
    found = []
    async with PullConsumer("handed_rows_c", namesrv) as consumer:
        for queue_id in range(2):
            queue = MessageQueue(TOPIC, "broker-a", queue_id)
            offset, end = await consumer.min_offset(queue), await consumer.max_offset(queue)
            while offset < end:
                result = await consumer.pull(queue, offset, tags="A")
                found += [bytes(message.body).decode() for message in result.messages]
                offset = result.next_offset
    return sorted(found)


async def at_apache(namesrv: str) -> list[str]:
    """Read, find by key, send one more, and try to stage."""
    found = await read(namesrv)
    async with Admin(namesrv) as admin:
        (message,) = await admin.messages.by_key(TOPIC, "k1.7")
        assert bytes(message.body) == b"1.7"
        assert not any(name.startswith("rmq_sys_STAGED") for name in await ordinary_topics(admin))
    async with Producer("handed_rows_p", namesrv) as producer:
        await producer.send(Message(TOPIC, b"from apache", tags="A"))
    staging = Staging(namesrv, timeout_ms=10_000)
    await staging.start()
    with pytest.raises(CannotStage, match=r"request type 31001 not supported.*as Apache's brokers do not"):
        await staging.able("broker-a", "w")
    await staging.stop()
    return found


async def ordinary_topics(admin: Admin) -> list[str]:
    system = await admin.topics.system_names()
    return [name for name in await admin.topics.names() if name not in system and not name.startswith("rmq_sys_")]


async def go_on(namesrv: str) -> tuple[BatchDecision, list[str]]:
    staging = Staging(namesrv, timeout_ms=10_000)
    await staging.start()
    again = await commit(staging, 1, StagedAttempt("other", {}))
    await commit(staging, 2, await stage(staging, 2, "next", ["2.0"]))
    await staging.stop()
    return again, await read(namesrv)


@pytest.mark.parametrize("end", ["stopped", pytest.param("killed", marks=pytest.mark.slow)])
@pytest.mark.slow
def test_a_store_with_staged_messages_goes_to_apache_and_back(end: str, tmp_path: Path) -> None:
    port, store = Ports.free().broker, tmp_path / "store"
    published = sorted(f"{batch}.{n}" for batch in range(2) for n in range(50))
    try:
        with ApacheNamesrv() as namesrv:
            ours = OwnBroker(namesrv.address, store, tmp_path / "home0", CONF, port)
            try:
                ours.start()
                create_topic(namesrv.address, ours.address, TOPIC, 2)
                asyncio.run(write(namesrv.address))
                if end == "stopped":
                    ours.stop()
            finally:
                ours.kill()
            apache = ApacheBroker(namesrv.address, port, store, CONF, tmp_path / "home1")
            try:
                apache.start()
                assert asyncio.run(at_apache(namesrv.address)) == published
                apache.stop()
            finally:
                apache.kill()
            ours = OwnBroker(namesrv.address, store, tmp_path / "home2", CONF, port)
            try:
                ours.start()
                again, found = asyncio.run(go_on(namesrv.address))
            finally:
                ours.kill()
    except ToolchainMissingError as error:
        pytest.skip(str(error))
    assert again.batch == 1, "what was decided is known"
    assert again.attempts == [], "and that all of it is published, so that nobody need know what it was"
    assert found == sorted([*published, "from apache", "2.0"])
