"""Non-urgent requests: they run in fair turns, and a side thread decodes their large bodies."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Mapping
from functools import partial, wraps
from typing import Any, Final, Self, TypeAlias, TypeVar, cast

from tianzhou.broker.handlers.handler import Serve
from tianzhou.broker.settings import BrokerSettings
from tianzhou.chained_coroutines import ChainedCoroutine, close_unstarted
from tianzhou.errors import LimitExceeded
from tianzhou.filter import COMPILED
from tianzhou.limits import HEARTBEAT_SIZE, JSON_SIZE, Limit, Refusals
from tianzhou.records.checksum import Octets
from tianzhou.remoting.connection import Connection, Processor, Reply
from tianzhou.remoting.side_thread import ASIDE, WeightedSemaphore
from tianzhou.remoting.turns import Turns
from tianzhou.wire.bodies import staging
from tianzhou.wire.bodies.clients import LOCK_REQUEST
from tianzhou.wire.bodies.groups import SUBSCRIPTION_GROUP, SUBSCRIPTION_GROUPS
from tianzhou.wire.bodies.heartbeat import CLIENT_CONFIG_CHECK, HEARTBEAT
from tianzhou.wire.bodies.topics import TOPIC_CONFIGS
from tianzhou.wire.codes import RequestCode
from tianzhou.wire.command import Command
from tianzhou.wire.json_shape import check_objects

T = TypeVar("T")
Served: TypeAlias = Reply | Awaitable[Reply]

LARGE: Final = 16_384
"""Bytes from which on the side thread decodes a body; a shorter one takes a few milliseconds at most."""

DECODED: Final = 16_777_216
"""Maximum bytes of large bodies that are decoded and not served yet; as objects they take seven times as much."""
SHORT: Final = 256
"""Maximum characters of an SQL92 expression that compiles in less than a millisecond."""
SMALL_BODY: Final = 2_048
QUICK_S: Final = 0.0003
"""Seconds below which recent requests of a code need no turn, if the body has at most `SMALL_BODY` bytes."""
DECAY: Final = 0.9

URGENT: Final = frozenset(
    map(
        int,
        (
            RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE,
            RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2, RequestCode.CONSUMER_SEND_MSG_BACK,
            RequestCode.END_TRANSACTION, RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE,
            RequestCode.UPDATE_CONSUMER_OFFSET, RequestCode.QUERY_CONSUMER_OFFSET,
        ),
    )
)  # fmt: skip
"""Request codes served at once, because they are frequent and their cost is bounded."""

IN_ORDER: Final = frozenset((int(RequestCode.HEART_BEAT), int(RequestCode.UNREGISTER_CLIENT)))
"""Request codes served in a connection's order: an unregistration must not overtake a heartbeat."""
_UNDER_WAY: Final = "broker.under_way"

DECODERS: Final[Mapping[int, Callable[[Octets], Any]]] = {
    int(RequestCode.HEART_BEAT): HEARTBEAT.loads,
    int(RequestCode.CHECK_CLIENT_CONFIG): CLIENT_CONFIG_CHECK.loads,
    int(RequestCode.LOCK_BATCH_MQ): LOCK_REQUEST.loads,
    int(RequestCode.UNLOCK_BATCH_MQ): LOCK_REQUEST.loads,
    int(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP): SUBSCRIPTION_GROUP.loads,
    int(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST): SUBSCRIPTION_GROUPS.loads,
    int(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST): TOPIC_CONFIGS.loads,
    **dict.fromkeys((int(RequestCode.DECIDE_BATCH), int(RequestCode.PUBLISH_BATCH)), staging.DECISION.loads),
    **dict.fromkeys((int(RequestCode.SETTLE_ATTEMPTS), int(RequestCode.DISCARD_ATTEMPTS)), staging.ATTEMPTS.loads),
}
"""Decoders of the JSON bodies of requests, by request code."""


class Decoded(bytes):
    """A body with its decoded value."""

    value: Any

    def __new__(cls, body: bytes, value: Any) -> Self:
        """Create a body from its bytes and its decoded value."""
        made = super().__new__(cls, body)
        made.value = value
        return made


def decoded(command: Command, decode: Callable[[Octets], T]) -> T:
    """Return the decoded body of a request; decode it unless the side thread did."""
    body = command.body
    return body.value if type(body) is Decoded else decode(body)


async def read_expression(expression: str) -> None:
    """Compile a long, unknown SQL92 expression in the side thread into the cache; the handler reports errors later."""
    if len(expression) > SHORT and expression not in COMPILED:
        COMPILED.remember(expression, await ASIDE.run(COMPILED.make, expression))


