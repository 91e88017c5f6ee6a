"""Retry or dead letter: decisions about messages that a consumer could not process (broker.md §7.2, §8). Pure."""

from __future__ import annotations

from typing import NamedTuple

from tianzhou.model import names

FIRST_LEVEL = 3
RESPECTS_REQUEST_LIMIT = 121
"""First client version whose requests set the retry limit (3.4.9, wire.md §1.6)."""


class Retry(NamedTuple):
    """Decision to retry a message after the delay of a level."""

    level: int


class DeadLetter(NamedTuple):
    """Decision to store a message in the group's dead-letter topic."""


def limit_of(group_limit: int, requested: int | None, client_version: int) -> int:
    """Return the maximum reconsume times: the request's from client 3.4.9 on, else the group's."""
    if requested is not None and client_version >= RESPECTS_REQUEST_LIMIT:
        return requested
    return group_limit


def after_send_back(reconsume_times: int, delay_level: int, limit: int) -> Retry | DeadLetter:
    """Decide about a message that a consumer sent back.

    Args:
        reconsume_times: number of earlier retries, from 0.
        delay_level: level that the consumer requests; 0 for the broker's choice, below 0 for a dead letter at once.
        limit: see `limit_of`.
    """
    if reconsume_times >= limit or delay_level < 0:
        return DeadLetter()
    return Retry(delay_level or FIRST_LEVEL + reconsume_times)


def is_dead_on_arrival(reconsume_times: int, limit: int, group_has_locks: bool) -> bool:
    """Whether a message sent directly to a retry topic becomes a dead letter.

    The comparison is `>` and not `>=` as in `after_send_back`, because a client that retries itself counts before it
    sends. A group with queue locks consumes in order. Its message becomes a dead letter at once, because a later retry
    would break the order.
    """
    return reconsume_times > limit or group_has_locks


def group_of_retry_topic(topic: str) -> str:
    """Return the group of a retry topic; a retry topic of POP has the original topic after the group."""
    return topic[len(names.RETRY_PREFIX) :]
