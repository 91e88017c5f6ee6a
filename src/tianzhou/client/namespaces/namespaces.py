"""Names inside a namespace that only the client knows (client.md §21, wire.md §12). Pure.

The client wraps topics and groups in requests, `orders` to `tenant%orders`, and unwraps them in replies. The servers
do not know namespaces.
"""

from __future__ import annotations

from tianzhou.client.validation import SYSTEM_TOPICS
from tianzhou.model import names

SEPARATOR = "%"
SYSTEM_GROUP_PREFIX = "CID_RMQ_SYS_"
_PREFIXES = (names.RETRY_PREFIX, names.DLQ_PREFIX)


def wrap(namespace: str | None, name: str) -> str:
    """Return a topic or group by the servers' name.

    `%RETRY%` and `%DLQ%` stay in front. Names of the system and names that are already wrapped do not change.
    """
    if not namespace or not name or _is_system(name):
        return name
    prefix, bare = _split(name)
    if bare.startswith(namespace + SEPARATOR):
        return name
    return f"{prefix}{namespace}{SEPARATOR}{bare}"


def unwrap(namespace: str | None, name: str) -> str:
    """Return a topic or group by its users' name, the inverse of `wrap`."""
    if not namespace or not name:
        return name
    prefix, bare = _split(name)
    return prefix + bare.removeprefix(namespace + SEPARATOR)


def _split(name: str) -> tuple[str, str]:
    for prefix in _PREFIXES:
        if name.startswith(prefix):
            return prefix, name[len(prefix) :]
    return "", name


def _is_system(name: str) -> bool:
    return name in SYSTEM_TOPICS or name.startswith((names.SYSTEM_PREFIX, SYSTEM_GROUP_PREFIX))
