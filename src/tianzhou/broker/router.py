"""From request code to handler."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Protocol

from tianzhou.remoting.answers import unsupported
from tianzhou.remoting.connection import Connection, Reply
from tianzhou.wire.codes import RequestCode, ResponseCode
from tianzhou.wire.command import Command

Handle = Callable[[Connection, Command], Reply | Awaitable[Reply]]

NOT_ON_FAST_PORT = frozenset(
    {
        RequestCode.PULL_MESSAGE,
        RequestCode.LITE_PULL_MESSAGE,
        RequestCode.PEEK_MESSAGE,
        RequestCode.POP_MESSAGE,
        RequestCode.NOTIFICATION,
        RequestCode.POLLING_INFO,
    }
)
"""Codes the fast port answers as unknown (wire.md §1.12)."""


class Handler(Protocol):
    """A family of requests."""

    def routes(self) -> Mapping[int, Handle]:
        """Request codes and who serves them."""
        ...


class Router:
    """Serves a listener.

    Args:
        handlers: families of requests; no code belongs to two.
        refuse: why a request is not served, given its code and how many ms it has waited; None when it is.
    """

    def __init__(self, *handlers: Handler, refuse: Callable[[int, float], str | None] | None = None) -> None:
        self._refuse = refuse
        self._table: dict[int, Handle] = {}
        for handler in handlers:
            for code, handle in handler.routes().items():
                if code in self._table:
                    raise ValueError(f"request code {code} is served twice")
                # Plain integers as keys: hashing an enum member costs more than the look-up.
                self._table[int(code)] = handle
        self._find = self._table.get

    @property
    def codes(self) -> frozenset[int]:
        """Codes that are served."""
        return frozenset(self._table)

    def handler(self, code: int) -> Handle:
        """Who serves a code; a KeyError when nobody does."""
        return self._table[code]

    def without(self, codes: Iterable[int]) -> Router:
        """A router that serves all but some codes."""
        other = Router(refuse=self._refuse)
        refused = set(map(int, codes))
        other._table.update((code, handle) for code, handle in self._table.items() if code not in refused)
        return other

    def serve_late(self, connection: Connection, command: Command, waited_s: float) -> Reply | Awaitable[Reply]:
        """Serve a request that has waited, unless that was for too long."""
        refusal = None if self._refuse is None else self._refuse(command.code, waited_s * 1000)
        if refusal is not None:
            return command.reply(ResponseCode.SYSTEM_BUSY, refusal)
        return self.serve(connection, command)

    def serve(self, connection: Connection, command: Command) -> Reply | Awaitable[Reply]:
        """Serve one request; see `tianzhou.remoting.connection.Processor`."""
        handle = self._find(command.code)
        if handle is None:
            return unsupported(command)
        return handle(connection, command)
