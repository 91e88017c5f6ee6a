"""Unserved request codes: answered as unsupported, and logged once per host with advice for the client."""

from __future__ import annotations

import logging
from typing import Final

from tianzhou.remoting.connection import Connection
from tianzhou.remoting.error_codes import unsupported
from tianzhou.repeats import Once
from tianzhou.wire.codes import RequestCode, request_name, server_of
from tianzhou.wire.command import Command

_log = logging.getLogger(__name__)

_POP: Final = (
    "POP consumers get no messages here; use push or pull consumers (Java: setClientRebalance(true), the default)"
)
_ACCOUNTS: Final = "there are no accounts, as aclEnable is not set here"
_USERS: Final = (
    "no users are kept here; to prepare users, set authenticationMetadataProvider="
    "org.apache.rocketmq.auth.authentication.provider.LocalAuthenticationMetadataProvider in the configuration "
    "file of the broker and start the broker again; authenticationEnabled=true has requests checked by them"
)
_CONTROLLER: Final = "there is no controller here; masters and slaves, or the members of a group, need none"

_CONTAINER: Final = "there is no broker container here; `tianzhou serve --brokers` runs several brokers"
_OF_USERS: Final = range(3001, 3011)
_OF_CONTROLLERS: Final = range(1001, 1014)
_OF_CONTAINERS: Final = (RequestCode.ADD_BROKER, RequestCode.REMOVE_BROKER)
_EXPLAINED: Final = frozenset({*_OF_USERS, *_OF_CONTROLLERS, *_OF_CONTAINERS})
"""Request codes of operators' tools. A broker's reply to them contains the advice."""

ADVICE: Final[dict[int, str]] = {
    **dict.fromkeys((200050, 200051, 200052, 200053, 200054, 200055, 200056, 200151, 400, 401), _POP),
    **dict.fromkeys(range(50, 55), _ACCOUNTS),
    **dict.fromkeys(_OF_USERS, _USERS),
    **dict.fromkeys(_OF_CONTROLLERS, _CONTROLLER),
    **dict.fromkeys(_OF_CONTAINERS, _CONTAINER),
    RequestCode.GET_TIMER_CHECK_POINT: "this version has no timers; use delay levels",
    RequestCode.GET_TIMER_METRICS: "this version has no timers; use delay levels",
    RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC: "this version has no static topics; create an ordinary topic",
}
"""Maps request codes to advice for their clients."""


class Unserved:
    """Answers unserved request codes, and logs each once per host and code.

    Args:
        server: kind of this server: "broker" or "name server".
    """

    def __init__(self, server: str) -> None:
        self._server = server
        self._once = Once()

    def answer(self, connection: Connection, request: Command, others: str = "") -> Command:
        """Return the reply to an unserved request code.

        Args:
            connection: the requesting connection.
            request: the request.
            others: addresses of servers of the other kind, as far as this server has them.
        """
        code = int(request.code)
        if self._once.first((connection.verified_ip, code)):
            advice = ADVICE.get(code, "no server of this kind knows that code, or a newer client asks")
            if (wanted := server_of(code)) and wanted != self._server:
                advice = f"it is served by a {wanted}; this {self._server}'s address was given as one's"
            _log.warning(
                "%s asks this %s for %s (%d), which is not served: %s",
                connection, self._server, request_name(code), code, advice,
            )  # fmt: skip
        remedy = ADVICE[code] if self._server == "broker" and code in _EXPLAINED else ""
        return unsupported(request, self._server, others, remedy)
