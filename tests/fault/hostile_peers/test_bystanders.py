"""Other clients while a hostile client is served: none of their requests is blocked for as much as a second."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from processes import Tianzhou, serve

from tianzhou.remoting.client import RemotingClient
from tianzhou.wire.bodies.route import CLUSTER_INFO
from tianzhou.wire.codes import RequestCode
from tianzhou.wire.command import Command
from tianzhou.wire.fields import write_header

HELD_UP_LIMIT_S = 1.0
"""The guarantee is 50 ms on a dedicated machine; before the fix each of these took from 0.7 to 47 s."""

QUEUES = ",".join(f'{{"brokerName":"b","queueId":{n},"topic":"t"}}:1' for n in range(8_000))
REFERENCES = ",".join(['{"$ref":"$.m.null"}:1'] * 8_000)
LISTS = ",".join(['{"$ref":"$.a"}'] * 500)
CONDITIONS = " OR ".join(f"p{n % 9} = {n}" for n in range(90_000))

HEARTBEATS = {
    "references": f'{{"clientID":"c","a":[{",".join(["1"] * 20_000)}],"b":[{LISTS}]}}',
    "references as keys": f'{{"clientID":"c","m":{{{QUEUES}}},"n":{{{REFERENCES}}}}}',
    "a dialect": f'{{"clientID":"c","x":{{{",".join(f"{n}:1" for n in range(200_000))}}}}}',
    "groups": json.dumps({"clientID": "c", "producerDataSet": [{"groupName": f"g{n}"} for n in range(60_000)]}),
    "an expression": json.dumps(
        {
            "clientID": "c",
            "consumerDataSet": [
                {
                    "groupName": "G",
                    "subscriptionDataSet": [{"topic": "T", "subString": CONDITIONS, "expressionType": "SQL92"}],
                }
            ],
        }
    ),
}


async def longest_wait(address: str, code: int, header: dict[str, Any], hostile: list[Command]) -> float:
    """Return the longest time of a small request while hostile ones were served."""
    loop = asyncio.get_running_loop()
    longest = 0.0
    async with RemotingClient() as client, RemotingClient() as other:
        # Build the hostile frames before, because that also takes this process a while.
        served = asyncio.gather(*(other.invoke(address, command, timeout_ms=120_000) for command in hostile))
        while not served.done():
            began = loop.time()
            await client.invoke(address, Command(code, fields=write_header(code, **header)), timeout_ms=120_000)
            longest = max(longest, loop.time() - began)
            await asyncio.sleep(0.001)
        await served
    return longest


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with serve(tmp_path_factory.mktemp("bystanders")) as started:
        started.ready()
        yield started


def broker_of(server: Tianzhou) -> str:
    async def ask() -> str:
        async with RemotingClient() as client:
            reply = await client.invoke(server.ready()["namesrv"], Command(RequestCode.GET_BROKER_CLUSTER_INFO))
        (broker,) = CLUSTER_INFO.loads(reply.body).broker_addr_table.values()
        return broker.broker_addrs[0]

    return asyncio.run(ask())


@pytest.mark.parametrize("kind", HEARTBEATS)
def test_a_hostile_heartbeat(server: Tianzhou, kind: str) -> None:
    beat = Command(RequestCode.HEART_BEAT, body=HEARTBEATS[kind].encode())
    header = {"topic": "TBW102", "queue_id": 0}
    held_up_s = asyncio.run(longest_wait(broker_of(server), RequestCode.GET_MAX_OFFSET, header, [beat] * 3))
    assert held_up_s < HELD_UP_LIMIT_S


def test_thousands_of_kv_values(server: Tianzhou) -> None:
    code = RequestCode.PUT_KV_CONFIG
    puts = [Command(code, fields=write_header(code, namespace="n", key=f"k{n}", value="v" * 90)) for n in range(1_000)]
    namesrv = server.ready()["namesrv"]
    held_up_s = asyncio.run(longest_wait(namesrv, RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "TBW102"}, puts))
    assert held_up_s < HELD_UP_LIMIT_S
