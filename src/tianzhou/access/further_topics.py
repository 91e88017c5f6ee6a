"""Further topics of a sent message, which its property INNER_MULTI_DISPATCH lists (store.md §7)."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from typing import Final

from tianzhou.access.requests import AccessRequest
from tianzhou.errors import ProtocolError
from tianzhou.model import names
from tianzhou.wire.batch import decode_batch
from tianzhou.wire.properties import get_property

SEPARATOR: Final = ","
_FULL: Final = ("properties", "batch")
_SHORT: Final = ("i", "m")
SENDS: Final[Mapping[int, tuple[str, str]]] = {10: _FULL, 324: _FULL, 310: _SHORT, 320: _SHORT, 325: _SHORT}
"""Request codes that store a producer's messages, with the header fields for the properties and the batch flag."""
_NAMED: Final = re.compile(names.INNER_MULTI_DISPATCH.encode())


def further_topics(request: AccessRequest) -> tuple[str, ...]:
    """Return the topics and light queues that a send stores its messages in besides its own topic, without duplicates.

    They count even when the broker does not dispatch (`enableMultiDispatch`), because a broker that dispatches may read
    the log later.
    """
    fields = SENDS.get(request.code)
    if fields is None:
        return ()
    find = request.fields.get
    properties = find(fields[0]) or ""
    batch = (find(fields[1]) or "").lower() == "true"
    if not batch and names.INNER_MULTI_DISPATCH not in properties:
        return ()
    found = _listed(properties.encode("utf-8", "surrogatepass"))
    # Each message of a batch has its own properties.
    if batch and _NAMED.search(request.body) is not None:
        # The handler rejects an invalid batch as a whole.
        with contextlib.suppress(ProtocolError):
            for _, _, own in decode_batch(request.body):
                found += _listed(bytes(own))
    return tuple(dict.fromkeys(filter(None, found)))


def has_further(properties: str | None, batch: bool, body: bytes | memoryview) -> bool:
    """Whether `further_topics` must be called for a send.

    Args:
        properties: the message's properties, from the header.
        batch: whether the body is a batch, whose messages have their own properties.
        body: the request's body.
    """
    if properties and names.INNER_MULTI_DISPATCH in properties:
        return True
    return batch and _NAMED.search(body) is not None


def _listed(properties: bytes) -> list[str]:
    return (get_property(properties, names.INNER_MULTI_DISPATCH) or "").split(SEPARATOR)
