"""Names inside a namespace, the client's own kind of it (client.md §21, wire.md §12). Pure.

Topics and groups are wrapped on their way out, `orders` to `tenant%orders`, and unwrapped on what comes back; the
servers know nothing of it.
"""

from __future__ import annotations

from tianzhou.client.validation import SYSTEM_TOPICS
from tianzhou.model import names

SEPARATOR = "%"
SYSTEM_GROUP_PREFIX = "CID_RMQ_SYS_"
_PREFIXES = (names.RETRY_PREFIX, names.DLQ_PREFIX)


def wrap(namespace: str | None, name: str) -> str:
    """A topic or group as the servers know it.

    `%RETRY%` and `%DLQ%` stay in front; what belongs to the system, or is wrapped already, stays as it is.
    """
    if not namespace or not name or _is_system(name):
        return name
    prefix, bare = _split(name)
    if bare.startswith(namespace + SEPARATOR):
        return name
    return f"{prefix}{namespace}{SEPARATOR}{bare}"


def unwrap(namespace: str | None, name: str) -> str:
    """A topic or group as its users know it: `wrap` undone."""
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
