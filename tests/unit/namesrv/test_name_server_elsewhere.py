"""Routes of another environment, as name servers request them from each other."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest
from name_server_desk import BROKER, Desk

from broker_probe import NamesrvProbe
from tianzhou.errors import ConnectFailed


async def test_a_test_environment_asks_the_other_one_for_routes_it_does_not_know(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Desk(tmp_path / "product") as product, Desk(tmp_path / "test", cluster_test=True) as test:
        monkeypatch.setenv("NAMESRV_ADDR", f"127.0.0.1:9;{product.address}")
        await product.register("Theirs", "Both")
        await test.register("Ours", "Both", address="10.0.0.2:10911")
        assert (await test.route("Ours")).broker_datas[0].broker_addrs == {0: "10.0.0.2:10911"}
        assert (await test.route("Both")).broker_datas[0].broker_addrs == {0: "10.0.0.2:10911"}
        assert (await test.route("Theirs")).broker_datas[0].broker_addrs == {0: BROKER}
        assert b'{0:"10.0.0.1:10911"}' in (await test.ask(105, topic="Theirs", version=317)).body
        assert await test.route("Nobodys") == 17
        assert await product.route("Ours") == 17, "only the test environment asks"
        # Forwarding the routes of other environments is a matter of trust, so no request can change these settings.
        for change in (b"clusterTest=false\n", b"productEnvName=elsewhere\n"):
            assert (await test.ask(318, change)).code == 16
        assert (await test.route("Theirs")).broker_datas[0].broker_addrs == {0: BROKER}


async def test_environments_that_ask_each_other_come_to_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with Desk(tmp_path, cluster_test=True) as desk:
        monkeypatch.setenv("NAMESRV_ADDR", desk.address)
        asked = []
        NamesrvProbe(desk.server).note_requests(asked)
        assert await asyncio.gather(*(desk.route("T") for _ in range(5))) == [17] * 5
        assert asked == [105] * 6, "five questions, and one to itself for all of them"


async def test_where_nobody_can_be_queried_routes_are_unknown_and_the_log_says_so_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked = []

    async def look_up(url: str) -> str:
        asked.append(url)
        raise ConnectFailed("address server does not answer")

    with caplog.at_level(logging.WARNING):
        monkeypatch.delenv("NAMESRV_ADDR", raising=False)
        monkeypatch.setattr("tianzhou.client.cluster.address_server.look_up", look_up)
        monkeypatch.setenv("ROCKETMQ_NAMESRV_DOMAIN", "lists:81")
        async with Desk(tmp_path, cluster_test=True, product_env_name="live") as desk:
            assert [await desk.route("T") for _ in range(3)] == [17] * 3
            assert asked == ["http://lists:81/rocketmq/nsaddr-live?nofix=1"], "not again for each question"
            said = [record.getMessage() for record in caplog.records if "clusterTest" in record.getMessage()]
            assert said == ["clusterTest: name servers of live cannot be looked up: address server does not answer"]
            desk.clock.advance(11)
            assert await desk.route("T") == 17
            assert len(asked) == 2
