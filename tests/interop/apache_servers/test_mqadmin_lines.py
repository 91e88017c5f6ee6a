"""The command lines of `mqadmin_lines` end in our mqadmin like in Apache's 5.3.3: text, columns, codes and exit codes.

Apache's tool at Apache's servers answered them all; the answers are recorded (`recorded.py`). Every run feeds the lines
to our tool at our servers, all in this process. `./test --slow` runs Apache's tool again.
"""

from __future__ import annotations

import contextlib
import io
import sys
from pathlib import Path

import pytest
from apache import PATIENT, ApacheBroker, ApacheNamesrv
from mqadmin import Mqadmin
from mqadmin_conversation import is_warm
from mqadmin_line_differences import DIFFERENCES, reason
from mqadmin_lines import DONE, FRESH, REFUSED, USAGE, Line, Outcome, comparable, erased, lines, names, outcome, same
from mqadmin_scene import PREPARED, Scene, scene
from recorded import is_as_recorded, recorded
from servers import Server
from toolchain import SERVERS, ToolchainMissingError

from tianzhou.cli.main import mqadmin
from tianzhou.cli.mqadmin.catalogue import all_names
from tianzhou.cli.mqadmin.tool import run
from tianzhou.testing import Cluster

NAME = f"mqadmin-lines-{SERVERS[0]}"
ENDLESS_S = 8
"""Seconds for the first round of a line that does not end by itself, in Apache's tool."""
_BY_NAME = dict(zip(names(), lines(), strict=True))


def answers_of_apache(folder: Path) -> dict[str, str]:
    """Return the records of Apache's tool at fresh servers of Apache's."""
    namesrv = ApacheNamesrv(home=folder / "namesrv")
    broker = ApacheBroker(namesrv.address, home=folder / "broker", conf=PREPARED)
    try:
        namesrv.start()
        broker.start()
        server = Server("apache", namesrv.address, broker.address, broker.store_dir)
        is_warm(server)
        with Mqadmin(SERVERS[0]) as tools, scene(server, tools.home) as here:
            return {name: _asked(tools, line, here).recorded() for name, line in _BY_NAME.items()}
    finally:
        broker.kill()
        namesrv.kill()


def _asked(tools: Mqadmin, line: Line, here: Scene) -> Outcome:
    here.before(line.command)
    if line.command in FRESH:
        tools.begin_afresh()
    printed = tools.run(*line.words(here.values), limit_s=ENDLESS_S if line.endless else 0)
    if line.endless:
        tools.begin_afresh()
        printed = printed.partition("TIMEOUT after")[0]
    return outcome(line, printed, tools.exit_code, here.places)


class _Enough(Exception):
    """Ends a command line that does not end by itself."""


def own_outcome(line: Line, here: Scene) -> Outcome:
    """Return how our tool ends a command line, which it runs in this process."""
    here.before(line.command)
    words = line.words(here.values)
    told, errors = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    exit_code = 0
    with contextlib.redirect_stdout(told), contextlib.redirect_stderr(errors), pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["mqadmin", *words])
        try:
            if line.endless:
                run(words, _first_answer)
            else:
                mqadmin()
        except _Enough:
            pass
        except SystemExit as ended:
            exit_code = int(ended.code or 0)
    if exit_code == 0:
        return Outcome(0, DONE, "", comparable(line, _content(told), here.places))
    text = _content(errors)
    code = text.partition("CODE: ")[2].split(" ")[0] if "CODE: " in text else ""
    return Outcome(exit_code, USAGE if exit_code == 2 else REFUSED, code, erased(text, here.places))


def _content(stream: io.TextIOWrapper) -> str:
    stream.seek(0)
    return stream.read()


def _first_answer(text: str) -> None:
    print(text)
    raise _Enough


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    """Return how our tool ended the lines at our servers, by the name of the line."""
    home = tmp_path_factory.mktemp("home")
    settings, folder = {**PATIENT, **PREPARED}, tmp_path_factory.mktemp("cluster")
    with (
        pytest.MonkeyPatch.context() as patch,
        Cluster(virtual=False, folder=folder, settings=settings) as cluster,
    ):
        patch.chdir(home)
        for name in ("TIANZHOU_ACCESS_KEY", "ROCKETMQ_HOME", "TIANZHOU_PASSWORD", "TIANZHOU_TLS_ENABLE"):
            patch.delenv(name, raising=False)
        [broker] = cluster.brokers.values()
        server = Server("tianzhou", cluster.namesrv_addr, broker.address, folder / "broker-a" / "store")
        with scene(server, home) as here:
            return {name: own_outcome(line, here) for name, line in _BY_NAME.items()}


@pytest.fixture(scope="module")
def apache() -> dict[str, Outcome]:
    """Return the recorded outcomes of Apache's tool at Apache's servers, by the name of the line."""
    return {name: Outcome.of_record(record) for name, record in recorded(NAME, names()).items()}


@pytest.mark.slow
def test_apaches_tool_ends_the_lines_as_recorded(tmp_path: Path) -> None:
    try:
        live = answers_of_apache(tmp_path)
    except ToolchainMissingError as error:
        pytest.skip(str(error))
    is_as_recorded(NAME, live, source=f"mqadmin {SERVERS[0]} at its own servers", questions=names())


@pytest.mark.parametrize("command", sorted({line.command for line in lines()}))
def test_our_tool_ends_the_lines_as_apaches(ours: dict[str, Outcome], apache: dict[str, Outcome], command: str) -> None:
    for name, line in _BY_NAME.items():
        if line.command == command:
            alike = same(ours[name], apache[name], command)
            known = reason(line)
            assert alike == (known is None), f"{name}\nours: {ours[name]}\nApache's: {apache[name]}\nreason: {known}"


def test_every_sub_command_of_533_has_lines() -> None:
    only_in_497 = {
        "updateAclConfig", "deleteAclConfig", "updateGlobalWhiteAddr", "clusterAclConfigVersion", "getAclConfig",
    }  # fmt: skip
    assert {line.command for line in lines()} == (set(all_names()) - only_in_497) | {"help"}


def test_every_difference_has_its_line() -> None:
    texts = {line.text for line in lines()}
    assert not {text for texts_of in DIFFERENCES.values() for text in texts_of} - texts
