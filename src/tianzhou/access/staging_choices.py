"""Permissions to choose the coordinating broker for writers of exactly-once batches (docs/adr/0006).

The first writer of a bucket stores its choice in the KV configuration of the name servers. Other entries require an
administrator. For these entries, a permission on the group named like their namespace is enough. Name servers never
replace such an entry.
"""

from __future__ import annotations

import re
from typing import Final

from tianzhou.access.requests import AccessRequest
from tianzhou.access.resources import Action, Need, Permission, PlainNeed, Resource, ResourceType
from tianzhou.model.names import STAGING_NAMESPACE, retry_topic

PUT_KV: Final = 100
GET_KV: Final = 101
_KEY: Final = re.compile(r"coordinator-\d{1,4}", re.ASCII)
_PLAIN: Final = PlainNeed({retry_topic(STAGING_NAMESPACE): Permission.SUB}, unless_admin=True)


def is_choice(code: int, namespace: str | None, key: str | None) -> bool:
    """Whether a request stores a writer's choice of a coordinating broker.

    Args:
        code: the request code.
        namespace: the KV namespace in the request.
        key: the key in the request.
    """
    return code == PUT_KV and namespace == STAGING_NAMESPACE and key is not None and _KEY.fullmatch(key) is not None


def plain_need(request: AccessRequest) -> PlainNeed | None:
    """Return the needs of a choice from an account of RocketMQ 4.x; None for any other request."""
    get = request.fields.get
    return _PLAIN if is_choice(request.code, get("namespace"), get("key")) else None


def policy_needs(request: AccessRequest, cluster: str) -> tuple[Need, ...] | None:
    """Return the needs of storing or reading a choice from a user of 5.3; None for any other request.

    Args:
        request: the request.
        cluster: the server's own cluster.
    """
    get = request.fields.get
    if request.code == GET_KV and get("namespace") == STAGING_NAMESPACE:
        # The value is a broker's name, which every user may read.
        return ()
    if not is_choice(request.code, get("namespace"), get("key")):
        return None
    everything = Need(Resource(ResourceType.CLUSTER, cluster), (Action.UPDATE,))
    return (Need(Resource(ResourceType.GROUP, STAGING_NAMESPACE), (Action.SUB,), everything),)
