"""Retry or dead letter: decisions about messages a consumer could not handle (broker.md §7.2, §8). Pure."""

from __future__ import annotations

from typing import NamedTuple

from tianzhou.model import names

FIRST_LEVEL = 3
RESPECTS_REQUEST_LIMIT = 121
"""Client version from which the request's own limit counts (3.4.9, wire.md §1.6)."""


class Retry(NamedTuple):
    """Try again: the level of its delay."""

    level: int


class DeadLetter(NamedTuple):
    """Give up: it goes to the group's dead-letter topic."""


def limit_of(group_limit: int, requested: int | None, client_version: int) -> int:
    """Maximum reconsume times: the request's own from client 3.4.9 on, else the group's."""
    if requested is not None and client_version >= RESPECTS_REQUEST_LIMIT:
        return requested
    return group_limit


def after_send_back(reconsume_times: int, delay_level: int, limit: int) -> Retry | DeadLetter:
    """Decide about a message a consumer sent back.

    Args:
        reconsume_times: how often it was tried again before, from 0.
        delay_level: what the consumer asks for; 0 leaves it to the broker, below 0 gives up at once.
        limit: see `limit_of`.
    """
    if reconsume_times >= limit or delay_level < 0:
        return DeadLetter()
    return Retry(delay_level or FIRST_LEVEL + reconsume_times)


def is_dead_on_arrival(reconsume_times: int, limit: int, group_has_locks: bool) -> bool:
    """Whether a message sent straight to a retry topic goes to the dead letters instead.

    Note the `>`, against `>=` on sending back: a client that retries by itself counts before it sends. Ordered
    consumption, known by its queue locks, gives up at once because a later retry would break the order.
    """
    return reconsume_times > limit or group_has_locks


def group_of_retry_topic(topic: str) -> str:
    """The group a retry topic belongs to; POP's retry topics add the original topic behind the group."""
    return topic[len(names.RETRY_PREFIX) :]
