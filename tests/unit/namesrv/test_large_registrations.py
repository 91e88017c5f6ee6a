"""Registrations of many topics: read a few at a time, and known again."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest
from name_server_desk import BROKER, Desk

from tianzhou.limits import JSON_OBJECTS
from tianzhou.model import QueueData, TopicRoute
from tianzhou.remoting.side_thread import SideThread
from tianzhou.wire.bodies.register import RegisterCodec
from tianzhou.wire.bodies.route import ROUTE
from tianzhou.wire.codes import RequestCode
from tianzhou.wire.command import Command
from tianzhou.wire.fields import write_header


async def test_registrations_of_many_topics_are_read_in_between_other_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = [f"T{number:05}" for number in range(3_000)]

    async with Desk(tmp_path) as desk:
        order: list[str] = []

        async def note(what: str, work: Awaitable[Command]) -> Command:
            reply = await work
            order.append(what)
            return reply

        registered, other = await asyncio.gather(
            note("registered", desk.register(*many)), note("other", desk.ask(RequestCode.GET_BROKER_CLUSTER_INFO))
        )
        assert (registered.code, other.code, order) == (0, 0, ["other", "registered"])
        assert desk.server.routes.route(many[-1]) is not None
        # The same again is known without being read; then one topic more, and one that is new by itself.
        order.clear()
        with monkeypatch.context() as patched:
            patched.setattr(RegisterCodec, "load_in_steps", None)
            assert (await desk.register(*many)).code == 0
        assert (await desk.register(*many, "more", counter=2)).code == 0
        assert (await desk.register("single", counter=3)).code == 0
        assert (await desk.register(*many, counter=4)).code == 0
        for topic in (many[0], "more", "single"):
            assert desk.server.routes.route(topic) is not None, topic


async def test_a_broker_that_goes_while_its_registration_is_read_is_gone(tmp_path: Path) -> None:
    many = [f"T{number:05}" for number in range(3_000)]

    async with Desk(tmp_path) as desk:
        gone = write_header(
            RequestCode.UNREGISTER_BROKER, cluster_name="DefaultCluster", broker_addr=BROKER,
            broker_name="broker-a", broker_id=0,
        )  # fmt: skip
        registered, unregistered = await asyncio.gather(
            desk.register(*many),
            desk.client.invoke(desk.address, Command(RequestCode.UNREGISTER_BROKER, fields=gone)),
        )
        assert (registered.code, unregistered.code) == (1, 0)
        assert "another request since" in (registered.remark or "")
        assert desk.server.routes.topics() == []
        assert (await desk.register(*many)).code == 0
        assert len(desk.server.routes.topics()) == 3_000


async def test_compressed_registrations_are_read_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[Any] = []
    run_aside = SideThread.run

    async def noted(self: Any, work: Any, *arguments: Any) -> Any:
        done.append(work)
        return await run_aside(self, work, *arguments)

    monkeypatch.setattr(SideThread, "run", noted)
    many = [f"T{zlib.crc32(b'%d' % number):010}" for number in range(3_000)]

    async with Desk(tmp_path) as desk:
        assert (await desk.register(*many, compressed=True)).code == 0
        assert [work.__func__ for work in done] == [RegisterCodec.loads]
        assert desk.server.routes.route(many[-1]) is not None
        assert (await desk.register("one", compressed=True, counter=2)).code == 0
        assert len(done) == 1


async def test_a_registration_of_endless_objects_is_refused(desk: Desk) -> None:
    fields = write_header(
        RequestCode.REGISTER_BROKER, broker_name="broker-a", broker_addr=BROKER, cluster_name="DefaultCluster",
        ha_server_addr="", broker_id=0, compressed=False, body_crc32=0,
    )  # fmt: skip
    body = b'{"x":[' + b"[]," * JSON_OBJECTS.default + b"[]]}"
    for code in (RequestCode.REGISTER_BROKER, RequestCode.REGISTER_TOPIC_IN_NAMESRV):
        reply = await desk.ask(code, body, **fields, topic="T")
        assert (reply.code, "a large JSON body of a request" in (reply.remark or "")) == (29, True)


async def test_large_routes_of_a_topic_are_read_aside(desk: Desk) -> None:
    assert (await desk.register("other", "another")).code == 0
    queues = [QueueData("broker-a", 4, 4, 6)] + [QueueData(f"broker-{n}", 4, 4, 6) for n in range(500)]
    body = ROUTE.dumps(TopicRoute(queue_datas=queues))
    reply = await desk.ask(RequestCode.REGISTER_TOPIC_IN_NAMESRV, body, topic="T")
    assert reply.code == 0
    route = desk.server.routes.route("T")
    assert route is not None
    assert [one.broker_name for one in route.queue_datas] == ["broker-a"]


async def test_many_registrations_at_once_are_all_taken(desk: Desk) -> None:
    topics = [[f"T{broker}-{number}" for number in range(100)] for broker in range(30)]
    replies = await asyncio.gather(
        *(desk.register(*names, address=f"10.0.0.{n}:10911") for n, names in enumerate(topics))
    )
    assert all(reply.code == 0 for reply in replies)
