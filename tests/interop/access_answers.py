"""Access decisions of Apache's servers: every request code with four kinds of credentials.

The last answers are in `access_answers.json`: the weakest accepted credentials, by version and request code. Write it
again by
`PYTHONPATH=src:tests:tests/contract:tests/form:tests/interop python tests/interop/access_answers.py`, and then the page
(tests/form/access_matrix.py).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import count

from access_matrix import ANY_ACCOUNT, EVERYBODY, KINDS, NOT_SERVED, OTHERS, PERMITTED, RECORDED
from access_requests import (
    ACCOUNTS,
    ADMINISTRATOR,
    GROUP,
    NAMESRV,
    REQUESTS,
    SECRET,
    TOPIC,
    USERS,
    Asked,
    Credentials,
    Who,
    is_refusal,
    signed,
)
from apache import ApacheBroker, ApacheNamesrv
from frames import Connection, Reply, accepts

from waiting import until

UNANSWERED = {"4.9.7": frozenset({217, 901, 904}), "5.3.3": frozenset[int]()}
"""Codes that a version's name server does not know, and leaves without a reply."""
UNANSWERED_S, ANSWERED_S = 0.5, 30.0
"""Seconds to wait for a reply that does not come, and for one that does."""
_LET_IN = {
    (True, True, True, True): EVERYBODY,
    (False, False, True, True): ANY_ACCOUNT,
    (False, False, False, True): PERMITTED,
    (False, False, False, False): OTHERS,
}
_AUTH = "org.apache.rocketmq.auth"
_OF_USERS: Mapping[str, object] = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    **{
        f"{name}{part}Provider": f"{_AUTH}.{name}.provider.{prefix}{name.capitalize()}{part}Provider"
        for name in ("authentication", "authorization")
        for part, prefix in (("", "Default"), ("Metadata", "Local"))
    },
    "initAuthenticationUser": json.dumps({"username": ADMINISTRATOR, "password": SECRET}),
    "innerClientAuthenticationCredentials": json.dumps({"accessKey": ADMINISTRATOR, "secretKey": SECRET}),
}
_numbers = count(1)


class Guarded:
    """Apache's servers of a version with access control, and accounts of every kind.

    Args:
        namesrv: address of the name server.
        broker: address of the broker.
        credentials: accounts of the servers.
        unanswered: request codes without a reply from the name server.
    """

    def __init__(self, namesrv: str, broker: str, credentials: Credentials, unanswered: frozenset[int]) -> None:
        self._namesrv = namesrv
        self._broker = broker
        self._credentials = credentials
        self._unanswered = unanswered

    def let_in(
        self, requests: Iterable[Asked] = REQUESTS, connect: Callable[[str, float], Connection] = Connection
    ) -> dict[int, str]:
        """Return the weakest credentials that the serving server accepts, by request code."""
        found: dict[int, str] = {}
        for address, asked in (
            (self._broker, [one for one in requests if one.to != NAMESRV]),
            (self._namesrv, [one for one in requests if one.to == NAMESRV]),
        ):
            found |= {one.code: self._least(address, one, connect) for one in asked}
        return found

    def shown(self, one: Asked) -> Reply:
        """Return the broker's reply to an account with the permission."""
        reply = self._asked(self._broker, one, Who.PERMITTED, Connection)
        assert reply is not None
        return reply

    def _least(self, address: str, one: Asked, connect: Callable[[str, float], Connection]) -> str:
        permitted = self._asked(address, one, Who.PERMITTED, connect)
        if permitted is None or permitted.code == 3:
            return NOT_SERVED
        others = [self._asked(address, one, who, connect) for who in Who if who is not Who.PERMITTED]
        through = tuple(reply is None or not is_refusal(reply.code, reply.remark) for reply in (*others, permitted))
        return _LET_IN.get(through) or f"some: {through}"

    def _asked(self, address: str, one: Asked, who: Who, connect: Callable[[str, float], Connection]) -> Reply | None:
        fields, body = one.numbered(next(_numbers))
        wait_s = UNANSWERED_S if one.code in self._unanswered else ANSWERED_S
        with connect(address, wait_s) as connection, suppress(TimeoutError):
            return connection.call(one.code, self._credentials.sign(one, who, fields, body), body)
        return None


@contextmanager
def guarded(version: str) -> Iterator[Guarded]:
    """Start both servers of a version, and create accounts and the objects of the requests."""
    kind = KINDS[version]
    credentials = Credentials(kind, REQUESTS)
    conf = _OF_USERS if kind == USERS else {"aclEnable": "true"}
    # The name server of 5.3.3 accepts the same settings, but checks no request.
    namesrv = ApacheNamesrv(version=version, conf=conf if kind == USERS else None)
    broker = None
    try:
        namesrv.start()
        broker = ApacheBroker(namesrv.address, conf=conf, version=version)
        if kind == ACCOUNTS:
            rules = broker.home / "conf" / "plain_acl.yml"
            rules.parent.mkdir(parents=True, exist_ok=True)
            rules.write_text(credentials.accounts_file())
        broker.launch()
        address = broker.address
        until(lambda: accepts(address), "the broker listens", within_s=60, every_s=0.1)
        with Connection(address) as connection:
            for request in (*credentials.making(), *_made()):
                fields = {name: str(value) for name, value in request.fields.items()}
                reply = connection.call(request.code, signed(fields, request.body, ADMINISTRATOR), request.body)
                assert reply.code == 0, (request, reply)
        yield Guarded(namesrv.address, address, credentials, UNANSWERED[version])
    finally:
        for server in (broker, namesrv):
            if server is not None:
                server.kill()
                server._remove_home()


def _made() -> Iterator[Asked]:
    topic = next(one for one in REQUESTS if one.code == 17)
    yield topic._replace(fields={**topic.fields, "topic": TOPIC})
    yield Asked(200, body=json.dumps({"groupName": GROUP, "retryQueueNums": 1, "retryMaxTimes": 16}).encode())


if __name__ == "__main__":
    measured = {}
    for version in KINDS:
        with guarded(version) as servers:
            measured[version] = dict(sorted(servers.let_in().items()))
    RECORDED.write_text(json.dumps(measured, indent=1) + "\n", encoding="utf-8")
