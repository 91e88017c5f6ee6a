"""Needs of requests for KV entries about ordered topics, for users of RocketMQ 5.3.

Tools write such an entry when they create an ordered topic, and delete it with the topic. The permission for the first
step at brokers is enough for the second step at name servers, so that no change of a topic stops halfway.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tianzhou.access.requests import AccessRequest
from tianzhou.access.resources import Action, Need, Resource, ResourceType
from tianzhou.model.names import ORDER_TOPIC_CONFIG

_NEEDS: Final[Mapping[int, tuple[tuple[Action, ...], Action]]] = {
    100: ((Action.CREATE, Action.UPDATE), Action.UPDATE),
    101: ((Action.CREATE, Action.UPDATE, Action.GET), Action.GET),
    102: ((Action.DELETE, Action.UPDATE), Action.UPDATE),
}
"""Actions on the topic and the action on the cluster, by request code. Any one of these actions is enough."""


def policy_needs(request: AccessRequest, cluster: str) -> tuple[Need, ...] | None:
    """Return the needs of a user's request for such an entry; None for any other request.

    Args:
        request: the request.
        cluster: the server's own cluster.
    """
    found = _NEEDS.get(request.code)
    topic = request.fields.get("key")
    if found is None or not topic or request.fields.get("namespace") != ORDER_TOPIC_CONFIG:
        return None
    of_topic, of_cluster = found
    everything = Need(Resource(ResourceType.CLUSTER, cluster), (of_cluster,))
    return (Need(Resource(ResourceType.TOPIC, topic), of_topic, everything),)
