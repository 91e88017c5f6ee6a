"""Access of tests to the inside of servers: brokers, name servers, their connections and tables.

As with `store_probe`, tests do not name private attributes. A change of a server's inside changes only this file.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import pytest

from tianzhou.broker.registration.server_registration import ServerRegistration

Register = Callable[[ServerRegistration, bytes], Awaitable[bool]]


class BrokerProbe:
    """The inside of a broker's parts.

    Args:
        parts: the parts of `make_parts`; None for a test that uses tables only.
        tables: the tables of the broker; None for a test that uses parts only.
    """

    def __init__(self, parts: Any = None, tables: Any = None) -> None:
        self._parts, self._tables = parts, tables

    @classmethod
    def of(cls, broker: Any) -> BrokerProbe:
        """Return the probe of a running `Broker`."""
        return cls(broker._parts, broker.tables)

    @property
    def locked_groups(self) -> int:
        """Number of groups with an entry in the lock table."""
        return len(self._tables.locks._groups)

    @property
    def complained_groups(self) -> int:
        """Number of groups whose invalid filter the broker has already logged."""
        return len(self._tables.filters._complained)

    @property
    def pulled_offsets(self) -> Any:
        """The offset of each group's last pull, by queue."""
        return self._tables.offsets._pulled

    @property
    def pulled_subscriptions(self) -> Any:
        """The subscription of each group's last pull, by topic."""
        return self._tables.clients._pulled

    @property
    def handlers(self) -> dict[int, Any]:
        """The handler of each request code; a test may change the table."""
        handlers: dict[int, Any] = self._parts.router._table
        return handlers

    @property
    def registrar(self) -> Any:
        """The part that registers topics at the name servers."""
        return self._parts.registrar

    @property
    def stats(self) -> Any:
        """The counters that the broker's metrics show."""
        return self._parts.metrics._services.stats

    def answer_with(self, code: int, handler: Callable[..., Any]) -> None:
        """Replace the handler of a request code."""
        self.handlers[code] = handler

    def serve_runs_by(self, run: Callable[..., Any], special: Any, tags_code: Callable[..., int]) -> None:
        """Replace the implementation of `SendRun` that serves runs of sends.

        Args:
            run: the other class.
            special: properties of messages that a run does not accept.
            tags_code: function that returns the hash of tags.
        """
        send = self._parts.send
        send._run = run(special, send._tail, tags_code, send._id_head, send._region, send._trace_on)

    def replace_answer(self, answer: Callable[..., Any]) -> Callable[..., Any]:
        """Replace the function that answers acknowledgements; return the former function."""
        former: Callable[..., Any] = self._parts.acks._answer
        self._parts.acks._answer = answer
        return former

    def note_attempt(self, decided: Any) -> None:
        """Note another broker's decision about an attempt in the staging part."""
        self._parts.staging._note(decided)

    def note_trial(self, writer: str, trial: asyncio.Future[None]) -> None:
        """Replace the staging part's task that tries to publish a writer's batches by a future."""
        self._parts.staging._tasks[writer] = trial

    def read_staged_units(self, most: int) -> None:
        """Set the number of units after which the staging part writes a snapshot of its ledger."""
        self._parts.staging._units_to_read = most

    def load_halves_by(self, load: Callable[..., Any]) -> Callable[..., Any]:
        """Replace the function that reads half messages for a check; return the former function."""
        former: Callable[..., Any] = self._parts.transactions._load
        self._parts.transactions._load = load
        return former

    def check_halves_of(self, ledger: Any) -> None:
        """Replace the ledger of the checker of half messages."""
        self._parts.transactions._ledger = ledger

    def forget_staging_snapshot(self) -> None:
        """Make the staging part forget its last snapshot, as if it had written none."""
        self._parts.staging._snapshot_place = -1


