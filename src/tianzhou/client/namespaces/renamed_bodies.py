"""Bodies of requests and replies that contain names to translate (client.md §21)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias

Rename: TypeAlias = Callable[[str, Any], Any]
"""Function of a namespace and a value with names; it returns the value with translated names."""


def renamed(codec: Any, **fields: Rename) -> Callable[[str, bytes], bytes]:
    """Return a function that translates the names in a body.

    Args:
        codec: codec of the body, see `tianzhou.wire.bodies`.
        fields: for each field that contains names, the function that translates them.
    """

    def rename(namespace: str, body: bytes) -> bytes:
        value = codec.loads(body)
        changed = {name: change(namespace, getattr(value, name)) for name, change in fields.items()}
        encoded: bytes = codec.dumps(replace(value, **changed))
        return encoded

    return rename
