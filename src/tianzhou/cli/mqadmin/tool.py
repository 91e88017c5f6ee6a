"""`mqadmin NAME …` and `tianzhou admin NAME …`: from the command line to the output."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any, Final

from tianzhou.cli.mqadmin.answers import Answer
from tianzhou.cli.mqadmin.catalogue import every, find
from tianzhou.cli.mqadmin.subcommand import Subcommand, Values
from tianzhou.cli.mqadmin.unsupported import UNSUPPORTED, refusal
from tianzhou.errors import ConfigError

DEFAULT_NAMESRV: Final = "127.0.0.1:9876"
LARGEST_TOOLS_FILE: Final = 64 * 1024
"""Maximum size in bytes of `tools.yml`."""


def run(arguments: Sequence[str], show: Callable[[str], None], warn: Callable[[str], None] = lambda _: None) -> None:
    """Run a sub-command, list all of them, or explain one.

    Args:
        arguments: the arguments after `mqadmin`.
        show: receives each result, one or more lines.
        warn: receives a line for each part of the command line without effect.

    Raises:
        ConfigError: the command line is invalid.
        TianzhouError: a server rejects a request, or cannot be reached.
    """
    words = [word for word in arguments if word]
    if not words or words in (["-h"], ["--help"], ["help"]):
        show(listing())
        return
    if words[0] == "help":
        show(find(words[1]).help)
        return
    command = find(words[0])
    if command.name in UNSUPPORTED:
        if {"-h", "--help"} & set(words):
            show(command.help)
            return
        raise ConfigError(refusal(command.name))
    values = command.parse(words[1:])
    if values.truth("help"):
        show(command.help)
        return
    for warning in values.warnings:
        warn(f"mqadmin {command.name}: warning: {warning}")
    as_json = _wants_json(command, values)

    def shown(answer: Answer) -> None:
        if as_json or answer.text:
            show(_document(answer.value) if as_json else answer.text)

    import asyncio

    asyncio.run(_work(command, values, shown))


def listing() -> str:
    """Return all sub-commands with their summaries."""
    lines = [f"   {one.name.ljust(35)} {one.summary}" for one in every()]
    return "\n".join(
        [
            "Sub-commands of mqadmin, RocketMQ's names and flags:",
            *lines,
            "",
            "mqadmin help NAME explains one. Example: mqadmin clusterList -n 127.0.0.1:9876",
        ]
    )


def _wants_json(command: Subcommand, values: Values) -> bool:
    form = values.get("output", "text")
    if form not in ("text", "json"):
        raise command.wrong(f"--output {form}: expected text or json")
    return values.truth("json") or form == "json"


def _document(value: Any) -> str:
    import json

    from tianzhou.escaping import escaped_json

    return escaped_json(json.dumps(value, ensure_ascii=False, default=str))


async def _work(command: Subcommand, values: Values, shown: Callable[[Answer], None]) -> None:
    import logging

    from tianzhou.admin.admin import Admin

    logging.getLogger("tianzhou.remoting").setLevel(logging.ERROR)
    given = values.get("namesrvAddr") or values.get("nameserverAddr")
    namesrv = given or os.environ.get("TIANZHOU_NAMESRV") or os.environ.get("NAMESRV_ADDR")
    access_key, secret_key = tools_account(os.environ)
    tls = True if values.truth("tls") else None
    admin = Admin(namesrv or DEFAULT_NAMESRV, tls=tls, access_key=access_key, secret_key=secret_key)
    if command.alone:
        await _answers(command.work(admin, values), shown)
        return
    async with admin:
        await _answers(command.work(admin, values), shown)


async def _answers(work: Any, shown: Callable[[Answer], None]) -> None:
    if hasattr(work, "__await__"):
        shown(await work)
        return
    answers: AsyncIterator[Answer] = work
    async for answer in answers:
        shown(answer)


def tools_account(environment: os._Environ[str] | dict[str, str]) -> tuple[str | None, str | None]:
    """Return the account of `$ROCKETMQ_HOME/conf/tools.yml`, which Apache's tools use; None for both without the file.

    Args:
        environment: environment of the process. `TIANZHOU_ACCESS_KEY` in it precedes the file.

    Raises:
        ConfigError: the file exists and contains no account.
    """
    home = environment.get("ROCKETMQ_HOME")
    if not home or environment.get("TIANZHOU_ACCESS_KEY"):
        return None, None
    file = Path(home) / "conf" / "tools.yml"
    try:
        with file.open(encoding="utf-8") as opened:
            text = opened.read(LARGEST_TOOLS_FILE)
    except FileNotFoundError:
        return None, None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}: {error}; it holds accessKey and secretKey, as Apache's tools read them") from error
    found = {}
    for line in text.splitlines():
        name, colon, value = line.partition(":")
        if colon and name.strip() in ("accessKey", "secretKey"):
            found[name.strip()] = value.split(" #")[0].strip().strip("'\"")
    if set(found) != {"accessKey", "secretKey"}:
        raise ConfigError(f"{file}: accessKey or secretKey is missing; write both, as `accessKey: NAME`")
    return found["accessKey"], found["secretKey"]
