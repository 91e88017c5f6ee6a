"""Access control of the measured broker: its initial settings, its users, and the account of the load tool."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

NAME, SECRET = "benchmark-account", "benchmark-secret"
SIGNS: Final = f" -A {NAME}:{SECRET}"
"""Options of the load tool."""
_ROOT, _ROOT_SECRET = "benchmark-root", "benchmark-root-secret"
_OTHERS: Final = 100
"""Number of further topics the account may use, so that rule look-ups search a table of realistic size."""


def settings(access: str, folder: Path) -> dict[str, object]:
    """Return the entries of `broker.conf`.

    Args:
        access: `accounts` in a file as in RocketMQ 4.x, `users` with policies as in 5.3, or empty for none.
        folder: folder of the accounts file.
    """
    if access == "accounts":
        topics = ["BenchmarkTest=PUB", *(f"topic{number}=PUB|SUB" for number in range(_OTHERS))]
        account = {"accessKey": NAME, "secretKey": SECRET, "defaultTopicPerm": "DENY", "topicPerms": topics}
        file = folder / "plain_acl.yml"
        file.touch(mode=0o600)
        file.write_text(json.dumps({"accounts": [account]}))
        return {"aclEnable": "true", "aclConfigPath": file}
    if access == "users":
        root = json.dumps({"username": _ROOT, "password": _ROOT_SECRET})
        return {"authenticationEnabled": "true", "authorizationEnabled": "true", "initAuthenticationUser": root}
    return {}


def make_users(port: int) -> None:
    """Create the user that the load tool signs as, and its policies, at a broker with the settings of `users`."""
    _tianzhou(port, "users", "create", NAME)
    topics = [f"Topic:topic{number}" for number in range(_OTHERS)]
    resources = [part for topic in ("Topic:Benchmark*", *topics) for part in ("--resource", topic)]
    _tianzhou(port, "acl", "set", NAME, *resources, "--action", "Pub")


def _tianzhou(port: int, *arguments: str) -> None:
    signs = {"TIANZHOU_ACCESS_KEY": _ROOT, "TIANZHOU_SECRET_KEY": _ROOT_SECRET, "TIANZHOU_PASSWORD": SECRET}
    command = [sys.executable, "-m", "tianzhou", *arguments, "-b", f"127.0.0.1:{port}"]
    subprocess.run(command, check=True, timeout=60, env={**os.environ, **signs}, stdout=subprocess.DEVNULL)
