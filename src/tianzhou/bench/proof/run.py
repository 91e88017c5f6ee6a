"""A proof from end to end: send, read every replica, consume and compare, until the result is settled or time is up."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import TextIO

from tianzhou.admin import Admin
from tianzhou.bench.proof.comparison import MessagePlace, ProofVerdict, Reading, compare
from tianzhou.bench.proof.consuming import ProofGroup
from tianzhou.bench.proof.load import LoadOrder, ProofLoad
from tianzhou.bench.proof.promises import left_out
from tianzhou.bench.proof.replicas import Replicas
from tianzhou.bench.run_groups import RunGroups
from tianzhou.client import Producer, PullConsumer
from tianzhou.client.cluster import rpc
from tianzhou.client.instance import ClientInstance
from tianzhou.errors import ClientError, ConfigError, TianzhouError
from tianzhou.model import MessageQueue
from tianzhou.supervision import start_awaited

GROUP_PREFIX = "prove-"
FIRST_PAUSE_S = 0.2
LONGEST_PAUSE_S = 2.0
SETTLE_S = 10.0
"""Seconds to wait for replicas that cannot be read, after the others have proved the result."""
ROUND_LIMIT_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofPlan:
    """The subject of a proof, and its time limit.

    Attributes:
        topic: the topic. It is created if it is missing, unless `acknowledged` is given.
        load: the messages to send; None to compare `acknowledged` only.
        acknowledged: keys that were acknowledged before; None to send messages.
        queues: number of queues per broker of a topic that is created.
        copies: number of replicas of each set; 0 for the number in the route.
        wait_s: seconds to wait for replicas and the group after the last send.
        ledger: a file to which a line is written for each acknowledgement.
    """

    topic: str
    load: LoadOrder | None = None
    acknowledged: Mapping[str, MessagePlace | None] | None = None
    queues: int = 8
    copies: int = 0
    wait_s: float = 60.0
    ledger: TextIO | None = None


@dataclass(slots=True)
class ProofOutcome:
    """The result of a proof.

    Attributes:
        verdict: the comparison.
        readings: the content of each replica.
        failures: number of sends that finally failed, by reason.
        notes: notes for the user.
        sent_s: duration of the sends in seconds.
    """

    verdict: ProofVerdict
    readings: list[Reading]
    failures: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)
    sent_s: float = 0.0


async def prove(
    proof: ProofPlan,
    namesrv: str,
    tls: bool | None = None,
    *,
    announce: Callable[[str], None] = lambda text: None,
    progress: Callable[[int], None] = lambda done: None,
) -> ProofOutcome:
    """Run a proof.

    Args:
        proof: the subject of the proof.
        namesrv: the name servers.
        tls: see `ClientInstance`.
        announce: called with a description of each step.
        progress: called with the number of acknowledged messages.

    Raises:
        TianzhouError: the cluster cannot be reached at the beginning, or the topic cannot be used.
    """
    async with AsyncExitStack() as stack:
        admin = await stack.enter_async_context(Admin(namesrv, tls=tls))
        began = await _prepared(proof, admin, announce)
        groups = RunGroups([GROUP_PREFIX + secrets.token_hex(6)])
        await groups.make(admin)
        notes: list[str] = []
        try:
            async with PullConsumer(groups.names[0], namesrv, tls=tls) as consumer:
                group = ProofGroup(consumer, began)
                consuming = start_awaited(group.run())
                try:
                    outcome = await _proved(proof, namesrv, tls, admin, group, began, announce, progress)
                finally:
                    consuming.cancel()
                    with contextlib.suppress(asyncio.CancelledError):
                        await consuming
        finally:
            if why := await groups.forget(admin):
                notes.append(f"group {groups.names[0]} is left behind: {why}")
        outcome.notes += notes
        return outcome


async def _prepared(proof: ProofPlan, admin: Admin, announce: Callable[[str], None]) -> dict[MessageQueue, int]:
    """Return the topic's queues, and the offset at which the proof begins in each."""
    instance = admin.instance
    if not await admin.topics.exists(proof.topic):
        if proof.acknowledged is not None:
            raise ClientError(f"topic {proof.topic} does not exist; name the one the messages were sent to")
        await admin.topics.create(proof.topic, read_queue_nums=proof.queues, write_queue_nums=proof.queues)
        announce(f"topic {proof.topic} made, {proof.queues} queues")
    queues = await instance.queues_to_read(proof.topic, refresh=True)
    if not queues:
        raise ClientError(f"topic {proof.topic} has no queue that can be read; check its permission")
    if proof.acknowledged is not None:
        return dict.fromkeys(queues, 0)
    return {queue: await _end_of(instance, queue) for queue in queues}


