"""Router from request codes to handlers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import cast

from tianzhou.broker.handlers.handler import Handler, Serve
from tianzhou.remoting.connection import Connection, FastPath, Processor, Reply
from tianzhou.remoting.gates.access_gate import AccessGate
from tianzhou.remoting.gates.admin_gate import AdminGate
from tianzhou.remoting.turns import Turns
from tianzhou.remoting.unserved import Unserved
from tianzhou.wire.codes import RequestCode, ResponseCode
from tianzhou.wire.command import Command
from tianzhou.wire.named_fields import behind_names

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
"""Codes that the fast port answers as unknown (wire.md §1.12)."""


class Router:
    """Processor of a listener's requests; handlers get only requests with valid names (`tianzhou.wire.named_fields`).

    Args:
        handlers: handlers of request families; each code has one handler.
        refuse: returns the refusal of a request by its code and waited ms; None when it is served.
        gate: guard of dangerous requests.
        name_servers: returns addresses for clients that send a broker requests of name servers.
        around: wrapper of a handler, called with its code.
        access: access control; None allows all requests.
        turns: time allowance of slow requests; None serves large bodies at once.
    """

    def __init__(
        self,
        *handlers: Handler,
        refuse: Callable[[int, float], str | None] | None = None,
        gate: AdminGate | None = None,
        name_servers: Callable[[], str] = str,
        around: Callable[[int, Serve], Processor] = lambda _, handle: cast("Processor", handle),
        access: AccessGate | None = None,
        turns: Turns | None = None,
    ) -> None:
        self._refuse = refuse
        self._access = access
        self._unserved = Unserved("broker")
        self._unknown: Processor = self._answer_unknown if access is None else access.signed(self._answer_unknown)
        self._name_servers = name_servers
        self._handlers: dict[int, Serve] = {}
        # Use plain integers as keys, because hashing an enum member costs more than the look-up.
        self._table: dict[int, Processor] = {}
        self._fast_paths: dict[int, FastPath] = {}
        for handler in handlers:
            self._fast_paths.update((int(code), serve) for code, serve in handler.fast_paths().items())
            for code, handle in handler.routes().items():
                if code in self._table:
                    raise ValueError(f"request code {code} is served twice")
                self._handlers[int(code)] = handle
                inner = handle if access is None else access.inner(int(code), handle, turns)
                self._table[int(code)] = behind_names(int(code), around(int(code), inner))
        if gate is not None:
            self._table = gate.guarded(self._table)
        if access is not None:
            self._table = {code: access.door(code, handle) for code, handle in self._table.items()}
        self._find = self._table.get

    def observed(self, observe: Callable[[dict[int, Processor]], None]) -> None:
        """Pass the table of handlers to an observer.

        Args:
            observe: callback with the table of handlers, which it may change.
        """
        observe(self._table)

    @property
    def codes(self) -> frozenset[int]:
        """Request codes that are served."""
        return frozenset(self._table)

    def handler(self, code: int) -> Serve:
        """Return the handler of a request code; raise KeyError when there is none."""
        return self._handlers[code]

    def without(self, codes: Iterable[int]) -> Router:
        """Return a router without some codes."""
        other = Router(refuse=self._refuse, name_servers=self._name_servers, access=self._access)
        refused = set(map(int, codes))
        other._handlers.update((code, handle) for code, handle in self._handlers.items() if code not in refused)
        other._table.update((code, handle) for code, handle in self._table.items() if code not in refused)
        other._fast_paths.update((code, serve) for code, serve in self._fast_paths.items() if code not in refused)
        return other

    @property
    def fast_paths(self) -> dict[int, FastPath]:
        """Functions, by request code, that serve several requests in one call without this router."""
        return dict(self._fast_paths)

    def serve_late(self, connection: Connection, command: Command, waited_s: float) -> Reply | Awaitable[Reply]:
        """Serve a request that has waited, or refuse it when it waited too long."""
        refusal = None if self._refuse is None else self._refuse(command.code, waited_s * 1000)
        if refusal is not None:
            return command.reply(ResponseCode.SYSTEM_BUSY, refusal)
        return self.serve(connection, command)

    def serve(self, connection: Connection, command: Command) -> Reply | Awaitable[Reply]:
        """Serve one request; see `tianzhou.remoting.connection.Processor`."""
        return (self._find(command.code) or self._unknown)(connection, command)

    def _answer_unknown(self, connection: Connection, command: Command) -> Command:
        return self._unserved.answer(connection, command, self._name_servers())
