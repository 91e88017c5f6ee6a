"""Hostile replies of servers: our clients stay alive, keep a bounded request rate, and recover with a sane server."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import time
import tracemalloc
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any, Self

import hostile_server as hostile
import pytest
from hostile_server import BROKER, TOPIC, Server, Twist

from tianzhou import ConsumeFromWhere, Message, Producer, PullConsumer, PushConsumer
from tianzhou.admin import Admin
from tianzhou.errors import LimitExceeded, RemotingError, TianzhouError
from tianzhou.model import BrokerData
from tianzhou.testing import run_virtual
from tianzhou.wire.bodies.clients import CONSUMER_IDS
from tianzhou.wire.bodies.route import STANDARD_ROUTE
from tianzhou.wire.codes import RequestCode

pytestmark = pytest.mark.runner.with_args(run_virtual)

HOSTILE_S = 8.0
RECOVERY_S = 90.0
MOST_A_SECOND = 60
"""Maximum requests per second of all clients of a test together, on average; a calm cluster has two a second."""
MOST_AT_WORK_S = 20.0
MOST_TAKEN_BYTES = 100 << 20

CODES = {
    "route": RequestCode.GET_ROUTEINFO_BY_TOPIC,
    "heartbeat": RequestCode.HEART_BEAT,
    "members": RequestCode.GET_CONSUMER_LIST_BY_GROUP,
    "send": RequestCode.SEND_MESSAGE_V2,
    "pull": RequestCode.PULL_MESSAGE,
    "offset": RequestCode.QUERY_CONSUMER_OFFSET,
    "commit": RequestCode.UPDATE_CONSUMER_OFFSET,
    "lock": RequestCode.LOCK_BATCH_MQ,
    "send back": RequestCode.CONSUMER_SEND_MSG_BACK,
    "largest": RequestCode.GET_MAX_OFFSET,
}


class Clients:
    """One running client of each kind."""

    def __init__(self, server: Server, options: dict[str, Any] | None = None) -> None:
        self.server = server
        self.options = options or {}
        self.pushed: list[bytes] = []
        self.ordered: list[bytes] = []
        self.polled: list[bytes] = []
        self.defects: list[BaseException] = []
        self._sent = 0

    async def __aenter__(self) -> Self:
        self._stack = AsyncExitStack()
        first = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
        address = self.server.address
        self.producer = Producer("P", address, **self.options)
        push = PushConsumer("push", address, consume_from_where=first, **self.options)
        ordered = PushConsumer(
            "ordered", address, orderly=True, consume_from_where=first, max_reconsume_times=2,
            suspend_current_queue_time_ms=100, **self.options,
        )  # fmt: skip
        poll = PullConsumer("poll", address, consume_from_where=first, **self.options)
        push.subscribe(TOPIC, handler=self._pushed)
        ordered.subscribe(TOPIC, handler=self._ordered)
        poll.subscribe(TOPIC)
        for one in (self.producer, push, ordered, poll):
            await self._stack.enter_async_context(one)
        self._tasks = [asyncio.create_task(work) for work in (self._send(), self._poll(poll), self._refresh(push))]
        return self

    async def __aexit__(self, *error: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)
        try:
            async with asyncio.timeout(120):
                await self._stack.aclose()
        except TianzhouError:
            pass

    async def _pushed(self, message: Any) -> None:
        self.pushed.append(message.body[:100])
        if message.body == b"again":
            raise ValueError("again")

    async def _ordered(self, message: Any) -> None:
        self.ordered.append(message.body[:100])

    async def _forever(self, step: Callable[[], Awaitable[None]], pause_s: float) -> None:
        while True:
            try:
                await step()
            except TianzhouError:
                pass
            except Exception as error:  # noqa: BLE001 - what users should never see
                self.defects.append(error)
            await asyncio.sleep(pause_s)

    async def _send(self) -> None:
        async def step() -> None:
            self._sent += 1
            await self.producer.send(Message(TOPIC, b"%d" % self._sent), timeout_ms=3_000)

        await self._forever(step, 1.0)

    async def _poll(self, consumer: PullConsumer) -> None:
        async def step() -> None:
            for message in await consumer.poll(1_000):
                self.polled.append(message.body[:100])

        await self._forever(step, 0.1)

    async def _refresh(self, consumer: PushConsumer) -> None:
        await self._forever(lambda: consumer.instance.refresh_route(TOPIC), 2.0)

    def seen(self) -> tuple[list[bytes], ...]:
        return self.pushed, self.ordered, self.polled


Errors = Callable[[], list[str]]


@pytest.fixture
def errors(caplog: pytest.LogCaptureFixture) -> Iterator[Callable[[], list[str]]]:
    """Yield a function that returns the log lines about defects."""
    caplog.set_level(logging.WARNING)

    def found() -> list[str]:
        gc.collect()
        return [
            f"{one.getMessage()} {one.exc_info}"
            for one in caplog.records
            if one.levelno >= logging.ERROR and one.name != "tianzhou.remoting.error_codes"
        ]

    return found


def lived_through(code: int, twists: dict[str, Twist], errors: Errors, **options: Any) -> None:
    """Check that running clients survive each twist for a while, and work again with a sane server."""

    async def main() -> None:
        server = Server()
        async with server.server, Clients(server, options) as clients:
            await asyncio.sleep(3)
            server.code = code
            for name, twist in twists.items():
                server.twist = twist
                server.asked.clear()
                await asyncio.sleep(HOSTILE_S)
                asked = server.asked.total()
                assert asked <= MOST_A_SECOND * HOSTILE_S, f"{name}: {asked} requests, {server.asked}"
            server.twist = None
            server.asked.clear()
            await recovered(server, clients)
            assert clients.defects == []

    began_s = time.process_time()
    run_virtual(main())
    assert time.process_time() - began_s < MOST_AT_WORK_S
    assert errors() == []


async def recovered(server: Server, clients: Clients) -> None:
    """Return once every client has received a message of the server, which is sane again, and a send is accepted."""
    async with asyncio.timeout(RECOVERY_S):
        while not all(b"sane again" in seen for seen in clients.seen()):
            server.store(b"sane again")
            server.asked.clear()
            await asyncio.sleep(2)
        while not await sent(clients.producer):
            await asyncio.sleep(1)


async def sent(producer: Producer) -> bool:
    try:
        await producer.send(Message(TOPIC, b"last"))
    except TianzhouError:
        return False
    return True


@pytest.mark.parametrize("kind", hostile.FRAMES)
@pytest.mark.parametrize(
    "what", ["members", "pull", *(pytest.param(what, marks=pytest.mark.slow) for what in ("route", "send", "commit"))]
)
def test_frames_that_are_no_answers(what: str, kind: str, errors: Errors) -> None:
    lived_through(CODES[what], {kind: hostile.frames(kind)}, errors)


@pytest.mark.parametrize("what", CODES)
def test_header_fields_and_response_codes(what: str, errors: Errors) -> None:
    twists = {f"fields, seed {seed}": hostile.changed_fields(seed) for seed in range(0, 400, 100)}
    twists |= {f"code {code}": hostile.changed_code(code) for code in hostile.CODES}
    lived_through(CODES[what], twists, errors)


@pytest.mark.parametrize("what", ["route", "members", "lock", "pull"])
def test_bodies(what: str, errors: Errors) -> None:
    twists = {f"changed, seed {seed}": hostile.changed_body(seed) for seed in range(0, 600, 100)}
    twists |= {repr(body[:20]): hostile.other_body(body) for body in hostile.BODIES}
    lived_through(CODES[what], twists, errors)


@pytest.mark.parametrize("kind", hostile.FRUITLESS)
def test_pulls_that_lead_nowhere_are_not_repeated_at_once(kind: str, errors: Errors) -> None:
    lived_through(RequestCode.PULL_MESSAGE, {kind: hostile.fruitless(kind)}, errors)


@pytest.mark.parametrize("kind", hostile.BOMBS)
def test_small_bodies_that_unpack_to_much(kind: str, errors: Errors) -> None:
    tracemalloc.start()
    try:
        lived_through(
            RequestCode.PULL_MESSAGE, {kind: hostile.bombs(kind)}, errors, max_unpacked_body_bytes=hostile.BOMB_BYTES
        )
        assert tracemalloc.get_traced_memory()[1] < MOST_TAKEN_BYTES
    finally:
        tracemalloc.stop()


@pytest.mark.over_limit("maxQueuesPerRoute")
@pytest.mark.over_limit("maxBrokersPerRoute")
@pytest.mark.parametrize("queues", [262_145, 2**31 - 1])
async def test_a_route_above_the_limits_is_refused_and_the_one_known_before_stays_in_use(
    queues: int, caplog: pytest.LogCaptureFixture
) -> None:
    server = Server()
    async with server.server, Producer("P", server.address) as producer, Admin(server.address) as admin:
        await producer.send(Message(TOPIC, b"before"))
        for route in (
            server.route(read=queues, write=queues),
            replace(server.route(), order_topic_conf=f"{BROKER}:{queues}"),
            replace(server.route(), broker_datas=[BrokerData(BROKER, "c", dict.fromkeys(range(16385), "h:1"))]),
        ):
            server.code = RequestCode.GET_ROUTEINFO_BY_TOPIC
            server.twist = hostile.other_body(STANDARD_ROUTE.dumps(route))
            said = f"the route of topic {TOPIC} from name server {server.address}: .* at most .* are allowed"
            with pytest.raises(LimitExceeded, match=said):
                await admin.topics.route(TOPIC)
            await asyncio.sleep(60)
            await producer.send(Message(TOPIC, b"after"))


@pytest.mark.over_limit("maxMembersPerAnswer")
async def test_a_group_with_more_members_than_the_limit_leaves_the_queues_as_they_are() -> None:
    server = Server()
    async with server.server, Clients(server) as clients:
        await asyncio.sleep(3)
        server.code = RequestCode.GET_CONSUMER_LIST_BY_GROUP
        server.twist = hostile.other_body(CONSUMER_IDS.dumps(["a"] * 65_537))
        await asyncio.sleep(10)
        server.store(b"for those who had it")
        await asyncio.sleep(5)
        assert all(b"for those who had it" in seen for seen in clients.seen())


REQUESTS = (
    RequestCode.CHECK_TRANSACTION_STATE, RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT,
    RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
    RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, RequestCode.GET_CONSUMER_RUNNING_INFO,
    RequestCode.CONSUME_MESSAGE_DIRECTLY, 4711,
)  # fmt: skip


@pytest.mark.parametrize("code", REQUESTS)
def test_requests_of_brokers(code: int, errors: Errors) -> None:
    async def main() -> None:
        server = Server()
        async with server.server, Clients(server) as clients:
            await asyncio.sleep(3)
            server.asked.clear()
            for number, request in enumerate(hostile.requests(code)):
                for connection in server.clients:
                    if number % 2:
                        connection.invoke_oneway(request)
                    else:
                        with contextlib.suppress(RemotingError):
                            await connection.invoke(request, 100)
            await asyncio.sleep(HOSTILE_S)
            assert server.asked.total() <= MOST_A_SECOND * HOSTILE_S, server.asked
            await recovered(server, clients)
            assert clients.defects == []

    run_virtual(main())
    assert errors() == []


@pytest.mark.parametrize("kind", ["fields", "body", "other", *hostile.FRAMES])
def test_admin_gets_an_error_of_ours_or_an_answer(kind: str, errors: Errors) -> None:
    async def main() -> None:
        server = Server()
        async with server.server, Admin(server.address) as admin:
            questions = hostile.questions(admin)
            for number, (code, ask) in enumerate(questions):
                for seed in range(number, number + (30 if kind not in hostile.FRAMES else 1)):
                    server.code = code
                    server.twist = {
                        "fields": hostile.changed_fields(seed),
                        "body": hostile.changed_body(seed),
                        "other": hostile.other_body(hostile.BODIES[seed % len(hostile.BODIES)]),
                    }.get(kind) or hostile.frames(kind)
                    server.asked.clear()
                    async with asyncio.timeout(300):
                        with contextlib.suppress(TianzhouError):
                            await ask()

    run_virtual(main())
    assert errors() == []


async def test_iterating_passes_over_a_message_whose_body_cannot_be_unpacked_and_gives_it_back() -> None:
    server = Server()
    server.store(b"first")
    server.store(b"no stream", sys_flag=0x301)
    server.store(b"last")
    first = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    seen: list[bytes] = []
    async with server.server, asyncio.timeout(60):
        async with PushConsumer("push", server.address, consume_from_where=first) as consumer:
            consumer.subscribe(TOPIC)
            async for message in consumer:
                seen.append(message.body)
                if len(seen) == 2:
                    break
        assert server.asked[RequestCode.CONSUMER_SEND_MSG_BACK] == 1
    assert seen == [b"first", b"last"]
    assert server.offsets["push", TOPIC] == 3
