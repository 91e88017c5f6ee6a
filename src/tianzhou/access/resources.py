"""Resources, permissions and actions: the vocabulary of both kinds of access control (broker.md §22)."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import NamedTuple


class Permission(enum.IntFlag):
    """A permission of RocketMQ 4.x; `PUB|SUB` is both."""

    DENY = 1
    ANY = 2
    PUB = 4
    SUB = 8


class ResourceType(enum.StrEnum):
    """Type of a resource of RocketMQ 5.3, spelled as in `Topic:orders`."""

    ANY = "Any"
    CLUSTER = "Cluster"
    NAMESPACE = "Namespace"
    TOPIC = "Topic"
    GROUP = "Group"


class Action(enum.StrEnum):
    """Action of RocketMQ 5.3 on a resource, spelled as in policies."""

    ALL = "All"
    ANY = "Any"
    PUB = "Pub"
    SUB = "Sub"
    CREATE = "Create"
    UPDATE = "Update"
    DELETE = "Delete"
    GET = "Get"
    LIST = "List"


class Resource(NamedTuple):
    """One resource that a request names literally."""

    type: ResourceType
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


class Need(NamedTuple):
    """A resource and some actions, of which an account needs any one on the resource (RocketMQ 5.3).

    Attributes:
        resource: the resource.
        actions: the actions.
        instead: another need that also suffices; None when there is none.
    """

    resource: Resource
    actions: tuple[Action, ...]
    instead: Need | None = None


class PlainNeed(NamedTuple):
    """The needs of a request from an account of RocketMQ 4.x.

    Attributes:
        permissions: needed permissions by topic; a group counts as its retry topic (`%RETRY%` and its name).
        admin: whether the request requires an administrator.
        unless_admin: whether an administrator needs none of the permissions, even if permissions are listed for it.
    """

    permissions: Mapping[str, Permission]
    admin: bool = False
    unless_admin: bool = False
