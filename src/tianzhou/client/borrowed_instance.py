"""The client instance of a producer, consumer or admin: the one it is given, or one of its own."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from tianzhou.client.instance import ClientInstance
from tianzhou.errors import ConfigError

_PASSED_ON = frozenset({inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL})


def given_or_made(
    given: ClientInstance | None, namesrv_addr: str | Sequence[str] | None, options: Mapping[str, Any], user: object
) -> ClientInstance:
    """The instance to share, or one of one's own.

    Args:
        given: the instance to share, None to make one.
        namesrv_addr: name servers, when one is made.
        options: what its user was told and does not know itself: arguments of `ClientInstance`.
        user: who asks, for the error texts.

    Raises:
        ConfigError: there is no such option, or an instance is given and options besides, which only the instance
            itself can be told.
    """
    known = set(inspect.signature(ClientInstance).parameters)
    for name in options:
        if name not in known:
            raise ConfigError(_unknown(name, known, type(user)))
    if given is None:
        return ClientInstance(namesrv_addr, **options)
    if told := [name for name, value in options.items() if value is not None]:
        names = ", ".join(sorted(told))
        raise ConfigError(
            f"instance and {names} are both given, and a shared instance has its own; give {names} to the "
            "ClientInstance"
        )
    if not isinstance(given, ClientInstance):
        raise ConfigError(f"instance is {given!r}; it has to be a tianzhou.client.ClientInstance")
    return given


def _unknown(name: str, known: set[str], user: type) -> str:
    for cls in user.__mro__:
        if cls is not object:
            parameters = inspect.signature(cls).parameters.values()
            known = known | {parameter.name for parameter in parameters if parameter.kind not in _PASSED_ON}
    near = difflib.get_close_matches(name, known, n=3) or [
        option for option in sorted(known) if difflib.get_close_matches(name, option.split("_"))
    ]
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    return f"{user.__name__} has no option {name}{hint}"
