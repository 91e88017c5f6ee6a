"""Age of the figures that a page shows, and the servers that do not answer. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tianzhou.admin.cluster import BrokerStatus

LATE_MS: Final = 5_000
"""Age in ms from which figures of a live part are marked as old."""


class State(StrEnum):
    """Whether the figures of a page are up to date."""

    UNSEEN = "unseen"
    """No server has answered yet."""
    FRESH = "fresh"
    """The last request was answered, less than `LATE_MS` ago."""
    LATE = "late"
    """No request has failed, but the last answer is older than `LATE_MS`."""
    FAILED = "failed"
    """The last request failed."""


@dataclass(frozen=True, slots=True)
class Freshness:
    """Age of figures.

    Attributes:
        state: whether the figures are up to date.
        age_s: seconds since the last answer; 0 before the first one.
        failure: reason why the last request failed; empty when it did not fail.
    """

    state: State
    age_s: int = 0
    failure: str = ""

    @property
    def is_old(self) -> bool:
        """Whether a page must warn that its figures are not up to date."""
        return self.state in (State.LATE, State.FAILED)


def freshness(last_answer_ms: int, now_ms: int, failure: str) -> Freshness:
    """Return the age of figures.

    Args:
        last_answer_ms: time of the last answer, in milliseconds since 1970; 0 before the first one.
        now_ms: the time now, in milliseconds since 1970.
        failure: reason why the last request failed; empty when it did not fail.
    """
    age_ms = max(now_ms - last_answer_ms, 0) if last_answer_ms else 0
    if failure:
        return Freshness(State.FAILED, age_ms // 1000, failure)
    if not last_answer_ms:
        return Freshness(State.UNSEEN)
    return Freshness(State.FRESH if age_ms < LATE_MS else State.LATE, age_ms // 1000)


def silent_brokers(brokers: Iterable[BrokerStatus]) -> list[tuple[str, str]]:
    """Return the brokers that did not answer, with the reason.

    Args:
        brokers: the broker processes, as of the last request to each of them.
    """
    return [(f"{one.broker_name} {one.broker_id} ({one.address})", one.error) for one in brokers if one.error]
