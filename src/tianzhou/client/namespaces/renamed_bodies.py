"""Bodies of requests and replies in which some fields hold names (client.md §21)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias

Rename: TypeAlias = Callable[[str, Any], Any]
"""Takes a namespace and what holds names; returns it with others."""


def renamed(codec: Any, **fields: Rename) -> Callable[[str, bytes], bytes]:
    """A function that gives the fields of a body other names.

    Args:
        codec: reads and writes the body, see `tianzhou.wire.bodies`.
        fields: for each field that holds names, what changes these.
    """

    def rename(namespace: str, body: bytes) -> bytes:
        value = codec.loads(body)
        changed = {name: change(namespace, getattr(value, name)) for name, change in fields.items()}
        encoded: bytes = codec.dumps(replace(value, **changed))
        return encoded

    return rename
