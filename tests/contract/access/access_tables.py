"""Recorded decisions of Apache's servers, and the differences of ours, each with its reason.

`tests/interop/apache_servers/test_access_rules_vs_apache.py` records and compares them, and
`tests/form/access_matrix.py` prints them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[2] / "golden" / "apache"

TWICE = "RocketMQ takes the first listing at its start, and the last one after a change; ours allow what both allow"
STRICTER_FILES: dict[str, str] = {
    "a secret that is a list": "how RocketMQ writes a list as a text is its own affair; the account is left out",
    "an account listed twice, the last may less": TWICE,
    "an account listed twice with two secrets": TWICE,
    "admin: 1.5": "a number other than 1 makes nobody an administrator",
}
"""Files that Apache's 4.9.7 let more requests in with, with the reason."""
STRICTER_PATTERNS: dict[str, str] = {
    "fe80::*": "RocketMQ takes the `::` before the range for one part; only what both readings mean is let in",
}
"""Patterns that mean more addresses to Apache's 4.9.7, with the reason."""
SOONER_REVOKED: dict[str, str] = {
    "the account is listed twice, the first may less": TWICE,
    "an empty mapping": "the file says that there are no accounts",
    "a new file is broken, the other revokes": "a broken file holds up no other one",
}
"""Changes after which ours refuse an account that Apache's 4.9.7 still let in, with the reason."""
WARNED_LINES: dict[str, int] = {
    "a permission in small letters": 4,
    "permissions with a comma": 4,
    "an unknown permission": 4,
    "a listed permission in small letters": 5,
    "two signs of equality": 4,
    "keys in other letters": 4,
    "an unknown key": 4,
    "admin: 1": 4,
    "admin: 2": 4,
    "admin as the text Y": 4,
}
"""Files with an oddity that ours warn about, and its line."""


def _recorded(name: str) -> Any:
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))["answers"]


def files() -> dict[str, Any]:
    """Return the decisions of 4.9.7 for each file."""
    return dict(_recorded("access-files-4.9.7"))


def patterns() -> dict[str, Any]:
    """Return the decisions of 4.9.7 for each pattern."""
    return dict(_recorded("access-patterns-4.9.7"))


def changes() -> dict[str, bool]:
    """Return whether 4.9.7 still accepts the account after each change."""
    return dict(_recorded("access-changes-4.9.7"))


def policies() -> dict[str, str]:
    """Return the decision of 5.3.3 by the entries of a policy; `either` where it depends on their order."""
    return dict(_recorded("access-policies-5.3.3"))


def stricter_because(entries: tuple[str, ...]) -> str:
    """Return the reason why ours refuse with entries with which 5.3.3 allows in every order; empty without a reason."""
    resources = [entry.partition("=")[0] for entry in entries]
    if len(set(resources)) < len(resources):
        return "two entries for one resource"
    if any(resource.endswith("*") and len(resource) > len("Topic:*") for resource in resources):
        return "two prefixes"
    return ""
