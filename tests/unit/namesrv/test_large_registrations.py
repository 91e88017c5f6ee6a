"""Registrations of many topics: read a few at a time, and known again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from pathlib import Path

from name_server_desk import BROKER, Desk

from tianzhou.wire import bodies
from tianzhou.wire.codes import RequestCode
from tianzhou.wire.command import Command
from tianzhou.wire.fields import write_header


def test_registrations_of_many_topics_are_read_in_between_other_requests(tmp_path: Path) -> None:
    many = [f"T{number:05}" for number in range(3_000)]

    async def main() -> None:
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
            decode = bodies.decode_register_steps
            bodies.decode_register_steps = None  # type: ignore[assignment]
            try:
                assert (await desk.register(*many)).code == 0
            finally:
                bodies.decode_register_steps = decode
            assert (await desk.register(*many, "more", counter=2)).code == 0
            assert (await desk.register("single", counter=3)).code == 0
            assert (await desk.register(*many, counter=4)).code == 0
            for topic in (many[0], "more", "single"):
                assert desk.server.routes.route(topic) is not None, topic

    asyncio.run(main())


def test_a_broker_that_goes_while_its_registration_is_read_is_gone(tmp_path: Path) -> None:
    many = [f"T{number:05}" for number in range(3_000)]

    async def main() -> None:
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
            assert "something else since" in (registered.remark or "")
            assert desk.server.routes.topics() == []
            assert (await desk.register(*many)).code == 0
            assert len(desk.server.routes.topics()) == 3_000

    asyncio.run(main())