class NonUrgentRequests:
    """Fair scheduling of requests that are not urgent.

    Args:
        turns: the time allowance of these requests.
        settings: limits of body sizes.
        refusals: counts of rejected larger bodies.
        monotonic: returns monotonic seconds.
    """

    def __init__(
        self, turns: Turns, settings: BrokerSettings, refusals: Refusals, monotonic: Callable[[], float]
    ) -> None:
        self._turns = turns
        self._settings = settings
        self._refusals = refusals
        self._monotonic = monotonic
        self._decoding = WeightedSemaphore()

    def around(self, code: int, handle: Serve) -> Processor:
        """Return a handler that waits while the allowance of a turn is used up; return an urgent handler unchanged.

        A handler that answers in slices runs each further slice in a further turn.
        """
        if code in URGENT:
            return cast("Processor", handle)
        decode = DECODERS.get(code)
        limit = HEARTBEAT_SIZE if code == RequestCode.HEART_BEAT else JSON_SIZE
        turns, monotonic = self._turns, self._monotonic
        likely_s = 0.0

        def measured(connection: Connection, command: Command) -> Served:
            nonlocal likely_s
            began = monotonic()
            try:
                reply = handle(connection, command)
                return turns.sliced(reply) if isinstance(reply, Generator) else reply
            finally:
                spent = monotonic() - began
                if len(command.body) <= SMALL_BODY:
                    likely_s = max(spent, likely_s * DECAY)
                turns.spend(spent)

        @wraps(handle)
        def serve(connection: Connection, command: Command) -> Served:
            if decode is not None and command.body:
                self._check(limit, command)
                if is_large(command.body):
                    return self._read_aside(decode, measured, connection, command)
            if turns.free() or (likely_s < QUICK_S and len(command.body) <= SMALL_BODY):
                return measured(connection, command)
            return self._in_turn(measured, connection, command)

        @wraps(handle)
        def serve_in_order(connection: Connection, command: Command) -> Served:
            before = connection.attributes.get(_UNDER_WAY)
            answer: Awaitable[Reply] | Callable[[], Served] = partial(serve, connection, command)
            if before is None:
                reply = serve(connection, command)
                if not isinstance(reply, Awaitable):
                    return reply
                answer = reply
            over = connection.attributes[_UNDER_WAY] = asyncio.get_running_loop().create_future()
            return ChainedCoroutine(self._after(before, over, answer, connection), answer)

        return serve_in_order if code in IN_ORDER else serve

    async def _after(
        self,
        before: asyncio.Future[None] | None,
        over: asyncio.Future[None],
        reply: Awaitable[Reply] | Callable[[], Served],
        connection: Connection,
    ) -> Reply:
        """Serve a request after the previous one of the connection.

        Args:
            before: future of the previous request; None without one.
            over: future to set when this request is served.
            reply: this request's reply, or the function that serves it.
            connection: the peer's connection.
        """
        try:
            if before is not None:
                await asyncio.wait((before,))
            served = reply if isinstance(reply, Awaitable) else reply()
            return await served if isinstance(served, Awaitable) else served
        finally:
            close_unstarted(reply)  # the wait for the request before it may have been cancelled
            if connection.attributes.get(_UNDER_WAY) is over:
                del connection.attributes[_UNDER_WAY]
            over.set_result(None)

    def _check(self, limit: Limit, command: Command) -> None:
        settings = self._settings
        most = settings.max_heartbeat_size if limit is HEARTBEAT_SIZE else settings.max_json_body_size
        self._refusals.check(limit, len(command.body), most)

    async def _in_turn(self, handle: Processor, connection: Connection, command: Command) -> Reply:
        await self._turns.turn()
        reply = handle(connection, command)
        return await reply if isinstance(reply, Awaitable) else reply

    async def _read_aside(
        self,
        decode: Callable[[Octets], Any],
        handle: Processor,
        connection: Connection,
        command: Command,
    ) -> Reply:
        # Copy the body, because the connection reuses its read buffer.
        body = bytes(command.body)
        async with self._decoding.acquired(len(body), DECODED):
            try:
                value = await ASIDE.run(_read, decode, body)
            except LimitExceeded as error:
                if isinstance(error.limit, Limit):
                    self._refusals.counts[error.limit.name] += 1
                raise
            command.body = Decoded(body, value)
            return await self._in_turn(handle, connection, command)


def is_large(body: Octets) -> bool:
    """Whether a JSON body may be slow to decode: it is large, or it contains `$ref` references."""
    return len(body) >= LARGE or b"$ref" in bytes(body)


def _read(decode: Callable[[Octets], Any], body: bytes) -> Any:
    check_objects(body)
    return decode(body)
