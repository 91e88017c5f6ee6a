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
        group: the group, as users know it.
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
        """The client instance it works with."""
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
        """Begin."""

    @abstractmethod
    async def stop(self) -> None:
        """End."""


def options_and_instance(
    client: type,
    kind: type[K],
    keywords: Mapping[str, Any],
    instance: ClientInstance | None,
    namesrv_addr: str | Sequence[str] | None,
) -> tuple[K, ClientInstance]:
    """The options in a constructor's keyword arguments, and the instance to work with.

    Args:
        client: the class of the client, for the error texts.
        kind: the dataclass of its options, such as `ProducerOptions`.
        keywords: options of that kind, and those of `ClientOptions` for an instance of its own.
        instance: the instance to share, None to make one.
        namesrv_addr: name servers, when one is made.

    Raises:
        ConfigError: there is no such option, one has a value it cannot have, or `instance` is given and options
            besides, which only the instance itself takes.
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
    """The instance to share, or one of one's own.

    Args:
        instance: the instance to share, None to make one.
        namesrv_addr: name servers, when one is made.
        options: keyword arguments that are not the client's own, but `ClientKeywords`.
        client: the class of the client, for the error texts.
        kind: the dataclass of its own options, for the error texts.

    Raises:
        ConfigError: there is no such option, or an instance is given and options besides, which only the instance
            itself takes.
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
