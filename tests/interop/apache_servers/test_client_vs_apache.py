"""Our client against Apache's name server and broker 5.3.3 and 4.9.7: the same checks as against our own server."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from apache import serving
from at_once import Outcomes, outcomes, selected, tell
from client_suite import CHECKS, DELAY_LEVELS, Check
from consumer_suite import CHECKS as CONSUMER_CHECKS
from positions_suite import CHECKS as POSITION_CHECKS
from producing_suite import CHECKS as PRODUCING_CHECKS
from producing_suite import TRANSACTION_SETTINGS
from sql_suite import CHECKS as SQL_CHECKS

ALL_CHECKS = [*CHECKS, *CONSUMER_CHECKS, *POSITION_CHECKS, *SQL_CHECKS]
MISSING_IN_4_9 = {
    "offsets_tell_the_ends_and_times_of_a_queue": "a search by time knows no upper bound",
    "topics_are_made_changed_and_deleted": "topic statistics leave queues out that can be read and not written",
    "offsets_are_reset_with_and_without_members": "connected members can be reset by time only",
    # Its grammar ends at the first whole expression and ignores the rest: `city CONTAINS 'x'` passes as `city`, which
    # is neither true nor false and selects nothing.
    "groups_select_by_parts_of_text": "CONTAINS, STARTSWITH and ENDSWITH are unknown and taken for no error",
}
"""Checks that need more than 4.9.7 supports, with the missing feature."""


class Ran(NamedTuple):
    """Outcomes of the checks at Apache's servers of a version."""

    version: str
    outcomes: Outcomes


@pytest.fixture(scope="module", params=["5.3.3", pytest.param("4.9.7", marks=pytest.mark.slow)])
def ran(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """Return the outcomes of the checks at Apache's name server and broker of the requested version."""
    with serving(request.param, {"messageDelayLevel": DELAY_LEVELS, **TRANSACTION_SETTINGS}) as address:
        checks = selected(request, ran=request.param)
        return Ran(request.param, outcomes(checks, address, tmp_path_factory.mktemp("checks")))


@pytest.mark.parametrize("check", ALL_CHECKS, ids=lambda check: check.__name__)
def test_client_with_apache(check: Check, ran: Ran, request: pytest.FixtureRequest) -> None:
    missing = MISSING_IN_4_9.get(check.__name__)
    if missing and ran.version == "4.9.7":
        request.applymarker(pytest.mark.xfail(reason=missing, strict=True))
    tell(ran.outcomes, check)


@pytest.mark.parametrize("check", PRODUCING_CHECKS, ids=lambda check: check.__name__)
def test_producing_with_apache(check: Check, ran: Ran) -> None:
    """Report the further checks of our producers."""
    tell(ran.outcomes, check)
