"""A start with an ignored setting prints one line for each reason; other starts print none."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tianzhou.broker.ignored_settings import IGNORED
from tianzhou.broker.settings import BrokerSettings
from tianzhou.cli.serving.server_settings import broker_settings
from tianzhou.settings import differing, dump, format_properties, ignored_lines
from tianzhou.store.settings import StoreSettings

Run = Callable[..., tuple[int, str, str]]
THREADS = "one event loop serves everything, there are no pools of threads or buffers to size"


def test_one_line_per_reason_names_the_keys(conf: Any, capsys: pytest.CaptureFixture[str]) -> None:
    path = conf(
        "sendMessageThreadPoolNums=77\npullMessageThreadPoolNums=78\nuseReentrantLockWhenPutMessage=false\n"
        "warmMapedFileEnable=true\npopPollingSize=1\nmaxMessageSize=1000\n"
    )
    broker_settings(path, "")
    assert capsys.readouterr().err.splitlines() == [
        (
            f"warning: {path}: no effect: pullMessageThreadPoolNums, sendMessageThreadPoolNums,"
            f" useReentrantLockWhenPutMessage: {THREADS}"
        ),
        (
            f"warning: {path}: no effect: warmMapedFileEnable: messages go into the mapped file at once, and pages are"
            " prepared ahead in any case"
        ),
        (
            f"warning: {path}: no effect: popPollingSize:"
            " POP consumption and shares decided by the broker (5.x) are not built"
        ),
    ]


def test_defaults_written_out_are_no_reason_for_a_word(conf: Any, capsys: pytest.CaptureFixture[str]) -> None:
    # updateBrokerConfig leaves a file with every key.
    shown = dump(BrokerSettings(), StoreSettings())
    del shown["brokerName"]
    path = conf(format_properties(shown))
    broker_settings(path, "")
    assert capsys.readouterr().err == ""


def test_every_key_without_effect_is_named_when_it_is_set() -> None:
    every = {key for keys in IGNORED.values() for key in keys}
    lines = ignored_lines(every, IGNORED)
    assert len(lines) == len(IGNORED)
    assert {key for line in lines for key in line.split(": ")[1].split(", ")} == every


def test_what_differs_is_what_was_set() -> None:
    assert differing(BrokerSettings(), StoreSettings()) == []
    assert differing(BrokerSettings(pop_polling_size=1), StoreSettings(slave_timeout=1)) == [
        "popPollingSize",
        "slaveTimeout",
    ]


def test_printed_settings_show_what_has_no_effect(conf: Any, run: Run) -> None:
    path = conf("sendMessageThreadPoolNums=77\nmaxMessageSize=1000\n")
    code, out, _ = run("broker", "-c", path, "-p")
    assert code == 0
    lines = out.splitlines()
    assert "sendMessageThreadPoolNums=77" in lines
    assert [line for line in lines if line.startswith("#")] == [f"# no effect, {THREADS}: sendMessageThreadPoolNums"]
    code, out, _ = run("broker", "-c", path, "-p", "-o", "json")
    assert code == 0
    shown = json.loads(out)
    assert shown["maxMessageSize"] == "1000"
    assert shown["withoutEffect"] == {"sendMessageThreadPoolNums": THREADS}


def test_a_name_server_says_it_too(conf: Any, run: Run) -> None:
    path = conf("serverSocketBacklog=5\nlistenPort=9999\n", "namesrv.conf")
    code, out, err = run("namesrv", "-c", path, "-p", "-o", "json")
    reason = "sockets keep the system's sizes, and who does not read is always waited for"
    assert (code, err) == (0, f"warning: {path}: no effect: serverSocketBacklog: {reason}\n")
    assert json.loads(out)["withoutEffect"] == {"serverSocketBacklog": reason}


def test_printed_settings_show_no_password(conf: Any, run: Run, tmp_path: Path) -> None:
    tls = tmp_path / "tls.properties"
    tls.write_text("tls.server.keyPassword=hidden1\n")
    proxy = 'socksProxyConfig={"x": {"addr": "h:1", "password": "hidden3"}}'
    path = conf(
        f"tls.config.file={tls}\ntls.client.keyPassword=hidden2\n{proxy}\nmetricsGrpcExporterHeader=key:hidden4\n"
    )
    for form in ("text", "json"):
        code, out, err = run("broker", "-c", path, "-p", "-o", form)
        assert code == 0
        assert "hidden" not in out + err
        assert out.count("******") == 4
    code, _, err = run("broker", "-c", conf("tls.server.keyPassword=******\n", "again.conf"), "-p")
    assert code == 2
    assert "tls.server.keyPassword=******: stands for a secret where it is shown; write the secret" in err


def test_timers_that_are_requested_are_named_as_missing(conf: Any, capsys: pytest.CaptureFixture[str]) -> None:
    path = conf("timerWheelEnable=true\n")
    broker_settings(path, "")
    assert capsys.readouterr().err == (
        f"warning: {path}: timerWheelEnable=true: this version delivers no messages at arbitrary times (timers) and"
        " refuses those that ask for it; use delay levels\n"
    )
