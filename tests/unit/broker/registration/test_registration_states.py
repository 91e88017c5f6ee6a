"""When a broker is ready, and when a change of its topics has reached its name servers: by the states at each."""

from __future__ import annotations

import pytest

from tianzhou.broker.registration.registration_states import RegistrationState, is_ready, is_settled

UNASKED = RegistrationState()
HAS_IT = RegistrationState(handled=1, registered=True)
REFUSES = RegistrationState(handled=1)
SILENT = RegistrationState(silent=True)
SILENT_LATER = RegistrationState(handled=1, registered=True, silent=True)


@pytest.mark.parametrize(
    ("states", "ready"),
    [
        ([], False),
        ([UNASKED], False),
        ([HAS_IT], True),
        ([HAS_IT, UNASKED], False),  # it answers within a moment
        ([HAS_IT, SILENT], True),
        ([HAS_IT, REFUSES], True),
        ([HAS_IT, SILENT_LATER], True),
        ([REFUSES, SILENT], False),
        ([SILENT, SILENT], False),
    ],
)
def test_a_broker_is_ready_when_one_name_server_has_it(states: list[RegistrationState], ready: bool) -> None:
    assert is_ready(states) is ready


@pytest.mark.parametrize(
    ("states", "settled"),
    [
        ([RegistrationState(2, True)], True),
        ([RegistrationState(1, True)], False),
        ([RegistrationState(2, True), RegistrationState(1, True)], False),
        ([RegistrationState(2, True), RegistrationState(1, True, silent=True)], True),
        ([RegistrationState(2, False), RegistrationState(0, False, silent=True)], True),
        ([RegistrationState(1, True, silent=True)], False),  # no other name server: worth the wait
        ([RegistrationState(2, False, silent=True), RegistrationState(1, True, silent=True)], True),
        ([], False),
    ],
)
def test_a_change_is_settled_when_the_name_servers_that_answer_have_it(
    states: list[RegistrationState], settled: bool
) -> None:
    assert is_settled(states, 2) is settled