def register_by(patch: pytest.MonkeyPatch, register: Register) -> Register:
    """Replace the function that registers brokers at one name server; return the former function.

    Args:
        patch: restores the former function.
        register: called with the registration at one name server and the body of the request.
    """
    former = ServerRegistration._register

    async def replaced(self: ServerRegistration, body: bytes, *, looks: bool) -> bool:
        return await register(self, body)

    async def registered(self: ServerRegistration, body: bytes) -> bool:
        return await former(self, body, looks=False)

    patch.setattr(ServerRegistration, "_register", replaced)
    return registered


def note_rounds(patch: pytest.MonkeyPatch) -> list[tuple[bool, float]]:
    """Return a list to which each attempt to register adds whether it was periodic, and its end in the loop's time.

    Args:
        patch: restores the former function.
    """
    rounds: list[tuple[bool, float]] = []
    former = ServerRegistration._attempt

    async def noted(self: ServerRegistration, *, periodic: bool) -> bool:
        up_to_date = await former(self, periodic=periodic)
        rounds.append((periodic, asyncio.get_running_loop().time()))
        return up_to_date

    patch.setattr(ServerRegistration, "_attempt", noted)
    return rounds


class NamesrvProbe:
    """The inside of a name server.

    Args:
        server: the server.
    """

    def __init__(self, server: Any) -> None:
        self._server = server

    @property
    def refusals(self) -> dict[Any, int]:
        """Number of refused requests by the limit that refused them."""
        return dict(self._server._handlers._bounds.refusals.counts)

    @property
    def remembered_registrations(self) -> Any:
        """Registrations whose bodies the server has cached."""
        return self._server._handlers.registrations.remembered

    def note_requests(self, codes: list[int]) -> None:
        """Append the code of each request to `codes` before the server serves the request."""
        group = self._server._server.group
        serve = group.processor
        group.processor = lambda *given: codes.append(given[1].code) or serve(*given)


class NodeProbe:
    """The inside of a node of a DLedger group.

    Args:
        node: the node.
    """

    def __init__(self, node: Any) -> None:
        self._node = node

    @property
    def member(self) -> Any:
        """The group member that the node runs; None before the node joins its group."""
        return self._node._member

    @property
    def entries(self) -> Any:
        """The entries of the node's store."""
        return self._node._store.entries

    def take_part_as(self, member: Any) -> None:
        """Make the node run a member. Call this method on the running loop."""
        self._node._member, self._node.standing = member, member.standing
        self._node._failed = asyncio.get_running_loop().create_future()


class ConnectionProbe:
    """The inside of a connection, or of another implementation of its read path.

    Args:
        connection: the connection.
    """

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    @property
    def group(self) -> Any:
        """The state that the connections of one server or client share."""
        return self._connection._group

    @property
    def cipher(self) -> Any:
        """The cipher of the connection; None without TLS."""
        return self.transport.get_extra_info("cipher")

    @property
    def transport(self) -> Any:
        """The transport of the connection."""
        return self._connection._transport

    @property
    def awaited(self) -> dict[int, Any]:
        """The requests that wait for a reply, by request number."""
        awaited: dict[int, Any] = self._connection._awaited
        return awaited

    def connect(self, group: Any, transport: Any) -> None:
        """Set the attributes of a read path to the values of a new connection."""
        path = self._connection
        path._awaited, path._backlog, path._group, path._reserved, path.closed = {}, [], group, 0, False
        path.last_read = path.last_write = path.silent_since = 0.0
        path._transport = transport


class ServerProbe:
    """The inside of a server of requests, or of the server of the metrics page.

    Args:
        server: the server.
    """

    def __init__(self, server: Any) -> None:
        self._server = server

    @property
    def admitted(self) -> int:
        """Number of connections that count against the limit of a server of requests."""
        return int(self._server._admitted)

    @property
    def counted_addresses(self) -> int:
        """Number of addresses whose connections a server of requests counts."""
        return len(self._server._peers)

    @property
    def served_pages(self) -> int:
        """Number of connections that the server of the metrics page serves."""
        return len(self._server._open)


def reserved_bytes(connections: Iterable[Any]) -> int:
    """Return the bytes that the sessions of connections have reserved for incomplete frames."""
    return sum(connection._session.reserved for connection in connections)
