"""Base of request handlers: one class for a family of request codes, one method for a code."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias, TypeVar, cast

from tianzhou.broker.replication.table_answers import ASKED
from tianzhou.broker.services import Services
from tianzhou.errors import BrokerError
from tianzhou.remoting.connection import Connection, FastPath, Reply
from tianzhou.remoting.turns import Slices
from tianzhou.wire.codes import RequestCode, ResponseCode
from tianzhou.wire.command import Command

Serve: TypeAlias = Callable[[Connection, Command], Reply | Awaitable[Reply] | Slices[Reply]]
"""Function that serves one request at once, later, or in slices of work."""
Method = TypeVar("Method", bound=Callable[..., Any])


def serves(*codes: RequestCode) -> Callable[[Method], Method]:
    """Mark a method of a `Handler` with the request codes that it serves."""

    def marked(method: Method) -> Method:
        cast("Any", method).request_codes = codes
        return method

    return marked


class Handler:
    """Base class of handlers of a family of requests.

    Args:
        services: the broker's services.
    """

    def __init__(self, services: Services) -> None:
        self._tables = services.tables
        self._store = services.store
        self._stats = services.stats
        self._clock = services.clock
        self._turns = services.turns
        self._replication = services.replication
        self._address = services.address
        self._host = services.host

    def _check_known(self, group: str, topic: str) -> None:
        """Refuse a missing group or topic.

        Raises:
            BrokerError: SUBSCRIPTION_GROUP_NOT_EXIST or TOPIC_NOT_EXIST.
        """
        if group not in self._tables.groups:
            raise BrokerError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {group} not exist!")
        if topic not in self._tables.topics:
            raise BrokerError(ResponseCode.TOPIC_NOT_EXIST, f"Topic {topic} not exist!")

    def _table_reply(self, command: Command, body: bytes) -> Command:
        """Return an answer with a complete table; to a Tianzhou broker add fields with this broker's role."""
        fields = self._replication.table_fields() if ASKED in command.fields else None
        return command.reply(ResponseCode.SUCCESS, None, fields, body)

    def fast_paths(self) -> Mapping[int, FastPath]:
        """Return functions that serve several ordinary requests of a read by one call, by request code of the first."""
        return {}

    def routes(self) -> Mapping[int, Serve]:
        """Return the methods by request code."""
        return {
            code: getattr(self, name)
            for name, method in vars(type(self)).items()
            for code in getattr(method, "request_codes", ())
        }
