"""Tests of a file, and checks of a suite, that run several at a time: most of their time they wait.

A test marked `at_once` begins when the first such test of its file does, on a thread, `AT_A_TIME` of them at any
moment; pytest reports its result when its turn comes. It works with topics, groups and folders of its own, and may ask
for parameters, for `tmp_path`, and for fixtures of its module or of the session. Names of parametrized fixtures are
arguments of the marker: tests run together that have the same parameters of these.

Checks of a suite of `tests/contract` run on one event loop, before the tests that report them (`outcomes`, `tell`).
"""

from __future__ import annotations

import asyncio
import inspect
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

AT_A_TIME = 3
"""Each may have several processes of foreign peers, and there are two workers."""
CHECKS_AT_A_TIME = 6
"""They are our client alone, and one server."""
CHECK_LIMIT_S = 120
MARKER = "at_once"
FOLDER = "tmp_path"
Check = Callable[[str, Path], Awaitable[None]]
Outcomes = dict[str, BaseException | None]
"""The error of each check that ran, by its name; None if it passed."""


class Together:
    """The tests of one file at a time that run together."""

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self._running: dict[str, Future[None]] = {}

    def run(self, item: pytest.Function) -> bool:
        """Begin with a test and with those that run together with it, unless that has been done; raise its error.

        Returns:
            Whether it has run; False if it needs what cannot be given to it here.
        """
        if item.nodeid not in self._running:
            self.end()
            self._pool = ThreadPoolExecutor(AT_A_TIME)
            for one in _companions(item):
                arguments = _arguments(one, item)
                if arguments is not None:
                    self._running[one.nodeid] = self._pool.submit(_call, one, arguments)
        if item.nodeid not in self._running:
            return False
        self._running[item.nodeid].result()
        return True

    def before(self, item: pytest.Item, following: pytest.Item | None) -> None:
        """End when the tests that run together with one are over: fixtures of their file may be torn down then."""
        if following is None or following.path != item.path or _differ(item, following):
            self.end()

    def end(self) -> None:
        """Wait for those that run, and forget those that have not begun."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
        self._pool = None
        self._running = {}


def _differ(item: pytest.Item, following: pytest.Item) -> bool:
    groups = [_group(one) for one in (item, following) if isinstance(one, pytest.Function)]
    return len({group for group in groups if group is not None}) > 1


def _companions(item: pytest.Function) -> list[pytest.Function]:
    group = _group(item)
    items = [one for one in item.session.items if isinstance(one, pytest.Function) and one.path == item.path]
    return [one for one in items[items.index(item) :] if _group(one) == group]


def _group(item: pytest.Function) -> tuple[object, ...] | None:
    marker = item.get_closest_marker(MARKER)
    return None if marker is None else tuple(_parameters(item).get(name) for name in marker.args)


def _parameters(item: pytest.Function) -> dict[str, Any]:
    return item.callspec.params if hasattr(item, "callspec") else {}


def _direct(item: pytest.Function) -> set[str]:
    """Names of parameters that are no fixtures."""
    names: set[str] = set()
    for marker in item.iter_markers("parametrize"):
        given = marker.args[0]
        names |= {name.strip() for name in given.split(",")} if isinstance(given, str) else set(given)
    return names


def _arguments(item: pytest.Function, first: pytest.Function) -> dict[str, Any] | None:
    """What a test is called with, but for its folder; None if a fixture is missing that its file's first one lacks."""
    direct = _direct(item)
    wanted = [name for name in inspect.signature(item.function).parameters if name != FOLDER]
    if any(name not in direct and name not in first.funcargs for name in wanted):
        return None
    return {name: _parameters(item)[name] if name in direct else first.funcargs[name] for name in wanted}


def _call(item: pytest.Function, arguments: dict[str, Any]) -> None:
    """Call a test, in a folder of its own, which stays if it fails."""
    if FOLDER not in inspect.signature(item.function).parameters:
        item.function(**arguments)
        return
    folder = Path(tempfile.mkdtemp(prefix="at-once-"))
    item.function(**arguments, **{FOLDER: folder})
    shutil.rmtree(folder, ignore_errors=True)


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
    """Run checks on one event loop, `CHECKS_AT_A_TIME` at a time.

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
                async with asyncio.timeout(CHECK_LIMIT_S):
                    await check(namesrv, own)
            except (Exception, pytest.skip.Exception, pytest.fail.Exception) as error:  # noqa: BLE001 - told by the test
                return error
            return None

    async def main() -> Outcomes:
        gate, chosen = asyncio.Semaphore(CHECKS_AT_A_TIME), list(checks)
        found = await asyncio.gather(*(outcome(check, gate) for check in chosen))
        return {check.__name__: error for check, error in zip(chosen, found, strict=True)}

    return asyncio.run(main())


def tell(found: Outcomes, check: Check) -> None:
    """Raise what a check raised."""
    error = found[check.__name__]
    if error is not None:
        raise error
