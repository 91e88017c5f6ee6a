"""Who may choose the broker that decides for writers of batches which are published exactly once (docs/adr/0006).

The first writer of a bucket puts its choice into the KV configuration of the name servers. Other entries need an
administrator, who may change everything there; for these the group named like their namespace is enough, and name
servers replace none of them.
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
    """Whether a request puts such an entry.

    Args:
        code: its code.
        namespace: the KV namespace it names.
        key: the key.
    """
    return code == PUT_KV and namespace == STAGING_NAMESPACE and key is not None and _KEY.fullmatch(key) is not None


def plain_need(request: AccessRequest) -> PlainNeed | None:
    """What a choice needs of an account of RocketMQ 4.x; None for what is none."""
    get = request.fields.get
    return _PLAIN if is_choice(request.code, get("namespace"), get("key")) else None


def policy_needs(request: AccessRequest, cluster: str) -> tuple[Need, ...] | None:
    """What a choice, or a look at one, needs of a user of 5.3; None for what is neither.

    Args:
        request: the request.
        cluster: the server's own cluster.
    """
    get = request.fields.get
    if request.code == GET_KV and get("namespace") == STAGING_NAMESPACE:
        # A broker's name, which every user may ask for.
        return ()
    if not is_choice(request.code, get("namespace"), get("key")):
        return None
    everything = Need(Resource(ResourceType.CLUSTER, cluster), (Action.UPDATE,))
    return (Need(Resource(ResourceType.GROUP, STAGING_NAMESPACE), (Action.SUB,), everything),)
