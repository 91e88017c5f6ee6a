"""Checks of a suite against one server, several at a time: most of their time they wait."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

AT_A_TIME = 8
LIMIT_S = 120
Check = Callable[[str, Path], Awaitable[None]]
Outcomes = dict[str, BaseException | None]
"""The error of each check that ran, by its name; None if it passed."""


def selected(request: pytest.FixtureRequest, **params: object) -> list[Check]:
    """Return the checks that the tests of a file are to run.

    Args:
        request: of a fixture of the file.
        params: other parameters of the tests, which have to have these values.
    """
    found: dict[str, Check] = {}
    for item in request.session.items:
        if item.path != request.path or not isinstance(item, pytest.Function) or not hasattr(item, "callspec"):
            continue
        given: dict[str, Any] = item.callspec.params
        if "check" in given and all(given.get(name) == value for name, value in params.items()):
            found[given["check"].__name__] = given["check"]
    return list(found.values())


def outcomes(checks: Iterable[Check], namesrv: str, folder: Path) -> Outcomes:
    """Run checks on one event loop, `AT_A_TIME` at a time.

    Args:
        checks: each works with topics and groups of its own.
        namesrv: address of the name server.
        folder: gets a folder for each check.
    """

    async def outcome(check: Check, gate: asyncio.Semaphore) -> BaseException | None:
        own = folder / check.__name__
        own.mkdir()
        async with gate:
            try:
                async with asyncio.timeout(LIMIT_S):
                    await check(namesrv, own)
            except (Exception, pytest.skip.Exception, pytest.fail.Exception) as error:  # noqa: BLE001 - told by the test
                return error
            return None

    async def main() -> Outcomes:
        gate, chosen = asyncio.Semaphore(AT_A_TIME), list(checks)
        found = await asyncio.gather(*(outcome(check, gate) for check in chosen))
        return {check.__name__: error for check, error in zip(chosen, found, strict=True)}

    return asyncio.run(main())


def tell(found: Outcomes, check: Check) -> None:
    """Raise what a check raised."""
    error = found[check.__name__]
    if error is not None:
        raise error