async def _end_of(instance: ClientInstance, queue: MessageQueue) -> int:
    return await rpc.max_offset(instance.remoting, await instance.reader(queue), queue, instance.api_timeout_ms)


async def _proved(
    proof: ProofPlan,
    namesrv: str,
    tls: bool | None,
    admin: Admin,
    group: ProofGroup,
    began: Mapping[MessageQueue, int],
    announce: Callable[[str], None],
    progress: Callable[[int], None],
) -> ProofOutcome:
    replicas = Replicas(admin.instance, proof.topic, began)
    await replicas.look()
    notes = await _promises(admin, proof.topic)
    acknowledged, failures, sent_s = dict(proof.acknowledged or {}), Counter[str](), 0.0
    if proof.load is not None:
        load = ProofLoad(proof.load, proof.ledger)
        began_s = time.monotonic()
        async with Producer(
            GROUP_PREFIX + "producer", namesrv, tls=tls, durable=True, durable_timeout_ms=proof.load.timeout_ms
        ) as producer:
            await load.send(producer, progress)
        sent_s = time.monotonic() - began_s
        acknowledged, failures = load.acknowledged, load.failures
        announce(f"{len(acknowledged)} messages acknowledged in {sent_s:.1f} s")
    if not acknowledged:
        raise ConfigError(
            f"nothing was acknowledged, so there is nothing to prove: {dict(failures) or 'the file is empty'}"
        )
    verdict = await _compared(proof, replicas, group, acknowledged, announce)
    return ProofOutcome(verdict, replicas.readings, failures, notes, sent_s)


async def _compared(
    proof: ProofPlan,
    replicas: Replicas,
    group: ProofGroup,
    acknowledged: Mapping[str, MessagePlace | None],
    announce: Callable[[str], None],
) -> ProofVerdict:
    """Compare repeatedly, until the result is settled or the time is up."""
    end_s, pause_s, said = time.monotonic() + proof.wait_s, FIRST_PAUSE_S, ""
    proven_s: float | None = None
    while True:
        await replicas.look()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(end_s - time.monotonic(), ROUND_LIMIT_S)):
                await replicas.read(acknowledged)
        readings = replicas.readings
        copies = dict.fromkeys((reading.broker for reading in readings), proof.copies)
        verdict = compare(acknowledged, readings, copies, group.consumed)
        now_s = time.monotonic()
        proven_s = (proven_s or now_s) if verdict.proven else None
        whole = verdict.settled and all(reading.whole for reading in readings)
        if whole or now_s >= end_s or (proven_s is not None and now_s - proven_s >= SETTLE_S):
            return verdict
        if (text := _waits_for(verdict, readings)) != said:
            said = text
            announce(text)
        await asyncio.sleep(pause_s)
        pause_s = min(pause_s * 2, LONGEST_PAUSE_S)


def _waits_for(verdict: ProofVerdict, readings: list[Reading]) -> str:
    away = [reading.address for reading in readings if not reading.whole]
    return "waiting: " + "; ".join(
        text
        for text, wanted in (
            (f"{verdict.on_majority} of {verdict.acknowledged} on a majority", True),
            (f"{verdict.consumed} consumed", True),
            (f"not readable now: {', '.join(away)}", bool(away)),
            (f"{len(verdict.behind)} queues of replicas behind", bool(verdict.behind)),
        )
        if wanted
    )


async def _promises(admin: Admin, topic: str) -> list[str]:
    route = await admin.instance.route(topic)
    notes = []
    for broker in route.broker_datas if route is not None else ():
        if broker.master is None:
            continue
        try:
            values = await admin.cluster.broker_config(broker.master)
        except TianzhouError:
            continue  # Some clusters do not return their settings.
        notes += [f"{broker.broker_name}: {text}" for text in left_out(values)]
    return notes
