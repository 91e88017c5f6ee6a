"""Tests of a file, and checks of a suite, that run several at a time because they mostly wait.

A test marked `at_once` starts on a thread together with the first such test of its file, `AT_A_TIME` of them at any
moment. pytest reports its result in the usual order of tests. The test uses its own topics, groups and folders. It may
request parameters, `tmp_path`, and fixtures of its module or of the session. The arguments of the marker are names of
parametrized fixtures: tests with the same parameters of these fixtures run together.

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
"""Few, because each test may start several processes of foreign peers, and two workers run tests."""
CHECKS_AT_A_TIME = 6
"""More than tests, because checks share one server and start only our client."""
CHECK_LIMIT_S = 120
MARKER = "at_once"
FOLDER = "tmp_path"
Check = Callable[[str, Path], Awaitable[None]]
Outcomes = dict[str, BaseException | None]
"""The error of each finished check, by the check's name; None if the check passed."""


class Together:
    """Runner of one group of tests, all of one file, that run together."""

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self._running: dict[str, Future[None]] = {}

    def run(self, item: pytest.Function) -> bool:
        """Start a test and its companions unless they have started, wait for the test, and raise its error.

        Returns:
            Whether the test has run; False if the runner cannot supply a fixture that the test needs.
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
        """End the group after its last test, because pytest may then tear down the fixtures of the file."""
        if following is None or following.path != item.path or _differ(item, following):
            self.end()

    def end(self) -> None:
        """Wait for the running tests, and cancel the tests that have not started."""
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
    """Return the names of the test's parameters that are no fixtures."""
    names: set[str] = set()
    for marker in item.iter_markers("parametrize"):
        given = marker.args[0]
        names |= {name.strip() for name in given.split(",")} if isinstance(given, str) else set(given)
    return names


def _arguments(item: pytest.Function, first: pytest.Function) -> dict[str, Any] | None:
    """Return a test's arguments except its folder; None if the group's first test lacks one of its fixtures."""
    direct = _direct(item)
    wanted = [name for name in inspect.signature(item.function).parameters if name != FOLDER]
    if any(name not in direct and name not in first.funcargs for name in wanted):
        return None
    return {name: _parameters(item)[name] if name in direct else first.funcargs[name] for name in wanted}


def _call(item: pytest.Function, arguments: dict[str, Any]) -> None:
    """Call a test in its own folder, which remains if the test fails."""
    if FOLDER not in inspect.signature(item.function).parameters:
        item.function(**arguments)
        return
    folder = Path(tempfile.mkdtemp(prefix="at-once-"))
    item.function(**arguments, **{FOLDER: folder})
    shutil.rmtree(folder, ignore_errors=True)


def selected(request: pytest.FixtureRequest, **params: object) -> list[Check]:
    """Return the checks that the selected tests of a file report.

    Args:
        request: request of a fixture of the file.
        params: values that other parameters of the tests must have.
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
        checks: the checks; each uses its own topics and groups.
        namesrv: address of the name server.
        folder: parent of the folder of each check.
    """

    async def outcome(check: Check, gate: asyncio.Semaphore) -> BaseException | None:
        own = folder / check.__name__
        own.mkdir()
        async with gate:
            try:
                async with asyncio.timeout(CHECK_LIMIT_S):
                    await check(namesrv, own)
            except (Exception, pytest.skip.Exception, pytest.fail.Exception) as error:  # noqa: BLE001 - see `tell`
                return error
            return None

    async def main() -> Outcomes:
        gate, chosen = asyncio.Semaphore(CHECKS_AT_A_TIME), list(checks)
        found = await asyncio.gather(*(outcome(check, gate) for check in chosen))
        return {check.__name__: error for check, error in zip(chosen, found, strict=True)}

    return asyncio.run(main())


def tell(found: Outcomes, check: Check) -> None:
    """Raise the error of a check, if the check failed."""
    error = found[check.__name__]
    if error is not None:
        raise error
