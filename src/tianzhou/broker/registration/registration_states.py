"""State of a broker's registration at each name server, and conditions over all states. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass


@dataclass(slots=True)
class RegistrationState:
    """State of the registration at one name server.

    Attributes:
        handled: number of the last request to register that ended at the name server, accepted or not; 0 before the
            first.
        registered: whether the name server accepted the last registration that ended.
        silent: whether a registration timed out, and no later one was answered.
    """

    handled: int = 0
    registered: bool = False
    silent: bool = False


def is_ready(states: Collection[RegistrationState]) -> bool:
    """Return whether clients can find the broker: a name server has it, and each other one has answered or timed out.

    A name server that refuses or does not answer does not delay readiness.
    """
    return any(one.registered for one in states) and all(one.handled or one.silent for one in states)


def is_settled(states: Collection[RegistrationState], number: int) -> bool:
    """Return whether a request to register ended at every name server that answers.

    When no name server answers, one at which the request ended is enough.

    Args:
        states: states of the present name servers.
        number: number of the request.
    """
    answering = [one for one in states if not one.silent]
    if answering:
        return all(one.handled >= number for one in answering)
    return any(one.handled >= number for one in states)
