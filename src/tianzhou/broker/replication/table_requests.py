"""Requests that change tables, at a member of a group: answered OK when a majority of the group has the change."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol

from tianzhou.chained_coroutines import ChainedCoroutine
from tianzhou.errors import BrokerError
from tianzhou.remoting.connection import Connection, Processor, Reply
from tianzhou.wire.codes import RequestCode as Code
from tianzhou.wire.codes import ResponseCode
from tianzhou.wire.command import Command

_USERS: Final = frozenset(
    {
        Code.AUTH_CREATE_USER, Code.AUTH_UPDATE_USER, Code.AUTH_DELETE_USER, Code.AUTH_CREATE_ACL,
        Code.AUTH_UPDATE_ACL, Code.AUTH_DELETE_ACL,
    }
)  # fmt: skip
"""Changes of users and policies. A follower answers them once it has applied the change (`UserStore.follows`)."""
_AT_LEADER: Final = frozenset(
    {
        Code.UPDATE_AND_CREATE_TOPIC, Code.UPDATE_AND_CREATE_TOPIC_LIST, Code.DELETE_TOPIC_IN_BROKER,
        Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
        Code.DELETE_SUBSCRIPTIONGROUP, Code.UPDATE_AND_GET_GROUP_FORBIDDEN, Code.INVOKE_BROKER_TO_RESET_OFFSET,
        Code.CLONE_GROUP_OFFSET, Code.UPDATE_SEND_LIMITS,
    }
)  # fmt: skip
"""Changes that a follower refuses: the next snapshot of the leader would undo them."""
PUBLISHED: Final = _AT_LEADER | _USERS | {Code.UPDATE_BROKER_CONFIG}
"""Requests whose answer waits until the group has the change."""

Wrap = Callable[[int, Any], Processor]


def with_sure_offsets(wrap: Wrap, unsure: Callable[[], str]) -> Wrap:
    """Return a wrapper like `wrap` that also refuses queries of committed offsets at an unsure member.

    A consumer that gets an offset from another group's folder would skip messages.

    Args:
        wrap: wraps the handler of a request code.
        unsure: returns why the member's tables may not be those of its group; empty when they are.
    """

    def wrapped(code: int, handle: Any) -> Processor:
        processor = wrap(code, handle)
        if code != Code.QUERY_CONSUMER_OFFSET:
            return processor

        def serve(connection: Connection, command: Command) -> Reply | Awaitable[Reply]:
            if why := unsure():
                raise BrokerError(ResponseCode.SYSTEM_ERROR, why)
            return processor(connection, command)

        return serve

    return wrapped


class _Log(Protocol):
    @property
    def leads(self) -> bool: ...

    async def publish(self) -> None: ...


class TableRequests:
    """Wrapper of the handlers of requests that change tables.

    Args:
        log: the tables in the group's log.
        refused: returns why this member refuses changes now; empty when it accepts them.
    """

    def __init__(self, log: _Log, refused: Callable[[], str]) -> None:
        self._log = log
        self._refused = refused

    def around(self, wrap: Wrap) -> Wrap:
        """Return a wrapper like `wrap` that also publishes changes of tables."""

        def wrapped(code: int, handle: Any) -> Processor:
            processor = wrap(code, handle)
            return self._published(code, processor) if code in PUBLISHED else processor

        return wrapped

    def _published(self, code: int, processor: Processor) -> Processor:
        def serve(connection: Connection, command: Command) -> Reply | Awaitable[Reply]:
            if code in _AT_LEADER and (why := self._refused()):
                raise BrokerError(ResponseCode.SYSTEM_ERROR, why)
            leads = self._log.leads
            reply = processor(connection, command)
            if isinstance(reply, Awaitable):
                return ChainedCoroutine(self._after(reply, leads=leads), reply)
            return self._now(reply) if leads and _is_success(reply) else reply

        return serve

    async def _after(self, awaited: Awaitable[Reply], *, leads: bool) -> Reply:
        reply = await awaited
        return await self._now(reply) if leads and _is_success(reply) else reply

    async def _now(self, reply: Reply) -> Reply:
        await self._log.publish()
        return reply


def _is_success(reply: Reply) -> bool:
    return isinstance(reply, Command) and reply.code == ResponseCode.SUCCESS
