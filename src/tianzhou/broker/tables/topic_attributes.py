"""Attributes of a topic, and tools' lists of changes: `+key=value,-key` (wire.md §9.1, store.md §15.2)."""

from __future__ import annotations

from collections.abc import Mapping

from tianzhou.errors import BrokerError
from tianzhou.wire.codes import ResponseCode

MESSAGE_TYPE = "message.type"
_CHOICES: dict[str, frozenset[str] | None] = {
    "queue.type": frozenset({"SimpleCQ", "BatchCQ"}),
    "cleanup.policy": frozenset({"DELETE", "COMPACTION"}),
    MESSAGE_TYPE: frozenset({"UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED"}),
    "reserve.time": None,
}
_FIXED = frozenset({"queue.type", "cleanup.policy"})


def parse_changes(text: str | None) -> dict[str, str | None]:
    """Parse a change list; return the new value of each attribute, None for a removed one.

    Raises:
        BrokerError: code 1; a part has no sign, or an attribute is named twice.
    """
    changes: dict[str, str | None] = {}
    for part in (text or "").split(","):
        part = part.strip()
        if not part:
            continue
        sign, rest = part[0], part[1:]
        key, equals, value = rest.partition("=")
        if key in changes:
            raise _refusal(f"the attribute {key!r} is named twice in {text!r}")
        if sign == "+" and equals:
            changes[key] = value
        elif sign == "-" and not equals:
            changes[key] = None
        else:
            raise _refusal(f"{part!r} is no attribute change; write +key=value or -key")
    return changes


def apply_changes(current: Mapping[str, str] | None, changes: Mapping[str, str | None]) -> dict[str, str]:
    """Return the attributes after the changes.

    Args:
        current: the topic's present attributes; None when the topic is being created.
        changes: see `parse_changes`.

    Raises:
        BrokerError: code 1; an unknown attribute or value, a removal at creation, or a change of a fixed attribute.
    """
    result = dict(current or {})
    for key, value in changes.items():
        if key not in _CHOICES:
            raise _refusal(f"unknown attribute {key!r}; known are {', '.join(sorted(_CHOICES))}")
        if current is None and value is None:
            raise _refusal(f"-{key}: a topic being created has no attributes to remove")
        if current is not None and key in _FIXED:
            raise _refusal(f"{key} cannot be changed once the topic exists")
        if value is None:
            result.pop(key, None)
        else:
            _check(key, value)
            result[key] = value
    return result


def _check(key: str, value: str) -> None:
    choices = _CHOICES[key]
    if choices is None:
        if not value.removeprefix("-").isdigit() or int(value) < -1:
            raise _refusal(f"{key}={value}: expected a whole number, -1 or more")
    elif value not in choices:
        raise _refusal(f"{key}={value}: expected one of {', '.join(sorted(choices))}")


def _refusal(text: str) -> BrokerError:
    return BrokerError(ResponseCode.SYSTEM_ERROR, text)
