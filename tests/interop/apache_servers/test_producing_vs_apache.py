"""Our producers' further promises against Apache's name server and broker 5.3.3 and 4.9.7."""

import asyncio
from collections.abc import Iterator

import pytest
from apache import serving
from client_suite import DELAY_LEVELS
from producing_suite import CHECKS, TRANSACTION_SETTINGS


@pytest.fixture(scope="module", params=["5.3.3", "4.9.7"])
def apache(request: pytest.FixtureRequest) -> Iterator[str]:
    """Address of Apache's name server of the wanted version, with a broker behind it."""
    with serving(request.param, {"messageDelayLevel": DELAY_LEVELS, **TRANSACTION_SETTINGS}) as address:
        yield address


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_producing_with_apache(check, apache, tmp_path):
    async with asyncio.timeout(120):
        await check(apache, tmp_path)
