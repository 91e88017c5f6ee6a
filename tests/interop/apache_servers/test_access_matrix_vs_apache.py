"""Apache's servers grant access as docs/reference/access-matrix.md lists: 4.9.7 with accounts, 5.3.3 with users.

Their answers are recorded. Every run compares our servers with the recording (tests/scenario/test_access_matrix.py).
"""

from __future__ import annotations

from collections.abc import Iterator

import access_matrix
import pytest
from access_answers import Guarded, guarded
from access_requests import ACCOUNTS, REQUESTS
from apache import TlsConnection
from frames import Connection
from recorded import is_as_recorded, recorded
from toolchain import ToolchainMissingError

from tianzhou.wire.bodies.access import PLAIN_ACCOUNTS
from tianzhou.wire.codes import RequestCode

OVER_TLS = (10, 11, 12, 17, 25, 34, 37, 41, 50, 215, 3001)
"""Codes that are also sent over TLS: of each kind of need, with a body and without."""


@pytest.fixture(scope="module", params=access_matrix.KINDS)
def apache(request: pytest.FixtureRequest) -> Iterator[tuple[str, Guarded]]:
    try:
        with guarded(request.param) as servers:
            yield request.param, servers
    except ToolchainMissingError as error:
        pytest.skip(str(error))


SHOWN = "accounts-shown-4.9.7"


@pytest.mark.slow
def test_accounts_are_shown_as_recorded(apache: tuple[str, Guarded]) -> None:
    """Run first in this file, because other tests create further accounts."""
    version, servers = apache
    if access_matrix.KINDS[version] != ACCOUNTS:
        return
    reply = servers.shown(next(one for one in REQUESTS if one.code == RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG))
    assert reply.code == 0
    is_as_recorded(SHOWN, reply.body.decode(), source=f"broker {version}")


@pytest.mark.slow
def test_what_was_recorded_is_what_they_do(apache: tuple[str, Guarded]) -> None:
    version, servers = apache
    assert servers.let_in() == access_matrix.recorded()[version]


@pytest.mark.slow
def test_tls_makes_no_difference(apache: tuple[str, Guarded]) -> None:
    version, servers = apache

    def connect(address: str, timeout: float) -> Connection:
        return TlsConnection(address)

    asked = [request for request in REQUESTS if request.code in OVER_TLS]
    recorded = access_matrix.recorded()[version]
    assert servers.let_in(asked, connect) == {code: recorded[code] for code in OVER_TLS}


def test_accounts_are_shown_in_the_form_of_apaches() -> None:
    body = recorded(SHOWN).encode()
    assert PLAIN_ACCOUNTS.dumps(PLAIN_ACCOUNTS.loads(body)) == body
