"""Depth of JSON values, and references in them (wire.md §1.13)."""

from __future__ import annotations

import re
from typing import Any, Final

from tianzhou.errors import ProtocolError
from tianzhou.limits import JSON_DEPTH, JSON_OBJECTS, JSON_REFERENCES

MAX_DEPTH: Final = JSON_DEPTH.default
"""Maximum nesting that is decoded and encoded; no body of RocketMQ has more than ten levels."""
FOREIGN_DEPTH: Final = 64
"""Maximum nesting of a member whose shape its sender chooses. The object around it fits in the remaining levels."""


def check_depth(value: Any, most: int = MAX_DEPTH, where: str = "JSON") -> None:
    """Check that a value is not nested too deeply. The time grows with the number of its members.

    Args:
        value: any decoded value.
        most: maximum levels of objects and arrays.
        where: name of the value in the error text.

    Raises:
        ProtocolError: the value is nested more deeply.
    """
    level = [value] if isinstance(value, (dict, list)) else []
    for _ in range(most):
        level = [
            child
            for one in level
            for child in (one.values() if isinstance(one, dict) else one)
            if isinstance(child, (dict, list))
        ]
        if not level:
            return
    raise ProtocolError(f"{where}: more than {most} levels of nesting")


_REF_STEP: Final = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]")


def follow(ref: str, root: Any) -> Any:
    """Return the value at a path like `$.a.b[0]`; None when the path does not exist."""
    if ref[:1] != "$":
        return None
    value, at = root, 1
    while at < len(ref):
        step = _REF_STEP.match(ref, at)
        if step is None:
            return None
        name = step[1] or int(step[2])
        try:
            if isinstance(value, dict) and name not in value:
                name = int(name)
            value = value[name]
        except (LookupError, TypeError, ValueError):
            return None
        at = step.end()
    return value


def check_objects(data: bytes) -> None:
    """Check the number of objects in a body before it is decoded: each takes 100 bytes and a third of a microsecond.

    Raises:
        LimitExceeded: the body has too many (`maxJsonObjects`); brackets in texts count, too.
    """
    found = data.count(b"[") + data.count(b"{")
    if found > JSON_OBJECTS.default:
        raise JSON_OBJECTS.error(found, JSON_OBJECTS.default)


def resolve(root: Any) -> None:
    """Replace references by the values that they refer to.

    Only values without references are inserted, so no value can contain itself. Later code visits a referred value once
    for every reference, so the total number of referred values has a limit.
    """
    references: list[tuple[Any, Any, str]] = []
    holders: set[int] = set()

    def search(value: Any, depth: int) -> bool:
        if depth > MAX_DEPTH:
            raise ProtocolError(f"JSON: more than {MAX_DEPTH} levels of nesting")
        found = False
        for key, child in value.items() if isinstance(value, dict) else enumerate(value):
            if isinstance(child, dict) and len(child) == 1 and isinstance(ref := child.get("$ref"), str):
                references.append((value, key, ref))
                holders.add(id(child))
                found = True
            elif isinstance(child, (dict, list)) and search(child, depth + 1):
                found = True
        if found:
            holders.add(id(value))
        return found

    if isinstance(root, (dict, list)):
        search(root, 0)
    sizes: dict[int, int] = {}
    total, most = 0, JSON_REFERENCES.default
    for holder, key, ref in references:
        target = follow(ref, root)
        if target is not None and id(target) not in holders:
            holder[key] = target
            if (size := sizes.get(id(target))) is None:
                size = sizes[id(target)] = _size(target, most - total)
            total += size
            if total > most:
                raise JSON_REFERENCES.error(total, most)


def _size(value: Any, most: int) -> int:
    """Return the number of values in a value, including itself; stop counting above `most`."""
    found, level = 0, [value]
    while level and found <= most:
        found += len(level)
        level = [
            child
            for one in level
            if isinstance(one, (dict, list))
            for child in (one.values() if isinstance(one, dict) else one)
        ]
    return found
