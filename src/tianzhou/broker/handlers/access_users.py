"""Requests about users and policies of a broker (3001 to 3010), served by `tianzhou.remoting.users.user_requests`."""

from __future__ import annotations

from collections.abc import Mapping

from tianzhou.access.user_table import user_entry
from tianzhou.broker.handlers.handler import Handler, Serve
from tianzhou.broker.services import Services
from tianzhou.errors import BrokerError
from tianzhou.remoting.connection import Connection, Reply
from tianzhou.remoting.users.user_requests import UserRequests
from tianzhou.remoting.users.user_store import UserStore
from tianzhou.wire.codes import RequestCode, ResponseCode
from tianzhou.wire.command import Command
from tianzhou.wire.json_dialect import dumps


class AccessUsersHandler(Handler):
    """Handler of requests about users and policies.

    Args:
        services: the broker's services.
        store: the broker's users.
    """

    def __init__(self, services: Services, store: UserStore) -> None:
        super().__init__(services)
        self._users = store
        self._requests = UserRequests(store)

    def routes(self) -> Mapping[int, Serve]:
        """Return the handlers by request code."""
        return {**self._requests.routes(), RequestCode.READ_USERS: self.read_users}

    def read_users(self, connection: Connection, command: Command) -> Reply:
        """Return all users with passwords and policies to a super user, which a slave's account must be (31020)."""
        if not self._requests.by_super(connection, command):
            raise BrokerError(
                ResponseCode.NO_PERMISSION,
                "users with their passwords are given to super users alone: let innerClientAuthenticationCredentials of"
                " the slave name one",
            )
        table = self._users.table
        body = dumps({"users": {name: user_entry(table, name) for name in table.users}}, sort_keys=False)
        return self._table_reply(command, body)
