"""Depth of JSON values, and references in them (wire.md §1.13)."""

from __future__ import annotations

import re
from typing import Any, Final

from tianzhou.errors import ProtocolError
from tianzhou.limits import JSON_DEPTH, JSON_OBJECTS, JSON_REFERENCES

MAX_DEPTH: Final = JSON_DEPTH.default
"""Deepest nesting that is read and written; no body of RocketMQ has more than ten levels."""
FOREIGN_DEPTH: Final = 64
"""Deepest nesting of a member whose shape is its sender's: what is around it when it is written fits in the rest."""


def check_depth(value: Any, most: int = MAX_DEPTH, where: str = "JSON") -> None:
    """Check that a value is not nested deeper than it may be; takes as long as it has members.

    Args:
        value: any value that was read.
        most: levels of objects and arrays.
        where: what it is, for the error text.

    Raises:
        ProtocolError: it is.
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
    """The value at a path like `$.a.b[0]`, None when there is none."""
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
    """Check a body before it is read: each of its objects takes a hundred bytes and a third of a microsecond.

    Raises:
        LimitExceeded: it holds too many (`maxJsonObjects`); brackets in texts count, too.
    """
    found = data.count(b"[") + data.count(b"{")
    if found > JSON_OBJECTS.default:
        raise JSON_OBJECTS.error(found, JSON_OBJECTS.default)


def resolve(root: Any) -> None:
    """Put referred values in place of references.

    Only values that hold no reference themselves are put in, so no value can come to contain itself. Who reads on
    walks through what is referred to once for every reference, so all that together has a bound.
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
    """Number of values that a value consists of, itself included; counting ends above `most`."""
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
