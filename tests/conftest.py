"""Common hooks of all tests: distribution over two workers, and the list of suites that did not run."""

from __future__ import annotations

import gc
import inspect
import logging
import signal
from collections import defaultdict
from collections.abc import Generator, Iterable, Iterator
from importlib.metadata import entry_points
from types import SimpleNamespace
from typing import Any

import pytest

import property_examples
from open_fixtures import runner_of
from shared_loop import SharedLoop
from sharing import QUICK, WHOLE_FILES, LongFirst, is_spare, step_back
from steady_disk import have_half_empty_disk
from tianzhou._hot import frames, properties, records, sources
from tianzhou.wire import command

# pytest finds it by the entry point of an installed package, which a bare source tree does not have.
pytest_plugins = () if entry_points(group="pytest11", name="tianzhou") else ("tianzhou.testing.plugin",)


LENGTHY = frozenset(
    {
        "test_apache_traps", "test_bad_input", "test_bench_process", "test_delay_deaths", "test_hostile_requests",
        "test_kill_ledger", "test_replica_group", "test_replication_howto",
        "test_serve_process", "test_several_brokers", "test_staging_deaths", "test_store_power_loss",
        "test_testing_howto", "test_transaction_deaths", "test_transaction_kills",
    }
)  # fmt: skip
"""Files that start many processes, kill them, or wait for them: they start before others, and do not run with `./test
--quick`.
"""
NOT_QUICK_ROOMS = ("tests/browser/", "tests/fault/", "tests/scenario/")
NOT_QUICK = frozenset(
    {
        "test_broker_delays", "test_cli_changed_settings", "test_cli_commands", "test_cli_drain", "test_cli_simulate",
        "test_group_simulation", "test_ha_port", "test_held_sends",
        "test_large_answers", "test_needs_of_names", "test_server_client", "test_settings_table", "test_store_opening",
        "test_testing_time", "test_tls",
    }
)  # fmt: skip
"""Files of other rooms that take 20 s and more; `./test --quick` leaves them out, too."""
LONG_RUN_S = 600
"""Total seconds of all tests from which on a run reports its time by room."""
property_examples.register()
have_half_empty_disk()

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # As in a shell's background job. Programs that tests interrupt would inherit it.
    signal.signal(signal.SIGINT, signal.default_int_handler)

WORKER_DIED = 3
"""The exit code of a run in which a worker's process died, because its remaining tests did not run."""
_dead_workers: list[str] = []


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object | None) -> None:
    if error:
        _dead_workers.append(node.gateway.id)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    if _dead_workers:
        session.exitstatus = WORKER_DIED


@pytest.fixture(autouse=True)
def log_levels_are_the_default() -> Iterator[None]:
    """Reset the log levels, because commands that run in the test's process silence some loggers, as for their users.

    Before a test, too: a fixture of its module may have run a command.
    """
    quiet = logging.getLogger("tianzhou.remoting")
    quiet.setLevel(logging.NOTSET)
    yield
    quiet.setLevel(logging.NOTSET)


@pytest.fixture(scope="module")
def shared_loop() -> Iterator[SharedLoop]:
    """Yield one loop in virtual time for all async tests of a module; see `shared_loop`."""
    with SharedLoop() as loop:
        yield loop


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run an async test with the function that `runner_of` returns."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    run = runner_of(pyfuncitem)
    signature = inspect.signature(pyfuncitem.obj).parameters
    run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in signature}))
    return True


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Capture logs in pytest's own format.

    pytest attaches its handlers to loggers that do not propagate, and Spark's loggers give each handler their JSON
    format.
    """
    plugin = item.config.pluginmanager.get_plugin("logging-plugin")
    for handler in (plugin.caplog_handler, plugin.report_handler):
        handler.setFormatter(plugin.formatter)
    return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(call: pytest.CallInfo[None]) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Report a failure without the garbage collector.

    The report parses the sources of the traceback. A collection meanwhile may log the exception of a lost task, which
    parses sources as well. CPython 3.11.2 raises SystemError ("AST constructor recursion depth mismatch") for the outer
    of two parsers, and pytest then ends the whole run.
    """
    if call.excinfo is None:
        return (yield)
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.fixture(scope="module", params=["pure", "compiled"])
def hot(request: pytest.FixtureRequest) -> Iterator[SimpleNamespace]:
    """Yield the hot functions of one twin after the other; `wire.command.split` belongs to that twin meanwhile."""
    if request.param == "pure":
        names = {**vars(properties), **vars(records), **vars(frames)}
    else:
        compiled = pytest.importorskip(sources.MODULE, reason="the compiled twin was not built here")
        if sources.digest() != compiled.SOURCE:
            pytest.skip("the compiled twin was built from other sources")
        names = vars(compiled)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(command, "_split", names["split"])
        yield SimpleNamespace(**names)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of `./test`."""
    group = parser.getgroup("tianzhou")
    group.addoption(
        "--spare-worker", action="store_true", help="the last of -n workers runs quick tests, when others wait"
    )
    group.addoption(
        "--one-twin", action="store_true", help="leave out tests that by themselves try both twins of hot functions"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker `lengthy`; `pyproject.toml` has the markers that occur in files. Lower the priority of the
    spare worker.
    """
    config.addinivalue_line("markers", "lengthy: processes that are killed and waited for, not with ./test --quick")
    worker = getattr(config, "workerinput", None)
    if worker is not None and config.getoption("spare_worker") and is_spare(worker["workerid"], worker["workercount"]):
        step_back()


