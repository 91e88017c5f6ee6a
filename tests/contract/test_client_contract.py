"""Our client against our own server, both in this process and in one event loop."""

import asyncio

import pytest
from client_suite import CHECKS
from consumer_suite import CHECKS as CONSUMER_CHECKS
from own_server import own_server

from tianzhou.errors import BrokerError

# What our server does not serve yet; the same checks hold against Apache's.
NOT_SERVED_YET = {
    "sql_selects_by_properties": "the broker does not evaluate SQL92 expressions yet",
}


def with_reasons(checks):
    for check in checks:
        reason = NOT_SERVED_YET.get(check.__name__)
        marks = [pytest.mark.xfail(reason=reason, raises=BrokerError, strict=True)] if reason else []
        yield pytest.param(check, marks=marks, id=check.__name__)


@pytest.mark.parametrize("check", list(with_reasons([*CHECKS, *CONSUMER_CHECKS])))
def test_client_with_our_server(check, tmp_path):
    async def main() -> None:
        async with asyncio.timeout(120), own_server(tmp_path) as namesrv:
            await check(namesrv, tmp_path / "client")

    asyncio.run(main())
