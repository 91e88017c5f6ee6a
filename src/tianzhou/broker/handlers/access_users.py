"""Users and policies of a broker (3001 to 3010): what `tianzhou.remoting.users.user_requests` serves."""

from __future__ import annotations

from collections.abc import Mapping

from tianzhou.broker.handlers.handler import Handler, Serve
from tianzhou.broker.services import Services
from tianzhou.remoting.users.user_requests import UserRequests
from tianzhou.remoting.users.user_store import UserStore


class AccessUsersHandler(Handler):
    """Serves requests about users and policies.

    Args:
        services: of the broker.
        store: its users.
    """

    def __init__(self, services: Services, store: UserStore) -> None:
        super().__init__(services)
        self._requests = UserRequests(store)

    def routes(self) -> Mapping[int, Serve]:
        """Methods by the request codes they serve."""
        return self._requests.routes()
