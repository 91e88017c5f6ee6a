"""The client instance of a producer, consumer or admin: one that it shares, or one of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tianzhou.client.instance import ClientInstance
from tianzhou.client.options import check_option_names
from tianzhou.errors import ConfigError


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
            itself can be told.
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
