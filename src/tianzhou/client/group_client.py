"""The base of producers and consumers: a group, a client instance, start and stop (client.md §3)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from tianzhou.client.instance import ClientInstance
from tianzhou.client.options import check_option_names, option_names
from tianzhou.errors import ConfigError

K = TypeVar("K")


class GroupClient:
    """A client that belongs to a group.

    Args:
        group: the group, by its users' name.
        instance: reaches the servers.
    """

    def __init__(self, group: str, instance: ClientInstance) -> None:
        self._group = group
        self._instance = instance

    @property
    def group(self) -> str:
        """The producer or consumer group."""
        return self._group

    @property
    def instance(self) -> ClientInstance:
        """The client instance that it uses."""
        return self._instance


class Startable(ABC):
    """An async context manager that starts when it is entered and stops when it is left."""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    @abstractmethod
    async def start(self) -> None:
        """Start the client."""

    @abstractmethod
    async def stop(self) -> None:
        """Stop the client."""


def options_and_instance(
    client: type,
    kind: type[K],
    keywords: Mapping[str, Any],
    instance: ClientInstance | None,
    namesrv_addr: str | Sequence[str] | None,
) -> tuple[K, ClientInstance]:
    """Return the options in a constructor's keyword arguments, and the client instance to use.

    Args:
        client: the class of the client, for error texts.
        kind: the dataclass of its options, such as `ProducerOptions`.
        keywords: options of that kind, and `ClientOptions` for an instance of its own.
        instance: the instance to share; None to create one.
        namesrv_addr: name servers of a created instance.

    Raises:
        ConfigError: an option is unknown, its value is not allowed, or `instance` is given together with options of an
            instance.
    """
    own = option_names(kind)
    options = kind(**{name: value for name, value in keywords.items() if name in own})
    others = {name: value for name, value in keywords.items() if name not in own}
    return options, shared_or_own(instance, namesrv_addr, others, client, kind)


def shared_or_own(
    instance: ClientInstance | None,
    namesrv_addr: str | Sequence[str] | None,
    options: Mapping[str, Any],
    client: type,
    kind: type | None = None,
) -> ClientInstance:
    """Return the shared instance, or create one.

    Args:
        instance: the instance to share; None to create one.
        namesrv_addr: name servers of a created instance.
        options: keyword arguments of the instance, `ClientKeywords`.
        client: the class of the client, for error texts.
        kind: the dataclass of the client's own options, for error texts.

    Raises:
        ConfigError: an option is unknown, or an instance is given together with options of an instance.
    """
    check_option_names(options, client, kind)
    if instance is None:
        return ClientInstance(namesrv_addr, **options)
    if own := [name for name, value in options.items() if value is not None]:
        names = ", ".join(sorted(own))
        raise ConfigError(
            f"instance and {names} are both given, and a shared instance has its own; give {names} to the "
            "ClientInstance"
        )
    if not isinstance(instance, ClientInstance):
        raise ConfigError(f"instance is {instance!r}; it has to be a tianzhou.client.ClientInstance")
    return instance
