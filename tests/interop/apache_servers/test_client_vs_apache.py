"""Our client against Apache's name server and broker 5.3.3 and 4.9.7: the same checks as against our own server."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from apache import serving
from client_suite import CHECKS, DELAY_LEVELS, Check
from consumer_suite import CHECKS as CONSUMER_CHECKS
from sql_suite import CHECKS as SQL_CHECKS

ALL_CHECKS = [*CHECKS, *CONSUMER_CHECKS, *SQL_CHECKS]
MISSING_IN_4_9 = {
    "offsets_tell_the_ends_and_times_of_a_queue": "a search by time knows no upper bound",
    "topics_are_made_changed_and_deleted": "topic statistics leave queues out that can be read and not written",
    "offsets_are_reset_with_and_without_members": "connected members can be reset by time only",
    # Its grammar ends at the first whole expression and ignores the rest: `city CONTAINS 'x'` passes as `city`, which
    # is neither true nor false and selects nothing.
    "groups_select_by_parts_of_text": "CONTAINS, STARTSWITH and ENDSWITH are unknown and taken for no error",
}
"""Checks that ask for more than 4.9.7 can, and what that is."""


@pytest.fixture(scope="module", params=["5.3.3", "4.9.7"])
def apache(request: pytest.FixtureRequest) -> Iterator[str]:
    """Address of Apache's name server of the wanted version, with a broker behind it."""
    with serving(request.param, {"messageDelayLevel": DELAY_LEVELS}) as address:
        yield address


@pytest.mark.parametrize("check", ALL_CHECKS, ids=lambda check: check.__name__)
async def test_client_with_apache(check: Check, apache: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    missing = MISSING_IN_4_9.get(check.__name__)
    if missing and "4.9.7" in request.node.name:
        request.applymarker(pytest.mark.xfail(reason=missing, strict=True))

    async with asyncio.timeout(120):
        await check(apache, tmp_path)
