"""Our client against Apache's name server and broker 5.3.3: the same checks as against our own server."""

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from apache import ApacheBroker, ApacheNamesrv
from toolchain import ToolchainMissingError

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "contract"))

from client_suite import CHECKS, DELAY_LEVELS
from consumer_suite import CHECKS as CONSUMER_CHECKS
from sql_suite import CHECKS as SQL_CHECKS


@pytest.fixture(scope="module")
def apache() -> Iterator[str]:
    """Address of Apache's name server, with a broker behind it."""
    namesrv = ApacheNamesrv()
    broker = None
    try:
        namesrv.start()
        broker = ApacheBroker(namesrv.address, conf={"messageDelayLevel": DELAY_LEVELS})
        broker.start()
        yield namesrv.address
    except ToolchainMissingError as error:
        pytest.skip(str(error))
    finally:
        # A clean stop of Apache's broker takes a quarter of a minute, and nobody reads its store afterwards.
        for server in (broker, namesrv):
            if server is not None:
                server.kill()
                server._remove_home()


@pytest.mark.parametrize("check", [*CHECKS, *CONSUMER_CHECKS, *SQL_CHECKS], ids=lambda check: check.__name__)
def test_client_with_apache(check, apache, tmp_path):
    async def main() -> None:
        async with asyncio.timeout(120):
            await check(apache, tmp_path)

    asyncio.run(main())
