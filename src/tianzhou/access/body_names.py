"""Topics and groups in the bodies of requests, which are decoded by the codecs that the handlers use."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Final, NamedTuple

import msgspec

from tianzhou.access.requests import AccessRequest
from tianzhou.wire.bodies.clients import LOCK_REQUEST
from tianzhou.wire.bodies.groups import SUBSCRIPTION_GROUP, SUBSCRIPTION_GROUPS
from tianzhou.wire.bodies.heartbeat import HEARTBEAT
from tianzhou.wire.bodies.staging import ATTEMPTS, DECISION
from tianzhou.wire.bodies.topics import TOPIC_CONFIGS
from tianzhou.wire.staging import decode_unit

NAMES_PER_PART: Final = 256
"""Maximum number of names in one part. A user's policies need some microseconds for each name."""
Names = tuple[Iterable[str], Iterable[str]]
"""Topics and groups."""


def _of_heartbeat(data: Any) -> Names:
    topics = (one.topic for consumer in data.consumers for one in consumer.subscription_data_set)
    return topics, (consumer.group_name for consumer in data.consumers)


_BODIES: Final[Mapping[int, tuple[Callable[[Any], Any], Callable[[Any], Names]]]] = {
    34: (HEARTBEAT.loads, _of_heartbeat),
    41: (LOCK_REQUEST.loads, lambda lock: ((queue.topic for queue in lock.queues), (lock.consumer_group,))),
    42: (LOCK_REQUEST.loads, lambda lock: ((queue.topic for queue in lock.queues), (lock.consumer_group,))),
    18: (TOPIC_CONFIGS.loads, lambda topics: ((topic.topic_name for topic in topics), ())),
    200: (SUBSCRIPTION_GROUP.loads, lambda group: ((), (group.group_name,))),
    225: (SUBSCRIPTION_GROUPS.loads, lambda groups: ((), (group.group_name for group in groups))),
    31002: (decode_unit, lambda messages: ({message.topic: None for message in messages}, ())),
    **dict.fromkeys((31003, 31004), (DECISION.loads, lambda decision: ((), (decision.writer,)))),
    **dict.fromkeys((31005, 31006), (ATTEMPTS.loads, lambda attempts: ((), (attempts.writer,)))),
}
BY_BODY: Final = frozenset(_BODIES)
"""Request codes whose needs depend on their bodies."""


class _NamesPart(NamedTuple):
    """Some of the names in a body."""

    topics: tuple[str, ...]
    groups: tuple[str, ...]


def parts(request: AccessRequest) -> Iterator[AccessRequest]:
    """Split a request with a decoded body into parts of at most `NAMES_PER_PART` names, which together need the same.

    A request without names is returned unchanged, because it needs more than one with names.
    """
    whole = True
    topics, groups = map(iter, _BODIES[request.code][1](request.decoded))
    while part := tuple(islice(topics, NAMES_PER_PART)):
        whole = False
        yield msgspec.structs.replace(request, decoded=_NamesPart(part, ()))
    while part := tuple(islice(groups, NAMES_PER_PART)):
        whole = False
        yield msgspec.structs.replace(request, decoded=_NamesPart((), part))
    if whole:
        yield request


def names_in(request: AccessRequest) -> Names:
    """Return the topics and the groups in a body. Names may be repeated or empty.

    Raises:
        ProtocolError: the body cannot be decoded.
    """
    if not request.body:
        return (), ()
    if type(request.decoded) is _NamesPart:
        return request.decoded
    decode, names = _BODIES[request.code]
    return names(request.decoded if request.decoded is not None else decode(request.body))