class FailuresAtOnce:
    """Prints the name of a test as soon as it fails, so that an interrupted run has named it.

    Args:
        reporter: writes to the terminal.
    """

    def __init__(self, reporter: pytest.TerminalReporter) -> None:
        self._reporter = reporter

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not report.failed:
            return
        crash = getattr(report.longrepr, "reprcrash", None)
        why = f": {crash.message.splitlines()[0]}" if crash is not None and crash.message else ""
        self._reporter.ensure_newline()
        self._reporter.write_line(f"failed in {report.when} after {report.duration:.0f} s: {report.nodeid}{why}"[:400])
        self._reporter.flush()


def pytest_sessionstart(session: pytest.Session) -> None:
    """Register the printer of failures in the controlling process, not in workers."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None and not hasattr(session.config, "workerinput"):
        session.config.pluginmanager.register(FailuresAtOnce(reporter))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect tests without the garbage collector, and leave the collected tests out of its later runs.

    A process has 600 000 objects of tests and imported modules, and one full collection of them takes half a second.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.collect()
        gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Order long suites first, so that workers end at about the same time. Mark lengthy tests, so that they can be left
    out.
    """
    if config.getoption("one_twin"):
        config.hook.pytest_deselected(items=[item for item in items if tries_both_twins(item)])
        items[:] = [item for item in items if not tries_both_twins(item)]
    for item in items:
        if item.path.stem in LENGTHY | NOT_QUICK or item.nodeid.startswith(NOT_QUICK_ROOMS):
            item.add_marker("lengthy")
    items.sort(key=place_in_line)


def tries_both_twins(item: pytest.Item) -> bool:
    """Whether a test runs the hot functions of both twins, whichever twin the package uses.

    Such a test has the fixture `hot`, or its module imports the compiled twin as `compiled` to compare the twins.
    """
    return "hot" in getattr(item, "fixturenames", ()) or hasattr(getattr(item, "module", None), "compiled")


def place_in_line(item: pytest.Item) -> int:
    """Return the rank of a test in the run: the longest tests, and tests that wait, come early."""
    for place, room in enumerate(WHOLE_FILES):
        if item.nodeid.startswith(room):
            return place
    if item.path.stem in LENGTHY:
        return len(WHOLE_FILES)
    return len(WHOLE_FILES) + 1 + item.nodeid.startswith(QUICK)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Return the scheduler of the workers, `sharing.LongFirst`."""
    return LongFirst(config, log) if config.getoption("dist") == "loadgroup" else None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the suites that did not run, with the reasons, and the time by room of a long run."""
    left_out: dict[str, set[str]] = defaultdict(set)
    for report in terminalreporter.stats.get("skipped", []):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        left_out[report.nodeid.split("::")[0]].add(reason.removeprefix("Skipped: "))
    expression = config.getoption("-m") or ""
    for name, why in (
        ("slow", "long fault and soak runs: ./test --slow"),
        ("spark", "Spark: ./test without --quick"),
        ("interop", "foreign clients and brokers: ./test without --quick"),
        ("lengthy", "servers as processes, browsers, and what takes long: ./test without --quick"),
    ):
        if f"not {name}" in expression:
            left_out[f"marked {name}"].add(why)
    if left_out:
        terminalreporter.section("suites that did not run")
        for suite, reasons in sorted(left_out.items()):
            for reason in sorted(reasons):
                terminalreporter.write_line(f"{suite}: {reason}")
    taken = seconds_by_room(report for reports in terminalreporter.stats.values() for report in reports)
    if len(taken) > 1 and sum(taken.values()) >= LONG_RUN_S:
        terminalreporter.section("time by room, of all workers")
        for room, seconds in sorted(taken.items(), key=lambda one: -one[1]):
            terminalreporter.write_line(f"{seconds:7.0f} s  {room}")


def seconds_by_room(reports: Iterable[Any]) -> dict[str, float]:
    """Return the duration of the tests of each folder, including their setup."""
    taken: dict[str, float] = defaultdict(float)
    for report in reports:
        if isinstance(report, pytest.TestReport):
            taken["/".join(report.nodeid.split("::")[0].split("/")[:-1][:3])] += report.duration
    return taken
