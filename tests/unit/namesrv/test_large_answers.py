"""A name server builds replies that grow with its tables in slices, and serves other requests in between."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from name_server_desk import Desk

from tianzhou.namesrv import handlers
from tianzhou.remoting import turns
from tianzhou.wire.codes import RequestCode
from tianzhou.wire.command import Command

MANY = 600
ASKED = {
    "206": (RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, {}),
    "224": (RequestCode.GET_TOPICS_BY_CLUSTER, {"cluster": "DefaultCluster"}),
    "106": (RequestCode.GET_BROKER_CLUSTER_INFO, {}),
    "105": (RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "WIDE"}),
    "219": (RequestCode.GET_KVLIST_BY_NAMESPACE, {"namespace": "n"}),
}


@pytest.mark.parametrize("version", [300, 479])
@pytest.mark.parametrize("kind", ASKED)
async def test_a_large_answer_is_made_in_slices(
    kind: str, version: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, fields = ASKED[kind]

    async with Desk(tmp_path) as desk:
        await desk.register("SMALL", *(f"T{n}" for n in range(MANY)))
        for number in range(100):
            name = f"broker-{number}"
            await desk.register("WIDE", "W", address=f"10.1.0.{number}:1", broker_name=name, broker_id=0)
        for number in range(300):
            await desk.ask(RequestCode.PUT_KV_CONFIG, namespace="n", key=f"k{number}", value="v")
        whole = await desk.ask(code, version=version, **fields)
        assert (whole.code, len(whole.body) > 3_000) == (0, True)

        monkeypatch.setattr(turns, "SLICE_S", 0.0)
        monkeypatch.setattr(handlers, "MANY_BROKERS", 50)
        answered: list[str] = []

        async def ask(name: str, code: int, fields: dict[str, str]) -> Command:
            reply = await desk.ask(code, version=version, **fields)
            answered.append(name)
            return reply

        large = asyncio.ensure_future(ask("large", code, fields))
        small = asyncio.ensure_future(ask("small", RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "SMALL"}))
        assert (await small).code == 0
        assert bytes((await large).body) == bytes(whole.body)
        assert answered == ["small", "large"]
